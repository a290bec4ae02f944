//! The words of upstream's validator, one case a line.

use machinery::Value;
use serde_json::json;

use crate::Schema;

fn errors(props: Value, object: Value, old: Option<Value>) -> Vec<String> {
    let schema = Schema::read(&props).expect("a schema");
    schema.validate(&object, old.as_ref()).iter().map(ToString::to_string).collect()
}

/// One field `f` of an object.
fn check(field: Value, value: Value, expect: &[&str]) {
    let props = json!({"type": "object", "properties": {"f": field}});
    assert_eq!(errors(props, json!({"f": value}), None), expect);
}

#[test]
fn types_are_checked() {
    check(
        json!({"type": "integer"}),
        json!("x"),
        &["f: Invalid value: \"string\": f in body must be of type integer: \"string\""],
    );
    check(json!({"type": "integer"}), json!(1.0), &[]);
    check(
        json!({"type": "integer"}),
        json!(1.5),
        &[
            "f: Invalid value: \"number\": f in body must be of type integer: \"number\"",
            "<nil>: Invalid value: \"\": Checked value must be of type integer (default format) in f",
        ],
    );
    check(
        json!({"type": "integer"}),
        json!(-9_223_372_036_854_775_808.0),
        &[
            "f: Invalid value: \"number\": f in body must be of type integer: \"number\"",
            "<nil>: Invalid value: \"\": Checked value must be of type integer (default format) in f",
        ],
    );
    check(
        json!({"type": "string"}),
        json!(1.0),
        &["f: Invalid value: \"number\": f in body must be of type string: \"number\""],
    );
    check(json!({"type": "number"}), json!(1), &[]);
    check(
        json!({"type": "string"}),
        json!(null),
        &["f: Invalid value: \"null\": f in body must be of type string: \"null\""],
    );
    check(json!({"type": "string", "nullable": true}), json!(null), &[]);
    check(
        json!({"x-kubernetes-int-or-string": true}),
        json!(true),
        &["f: Invalid value: \"boolean\": f in body must be of type integer,string: \"boolean\""],
    );
    check(json!({"x-kubernetes-preserve-unknown-fields": true}), json!([1, "a", {}]), &[]);
    check(
        json!({"type": "integer", "format": "int32"}),
        json!(3_000_000_000_i64),
        &["<nil>: Invalid value: \"\": Checked value must be of type integer with format int32 in f"],
    );
}

#[test]
fn limits_are_told_in_upstreams_words() {
    check(
        json!({"type": "integer", "minimum": 1, "maximum": 5}),
        json!(0),
        &["f: Invalid value: 0: f in body should be greater than or equal to 1"],
    );
    check(
        json!({"type": "integer", "maximum": 5, "exclusiveMaximum": true}),
        json!(5),
        &["f: Invalid value: 5: f in body should be less than 5"],
    );
    check(
        json!({"type": "number", "minimum": 0.5}),
        json!(0.25),
        &["f: Invalid value: 0.25: f in body should be greater than or equal to 0.5"],
    );
    check(
        json!({"type": "integer", "multipleOf": 3}),
        json!(7),
        &["f: Invalid value: 7: f in body should be a multiple of 3"],
    );
    check(json!({"type": "string", "maxLength": 2}), json!("abc"), &["f: Too long: may not be more than 2 bytes"]);
    check(
        json!({"type": "string", "minLength": 2}),
        json!("ä"),
        &["f: Invalid value: \"ä\": f in body should be at least 2 chars long"],
    );
    check(
        json!({"type": "string", "pattern": "^a+$"}),
        json!("b"),
        &["f: Invalid value: \"b\": f in body should match '^a+$'"],
    );
    check(
        json!({"type": "string", "enum": ["a", "b"]}),
        json!("c"),
        &["f: Unsupported value: \"c\": supported values: \"a\", \"b\""],
    );
    check(json!({"type": "integer", "enum": [1, 2]}), json!(2), &[]);
    check(
        json!({"type": "array", "maxItems": 1, "items": {"type": "string"}}),
        json!(["a", "b"]),
        &["f: Too many: 2: must have at most 1 item"],
    );
    check(
        json!({"type": "array", "minItems": 1, "items": {"type": "string"}}),
        json!([]),
        &["f: Invalid value: 0: f in body should have at least 1 items"],
    );
    check(
        json!({"type": "object", "maxProperties": 1, "additionalProperties": {"type": "string"}}),
        json!({"a": "", "b": ""}),
        &["f: Too many: 2: must have at most 1 item"],
    );
    check(
        json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}}),
        json!({}),
        &["f.a: Required value"],
    );
    check(
        json!({"type": "string", "format": "date"}),
        json!("yesterday"),
        &["f: Invalid value: \"yesterday\": f in body must be of type date: \"yesterday\""],
    );
    check(
        json!({"type": "array", "items": {"type": "object", "properties": {"p": {"type": "integer"}}}}),
        json!([{"p": "x"}]),
        &["f[0].p: Invalid value: \"string\": f[0].p in body must be of type integer: \"string\""],
    );
}

