//! TokenRequest: a token for a service account, bound to a pod, a secret or a node.

use gates::authentication::service_accounts::Claims;
use http::StatusCode;
use machinery::gvk::{GroupResource, GroupVersion};
use machinery::rest::{Body, Response};
use machinery::status::{ApiError, FieldError};
use machinery::{Value, time, value};
use serde_json::json;

use crate::verbs::body::read_request;
use crate::verbs::{Api, Call, value_response};

const MIN_SECONDS: i64 = 600;
const MAX_SECONDS: i64 = 1 << 32;
/// Mounted tokens ask for this; they live a year, and their use after it is warned about, as upstream's.
const WARN_ONLY_SECONDS: i64 = 3607;
const EXTENDED_SECONDS: i64 = 365 * 24 * 3600;

impl Api {
    pub(super) async fn request_token(&self, call: &Call<'_>, body: Body) -> Result<Response, ApiError> {
        let kind = ("authentication.k8s.io", "v1", "TokenRequest");
        let mut request = read_request(call.exchange, body, kind).await?;
        self.check_namespace(call, &mut request)?;
        let account = self.read(call.resource, &call.key()).await?;
        let account = account.ok_or_else(|| self.no_account(call))?.to_value();
        self.check_request(call, &request, &account)?;
        self.admit_request(call, &mut request, false).await?;
        value::set_default(&mut request, "spec.expirationSeconds", 3600);
        let mut asked = value::int(&request, "spec.expirationSeconds").unwrap_or(3600);
        let mut errors = Vec::new();
        if asked < MIN_SECONDS {
            let detail = "may not specify a duration less than 10 minutes";
            errors.push(FieldError::invalid("spec.expirationSeconds", asked, detail));
        }
        if asked > MAX_SECONDS {
            let detail = "may not specify a duration larger than 2^32 seconds";
            errors.push(FieldError::invalid("spec.expirationSeconds", asked, detail));
        }
        if !errors.is_empty() {
            return Err(ApiError::invalid("authentication.k8s.io", "TokenRequest", "", &errors));
        }
        let mut audiences: Vec<String> =
            value::list(&request, "spec.audiences").iter().filter_map(Value::as_str).map(str::to_owned).collect();
        if audiences.is_empty() {
            audiences.extend_from_slice(self.service_accounts.audiences());
            value::set(&mut request, "spec.audiences", audiences.clone());
        }
        let bound = self.bound_object(call, &request).await?;
        // Written even where there is none, as upstream writes it.
        if bound.is_none() {
            value::set(&mut request, "spec.boundObjectRef", Value::Null);
        }
        let node = match &bound {
            Some(("pod", pod)) => self.node_of(pod),
            _ => None,
        };
        let ours = audiences.iter().any(|audience| self.service_accounts.audiences().contains(audience));
        let settings = self.service_accounts.settings();
        if let Some(longest) = settings.longest.filter(|longest| asked > *longest) {
            let why = format!("requested expiration of {asked} seconds shortened to {longest} seconds");
            call.exchange.notes.warn(why);
            asked = longest;
            value::set(&mut request, "spec.expirationSeconds", asked);
        }
        let pod = matches!(bound, Some(("pod", _)));
        let extended = settings.extends && asked == WARN_ONLY_SECONDS && ours && pod;
        let claims = Claims {
            account: &account,
            bound,
            node,
            audiences,
            seconds: if extended { EXTENDED_SECONDS } else { asked },
            warn_after: extended.then_some(asked),
        };
        let now = (self.clock)();
        let token = self.service_accounts.issue(&claims).map_err(ApiError::internal)?;
        let expires = now.checked_add(jiff::SignedDuration::from_secs(asked)).unwrap_or(now);
        for field in ["name", "namespace", "uid"] {
            let path = format!("metadata.{field}");
            let text = value::text(&account, &path).to_owned();
            value::set(&mut request, &path, text);
        }
        value::set(&mut request, "metadata.creationTimestamp", time::format(now));
        value::set(&mut request, "status", json!({"token": token, "expirationTimestamp": time::format(expires)}));
        Ok(value_response(StatusCode::CREATED, request))
    }

