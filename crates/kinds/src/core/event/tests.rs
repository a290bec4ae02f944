//! What upstream says about Events.

use serde_json::json;

use crate::strategy;

#[test]
fn an_event_is_judged_in_the_words_of_its_group() {
    let event = json!({"metadata": {"name": "e", "namespace": "n"}, "involvedObject": {"namespace": "n"},
        "eventTime": "2024-01-01T00:00:00.000000Z", "reportingInstance": "i", "action": "a", "reason": "r", "type": "Normal"});
    let strategy = strategy("", "Event");
    for (version, field) in [("v1", "reportingComponent"), ("events.k8s.io/v1", "reportingController")] {
        for old in [None, Some(&event)] {
            let errors = strategy.validate_version(version, &event, old);
            assert_eq!(errors[0].to_string(), format!("{field}: Required value"), "{version}");
        }
    }
}

#[test]
fn what_an_event_loses_is_shown_as_empty() {
    let event = json!({"metadata": {"name": "e", "namespace": "n"}, "involvedObject": {"namespace": "n"}, "reason": "r", "action": "a",
        "eventTime": "2024-01-01T00:00:00.000000Z", "reportingComponent": "a.b/c", "reportingInstance": "i", "type": "Normal"});
    let mut bare = event.clone();
    bare.as_object_mut().expect("an object").remove("action");
    let errors = strategy("", "Event").validate_version("events.k8s.io/v1", &bare, Some(&event));
    let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(lines, ["action: Required value", "action: Invalid value: \"\": field is immutable"]);
}
