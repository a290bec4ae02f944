//! Subresources that are not plain reads and writes of the object.

use http::StatusCode;
use machinery::gvk::GroupResource;
use machinery::rest::{Body, Response};
use machinery::status::{ApiError, FieldError};
use machinery::{Value, value};
use serde_json::json;

use super::body::read_request;
use super::options::WriteOptions;
use super::storage::Change;
use super::update::{Part, Produced, keep};
use super::{Api, Call, object_response, value_response};

impl Api {
    /// Answers a request to a subresource of a stored object.
    pub(super) async fn serve_subresource(&self, call: &Call<'_>, body: Body) -> Result<Response, ApiError> {
        let group = call.resource.name.group.as_str();
        match (group, call.resource.name.resource.as_str(), call.info.subresource.as_str(), call.info.verb) {
            (_, _, "scale", _) => self.scale(call, body).await,
            ("", "pods", "binding", "create") => self.bind(call, body).await,
            ("", "pods", "eviction", "create") => super::eviction::evict(self, call, body).await,
            ("", "serviceaccounts", "token", "create") => self.request_token(call, body).await,
            (_, _, _, "get") => self.get(call).await,
            (_, _, "status", "update") => self.update(call, body).await,
            (_, _, "status", "patch") => self.patch(call, body).await,
            ("", "namespaces", "finalize", "update") => self.finalize(call, body).await,
            ("", "pods", "ephemeralcontainers", "update" | "patch")
            | ("", "pods", "resize", "update" | "patch")
            | ("certificates.k8s.io", "certificatesigningrequests", "approval", "update" | "patch") => {
                if call.info.verb == "update" { self.update(call, body).await } else { self.patch(call, body).await }
            }
            _ => Err(ApiError::no_such_path()),
        }
    }

    /// Puts a pod on a node: the scheduler's one write.
    async fn bind(&self, call: &Call<'_>, body: Body) -> Result<Response, ApiError> {
        let options = WriteOptions::parse(call.query, "CreateOptions")?;
        let mut binding = read_request(call.headers, call.query, body, ("", "v1", "Binding")).await?;
        let node = value::text(&binding, "target.name").to_owned();
        let mut errors = Vec::new();
        let kind = value::text(&binding, "target.kind");
        if !kind.is_empty() && kind != "Node" {
            errors.push(FieldError::not_supported("target.kind", kind, ["Node", "<empty>"]));
        }
        if node.is_empty() {
            errors.push(FieldError::required("target.name", ""));
        }
        if !errors.is_empty() {
            return Err(ApiError::invalid("", "Binding", &call.info.name, &errors));
        }
        self.admit_request(call, &mut binding, options.dry_run).await?;
        let subject = GroupResource::new("", "pods/binding");
        let refuse = |why: &str| ApiError::conflict(&subject, &call.info.name, why);
        let uid = value::text(&binding, "metadata.uid").to_owned();
        let now = self.now();
        let changed = self
            .change(call.resource, &call.key(), options.dry_run, |old, object| {
                let name = &object.meta().name;
                if !uid.is_empty() && *uid != *object.meta().uid {
                    let why = format!(
                        "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                        object.meta().uid
                    );
                    return Err(refuse(&why));
                }
                if object.meta().deleting {
                    return Err(refuse(&format!("pod {name} is being deleted, cannot be assigned to a host")));
                }
                let assigned = value::text(old, "spec.nodeName");
                if !assigned.is_empty() {
                    return Err(refuse(&format!("pod {name} is already assigned to node {assigned:?}")));
                }
                if !value::list(old, "spec.schedulingGates").is_empty() {
                    return Err(refuse(&format!("pod {name} has non-empty .spec.schedulingGates")));
                }
                Ok(Change::Put(bound(old, &binding, &node, &now)))
            })
            .await?;
        changed.ok_or_else(|| call.not_found())?;
        let success = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
        Ok(value_response(StatusCode::CREATED, success))
    }

    /// Changes a namespace's own finalizers; when the last one goes from a namespace on its way out, so does it.
    async fn finalize(&self, call: &Call<'_>, body: Body) -> Result<Response, ApiError> {
        let options = WriteOptions::parse(call.query, "UpdateOptions")?;
        let input = self.read_object(call, body, &options).await?;
        self.check_name(call, &input)?;
        let changed = self
            .replace(call, Part::Direct, &options, |old, _| {
                let mut new = old.clone();
                keep(&mut new, &input, "spec.finalizers");
                let version = value::text(&input, "metadata.resourceVersion").to_owned();
                value::set(&mut new, "metadata.resourceVersion", version);
                Ok(Produced::written(new))
            })
            .await?;
        Ok(object_response(StatusCode::OK, changed.ok_or_else(|| call.not_found())?.object()))
    }
}

/// The pod, on the node.
fn bound(old: &Value, binding: &Value, node: &str, now: &str) -> Value {
    let mut pod = old.clone();
    value::set(&mut pod, "spec.nodeName", node);
    for kind in ["annotations", "labels"] {
        let path = format!("metadata.{kind}");
        for (key, text) in value::at(binding, &path).and_then(Value::as_object).into_iter().flatten() {
            value::object_mut(value::at_mut(&mut pod, "metadata").expect("every stored object has metadata"), kind)
                .insert(key.clone(), text.clone());
        }
    }
    let mut conditions = value::list(&pod, "status.conditions").to_vec();
    conditions.retain(|condition| value::text(condition, "type") != "PodScheduled");
    conditions.push(json!({
        "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now,
    }));
    value::set(&mut pod, "status.conditions", conditions);
    // A nomination was for a place that is now decided.
    value::remove(&mut pod, "status.nominatedNodeName");
    pod
}
