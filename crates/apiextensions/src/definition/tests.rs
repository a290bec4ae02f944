use serde_json::json;

use super::*;

/// A definition of group `g.io` with these names and versions.
fn definition(kind: &str, versions: Value) -> Value {
    let singular = kind.to_lowercase();
    let names = json!({"plural": format!("{singular}s"), "singular": singular, "kind": kind, "listKind": format!("{kind}List"), "shortNames": ["t"]});
    json!({
        "metadata": {"name": format!("{singular}s.g.io"), "uid": "u"},
        "spec": {"group": "g.io", "scope": "Namespaced", "names": names, "versions": versions},
    })
}

fn accepted(mut definition: Value, others: &[Value]) -> Value {
    accept_names(&mut definition, others.iter(), "2026-01-01T00:00:00Z");
    definition
}

fn read(definition: Value) -> Definition {
    Definition::read(&definition, Arc::new(definition.clone()), "age").expect("a definition")
}

fn condition(definition: &Value, kind: &str) -> (String, String, String) {
    let conditions = value::list(definition, "status.conditions");
    let found = conditions.iter().find(|condition| condition["type"] == kind).expect("the condition");
    let text = |field: &str| value::text(found, field).to_owned();
    (text("status"), text("reason"), text("message"))
}

fn told(status: &str, reason: &str, message: &str) -> (String, String, String) {
    (status.to_owned(), reason.to_owned(), message.to_owned())
}

#[test]
fn names_that_nobody_has_are_accepted_and_established() {
    let definition = accepted(definition("Thing", json!([])), &[]);
    assert_eq!(definition["status"]["acceptedNames"], definition["spec"]["names"]);
    assert_eq!(condition(&definition, "NamesAccepted"), told("True", "NoConflicts", "no conflicts found"));
    let expect = told("True", "InitialNamesAccepted", "the initial names have been accepted");
    assert_eq!(condition(&definition, "Established"), expect);
}

#[test]
fn names_of_another_definition_are_not_accepted() {
    let first = accepted(definition("Thing", json!([])), &[]);
    let mut second = definition("Other", json!([]));
    second = accepted(second, std::slice::from_ref(&first));
    let expect = told("False", "ShortNamesConflict", "\"t\" is already in use");
    assert_eq!(condition(&second, "NamesAccepted"), expect);
    assert_eq!(condition(&second, "Established"), told("False", "NotAccepted", "not all names are accepted"));
    assert_eq!(value::text(&second, "status.acceptedNames.kind"), "Other");
    assert_eq!(value::at(&second, "status.acceptedNames.shortNames"), None);

    let mut kind = definition("Other", json!([]));
    value::set(&mut kind, "spec.names.kind", "Thing");
    let kind = accepted(kind, std::slice::from_ref(&first));
    assert_eq!(condition(&kind, "NamesAccepted").1, "KindConflict");

    // In another group the same names are others.
    let mut elsewhere = definition("Thing", json!([]));
    value::set(&mut elsewhere, "spec.group", "h.io");
    assert_eq!(condition(&accepted(elsewhere, &[first]), "NamesAccepted").0, "True");
}

#[test]
fn what_is_established_stays_so_when_it_asks_for_more() {
    let first = accepted(definition("Other", json!([])), &[]);
    let mut second = definition("Thing", json!([]));
    value::set(&mut second, "spec.names.shortNames", json!(["x"]));
    let mut second = accepted(second, &[]);
    value::set(&mut second, "spec.names.shortNames", json!(["t"]));
    let second = accepted(second, &[first]);
    assert_eq!(condition(&second, "NamesAccepted").0, "False");
    assert_eq!(condition(&second, "Established").0, "True");
    assert_eq!(value::at(&second, "status.acceptedNames.shortNames"), Some(&json!(["x"])));
}

