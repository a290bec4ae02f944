//! Resources that are asked and answered, and never stored: access reviews, self reviews, component statuses, bindings.

use std::sync::Arc;

use http::{HeaderMap, StatusCode};
use machinery::rest::{Body, Response, User};
use machinery::status::ApiError;
use machinery::{Value, value};
use serde_json::json;

use crate::gates::Chain;
use crate::gates::authorization::{Attributes, Verdict};
use crate::rest::{read_value, value_response};
use crate::route::RequestInfo;

/// Answers one.
pub async fn answer(
    chain: &Chain,
    facts: &facts::Resource,
    info: &RequestInfo,
    headers: &HeaderMap,
    user: &Arc<User>,
    body: Body,
) -> Result<Response, ApiError> {
    match (&*facts.kind, info.verb) {
        ("ComponentStatus", "list") => {
            let items: Vec<Value> = ["controller-manager", "scheduler", "etcd-0"].into_iter().map(component).collect();
            let list = json!({"kind": "ComponentStatusList", "apiVersion": "v1", "metadata": {}, "items": items});
            return Ok(value_response(StatusCode::OK, list));
        }
        ("ComponentStatus", "get") => {
            return if ["controller-manager", "scheduler", "etcd-0"].contains(&info.name.as_str()) {
                Ok(value_response(StatusCode::OK, component(&info.name)))
            } else {
                let resource = machinery::gvk::GroupResource::new("", "componentstatuses");
                Err(ApiError::not_found(&resource, &info.name))
            };
        }
        _ => {}
    }
    let (mut review, _) = read_value(headers, body).await?;
    crate::rest::check_kind(&mut review, &facts.group, &facts.version, &facts.kind)?;
    match &*facts.kind {
        "SelfSubjectAccessReview" | "SubjectAccessReview" | "LocalSubjectAccessReview" => {
            let subject = if facts.kind == "SelfSubjectAccessReview" { user.clone() } else { subject(&review) };
            let asked = asked(&review)?;
            let verdict = chain.authorizer.authorize(&Attributes { user: &subject, info: &asked });
            let status = match verdict {
                Verdict::Allow => json!({"allowed": true}),
                Verdict::Deny(_) => json!({"allowed": false, "denied": true}),
                Verdict::NoOpinion(_) => json!({"allowed": false}),
            };
            review["status"] = status;
        }
        "SelfSubjectReview" => {
            review["status"] = json!({"userInfo": user_info(user)});
        }
        _ => return Err(ApiError::no_such_path()),
    }
    value::set_default(&mut review, "metadata", json!({}));
    Ok(value_response(StatusCode::CREATED, review))
}

fn component(name: &str) -> Value {
    json!({
        "kind": "ComponentStatus", "apiVersion": "v1", "metadata": {"name": name},
        "conditions": [{"type": "Healthy", "status": "True", "message": "ok"}],
    })
}

/// Whom a review asks about.
fn subject(review: &Value) -> Arc<User> {
    let strings = |tree: &Value| -> Vec<String> {
        tree.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let extra = review["spec"]["extra"].as_object().into_iter().flatten();
    Arc::new(User {
        name: value::text(review, "spec.user").to_owned(),
        uid: value::text(review, "spec.uid").to_owned(),
        groups: strings(&review["spec"]["groups"]),
        extra: extra.map(|(key, values)| (key.clone(), strings(values))).collect(),
    })
}

/// What a review asks about.
fn asked(review: &Value) -> Result<RequestInfo, ApiError> {
    let text = |path: &str| value::text(review, path).to_owned();
    let resource = value::at(review, "spec.resourceAttributes").is_some();
    let path = value::at(review, "spec.nonResourceAttributes").is_some();
    if resource == path {
        let kind = value::text(review, "kind");
        let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        let error = machinery::status::FieldError::invalid("spec.resourceAttributes", Value::Null, why);
        return Err(ApiError::invalid("authorization.k8s.io", kind, "", &[error]));
    }
    let verb = text(if resource { "spec.resourceAttributes.verb" } else { "spec.nonResourceAttributes.verb" });
    Ok(RequestInfo {
        is_resource: resource,
        verb: intern(&verb),
        path: text("spec.nonResourceAttributes.path"),
        group: text("spec.resourceAttributes.group"),
        version: text("spec.resourceAttributes.version"),
        namespace: text("spec.resourceAttributes.namespace"),
        resource: text("spec.resourceAttributes.resource"),
        subresource: text("spec.resourceAttributes.subresource"),
        name: text("spec.resourceAttributes.name"),
        ..RequestInfo::default()
    })
}

/// The verbs rules name; any other verb is granted only by `*`, for which all unknown verbs are alike.
fn intern(verb: &str) -> &'static str {
    const VERBS: [&str; 19] = [
        "get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "proxy", "bind", "escalate",
        "impersonate", "approve", "sign", "attest", "use", "post", "put", "head",
    ];
    VERBS.into_iter().find(|known| *known == verb).unwrap_or("\u{0}other")
}

fn user_info(user: &User) -> Value {
    let mut info = json!({"username": user.name, "groups": user.groups});
    if !user.uid.is_empty() {
        info["uid"] = json!(user.uid);
    }
    if !user.extra.is_empty() {
        info["extra"] = json!(user.extra);
    }
    info
}
