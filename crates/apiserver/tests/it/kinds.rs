//! What holds for all kinds, shown on an object of each: `kinds.yaml`.

use machinery::codec::{Limits, yaml};
use machinery::{Value, value};
use serde_json::json;

use crate::server::Server;

/// An object, and where it is made.
pub struct Sample {
    /// The path of its collection.
    pub path: String,
    pub name: String,
    pub object: Value,
    /// Whether it has a status of its own.
    pub has_status: bool,
}

/// At least one of every kind that is served by default and kept.
pub fn samples() -> Vec<Sample> {
    let documents = include_str!("kinds.yaml").split("\n---\n");
    documents.map(|text| sample(yaml::decode(text.as_bytes(), Limits::default()).expect("YAML").value)).collect()
}

/// What is known of its kind.
pub fn facts_of(object: &Value) -> &'static facts::Resource {
    let (group, version) = value::text(object, "apiVersion").rsplit_once('/').unwrap_or(("", "v1"));
    facts::kind(group, version, value::text(object, "kind")).expect("a built-in kind")
}

fn sample(object: Value) -> Sample {
    let facts = facts_of(&object);
    let root = if facts.group.is_empty() { "/api" } else { "/apis" };
    let space = if facts.namespaced { value::text(&object, "metadata.namespace") } else { "" };
    let space = if space.is_empty() { String::new() } else { format!("/namespaces/{space}") };
    Sample {
        path: format!("{root}/{}{space}/{}", facts.api_version(), facts.plural),
        name: value::text(&object, "metadata.name").to_owned(),
        has_status: facts.subresource("status").is_some(),
        object,
    }
}

#[test]
fn there_is_a_sample_of_every_kind() {
    let known: Vec<*const facts::Resource> =
        samples().iter().map(|sample| &raw const *facts_of(&sample.object)).collect();
    let served = facts::groups().iter().flat_map(|group| &group.versions).filter(|version| version.default_on);
    let kept = served
        .flat_map(|version| &version.resources)
        .filter(|facts| facts.verbs.has("create") && facts.verbs.has("get"));
    for facts in kept {
        assert!(known.contains(&(&raw const *facts)), "no sample of {} {}", facts.api_version(), facts.kind);
    }
}

/// Every kind is made by apply, and applying the same again is no news to anybody.
#[tokio::test]
async fn applying_the_same_again_changes_nothing() {
    // A new node gets a taint that nobody applied.
    let server = Server::start(|config, _| {
        config.admission =
            apiserver::admission::Settings::parse("", "TaintNodesByCondition").expect("the name of a plug-in");
    })
    .await;
    for Sample { path, name, object, .. } in samples() {
        let target = format!("{path}/{name}?fieldManager=m");
        let body = object.to_string();
        let made = server.patch(&target, "application/apply-patch+yaml", &body).await;
        assert_eq!(made.status, 201, "{path}/{name}: {}", made.text());
        let again = server.patch(&target, "application/apply-patch+yaml", &body).await;
        assert_eq!(again.status, 200, "{path}/{name}: {}", again.text());
        let (mut again, mut made) = (again.json(), made.json());
        let judged = ["/flowschemas", "/apiservices", "/customresourcedefinitions"];
        if judged.iter().any(|plural| path.ends_with(plural)) {
            // The server itself says in the status whether it can be used, as soon as it sees the object, and is recorded as the one who
            // said it.
            for object in [&mut again, &mut made] {
                object["status"].take();
                object["metadata"]["resourceVersion"].take();
                let records = object["metadata"]["managedFields"].as_array_mut().expect("a record of owners");
                records.retain(|record| record["manager"] != "kube-apiserver");
            }
        }
        assert_eq!(again, made, "{path}/{name}");
    }
    server.stop().await;
}

