//! Resources that are asked and answered, and never stored: access reviews, self reviews, component statuses.

use std::sync::Arc;

use gates::Exchange;
use gates::authorization::{Attributes, Decision, Selectors};
use http::StatusCode;
use machinery::rest::{Body, Response, User};
use machinery::selector::field::FieldSelector;
use machinery::selector::label::{LabelSelector, Operator, Requirement};
use machinery::status::{ApiError, FieldError};
use machinery::{Value, value};
use rest::{read_review, user_info, value_response};
use serde_json::json;

use crate::components;
use crate::router::Router;

pub async fn answer(
    router: &Router,
    facts: &facts::Resource,
    exchange: &Exchange,
    body: Body,
) -> Result<Response, ApiError> {
    let Exchange { info, user, .. } = exchange;
    match (&*facts.kind, info.verb) {
        ("ComponentStatus", "list") => {
            let items = components::NAMES.into_iter().map(|name| components::status(router, name));
            let items: Vec<Value> = futures::future::join_all(items).await;
            let list = json!({"kind": "ComponentStatusList", "apiVersion": "v1", "metadata": {}, "items": items});
            return Ok(value_response(StatusCode::OK, list));
        }
        ("ComponentStatus", "get") if components::NAMES.contains(&info.name.as_str()) => {
            let mut status = components::status(router, &info.name).await;
            status["kind"] = json!("ComponentStatus");
            status["apiVersion"] = json!("v1");
            return Ok(value_response(StatusCode::OK, status));
        }
        ("ComponentStatus", "get") => {
            // Upstream calls it by its singular here.
            let resource = machinery::gvk::GroupResource::new("", "componentstatus");
            return Err(ApiError::not_found(&resource, &info.name));
        }
        _ => {}
    }
    let now = router.api.now();
    let mut review = read_review(facts, exchange, body, &now).await?;
    review["status"] = match &*facts.kind {
        "SelfSubjectAccessReview" | "SubjectAccessReview" | "LocalSubjectAccessReview" => {
            access(router, &facts.kind, &review, exchange).await?
        }
        "SelfSubjectRulesReview" => {
            let found = rules(router, &review, user)?;
            review["spec"] = json!({});
            review["metadata"] = json!({});
            found
        }
        "TokenReview" => token(router, exchange, &review).await?,
        "SelfSubjectReview" => {
            review["metadata"] = json!({"creationTimestamp": now});
            json!({"userInfo": user_info(user)})
        }
        _ => return Err(ApiError::no_such_path()),
    };
    value::set_default(&mut review, "metadata", json!({}));
    Ok(value_response(StatusCode::CREATED, review))
}

async fn access(router: &Router, kind: &str, review: &Value, exchange: &Exchange) -> Result<Value, ApiError> {
    let errors = invalid(kind, review);
    if !errors.is_empty() {
        // Upstream names no kind here.
        return Err(ApiError::invalid("authorization.k8s.io", "", "", &errors));
    }
    let subject = if kind == "SelfSubjectAccessReview" { exchange.user.clone() } else { subject(review) };
    let (selectors, wrong) = selectors(review);
    let attributes = attributes(&subject, review, &selectors).within(exchange.trace);
    let verdict = router.authorizers.authorize(&attributes).await;
    let mut status = json!({"allowed": verdict.allows()});
    if verdict.decision == Decision::Deny {
        status["denied"] = json!(true);
    }
    if !verdict.reason().is_empty() {
        status["reason"] = json!(verdict.reason());
    }
    if !wrong.is_empty() {
        status["evaluationError"] = json!(wrong.join(", "));
    }
    Ok(status)
}

