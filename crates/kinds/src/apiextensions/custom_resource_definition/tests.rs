//! What upstream says about CustomResourceDefinitions.

use machinery::Value;
use serde_json::json;

use crate::apiextensions::custom_resource_definition::Definitions;
use crate::strategy::Strategy;

fn shown(definition: &Value) -> Vec<String> {
    let mut definition = definition.clone();
    Definitions.default(&mut definition);
    Definitions.prepare_for_create(&mut definition);
    Definitions.validate(&definition).iter().map(ToString::to_string).collect()
}

#[test]
fn definitions_are_checked_in_upstreams_words() {
    let good = json!({"metadata": {"name": "tabs.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "tabs", "kind": "Tab"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}}}}}]}});
    assert_eq!(shown(&good), Vec::<String>::new());
    let mut bad = good.clone();
    bad["spec"]["group"] = json!("example");
    bad["spec"]["versions"][0]["storage"] = json!(false);
    bad["spec"]["versions"][0]["additionalPrinterColumns"] = json!([{"name": "A", "type": "text", "jsonPath": "spec"}]);
    bad["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] =
        json!({"properties": {"a": {"type": "array"}}});
    let errors = shown(&bad);
    for expected in [
        "metadata.name: Invalid value: \"tabs.example.com\": must be spec.names.plural+\".\"+spec.group",
        "spec.group: Invalid value: \"example\": should be a domain with at least one dot",
        "spec.additionalPrinterColumns[0].type: Invalid value: \"text\": must be one of boolean,date,integer,number,string",
        "spec.additionalPrinterColumns[0].JSONPath: Invalid value: \"spec\": must be a simple json path starting with .",
        "spec.validation.openAPIV3Schema.properties[spec].type: Required value: must not be empty for specified object fields",
        "spec.validation.openAPIV3Schema.properties[spec].properties[a].items: Required value: must be specified",
        "status.storedVersions: Invalid value: null: must have at least one stored version",
    ] {
        assert!(errors.contains(&expected.to_owned()), "{expected} is not in {errors:#?}");
    }
    let mut twice = good.clone();
    let version = twice["spec"]["versions"][0].clone();
    twice["spec"]["versions"] = json!([version, version]);
    let missing = "status.storedVersions: Invalid value: [\"v1\"]: must have the storage version v1";
    assert!(shown(&twice).contains(&missing.to_owned()), "{:#?}", shown(&twice));
    // A name that is to be made up cannot be right, and one that is missing is found out by others.
    let mut nameless = good.clone();
    nameless["metadata"] = json!({"generateName": "x-"});
    let wrong = "metadata.generateName: Invalid value: \"x-\": must be spec.names.plural+\".\"+spec.group";
    assert_eq!(shown(&nameless), [wrong]);
    let mut float = good.clone();
    float["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["enum"] = json!([1000.0, 1.5]);
    Definitions.default(&mut float);
    let kept = &float["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["enum"];
    assert_eq!(kept.to_string(), "[1000,1.5]");
    // A webhook with nothing in it is none.
    let mut empty = good;
    empty["spec"]["conversion"] = json!({"strategy": "None", "webhook": {}});
    Definitions.default(&mut empty);
    assert_eq!(empty["spec"]["conversion"], json!({"strategy": "None"}));
}

#[test]
fn what_an_unchanged_rule_costs_is_not_judged_anew() {
    let definition = |maximum: i64| {
        let rule = json!([{"rule": "self.all(x, self.all(y, x == y || x.size() > 1))"}]);
        let list = json!({"type": "array", "items": {"type": "string"}, "maxItems": maximum, "x-kubernetes-validations": rule});
        let mut definition = json!({"metadata": {"name": "tabs.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "tabs", "kind": "Tab"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "properties": {"l": list}}}}]}});
        Definitions.default(&mut definition);
        Definitions.prepare_for_create(&mut definition);
        definition
    };
    let too_expensive = |errors: Vec<machinery::status::FieldError>| {
        errors.iter().filter(|error| error.to_string().contains("estimated rule cost exceeds budget")).count()
    };
    let expensive = definition(60);
    assert_eq!(too_expensive(Definitions.validate(&expensive)), 1);
    assert_eq!(too_expensive(Definitions.validate_update(&expensive, &expensive)), 0);
    assert_eq!(too_expensive(Definitions.validate_update(&definition(61), &expensive)), 1);
}

#[test]
fn what_upstream_accepted_long_ago_is_told_of() {
    let told = |preserve: bool, schema: Value| {
        let versions = json!([{"name": "v1", "schema": {"openAPIV3Schema": schema}}]);
        super::violations(&json!({"spec": {"preserveUnknownFields": preserve, "versions": versions}}))
    };
    assert_eq!(told(false, json!({"type": "object"})), None);
    let violated = |message: &str| Some(("True", "Violations", message.to_owned()));
    assert_eq!(
        told(true, json!({"type": "object"})),
        violated("spec.preserveUnknownFields: Invalid value: true: must be false")
    );
    assert_eq!(
        told(true, json!({"type": "object", "properties": {"spec": {}}})),
        violated(
            "[spec.preserveUnknownFields: Invalid value: true: must be false, spec.versions[0].schema.openAPIV3Schema.properties[spec].type: Required value: must not be empty for specified object fields]"
        )
    );
    let why = "failed to check validation schema for version v1: OpenAPIV3Schema '$ref' is not supported";
    assert_eq!(told(false, json!({"$ref": "#/a"})), Some(("Unknown", "StructuralError", why.to_owned())));
}

#[test]
fn what_is_wrong_is_told_in_upstreams_order() {
    let told = |version: Value| {
        let mut version = version;
        version["name"] = json!("v1");
        version["served"] = json!(true);
        version["storage"] = json!(true);
        let second =
            json!({"name": "v2", "served": true, "storage": false, "schema": {"openAPIV3Schema": {"type": "object"}}});
        let names = json!({"plural": "tabs", "kind": "Tab"});
        let spec =
            json!({"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version, second]});
        let found = shown(&json!({"metadata": {"name": "tabs.example.com"}, "spec": spec}));
        let found = found.iter().filter_map(|error| error.strip_prefix("spec.versions[0]."));
        found.map(|error| error.trim_start_matches("schema.openAPIV3Schema.").to_owned()).collect::<Vec<_>>()
    };
    let schema =
        |properties: Value| json!({"schema": {"openAPIV3Schema": {"type": "object", "properties": properties}}});
    assert_eq!(
        told(schema(json!({"a": {"type": "string", "not": {"type": "string", "default": "x"}}}))),
        [
            "properties[a].not.default: Forbidden: must be undefined to be structural",
            "properties[a].not.type: Forbidden: must be empty to be structural",
        ]
    );
    assert_eq!(
        told(schema(json!({"kind": {}}))),
        [
            "properties[kind].type: Invalid value: \"\": must be string",
            "properties[kind].type: Required value: must not be empty for specified object fields",
        ]
    );
    let items = json!({"type": "object", "properties": {"n": {"type": "string"}}, "required": ["n"]});
    assert_eq!(
        told(schema(
            json!({"a": {"type": "array", "x-kubernetes-list-type": "odd", "x-kubernetes-list-map-keys": ["n"], "items": items}})
        )),
        [
            "properties[a].x-kubernetes-list-type: Unsupported value: \"odd\": supported values: \"atomic\", \"set\", \"map\"",
            "properties[a].x-kubernetes-list-type: Invalid value: \"odd\": must be map if x-kubernetes-list-map-keys is non-empty",
        ]
    );
    let mut version = schema(json!({}));
    version["additionalPrinterColumns"] = json!([{"name": "A", "type": "string"}]);
    version["selectableFields"] = json!([{"jsonPath": ".a"}]);
    assert_eq!(
        told(version),
        [
            "additionalPrinterColumns[0].JSONPath: Required value",
            "selectableFields[0].jsonPath: Invalid value: \".a\": is an invalid path: does not refer to a valid field",
        ]
    );
}

#[test]
fn a_status_without_stored_versions_gets_the_one_that_is_stored_now() {
    let versions = json!([{"name": "v1", "storage": false}, {"name": "v2", "storage": true}]);
    let stored = |status: Value| {
        let mut definition = json!({"spec": {"names": {"kind": "Tab"}, "versions": versions}, "status": status});
        Definitions.default(&mut definition);
        definition["status"]["storedVersions"].clone()
    };
    assert_eq!(stored(Value::Null), json!(["v2"]));
    assert_eq!(stored(json!({"storedVersions": []})), json!(["v2"]));
    assert_eq!(stored(json!({"storedVersions": ["v1"]})), json!(["v1"]));
}
