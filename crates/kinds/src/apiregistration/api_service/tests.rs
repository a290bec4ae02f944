use serde_json::json;

use super::*;

fn service(change: impl FnOnce(&mut Value)) -> Value {
    let mut object = json!({
        "metadata": {"name": "v1.wardle.example.com", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"group": "wardle.example.com", "version": "v1", "groupPriorityMinimum": 2000, "versionPriority": 200,
            "service": {"namespace": "n", "name": "s"}},
    });
    ApiServices.default(&mut object);
    change(&mut object);
    object
}

fn check(change: impl FnOnce(&mut Value), expect: &[&str]) {
    let object = service(change);
    let errors: Vec<String> =
        ApiServices.validate(&object).iter().map(|error| format!("{}: {}", error.path, error.body())).collect();
    assert_eq!(errors, expect, "{object}");
}

#[test]
fn registrations_are_validated_in_upstreams_words() {
    check(|_| {}, &[]);
    check(
        |object| {
            object["metadata"]["name"] = json!("v1beta1.");
            object["spec"]["version"] = json!("v1beta1");
            object["spec"]["group"] = json!("");
        },
        &["spec.group: Required value: only v1 may have an empty group and it better be legacy kube"],
    );
    check(
        |object| object["metadata"]["name"] = json!("other"),
        &[
            "metadata.name: Invalid value: \"other\": must be `spec.version+\".\"+spec.group`: \"v1.wardle.example.com\"",
        ],
    );
    check(
        |object| object["spec"]["groupPriorityMinimum"] = json!(20_001),
        &["spec.groupPriorityMinimum: Invalid value: 20001: must be positive and less than 20000"],
    );
    check(
        |object| {
            object["spec"]["service"] = Value::Null;
            object["spec"]["caBundle"] = json!(STANDARD.encode("abcde"));
            object["spec"]["insecureSkipTLSVerify"] = json!(true);
        },
        &[
            "spec.caBundle: Invalid value: \"5 bytes\": local APIServices may not have a caBundle",
            "spec.insecureSkipTLSVerify: Invalid value: true: local APIServices may not have insecureSkipTLSVerify",
        ],
    );
    check(
        |object| object["spec"]["service"]["port"] = json!(70_000),
        &["spec.service.port: Invalid value: 70000: port is not valid: must be between 1 and 65535, inclusive"],
    );
}

#[test]
fn a_status_says_true_false_or_unknown() {
    let new = service(|object| {
        object["status"] = json!({"conditions": [{"type": "Available", "status": "Perhaps"}]});
    });
    let errors = ApiServices.validate_status_update(&new, &Value::Null);
    assert_eq!(errors.len(), 1);
    assert_eq!(errors[0].body(), "Unsupported value: \"Perhaps\": supported values: \"False\", \"True\", \"Unknown\"");
}

#[test]
fn only_what_this_server_has_itself_is_available_from_the_beginning() {
    let mut remote = service(|_| {});
    ApiServices.prepare_for_create(&mut remote);
    assert_eq!(remote["status"], json!({}));
    let mut local = service(|object| object["spec"]["service"] = Value::Null);
    ApiServices.prepare_for_create(&mut local);
    let condition = &local["status"]["conditions"][0];
    assert_eq!(
        (&condition["reason"], &condition["message"]),
        (&json!("Local"), &json!("Local APIServices are always available"))
    );
}
