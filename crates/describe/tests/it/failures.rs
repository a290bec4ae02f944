//! What is said when a read fails: some failures are shown, some are passed on, and some do not matter.

use describe::{Answers, Failure, Settings};
use serde_json::{Value, json};

/// Describes an object of which every read of a resource in `failing` fails for this reason; the others find nothing.
fn describe(group: &str, object: &Value, failing: &[&str], reason: &str, show_events: bool) -> Result<String, String> {
    let describer = describe::describer(group, object["kind"].as_str().expect("a kind"));
    let mut answers = Answers::default();
    for read in describer.reads(object, show_events) {
        let fails = failing.iter().any(|resource| read.path(0).contains(&format!("/{resource}")));
        let failure = Failure { reason: reason.to_owned(), message: "not today".to_owned() };
        answers.insert(read, if fails { Err(failure) } else { Ok(json!({"items": []})) });
    }
    let now = "2026-01-02T03:04:05Z".parse().expect("a time");
    let settings = Settings { show_events, now, zone: jiff::tz::TimeZone::UTC };
    describer.text(object, &answers, &settings).map_err(|error| error.to_string())
}

fn object(kind: &str) -> Value {
    json!({"kind": kind, "metadata": {"name": "x", "namespace": "n", "uid": "u"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {}}})
}

#[test]
fn pods_of_a_node_that_may_not_be_seen_are_not_authorized() {
    let node = json!({"kind": "Node", "metadata": {"name": "x"}});
    let text = describe("", &node, &["pods"], "Forbidden", true).expect("a description");
    assert!(text.contains("Pods:                         not authorized\n"), "{text}");
    assert_eq!(describe("", &node, &["pods"], "InternalError", true), Err("not today".to_owned()));
}

#[test]
fn a_controller_without_its_pods_cannot_be_described_but_a_replica_set_can() {
    for (group, kind) in [("apps", "StatefulSet"), ("apps", "DaemonSet"), ("", "ReplicationController")] {
        let mut it = object(kind);
        if kind == "ReplicationController" {
            it["spec"]["selector"] = json!({"a": "b"});
        }
        assert_eq!(describe(group, &it, &["pods"], "Forbidden", true), Err("not today".to_owned()), "{kind}");
    }
    let text = describe("apps", &object("ReplicaSet"), &["pods"], "Forbidden", true).expect("a description");
    assert!(text.contains("Pods Status:  error in fetching pods: not today\n"), "{text}");
    let text = describe("apps", &object("Deployment"), &["replicasets"], "Forbidden", true).expect("a description");
    assert!(!text.contains("OldReplicaSets"), "{text}");
}

#[test]
fn lists_that_are_not_found_say_what_was_looked_for() {
    let wrong = describe("apps", &object("StatefulSet"), &["pods"], "NotFound", true);
    let expect = "Unable to find \"pods\" that match label selector \"a=b\", field selector \"\": not today";
    assert_eq!(wrong, Err(expect.to_owned()));
    let wrong = describe("", &object("PersistentVolumeClaim"), &["pods"], "BadRequest", true);
    assert_eq!(wrong, Err("Unable to list \"pods\": not today".to_owned()));
}

#[test]
fn a_server_without_quotas_shows_none() {
    let namespace = json!({"kind": "Namespace", "metadata": {"name": "x"}});
    let text = describe("", &namespace, &["resourcequotas"], "NotFound", true).expect("a description");
    assert!(!text.contains("No resource quota.") && text.contains("No LimitRange resource."), "{text}");
}

#[test]
fn events_that_cannot_be_read_matter_to_config_maps_alone() {
    let text = describe("apps", &object("Deployment"), &["events"], "Forbidden", true).expect("a description");
    let last: Vec<&str> = text.lines().last().unwrap_or_default().split_whitespace().collect();
    assert_eq!(last, ["Events:", "<none>"], "{text}");
    let map = json!({"kind": "ConfigMap", "metadata": {"name": "x"}});
    assert_eq!(describe("", &map, &["events"], "Forbidden", true), Err("not today".to_owned()));
}

#[test]
fn events_are_left_out_when_nobody_wants_them() {
    for (group, kind) in [("", "Pod"), ("apps", "Deployment"), ("", "ConfigMap"), ("example.com", "Gadget")] {
        let text = describe(group, &object(kind), &["events"], "Forbidden", false).expect("a description");
        assert!(!text.contains("Events"), "{text}");
    }
}