/// Everything wrong with an access review.
fn invalid(kind: &str, review: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let resource = value::at(review, "spec.resourceAttributes").filter(|tree| !tree.is_null());
    let path = value::at(review, "spec.nonResourceAttributes").filter(|tree| !tree.is_null());
    // Shown as upstream's own type has it.
    let shown = |path: &Value| json!({"Path": value::text(path, "path"), "Verb": value::text(path, "verb")});
    if resource.is_some() == path.is_some() {
        let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        errors.push(FieldError::invalid("spec", path.map(shown).unwrap_or_default(), why));
    }
    if kind != "SelfSubjectAccessReview" {
        let groups = value::list(review, "spec.groups");
        if value::text(review, "spec.user").is_empty() && groups.is_empty() {
            errors.push(FieldError::invalid("spec.user", "", "at least one of user or group must be specified"));
        }
    }
    for selector in ["fieldSelector", "labelSelector"] {
        let at = format!("spec.resourceAttributes.{selector}");
        let Some(tree) = value::at(review, &at).filter(|tree| tree.is_object()) else { continue };
        let raw = value::text(tree, "rawSelector");
        match (raw.is_empty(), value::list(tree, "requirements").is_empty()) {
            (false, false) => {
                let why = "may not specified at the same time as requirements";
                errors.push(FieldError::invalid(format!("{at}.rawSelector"), raw, why));
            }
            (true, true) => {
                let why = format!("when {at} is specified, requirements or rawSelector is required");
                errors.push(FieldError::required(format!("{at}.requirements"), why));
            }
            _ => {}
        }
        for (index, one) in value::list(tree, "requirements").iter().enumerate() {
            let at = format!("{at}.requirements[{index}]");
            let key = value::text(one, "key");
            if selector == "fieldSelector" && key.is_empty() {
                errors.push(FieldError::required(format!("{at}.key"), "must be specified"));
            }
            match (value::text(one, "operator"), value::list(one, "values").is_empty()) {
                ("In" | "NotIn", true) => {
                    let why = "must be specified when `operator` is 'In' or 'NotIn'";
                    errors.push(FieldError::required(format!("{at}.values"), why));
                }
                ("Exists" | "DoesNotExist", false) => {
                    let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                    errors.push(FieldError::forbidden(format!("{at}.values"), why));
                }
                // An operator of a later version is not this one's to judge.
                _ => {}
            }
            if selector == "labelSelector" {
                let wrong = machinery::names::is_qualified_name(key).into_iter();
                errors.extend(wrong.map(|why| FieldError::invalid(format!("{at}.key"), key, why)));
            }
        }
    }
    let allowed: &[&str] =
        if kind == "LocalSubjectAccessReview" { &["namespace", "managedFields"] } else { &["managedFields"] };
    let metadata = review.get("metadata").and_then(Value::as_object);
    let has_more =
        metadata.into_iter().flatten().any(|(key, text)| !allowed.contains(&key.as_str()) && !text.is_null());
    if has_more {
        let why =
            if kind == "LocalSubjectAccessReview" { "must be empty except for namespace" } else { "must be empty" };
        errors.push(FieldError::invalid("metadata", review["metadata"].clone(), why));
    }
    if kind == "LocalSubjectAccessReview" {
        let asked = value::text(review, "spec.resourceAttributes.namespace");
        if resource.is_some() && asked != value::text(review, "metadata.namespace") {
            let why = "must match metadata.namespace";
            errors.push(FieldError::invalid("spec.resourceAttributes.namespace", asked, why));
        }
        if let Some(path) = path {
            let why = "disallowed on this kind of request";
            errors.push(FieldError::invalid("spec.nonResourceAttributes", shown(path), why));
        }
    }
    errors
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
        extra: extra.map(|(key, values)| (key.to_ascii_lowercase(), strings(values))).collect(),
    })
}

/// What a review asks about.
fn attributes<'a>(user: &'a User, review: &'a Value, selectors: &'a Selectors) -> Attributes<'a> {
    let text = |field: &str| value::at(review, "spec.resourceAttributes").map_or("", |tree| value::text(tree, field));
    let path = value::at(review, "spec.nonResourceAttributes").filter(|tree| tree.is_object());
    Attributes {
        user,
        verb: path.map_or_else(|| text("verb"), |path| value::text(path, "verb")),
        is_resource: path.is_none(),
        group: text("group"),
        version: if text("version").is_empty() { "*" } else { text("version") },
        namespace: text("namespace"),
        resource: text("resource"),
        subresource: text("subresource"),
        name: text("name"),
        path: path.map_or("", |path| value::text(path, "path")),
        selectors: Some(selectors),
        trace: hops::Context::NONE,
    }
}

/// The selectors of a review. What cannot be read narrows nothing, and is reported.
fn selectors(review: &Value) -> (Selectors, Vec<String>) {
    let mut wrong = Vec::new();
    let mut selectors = Selectors::default();
    let at = |path: &str| value::at(review, &format!("spec.resourceAttributes.{path}"));
    match at("fieldSelector.rawSelector").and_then(Value::as_str).filter(|raw| !raw.is_empty()) {
        Some(raw) => match FieldSelector::parse(raw) {
            Ok(fields) => selectors.fields = Some(fields),
            Err(error) => wrong.push(error),
        },
        None => {
            let list = at("fieldSelector.requirements").and_then(Value::as_array);
            let terms: Vec<String> = list.into_iter().flatten().filter_map(|one| field(one, &mut wrong)).collect();
            selectors.fields = FieldSelector::parse(&terms.join(",")).ok().filter(|fields| !fields.is_empty());
        }
    }
    match at("labelSelector.rawSelector").and_then(Value::as_str).filter(|raw| !raw.is_empty()) {
        Some(raw) => match LabelSelector::parse(raw) {
            Ok(labels) => selectors.labels = Some(labels),
            Err(error) => wrong.push(error),
        },
        None => {
            let list = at("labelSelector.requirements").and_then(Value::as_array);
            let read: Vec<Requirement> = list.into_iter().flatten().filter_map(|one| label(one, &mut wrong)).collect();
            selectors.labels = (!read.is_empty()).then(|| LabelSelector::new(read));
        }
    }
    (selectors, wrong)
}