#[test]
fn groups_of_the_community_need_approval() {
    let check = |annotation: Option<&str>, expect: (&str, &str)| {
        let mut definition = definition("Thing", json!([]));
        value::set(&mut definition, "spec.group", "x.k8s.io");
        if let Some(text) = annotation {
            definition["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": text});
        }
        approval(&mut definition, "t");
        let (status, reason, _) = condition(&definition, "KubernetesAPIApprovalPolicyConformant");
        assert_eq!((status.as_str(), reason.as_str()), expect);
    };
    check(None, ("False", "MissingAnnotation"));
    check(Some("unapproved, an experiment"), ("False", "UnapprovedAnnotation"));
    check(Some("https://github.com/kubernetes/kubernetes/pull/1"), ("True", "ApprovedAnnotation"));
    check(Some("yes"), ("False", "InvalidAnnotation"));
    let mut free = definition("Thing", json!([]));
    approval(&mut free, "t");
    assert_eq!(value::at(&free, "status"), None);
}

#[test]
fn a_definition_says_what_is_served() {
    let versions = json!([
        {"name": "v1alpha1", "served": true, "storage": false, "deprecated": true, "schema": {"openAPIV3Schema": {"type": "object"}}},
        {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "properties": {
            "spec": {"type": "object", "properties": {
                "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                          "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            }}}}},
         "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
         "selectableFields": [{"jsonPath": ".spec.color"}]},
    ]);
    let definition = read(accepted(definition("Thing", versions), &[]));
    let (old, new) = (&definition.versions[0], &definition.versions[1]);
    assert_eq!(old.warning.as_deref(), Some("g.io/v1alpha1 Thing is deprecated; use g.io/v1 Thing"));
    assert_eq!(new.warning, None);
    assert_eq!(definition.storage().map(|version| version.name.as_str()), Some("v1"));
    assert_eq!(new.selectable, ["spec.color"]);
    let resource = &new.resource;
    assert_eq!((&*resource.plural, &*resource.kind, &*resource.list_kind), ("things", "Thing", "ThingList"));
    assert!(resource.namespaced && resource.verbs.has("create") && resource.is_custom());
    let parts: Vec<&str> = resource.subresources.iter().map(|part| &*part.name).collect();
    assert_eq!(parts, ["status", "scale"]);
    let of = resource.def().expect("a type");
    assert_eq!(of.name, "io.g.v1.Thing");
    let spec = of.field("spec").and_then(|spec| spec.schema.object()).expect("a spec");
    let ports = spec.field("ports").and_then(|ports| ports.schema.list()).expect("ports");
    assert_eq!((ports.list_type, &*ports.keys[0]), (Some(facts::ListType::Map), "name"));
    assert!(spec.field("labels").is_some_and(|labels| labels.schema.map().is_some()));
    assert!(of.field("metadata").is_some_and(|metadata| metadata.schema.object().is_some()));
}

#[test]
fn nothing_is_made_on_the_way_out() {
    let mut leaving = accepted(definition("Thing", json!([{"name": "v1", "served": true, "storage": true}])), &[]);
    value::set(&mut leaving, "metadata.deletionTimestamp", "2026-01-01T00:00:00Z");
    let definition = read(leaving);
    let verbs = definition.offered();
    assert!(!verbs.has("create") && !verbs.has("patch") && verbs.has("delete") && verbs.has("watch"));
}

#[test]
fn definitions_of_old_may_keep_what_their_schema_does_not_know() {
    let versions = json!([{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
        "type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}}}}}}}]);
    let pruned = |preserve: bool| {
        let mut definition = accepted(definition("Thing", versions.clone()), &[]);
        definition["spec"]["preserveUnknownFields"] = json!(preserve);
        let mut object = json!({"spec": {"a": "x", "b": 1}});
        let version = read(definition).versions[0].clone();
        version.meaning().schema.coerce(&mut object).expect("an object");
        object
    };
    assert_eq!(pruned(false), json!({"spec": {"a": "x"}}));
    assert_eq!(pruned(true), json!({"spec": {"a": "x", "b": 1}}));
}
