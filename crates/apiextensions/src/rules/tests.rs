use serde_json::json;

use super::*;

fn schema(props: Value) -> Schema {
    Schema::read(&props).expect("a schema")
}

/// What rules say about an object, and what they warn of.
fn ask(schema: &Schema, object: Value, old: Option<Value>) -> (Vec<String>, Vec<String>) {
    let (mut errors, mut warnings) = (schema.validate(&object, old.as_ref()), Vec::new());
    Rules::compile(schema).validate(schema, &object, old.as_ref(), &mut errors, &mut warnings);
    (errors.iter().map(ToString::to_string).collect(), warnings)
}

fn errors(schema: &Schema, object: Value) -> Vec<String> {
    ask(schema, object, None).0
}

/// A schema whose `spec` has these properties and rules.
fn spec(properties: Value, rules: Value) -> Schema {
    schema(json!({"type": "object", "properties": {
        "spec": {"type": "object", "x-kubernetes-validations": rules, "properties": properties}}}))
}

#[test]
fn a_rule_that_does_not_hold_is_told_in_its_own_words() {
    let sizes = json!({"min": {"type": "integer"}, "max": {"type": "integer"}, "name": {"type": "string"}});
    let of = |rule: Value| spec(sizes.clone(), json!([rule]));
    let object = json!({"spec": {"min": 3, "max": 1, "name": "x"}});
    let check = |rule: Value, expect: &str| assert_eq!(errors(&of(rule), object.clone()), [expect]);
    check(json!({"rule": "self.min <= self.max"}), "spec: Invalid value: failed rule: self.min <= self.max");
    check(json!({"rule": "self.min <= self.max", "message": "too small"}), "spec: Invalid value: too small");
    check(
        json!({"rule": "self.min <= self.max", "messageExpression": "'min is ' + string(self.min)"}),
        "spec: Invalid value: min is 3",
    );
    check(
        json!({"rule": "self.min <= self.max", "message": "m", "fieldPath": ".min", "reason": "FieldValueForbidden"}),
        "spec.min: Forbidden: m",
    );
    check(
        json!({"rule": "self.min / 0 == 1"}),
        "spec: Invalid value: \"object\": division by zero evaluating rule: self.min / 0 == 1",
    );
    assert!(errors(&of(json!({"rule": "self.name == 'x'"})), object.clone()).is_empty());
}

#[test]
fn rules_are_asked_wherever_they_stand() {
    let schema = schema(json!({"type": "object",
    "x-kubernetes-validations": [{"rule": "self.metadata.name.startsWith('a')", "message": "name"}],
    "properties": {
        "list": {"type": "array", "items": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 0", "message": "positive"}]}},
        "map": {"type": "object", "additionalProperties": {"type": "string", "x-kubernetes-validations": [{"rule": "self != ''", "message": "empty"}]}},
    }}));
    let object = json!({"metadata": {"name": "b"}, "list": [1, -1], "map": {"k": ""}});
    assert_eq!(
        errors(&schema, object),
        ["<nil>: Invalid value: name", "list[1]: Invalid value: -1: positive", "map[k]: Invalid value: \"\": empty",]
    );
}

#[test]
fn a_transition_is_judged_only_when_there_was_something_before() {
    let schema = spec(
        json!({"name": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "immutable"}]}}),
        json!([]),
    );
    assert!(errors(&schema, json!({"spec": {"name": "a"}})).is_empty());
    let changed = ask(&schema, json!({"spec": {"name": "b"}}), Some(json!({"spec": {"name": "a"}})));
    assert_eq!(changed.0, ["spec.name: Invalid value: \"b\": immutable"]);
    let optional = spec(
        json!({"name": {"type": "string", "x-kubernetes-validations": [
            {"rule": "oldSelf.hasValue() || self == 'first'", "message": "begin so", "optionalOldSelf": true}]}}),
        json!([]),
    );
    assert_eq!(errors(&optional, json!({"spec": {"name": "a"}})), ["spec.name: Invalid value: \"a\": begin so"]);
    assert!(ask(&optional, json!({"spec": {"name": "b"}}), Some(json!({"spec": {"name": "a"}}))).0.is_empty());
}