/// What `metadata.generation` counts, kind by kind: the change of a wish that it counts (or not), and what it counts besides.
/// Kinds that are not here say nothing of generations.
const GENERATIONS: &[(&str, &str, &str)] = &[
    ("CronJob", "spec", r#"{"spec": {"suspend": false}}"#),
    ("CSIDriver", "late spec", r#"{"spec": {"requiresRepublish": false}}"#),
    ("CustomResourceDefinition", "spec", r#"{"spec": {"names": {"categories": ["some"]}}}"#),
    ("DaemonSet", "spec", r#"{"spec": {"minReadySeconds": 3}}"#),
    ("Deployment", "spec annotations", r#"{"spec": {"replicas": 3}}"#),
    ("DeviceClass", "spec", r#"{"spec": {"extendedResourceName": "example.com/other"}}"#),
    ("DeviceTaintRule", "spec", r#"{"spec": {"taint": {"value": "other"}}}"#),
    ("EndpointSlice", "spec labels", r#"{"ports": [{"name": "http", "port": 81}]}"#),
    ("FlowSchema", "spec", r#"{"spec": {"matchingPrecedence": 900}}"#),
    ("HorizontalPodAutoscaler", "spec", r#"{"spec": {"maxReplicas": 9}}"#),
    ("Ingress", "spec", r#"{"spec": {"ingressClassName": "other"}}"#),
    ("IngressClass", "spec", r#"{"spec": {"parameters": {"kind": "Other"}}}"#),
    ("Job", "spec", r#"{"spec": {"suspend": true, "activeDeadlineSeconds": 77}}"#),
    ("MutatingAdmissionPolicy", "spec", r#"{"spec": {"failurePolicy": "Fail"}}"#),
    ("MutatingAdmissionPolicyBinding", "spec", r#"{"spec": {"matchResources": {"matchPolicy": "Exact"}}}"#),
    ("MutatingWebhookConfiguration", "spec", r#"{"webhooks": []}"#),
    ("NetworkPolicy", "spec", r#"{"spec": {"podSelector": {"matchLabels": {"a": "other"}}}}"#),
    ("Pod", "spec", r#"{"spec": {"activeDeadlineSeconds": 50}}"#),
    ("PodDisruptionBudget", "spec", r#"{"spec": {"selector": {"matchLabels": {"a": "other"}}}}"#),
    ("PodTemplate", "spec", r#"{"template": {"metadata": {"labels": {"a": "other"}}}}"#),
    ("PriorityClass", "", r#"{"description": "other"}"#),
    ("PriorityLevelConfiguration", "spec", r#"{"spec": {"limited": {"nominalConcurrencyShares": 9}}}"#),
    ("ReplicaSet", "spec", r#"{"spec": {"replicas": 3}}"#),
    ("ReplicationController", "spec", r#"{"spec": {"replicas": 3}}"#),
    ("ResourceSlice", "spec", r#"{"spec": {"pool": {"generation": 2}}}"#),
    ("StatefulSet", "spec", r#"{"spec": {"replicas": 3}}"#),
    ("ValidatingAdmissionPolicy", "spec", r#"{"spec": {"failurePolicy": "Ignore"}}"#),
    ("ValidatingAdmissionPolicyBinding", "spec", r#"{"spec": {"validationActions": ["Deny"]}}"#),
    ("ValidatingWebhookConfiguration", "spec", r#"{"webhooks": []}"#),
];

/// The generation of an answer; 0 for none.
fn generation(answer: &crate::http::Answer) -> i64 {
    answer.json()["metadata"]["generation"].as_i64().unwrap_or(0)
}

#[tokio::test]
async fn generations_count_what_each_kind_counts() {
    const MERGE: &str = "application/merge-patch+json";
    let server = Server::default().await;
    for Sample { path, name, object, .. } in samples() {
        let kind = value::text(&object, "kind").to_owned();
        let rule = GENERATIONS.iter().find(|(known, ..)| *known == kind);
        let made = server.post(&path, &object).await;
        assert!(matches!(made.status, 201 | 409), "{kind} {name}: {}", made.text());
        let at = format!("{path}/{name}");
        let mut expected = i64::from(rule.is_some_and(|(_, counted, _)| !counted.starts_with("late")));
        if made.status == 201 {
            assert_eq!(generation(&made), expected, "{kind} {name} at its beginning");
        }
        let counts = |what: &str| rule.is_some_and(|(_, counted, _)| counted.split(' ').any(|counted| counted == what));
        let metadata = |what: &str| format!(r#"{{"metadata": {{"{what}": {{"example.com/new": "x"}}}}}}"#);
        for what in ["annotations", "labels"] {
            let changed = server.patch(&at, MERGE, &metadata(what)).await;
            assert_eq!(changed.status, 200, "{kind} {name}: {}", changed.text());
            expected += i64::from(counts(what));
            assert_eq!(generation(&changed), expected, "{kind} {name} with other {what}");
        }
        if let Some((_, _, wish)) = rule {
            let changed = server.patch(&at, MERGE, wish).await;
            assert_eq!(changed.status, 200, "{kind} {name}: {}", changed.text());
            expected += i64::from(counts("spec"));
            assert_eq!(generation(&changed), expected, "{kind} {name} with another wish");
            let held = server.patch(&at, MERGE, r#"{"metadata": {"finalizers": ["example.com/held"]}}"#).await;
            assert_eq!(generation(&held), expected, "{kind} {name}: {}", held.text());
            let going = server.send(http::Method::DELETE, &at, &[], "").await;
            assert_eq!(generation(&going), expected + 1, "{kind} {name} on its way out: {}", going.text());
        }
    }
    server.stop().await;
}

/// Whoever counts from a negative number does not count what happened.
#[tokio::test]
async fn a_negative_generation_is_refused() {
    let server = Server::default().await;
    let negative = json!({"metadata": {"name": "odd", "generation": -1}});
    let refused = server.post("/api/v1/namespaces", &negative).await;
    let words = "metadata.generation: Invalid value: -1: must be greater than or equal to 0";
    assert_eq!(refused.status, 422, "{}", refused.text());
    assert!(refused.message().contains(words), "{}", refused.message());
    server.stop().await;
}