#[test]
fn of_several_schemas_the_closest_is_told() {
    let any = json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                     "anyOf": [{"required": ["a"]}, {"required": ["b"], "properties": {"b": {"minimum": 5}}}]});
    check(any.clone(), json!({"a": 1}), &[]);
    check(
        any,
        json!({"b": 3}),
        &[
            "<nil>: Invalid value: \"\": \"f\" must validate at least one schema (anyOf)",
            "f.b: Invalid value: 3: f.b in body should be greater than or equal to 5",
        ],
    );
    let one = json!({"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]});
    check(
        one.clone(),
        json!({"a": 1, "b": 1}),
        &[
            "<nil>: Invalid value: \"\": \"f\" must validate one and only one schema (oneOf). Found 2 valid alternatives",
        ],
    );
    check(
        one,
        json!({}),
        &[
            "<nil>: Invalid value: \"\": \"f\" must validate one and only one schema (oneOf). Found none valid",
            "f.a: Required value",
        ],
    );
    let all = json!({"type": "integer", "allOf": [{"minimum": 2}, {"maximum": 1}]});
    check(
        all,
        json!(2),
        &[
            "f: Invalid value: 2: f in body should be less than or equal to 1",
            "<nil>: Invalid value: \"\": \"f\" must validate all the schemas (allOf)",
        ],
    );
    check(
        json!({"type": "string", "not": {"enum": ["x"]}}),
        json!("x"),
        &["<nil>: Invalid value: \"\": \"f\" must not validate the schema (not)"],
    );
}

#[test]
fn what_was_there_before_is_not_wrong() {
    let props = json!({"type": "object", "properties": {"spec": {"type": "object", "required": ["new"], "properties": {
        "n": {"type": "integer", "maximum": 5},
        "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {
            "type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer", "maximum": 5}}}},
        "atomic": {"type": "array", "items": {"type": "integer", "maximum": 5}},
    }}}});
    let check = |old: Value, new: Value, expect: &[&str]| {
        assert_eq!(errors(props.clone(), json!({"spec": new}), Some(json!({"spec": old}))), expect);
    };
    check(json!({"n": 9}), json!({"n": 9}), &[]);
    check(json!({"n": 9}), json!({"n": 9, "other": 1}), &["spec.new: Required value"]);
    check(
        json!({"n": 9, "new": 1}),
        json!({"n": 8, "new": 1}),
        &["spec.n: Invalid value: 8: spec.n in body should be less than or equal to 5"],
    );
    let item = |k: &str, v: i64| json!({"k": k, "v": v});
    check(
        json!({"new": 1, "list": [item("a", 9), item("b", 1)]}),
        json!({"new": 1, "list": [item("b", 7), item("a", 9)]}),
        &["spec.list[0].v: Invalid value: 7: spec.list[0].v in body should be less than or equal to 5"],
    );
    check(
        json!({"new": 1, "atomic": [9]}),
        json!({"new": 1, "atomic": [9, 1]}),
        &["spec.atomic[0]: Invalid value: 9: spec.atomic[0] in body should be less than or equal to 5"],
    );
}