#[test]
fn what_was_wrong_before_is_a_warning() {
    let schema = spec(
        json!({"a": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 0", "message": "positive"}]}, "b": {"type": "integer"}}),
        json!([]),
    );
    let old = json!({"spec": {"a": -1, "b": 1}});
    let (told, warned) = ask(&schema, json!({"spec": {"a": -1, "b": 2}}), Some(old.clone()));
    assert_eq!((told, warned), (vec![], vec!["spec.a: Invalid value: -1: positive".to_owned()]));
    let (told, _) = ask(&schema, json!({"spec": {"a": -2, "b": 2}}), Some(old));
    assert_eq!(told, ["spec.a: Invalid value: -2: positive"]);
}

#[test]
fn values_are_of_the_type_that_the_schema_says() {
    let schema = spec(
        json!({"at": {"type": "string", "format": "date-time"}, "for": {"type": "string", "format": "duration"},
               "share": {"type": "number"}, "either": {"x-kubernetes-int-or-string": true}}),
        json!([
            {"rule": "self.at.getFullYear() == 2026", "message": "year"},
            {"rule": "self.__for__ > duration('1h')", "message": "longer"},
            {"rule": "self.share / 2.0 == 0.5", "message": "half"},
            {"rule": "type(self.either) == int ? self.either == 5 : self.either == '5'", "message": "five"},
        ]),
    );
    let good = json!({"spec": {"at": "2026-01-01T00:00:00Z", "for": "2h", "share": 1, "either": "5"}});
    assert_eq!(errors(&schema, good), Vec::<String>::new());
    let bad = json!({"spec": {"at": "2025-01-01T00:00:00Z", "for": "1m", "share": 2, "either": 6}});
    assert_eq!(
        errors(&schema, bad),
        [
            "spec: Invalid value: year",
            "spec: Invalid value: longer",
            "spec: Invalid value: half",
            "spec: Invalid value: five"
        ]
    );
}

#[test]
fn rules_wait_until_the_rest_is_in_order() {
    let schema = spec(json!({"a": {"type": "integer"}}), json!([{"rule": "self.a > 0"}]));
    let told = errors(&schema, json!({"spec": {"a": "x"}}));
    assert_eq!(
        told.last().map(String::as_str),
        Some(
            "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"
        )
    );
}

#[test]
fn what_costs_too_much_is_stopped() {
    let schema = spec(
        json!({"list": {"type": "array", "items": {"type": "integer"}}}),
        json!([{"rule": "self.list.all(a, self.list.all(b, self.list.all(c, a + b + c >= 0)))", "message": "slow"}]),
    );
    let list: Vec<i64> = (0..500).collect();
    assert_eq!(
        errors(&schema, json!({"spec": {"list": list}})),
        [
            "spec: Invalid value: \"object\": 'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to call cost exceeds limit for rule: slow"
        ]
    );
}

#[test]
fn rules_are_inspected_before_there_are_objects() {
    let told =
        |schema: &Schema| -> Vec<String> { inspect(schema, "s", false, &[]).iter().map(ToString::to_string).collect() };
    let bounded = json!({"list": {"type": "array", "maxItems": 10, "items": {"type": "string", "maxLength": 10}}});
    assert!(told(&spec(bounded.clone(), json!([{"rule": "self.list.all(x, x != 'a')"}]))).is_empty());

    let unknown = told(&spec(bounded.clone(), json!([{"rule": "self.missing == 1"}])));
    assert_eq!(unknown.len(), 1);
    assert!(
        unknown[0].starts_with("s.properties[spec].x-kubernetes-validations[0].rule: Invalid value: {\"Rule\":\"self.missing == 1\",\"Message\":\"\",\"MessageExpression\":\"\",\"Reason\":null,\"FieldPath\":\"\",\"OptionalOldSelf\":null}: compilation failed: ERROR: <input>:1:5: undefined field 'missing'"),
        "{unknown:?}"
    );
    assert!(
        told(&spec(bounded.clone(), json!([{"rule": "1 + 1"}])))[0].ends_with("cel expression must evaluate to a bool")
    );
    assert!(
        told(&spec(bounded.clone(), json!([{"rule": "true", "messageExpression": "1"}])))[0]
            .ends_with("messageExpression must evaluate to a string")
    );
    assert_eq!(
        told(&spec(bounded, json!([{"rule": "true", "optionalOldSelf": true}]))),
        [
            "s.properties[spec].x-kubernetes-validations[0].optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule"
        ]
    );
    let items = json!({"list": {"type": "array", "items": {"type": "string", "maxLength": 5, "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}, "maxItems": 5}});
    assert_eq!(
        told(&spec(items, json!([]))),
        [
            "s.properties[spec].properties[list].items.x-kubernetes-validations[0].rule: Invalid value: \"self == oldSelf\": oldSelf cannot be used on the uncorrelatable portion of the schema within s.properties[spec].properties[list]"
        ]
    );
}

#[test]
fn rules_without_bounds_cost_too_much() {
    let told =
        |schema: &Schema| -> Vec<String> { inspect(schema, "s", false, &[]).iter().map(ToString::to_string).collect() };
    let unbounded = json!({"list": {"type": "array", "items": {"type": "string"}}});
    let errors = told(&spec(unbounded, json!([{"rule": "self.list.all(x, self.list.all(y, x == y))"}])));
    let hint = "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)";
    assert_eq!(
        errors,
        [
            format!("s.properties[spec].x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of more than 100x {hint}"),
            "s.properties[spec].x-kubernetes-validations[0].rule: Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema".to_owned(),
            format!("s: Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget by factor of more than 100x {hint}"),
        ]
    );
}

#[test]
fn what_is_not_of_its_type_is_told_to_whoever_reads_it() {
    let schema = spec(
        json!({"count": {"type": "integer"}, "counts": {"type": "array", "items": {"type": "integer"}},
               "either": {"x-kubernetes-int-or-string": true}, "share": {"type": "number"},
               "at": {"type": "string", "format": "date-time"}, "day": {"type": "string", "format": "date"},
               "for": {"type": "string", "format": "duration"}, "key": {"type": "string", "format": "byte"}}),
        json!([
            {"rule": "!has(self.count) || self.count > 0"},
            {"rule": "!has(self.counts) || self.counts.all(n, n > 0)"},
            {"rule": "!has(self.either) || self.either == 1"},
            {"rule": "!has(self.share) || self.share > 0.0"},
            {"rule": "!has(self.at) || self.at.getFullYear() == 2026"},
            {"rule": "!has(self.day) || self.day.getFullYear() == 2026"},
            {"rule": "!has(self.__for__) || self.__for__ > duration('1h')"},
            {"rule": "!has(self.key) || size(self.key) == 3"},
        ]),
    );
    let check = |spec: Value, expect: &[&str]| {
        let found = errors(&schema, json!({"spec": spec}));
        let shown = |error: &String| error.trim_start_matches("spec: Invalid value: \"object\": ").to_owned();
        let of_rules: Vec<String> = found.iter().filter(|error| error.contains("rule: ")).map(shown).collect();
        assert_eq!(of_rules, expect, "{spec}");
    };
    check(json!({"count": 1, "counts": [1], "either": 1, "share": 1.0}), &[]);
    let int = "invalid data, expected int, got float64 evaluating rule:";
    check(json!({"count": 1.0}), &[&format!("{int} !has(self.count) || self.count > 0")]);
    check(json!({"counts": [1, 2.0]}), &[&format!("{int} !has(self.counts) || self.counts.all(n, n > 0)")]);
    let either = "invalid data, expected XIntOrString value to be either a string or integer evaluating rule:";
    check(json!({"either": 1.0}), &[&format!("{either} !has(self.either) || self.either == 1")]);
    let good = json!({"at": "2026-01-01T00:00:00Z", "day": "2026-01-01", "for": "2 days", "key": "YWJj"});
    assert_eq!(errors(&schema, json!({"spec": good})), Vec::<String>::new());
    // What is of its format may still be nothing that expressions can read.
    let at = "Invalid date-time formatted string 2026-01-01t00:00:00z: parsing time \"2026-01-01t00:00:00z\" as \
              \"2006-01-02T15:04:05\": cannot parse \"t00:00:00z\" as \"T\" evaluating rule:";
    let rule = "!has(self.at) || self.at.getFullYear() == 2026";
    check(json!({"at": "2026-01-01t00:00:00z"}), &[&format!("{at} {rule}")]);
    let key = "Invalid byte formatted string ab+/: illegal base64 data at input byte 2 evaluating rule:";
    check(json!({"key": "ab+/"}), &[&format!("{key} !has(self.key) || size(self.key) == 3")]);
}
