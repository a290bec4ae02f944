//! What upstream says about kinds of this group.

use machinery::Value;
use serde_json::json;

use crate::resource::device_class::DeviceClasses;
use crate::resource::device_taint_rule::DeviceTaintRules;
use crate::resource::resource_claim::Claims;
use crate::strategy::Strategy;
use crate::testing::create;

#[test]
fn selectors_of_devices_cost_no_more_than_they_may() {
    let class = |expression: &str| json!({"metadata": {"name": "c"}, "spec": {"selectors": [{"cel": {"expression": expression}}]}});
    for fine in [
        "cel.bind(d, device.attributes[\"d.example.com\"], d.a && d.b)",
        "device.attributes.all(d, device.attributes.all(e, device.attributes.all(f, d == e && e == f)))",
        "device.attributes[\"d\"].x.matches(\"^a.*$\") && device.capacity[\"d\"].mem == quantity(\"1Gi\")",
    ] {
        create("resource.k8s.io", "DeviceClass", class(fine), &[]);
    }
    let at = "spec.selectors[0].cel.expression";
    for costly in [
        "device.attributes.all(d, device.attributes.all(e, device.attributes.all(f, device.attributes.all(g, true))))",
        "device.attributes.all(d, device.attributes.all(e, device.attributes.exists(f, d.contains(e))))",
        "lists.range(1000).all(x, lists.range(1000).all(y, x == y))",
    ] {
        let refused = format!("{at}: Forbidden: too complex, exceeds cost limit");
        create("resource.k8s.io", "DeviceClass", class(costly), &[&refused]);
    }
    let unknown = "device.attributes[\"d\"].x.foo";
    let refused = format!(
        "{at}: Invalid value: \"device.attributes[\\\"d\\\"].x.foo\": must evaluate to bool or the unknown type, not dyn"
    );
    create("resource.k8s.io", "DeviceClass", class(unknown), &[&refused]);
}

fn check(strategy: &dyn Strategy, mut object: Value, expected: &[&str]) {
    strategy.default(&mut object);
    let found: Vec<String> = strategy.validate(&object).iter().map(ToString::to_string).collect();
    assert_eq!(found, expected, "{object}");
}

fn claim(devices: Value) -> Value {
    json!({"metadata": {"name": "c"}, "spec": {"devices": devices}})
}

#[test]
fn claims_ask_for_devices_that_can_be_meant() {
    check(&Claims, claim(json!({"requests": [{"name": "a", "exactly": {"deviceClassName": "gpu"}}]})), &[]);
    check(
        &Claims,
        claim(json!({"requests": [{"name": "a"}, {"name": "a", "exactly": {"allocationMode": "All", "count": 2}}]})),
        &[
            "spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required",
            "spec.devices.requests[1].exactly.deviceClassName: Required value",
            "spec.devices.requests[1].exactly.count: Invalid value: 2: must not be specified when allocationMode is 'All'",
            "spec.devices.requests[1]: Duplicate value: \"a\"",
        ],
    );
    check(
        &Claims,
        claim(json!({
            "requests": [{"name": "a", "firstAvailable": [{"name": "x", "deviceClassName": "gpu"}]}],
            "constraints": [{"requests": ["a/x", "b"], "matchAttribute": "plain"}],
            "config": [{"requests": ["a"], "opaque": {"driver": "d.example.com", "parameters": []}}],
        })),
        &[
            "spec.devices.constraints[0].requests[1]: Invalid value: \"b\": must be the name of a request in the claim or the name of a request and a subrequest separated by '/'",
            "spec.devices.constraints[0].matchAttribute: Invalid value: \"plain\": a fully qualified name must be a domain and a name separated by a slash",
            "spec.devices.config[0].opaque.parameters: Invalid value: \"<value omitted>\": must be a valid JSON object",
        ],
    );
}

#[test]
fn selectors_are_expressions_about_devices() {
    let class = |expression: &str| json!({"spec": {"selectors": [{"cel": {"expression": expression}}]}});
    check(&DeviceClasses, class("device.driver == 'd' && device.attributes['d'].size > 3"), &[]);
    check(&DeviceClasses, class("device.capacity['d'].memory.isGreaterThan(quantity('1Gi'))"), &[]);
    check(&DeviceClasses, class("device.attributes['d'].healthy"), &[]);
    check(
        &DeviceClasses,
        class("device.driver"),
        &[
            "spec.selectors[0].cel.expression: Invalid value: \"device.driver\": must evaluate to bool or the unknown type, not string",
        ],
    );
    check(
        &DeviceClasses,
        class("node.x"),
        &[
            "spec.selectors[0].cel.expression: Invalid value: \"node.x\": compilation failed: ERROR: <input>:1:1: undeclared reference to 'node' (in container '')\n | node.x\n | ^",
        ],
    );
}

#[test]
fn a_claim_keeps_its_spec_and_its_allocation() {
    let old = json!({"spec": {"devices": {}}, "status": {"allocation": {"devices": {"results": []}}}});
    let mut new = old.clone();
    new["spec"]["devices"] = json!({"requests": []});
    assert_eq!(Claims.validate_update(&new, &old).len(), 1);
    let mut new = old.clone();
    new["status"]["allocation"]["devices"] = json!({});
    new["status"]["reservedFor"] = json!([{"resource": "pods", "name": "p", "uid": "u"}]);
    let errors = Claims.validate_status_update(&new, &old);
    assert_eq!(errors.len(), 1);
    assert!(errors[0].to_string().starts_with("status.allocation: Invalid value"), "{}", errors[0]);
}

#[test]
fn taints_have_keys_and_effects() {
    check(
        &DeviceTaintRules,
        json!({"spec": {"deviceSelector": {"pool": "A"}, "taint": {"key": "k", "effect": "Odd"}}}),
        &[
            "spec.deviceSelector.pool: Invalid value: \"A\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
            "spec.taint.effect: Unsupported value: \"Odd\": supported values: \"NoExecute\", \"NoSchedule\", \"None\"",
        ],
    );
}