    /// Who is not there: the account, or its whole namespace.
    fn no_account(&self, call: &Call<'_>) -> ApiError {
        let namespaces = self.registry.stored("", "namespaces");
        match namespaces.filter(|namespaces| namespaces.cache.get(&call.info.namespace).is_none()) {
            Some(namespaces) => ApiError::not_found(&namespaces.name, &call.info.namespace),
            None => call.not_found(),
        }
    }

    fn check_request(&self, call: &Call<'_>, request: &Value, account: &Value) -> Result<(), ApiError> {
        let invalid = |path: &str, given: &str, why: &str| {
            let error = FieldError::invalid(path, given, why);
            Err(ApiError::invalid("authentication.k8s.io", "TokenRequest", &call.info.name, &[error]))
        };
        let given = |field: &str| value::text(request, field);
        let name = given("metadata.name");
        if !name.is_empty() && name != call.info.name {
            return invalid("metadata.name", name, "must match the service account name if specified");
        }
        let (asked, own) = (given("metadata.uid"), value::text(account, "metadata.uid"));
        if !asked.is_empty() && asked != own {
            let subject = GroupResource::new("authentication.k8s.io", "TokenRequest");
            let why =
                format!("the UID in the token request ({asked}) does not match the UID of the service account ({own})");
            return Err(ApiError::conflict(&subject, &call.info.name, &why));
        }
        Ok(())
    }

    /// The object that the token shall live and die with.
    async fn bound_object(&self, call: &Call<'_>, request: &Value) -> Result<Option<(&'static str, Value)>, ApiError> {
        let Some(reference) = value::at(request, "spec.boundObjectRef").filter(|reference| reference.is_object())
        else {
            return Ok(None);
        };
        let kind = value::text(reference, "kind");
        let group = GroupVersion::parse(value::text(reference, "apiVersion")).map(|parsed| parsed.group);
        let (claim, plural) = match (group.as_deref(), kind) {
            (Some("") | None, "Pod") => ("pod", "pods"),
            (Some("") | None, "Secret") => ("secret", "secrets"),
            (Some("") | None, "Node") => ("node", "nodes"),
            _ => {
                let version = value::text(reference, "apiVersion");
                // The core group is the empty text before a slash.
                let slash = if version.contains('/') { "" } else { "/" };
                return Err(ApiError::bad_request(format!(
                    "cannot bind token to object of type {slash}{version}, Kind={kind}"
                )));
            }
        };
        let name = value::text(reference, "name");
        if name.is_empty() {
            return Err(ApiError::bad_request("Name parameter required."));
        }
        let resource = self.registry.stored("", plural).ok_or_else(ApiError::no_such_path)?;
        let namespace = if plural == "nodes" { "" } else { &call.info.namespace };
        let object = self.read(resource, &resource.key(namespace, name)).await?;
        let object = object.ok_or_else(|| ApiError::not_found(&resource.name, name))?.to_value();
        if claim == "pod" && value::text(&object, "spec.serviceAccountName") != call.info.name {
            return Err(ApiError::bad_request(format!(
                "cannot bind token for serviceaccount {:?} to pod running with different serviceaccount name.",
                call.info.name
            )));
        }
        let (asked, own) = (value::text(reference, "uid"), value::text(&object, "metadata.uid"));
        if !asked.is_empty() && asked != own {
            let why = format!(
                "the UID in the bound object reference ({asked}) does not match the UID in record. The object might have been deleted and then recreated"
            );
            return Err(ApiError::conflict(&GroupResource::new("", kind), name, &why));
        }
        Ok(Some((claim, object)))
    }

    /// The node a pod is on; its name alone when the node is not known.
    fn node_of(&self, pod: &Value) -> Option<Value> {
        let name = value::text(pod, "spec.nodeName");
        if name.is_empty() {
            return None;
        }
        let nodes = self.registry.stored("", "nodes")?;
        Some(nodes.cache.get(name).map_or_else(|| json!({"metadata": {"name": name}}), |node| node.to_value()))
    }
}
