//! Definitions and objects with mistakes of many kinds, and what upstream's own validator said about them.
//!
//! `bases.json` has definitions with objects of theirs; a line of `cases.jsonl` says what is changed in one of them (`+` sets, `-` takes away) and what
//! upstream answered. Upstream names types by a random number, which is 1 here.

use apiextensions::Meaning;
use apiextensions::definition::Scale;
use machinery::status::FieldError;
use machinery::{Value, value};
use serde_json::json;

use super::Definitions;
use crate::strategy::Strategy;

fn changed(base: &Value, changes: &Value) -> Value {
    let mut changed = base.clone();
    for change in changes.as_array().into_iter().flatten() {
        let path = change[1].as_array().expect("a path");
        let (last, way) = path.split_last().expect("a path has steps");
        let mut at = &mut changed;
        for step in way {
            at = match step {
                Value::String(name) => &mut at[name.as_str()],
                index => &mut at[usize::try_from(index.as_u64().expect("an index")).expect("a small one")],
            };
        }
        match (last, at, change[0] == "-") {
            (Value::String(name), at, true) => drop(at.as_object_mut().expect("an object").remove(name)),
            (index, Value::Array(items), true) => drop(items.remove(index.as_u64().expect("an index") as usize)),
            (Value::String(name), at, false) => at[name.as_str()] = change[2].clone(),
            (index, at, _) => at[index.as_u64().expect("an index") as usize] = change[2].clone(),
        }
    }
    changed
}

fn told(errors: &[FieldError]) -> Vec<String> {
    let mut told: Vec<String> = errors.iter().map(ToString::to_string).collect();
    told.retain(|error| !error.starts_with("metadata."));
    told.sort();
    told
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

fn read(definition: &Value) -> Value {
    let mut definition = definition.clone();
    let of = facts::type_of("apiextensions.k8s.io", "v1", "CustomResourceDefinition").expect("a known kind");
    machinery::schema::conform(&mut definition, of.def()).expect("a definition");
    Definitions.default(&mut definition);
    definition
}

fn judge_definition(case: &Value, base: &Value) -> (Value, Vec<String>, Vec<String>) {
    let mut new = read(&changed(base, &case["ops"]));
    let (errors, mut warnings) = if case["update"] == true {
        let mut old = read(&changed(base, &case["old"]));
        Definitions.prepare_for_create(&mut old);
        if case["established"] == true {
            old["status"]["conditions"] = json!([{"type": "Established", "status": "True"}]);
        }
        Definitions.prepare_for_update(&mut new, &old);
        Definitions.judge_update(&new, &old)
    } else {
        Definitions.prepare_for_create(&mut new);
        (Definitions.validate(&new), Definitions.warnings(&new, None))
    };
    warnings.sort();
    (new, told(&errors), warnings)
}

fn judge_object(case: &Value, base: &Value, version: &Value) -> (Vec<String>, Vec<String>) {
    let meaning = Meaning::of(&version["schema"]["openAPIV3Schema"], false);
    let path =
        |field: &str| value::text(version, &format!("subresources.scale.{field}")).trim_start_matches('.').to_owned();
    let scale = value::at(version, "subresources.scale").map(|_| Scale {
        spec_replicas: path("specReplicasPath"),
        status_replicas: path("statusReplicasPath"),
        selector: path("labelSelectorPath"),
    });
    let read = |changes: &Value| {
        let mut object = changed(base, changes);
        meaning.schema.coerce(&mut object).expect("an object");
        meaning.schema.default(&mut object);
        object
    };
    let put = |object: &mut Value, status: Option<Value>| match status {
        Some(status) => object["status"] = status,
        None => drop(value::remove(object, "status")),
    };
    let mut new = read(&case["new"]);
    let apart = value::at(version, "subresources.status").is_some();
    let mut judged = match case.get("old").map(read) {
        Some(old) if case["status"] == true => {
            let mut whole = old.clone();
            put(&mut whole, new.get("status").cloned());
            meaning.judge_status(&whole, &old, scale.as_ref())
        }
        old => {
            if apart {
                put(&mut new, old.as_ref().and_then(|old| old.get("status").cloned()));
            }
            meaning.judge(&new, old.as_ref(), scale.as_ref())
        }
    };
    judged.warnings.sort();
    (told(&judged.errors), judged.warnings)
}

#[test]
fn mistakes_are_told_as_upstream_tells_them() {
    let bases: Value = serde_json::from_str(include_str!("bases.json")).expect("definitions");
    for (number, line) in include_str!("cases.jsonl").lines().enumerate() {
        let number = number + 1;
        let case: Value = serde_json::from_str(line).expect("a case");
        let base = &bases[case["base"].as_str().expect("a name")];
        let (definition, errors, warnings) = judge_definition(&case, &base["crd"]);
        assert_eq!(errors, texts(&case["errors"]), "errors of the definition in line {number}");
        assert_eq!(warnings, texts(&case["warnings"]), "warnings about the definition in line {number}");
        for object in case["objects"].as_array().into_iter().flatten() {
            let of = &base["objects"][object["of"].as_u64().expect("an index") as usize];
            let (errors, warnings) = judge_object(object, of, &definition["spec"]["versions"][0]);
            assert_eq!(errors, texts(&object["errors"]), "errors of {object} in line {number}");
            assert_eq!(warnings, texts(&object["warnings"]), "warnings about {object} in line {number}");
        }
    }
}
