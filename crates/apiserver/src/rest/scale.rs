//! The scale subresource: one shape over everything that has replicas.

use http::StatusCode;
use machinery::patch::{json, merge};
use machinery::rest::{Body, Response};
use machinery::selector::label::LabelSelector;
use machinery::status::{ApiError, FieldError, Reason};
use machinery::{Value, value};
use serde_json::json;

use super::body::{check_kind, media_type, read_value};
use super::options::WriteOptions;
use super::update::{Part, Produced};
use super::{Api, Call, value_response};

impl Api {
    /// Get, update or patch of `scale`.
    pub(super) async fn scale(&self, call: &Call<'_>, body: Body) -> Result<Response, ApiError> {
        if call.info.verb == "get" {
            let object = self.read(call.resource, &call.key()).await?.ok_or_else(|| call.not_found())?;
            return Ok(value_response(StatusCode::OK, scale_of(&object.to_value())));
        }
        let kind = if call.info.verb == "patch" { "PatchOptions" } else { "UpdateOptions" };
        let options = WriteOptions::parse(call.query, kind)?;
        let media = if call.info.verb == "patch" { media_type(call.headers).to_owned() } else { String::new() };
        let headers = if call.info.verb == "patch" { &http::HeaderMap::new() } else { call.headers };
        let (input, _) = read_value(headers, body).await?;
        let changed = self
            .replace(call, Part::Main, &options, |old, _| {
                let mut scale = scale_of(old);
                match media.as_str() {
                    "" => scale = input.clone(),
                    "application/json-patch+json" => json::apply(&mut scale, &input).map_err(ApiError::from)?,
                    "application/merge-patch+json" | "application/strategic-merge-patch+json" => {
                        merge::apply(&mut scale, input.clone());
                    }
                    _ => return Err(ApiError::new(Reason::UnsupportedMediaType, "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json")),
                }
                check_kind(&mut scale, "autoscaling", "v1", "Scale")?;
                let replicas = value::int(&scale, "spec.replicas").unwrap_or(0);
                if replicas < 0 {
                    let error = FieldError::invalid("spec.replicas", replicas, "must be greater than or equal to 0");
                    return Err(ApiError::invalid("autoscaling", "Scale", &call.info.name, &[error]));
                }
                let mut new = old.clone();
                let version = value::text(&scale, "metadata.resourceVersion").to_owned();
                value::set(&mut new, "metadata.resourceVersion", version);
                let uid = value::text(&scale, "metadata.uid").to_owned();
                if !uid.is_empty() {
                    value::set(&mut new, "metadata.uid", uid);
                }
                value::set(&mut new, "spec.replicas", replicas);
                Ok(Produced::written(new))
            })
            .await?;
        let object = changed.ok_or_else(|| call.not_found())?.object();
        Ok(value_response(StatusCode::OK, scale_of(&object.to_value())))
    }
}

/// An object's scale.
pub fn scale_of(object: &Value) -> Value {
    let metadata = |key: &str| value::at(object, &format!("metadata.{key}")).cloned().unwrap_or(Value::Null);
    let selector = match value::at(object, "spec.selector") {
        // A ReplicationController's selector is a plain map of labels.
        Some(Value::Object(labels)) if value::text(object, "kind") == "ReplicationController" => {
            LabelSelector::from_labels(
                labels.iter().map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default())),
            )
            .to_string()
        }
        Some(selector) => LabelSelector::from_value(selector).map(|selector| selector.to_string()).unwrap_or_default(),
        None => String::new(),
    };
    let mut status = json!({"replicas": value::int(object, "status.replicas").unwrap_or(0)});
    if !selector.is_empty() {
        status["selector"] = json!(selector);
    }
    let mut spec = json!({});
    if let Some(replicas) = value::int(object, "spec.replicas").filter(|replicas| *replicas != 0) {
        spec["replicas"] = json!(replicas);
    }
    json!({
        "apiVersion": "autoscaling/v1", "kind": "Scale",
        "metadata": {
            "name": metadata("name"), "namespace": metadata("namespace"), "uid": metadata("uid"),
            "resourceVersion": metadata("resourceVersion"), "creationTimestamp": metadata("creationTimestamp"),
        },
        "spec": spec, "status": status,
    })
}
