//! What upstream says about ResourceSlices.

use machinery::Value;
use serde_json::json;

use crate::checks::rare_names::is_semantic_version;
use crate::resource::resource_slice::ResourceSlices;
use crate::strategy::Strategy;

fn check(spec: Value, expected: &[&str]) {
    let slice = json!({"metadata": {"name": "s"}, "spec": spec});
    let found: Vec<String> = ResourceSlices.validate(&slice).iter().map(ToString::to_string).collect();
    assert_eq!(found, expected, "{slice}");
}

fn with(devices: Value) -> Value {
    json!({"driver": "d.example.com", "pool": {"name": "p", "resourceSliceCount": 1}, "nodeName": "n", "devices": devices})
}

#[test]
fn slices_say_once_where_their_devices_are() {
    check(with(json!([{"name": "a"}])), &[]);
    check(
        json!({"driver": "d.example.com", "pool": {"name": "p"}}),
        &[
            "spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero",
            "spec: Required value: exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required",
        ],
    );
    let mut both = with(json!([]));
    both["allNodes"] = json!(true);
    check(
        both,
        &[
            "spec: Invalid value: \"{`nodeName`, `allNodes`}\": exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required, but multiple fields are set",
        ],
    );
}

#[test]
fn devices_have_attributes_of_one_kind_and_capacities_with_sense() {
    check(
        with(
            json!([{"name": "a", "attributes": {"x": {"version": "1.0"}, "y": {}, "d.io/z": {"int": 1, "bool": true}}}]),
        ),
        &[
            "spec.devices[0].attributes[d.io/z]: Invalid value: {\"bool\":true,\"int\":1}: exactly one value must be specified",
            "spec.devices[0].attributes[x].version: Invalid value: \"1.0\": must be a string compatible with semver.org spec 2.0.0",
            "spec.devices[0].attributes[y]: Invalid value: \"\": must specify one of: `int`, `bool`, `string`, `version`, `ints`, `bools`, `strings`, `versions`",
        ],
    );
    check(
        with(
            json!([{"name": "a", "allowMultipleAllocations": true, "capacity": {"m": {"value": "10", "requestPolicy": {
            "default": "3", "validRange": {"min": "2", "max": "12", "step": "2"}}}}}]),
        ),
        &[
            "spec.devices[0].capacity[m].requestPolicy.validRange.max: Invalid value: \"12\": max is larger than capacity value: 10",
            "spec.devices[0].capacity[m].requestPolicy.validRange.step: Invalid value: \"3\": value is not a multiple of a given step (2) from (2)",
        ],
    );
    check(
        with(json!([{"name": "a"}, {"name": "a", "capacity": {"m": {"value": "1", "requestPolicy": {}}}}])),
        &[
            "spec.devices[1].capacity[m].requestPolicy: Forbidden: allowMultipleAllocations must be true",
            "spec.devices[1]: Duplicate value: \"a\"",
        ],
    );
}

#[test]
fn versions_are_semantic() {
    for good in ["1.2.3", "0.0.0", "1.0.0-alpha.1", "1.0.0+build.5", "1.0.0-0a.b-c+x"] {
        assert!(is_semantic_version(good), "{good}");
    }
    for bad in ["", "1.2", "1.2.3.4", "01.2.3", "1.0.0-01", "1.0.0-", "1.0.0+", "v1.0.0"] {
        assert!(!is_semantic_version(bad), "{bad}");
    }
}