fn field(one: &Value, wrong: &mut Vec<String>) -> Option<String> {
    let values = value::list(one, "values");
    let key = value::text(one, "key");
    let sign = match (value::text(one, "operator"), values) {
        (_, [_, _, ..]) => {
            wrong.push("fieldSelectors do not yet support multiple values".to_owned());
            return None;
        }
        ("In", [_]) => "=",
        ("NotIn", [_]) => "!=",
        ("In", _) => {
            wrong.push("fieldSelectors in must have one value".to_owned());
            return None;
        }
        ("NotIn", _) => {
            wrong.push("fieldSelectors not in must have one value".to_owned());
            return None;
        }
        (operator @ ("Exists" | "DoesNotExist"), _) => {
            wrong.push(format!("fieldSelectors do not yet support {operator}"));
            return None;
        }
        (operator, _) => {
            wrong.push(format!("{operator:?} is not a valid field selector operator"));
            return None;
        }
    };
    let text = values.first().and_then(Value::as_str).unwrap_or_default();
    let escaped = text.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=");
    Some(format!("{key}{sign}{escaped}"))
}

fn label(one: &Value, wrong: &mut Vec<String>) -> Option<Requirement> {
    let operator = match value::text(one, "operator") {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        other => {
            wrong.push(format!("{other:?} is not a valid label selector operator"));
            return None;
        }
    };
    let values = value::list(one, "values").iter().filter_map(Value::as_str).map(str::to_owned).collect();
    match Requirement::new(value::text(one, "key").to_owned(), operator, values) {
        Ok(requirement) => Some(requirement),
        Err(error) => {
            wrong.push(error);
            None
        }
    }
}

fn rules(router: &Router, review: &Value, user: &User) -> Result<Value, ApiError> {
    let namespace = value::text(review, "spec.namespace");
    if namespace.is_empty() {
        return Err(ApiError::bad_request("no namespace on request"));
    }
    let found = router.authorizers.rules(user, namespace);
    let list = |urls: bool| -> Vec<Value> {
        let mut seen = Vec::new();
        for rule in
            found.rules.iter().filter(|rule| if urls { !rule.urls.is_empty() } else { !rule.resources.is_empty() })
        {
            seen.push(rule.to_value());
        }
        seen
    };
    let mut status =
        json!({"resourceRules": list(false), "nonResourceRules": list(true), "incomplete": found.incomplete});
    match found.errors.as_slice() {
        [] => {}
        [one] => status["evaluationError"] = json!(one),
        several => status["evaluationError"] = json!(format!("[{}]", several.join(", "))),
    }
    Ok(status)
}

/// Whose token is it?
async fn token(router: &Router, exchange: &Exchange, review: &Value) -> Result<Value, ApiError> {
    let token = value::text(review, "spec.token");
    if token.is_empty() {
        return Err(ApiError::bad_request("token is required for TokenReview in authentication"));
    }
    let asked =
        value::list(review, "spec.audiences").iter().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>();
    let audiences = if asked.is_empty() { router.api.service_accounts.audiences().to_vec() } else { asked };
    Ok(match router.authenticator.token(token, &audiences, &exchange.notes).await {
        Ok(Some(known)) => json!({"authenticated": true, "user": user_info(&known.user), "audiences": known.audiences}),
        Ok(None) => json!({"user": {}, "error": "invalid bearer token"}),
        Err(error) => json!({"user": {}, "error": error}),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_read_and_what_cannot_be_is_told() {
        let review = json!({"spec": {"resourceAttributes": {
            "fieldSelector": {"requirements": [
                {"key": "spec.nodeName", "operator": "In", "values": ["a,b"]},
                {"key": "x", "operator": "Exists"}]},
            "labelSelector": {"rawSelector": "app=web"},
        }}});
        let (selectors, wrong) = selectors(&review);
        assert!(selectors.require("spec.nodeName", "a,b"));
        assert_eq!(selectors.labels.map(|labels| labels.to_string()).as_deref(), Some("app=web"));
        assert_eq!(wrong, ["fieldSelectors do not yet support Exists"]);
    }

    #[test]
    fn reviews_that_ask_nothing_or_both_are_invalid() {
        let check = |kind: &str, review: Value, expect: &[&str]| {
            let found: Vec<String> = invalid(kind, &review).iter().map(|error| error.path.clone()).collect();
            assert_eq!(found, expect, "{kind} {review}");
        };
        check("SelfSubjectAccessReview", json!({"spec": {}}), &["spec"]);
        check("SubjectAccessReview", json!({"spec": {"resourceAttributes": {}}}), &["spec.user"]);
        check(
            "SubjectAccessReview",
            json!({"spec": {"user": "u", "resourceAttributes": {}, "nonResourceAttributes": {}}}),
            &["spec"],
        );
        check(
            "LocalSubjectAccessReview",
            json!({"metadata": {"namespace": "a"}, "spec": {"user": "u", "resourceAttributes": {"namespace": "b"}}}),
            &["spec.resourceAttributes.namespace"],
        );
        check(
            "SelfSubjectAccessReview",
            json!({"metadata": {"name": "x"}, "spec": {"resourceAttributes": {}}}),
            &["metadata"],
        );
    }
}
