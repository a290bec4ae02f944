//! What upstream says about Jobs.

use machinery::Value;
use serde_json::json;

use crate::strategy;
use crate::testing::{change, said};

#[test]
fn a_job_that_waits_may_have_other_metadata_in_its_template() {
    let job = |suspend: bool, image: &str, label: &str| {
        json!({"metadata": {"name": "j", "uid": "u"}, "spec": {
            "suspend": suspend, "manualSelector": true, "selector": {"matchLabels": {"a": "b"}}, "completions": 1,
            "template": {
                "metadata": {"labels": {"a": "b", "c": label}},
                "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": image}]},
            },
        }})
    };
    let filled = |mut job: Value| {
        strategy("batch", "Job").default(&mut job);
        job
    };
    let changes = |suspend: bool, image: &str, label: &str| {
        said("batch", "Job", job(suspend, image, label), Some(&filled(job(suspend, "i", "d"))))
    };
    assert_eq!(changes(true, "i", "other"), Vec::<String>::new());
    let waiting = changes(true, "other", "other");
    assert!(
        waiting.len() == 1 && waiting[0].starts_with("spec.template.spec: Invalid value: {\"Volumes\":null,"),
        "{waiting:?}"
    );
    let running = changes(false, "i", "other");
    let start = "spec.template: Invalid value: {\"labels\":{\"a\":\"b\",\"c\":\"other\"},\"Spec\":{\"Volumes\":null,";
    assert!(running.len() == 1 && running[0].starts_with(start), "{running:?}");
}

#[test]
fn a_job_without_labels_has_those_of_its_pods() {
    let strategy = strategy("batch", "Job");
    let made = |labels: Value| {
        let mut job = json!({"metadata": {"name": "j", "labels": labels}, "spec": {
            "template": {"metadata": {"labels": {"app": "x"}}, "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}},
        }});
        strategy.default(&mut job);
        let taken = strategy.take_labels(&mut job);
        let written = job["metadata"]["labels"].clone();
        job["metadata"]["uid"] = json!("u");
        if taken {
            strategy.return_labels(&mut job);
        }
        strategy.prepare_for_create(&mut job);
        (written, job["metadata"]["labels"].take(), job["spec"]["template"]["metadata"]["labels"].take())
    };
    let (written, kept, of_pods) = made(Value::Null);
    assert_eq!(written, json!({"app": "x"}), "its author is said to have written them");
    assert_eq!(kept, of_pods, "and it has what its pods have in the end");
    assert_eq!(kept["batch.kubernetes.io/job-name"], "j");
    let own = json!({"app": "x"});
    assert_eq!(made(own.clone()).1, own, "labels of its own stay, even if they are the same");
}

#[test]
fn a_waiting_job_may_be_told_where_to_run() {
    let job = |affinity: Value| {
        let mut job = json!({"metadata": {"name": "j", "uid": "u"}, "spec": {"suspend": true, "selector": {"matchLabels": {"a": "b"}},
            "manualSelector": true, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {
                "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}],
            }},
        }});
        if !affinity.is_null() {
            job["spec"]["template"]["spec"]["affinity"] = affinity;
        }
        strategy("batch", "Job").default(&mut job);
        job
    };
    let nodes = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
    ]}}});
    for (old, new) in
        [(Value::Null, json!({})), (json!({}), Value::Null), (Value::Null, nodes.clone()), (nodes, Value::Null)]
    {
        change("batch", "Job", job(old), job(new), &[]);
    }
    let pods = json!({"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}});
    assert_eq!(
        said("batch", "Job", job(pods), Some(&job(Value::Null))).len(),
        1,
        "where other pods are is not for later"
    );
}
