//! OpenAPI with the documents of other servers in it. Version 3 has a document per group version, so its root says who has which, and
//! whoever asks for one is passed on. Version 2 has one document of everything: the paths of each group version, and the definitions
//! that they need, are put into this server's own.

use std::collections::BTreeSet;

use machinery::Value;
use serde_json::{Map, json};

const REFERENCE: &str = "#/definitions/";
const KINDS: &str = "x-kubernetes-group-version-kind";

/// What a document of version 2 says about one group version: its paths, and the definitions that these need.
pub fn filtered_v2(document: &Value, group: &str, version: &str) -> Value {
    let prefix = format!("/apis/{group}/{version}/");
    let paths = document["paths"].as_object().into_iter().flatten();
    let mut paths: Map<String, Value> =
        paths.filter(|(path, _)| path.starts_with(&prefix)).map(|(path, item)| (path.clone(), item.clone())).collect();
    paths.values_mut().for_each(|item| inline_parameters(item, &document["parameters"]));
    let mut needed = BTreeSet::new();
    let mut open = Vec::new();
    paths.values().for_each(|item| references(item, &mut |name| open.push(name.to_owned())));
    while let Some(name) = open.pop() {
        if needed.insert(name.clone()) {
            references(&document["definitions"][&name], &mut |name| open.push(name.to_owned()));
        }
    }
    let definitions: Map<String, Value> = needed
        .into_iter()
        .filter_map(|name| document["definitions"].get(&name).cloned().map(|definition| (name, definition)))
        .collect();
    json!({"paths": paths, "definitions": definitions})
}

/// Puts parameters that a document shares where they are referred to: in another document they may be others.
fn inline_parameters(item: &mut Value, shared: &Value) {
    for (key, inner) in item.as_object_mut().into_iter().flatten() {
        match (key.as_str(), inner) {
            ("parameters", Value::Array(list)) => {
                for parameter in list {
                    let reference = parameter["$ref"].as_str().and_then(|name| name.strip_prefix("#/parameters/"));
                    if let Some(found) = reference.and_then(|name| shared.get(name)) {
                        *parameter = found.clone();
                    }
                }
            }
            (_, operation @ Value::Object(_)) if operation["parameters"].is_array() => {
                inline_parameters(operation, shared);
            }
            _ => {}
        }
    }
}

/// Puts a filtered document of version 2 into a whole one. Paths that are there already stay; definitions of one name
/// that differ get another name.
pub fn merge_v2(own: &mut Value, other: &Value) {
    let mut renamed: Vec<(String, String)> = Vec::new();
    let mut added: Vec<(String, Value)> = Vec::new();
    for (name, definition) in other["definitions"].as_object().into_iter().flatten() {
        match own["definitions"].get(name) {
            None => added.push((name.clone(), definition.clone())),
            Some(known) if is_same(known, definition) => {
                let kinds = join_kinds(known, definition);
                if let Some(kinds) = kinds {
                    own["definitions"][name][KINDS] = kinds;
                }
            }
            Some(_) => {
                let mut number = 2;
                let new = loop {
                    let candidate = format!("{name}_v{number}");
                    if own["definitions"].get(&candidate).is_none_or(|known| is_same(known, definition)) {
                        break candidate;
                    }
                    number += 1;
                };
                renamed.push((name.clone(), new.clone()));
                added.push((new, definition.clone()));
            }
        }
    }
    let rename = |tree: &mut Value| rename_references(tree, &renamed);
    for (name, mut definition) in added {
        rename(&mut definition);
        own["definitions"][name] = definition;
    }
    for (path, item) in other["paths"].as_object().into_iter().flatten() {
        if own["paths"].get(path).is_none() {
            let mut item = item.clone();
            rename(&mut item);
            own["paths"][path] = item;
        }
    }
}

/// Two definitions that differ at most in which kinds they are said to be.
fn is_same(a: &Value, b: &Value) -> bool {
    let (Some(a), Some(b)) = (a.as_object(), b.as_object()) else { return a == b };
    let fields = |of: &'_ Map<String, Value>| of.keys().filter(|key| *key != KINDS).count();
    fields(a) == fields(b)
        && a.iter().filter(|(key, _)| *key != KINDS).all(|(key, inner)| b.get(key).is_some_and(|b| is_equal(inner, b)))
}

/// Whether two trees are equal, where what is referred to may have been given another name before.
fn is_equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let equal = |(key, a): (&String, &Value)| match (b.get(key), key.as_str()) {
                (Some(Value::String(b)), "$ref") => a.as_str().is_some_and(|a| first_name(a) == first_name(b)),
                (Some(b), _) => is_equal(a, b),
                (None, _) => false,
            };
            a.len() == b.len() && a.iter().all(equal)
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_equal(a, b)),
        (a, b) => a == b,
    }
}

/// The name that a definition had before it was told apart from others.
fn first_name(reference: &str) -> &str {
    match reference.rsplit_once("_v") {
        Some((name, number)) if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => reference,
    }
}

/// All the kinds that two definitions are said to be, if the second one has more.
fn join_kinds(a: &Value, b: &Value) -> Option<Value> {
    let mut all = a[KINDS].as_array().cloned().unwrap_or_default();
    let before = all.len();
    for kind in b[KINDS].as_array().into_iter().flatten() {
        if !all.contains(kind) {
            all.push(kind.clone());
        }
    }
    (all.len() > before).then_some(Value::Array(all))
}

/// Documents are as deep as the parser lets them be, which is bounded; so is this.
fn references(tree: &Value, found: &mut impl FnMut(&str)) {
    match tree {
        Value::Object(object) => {
            for (key, inner) in object {
                match inner.as_str().and_then(|text| text.strip_prefix(REFERENCE)) {
                    Some(name) if key == "$ref" => found(name),
                    _ => references(inner, found),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|inner| references(inner, found)),
        _ => {}
    }
}

fn rename_references(tree: &mut Value, renamed: &[(String, String)]) {
    if renamed.is_empty() {
        return;
    }
    match tree {
        Value::Object(object) => {
            for (key, inner) in object {
                let name = inner.as_str().and_then(|text| text.strip_prefix(REFERENCE)).filter(|_| key == "$ref");
                match name.and_then(|name| renamed.iter().find(|(old, _)| old == name)) {
                    Some((_, new)) => *inner = Value::String(format!("{REFERENCE}{new}")),
                    None => rename_references(inner, renamed),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|inner| rename_references(inner, renamed)),
        _ => {}
    }
}

/// The root of version 3 with what another server has below it. What this server has itself stays.
pub fn merge_v3_root(own: &mut Value, paths: &Map<String, Value>) {
    for (path, item) in paths {
        if own["paths"].get(path).is_none() {
            own["paths"][path] = item.clone();
        }
    }
}

/// What of another server's root of version 3 is about its group version.
pub fn filtered_v3_root(root: &Value, group: &str, version: &str) -> Map<String, Value> {
    let wanted = [format!("apis/{group}"), format!("apis/{group}/{version}")];
    let paths = root["paths"].as_object().into_iter().flatten();
    let paths = paths.filter(|(path, item)| wanted.contains(path) && item["serverRelativeURL"].is_string());
    paths.map(|(path, item)| (path.clone(), item.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_group_versions_own_paths_and_what_they_need_are_taken() {
        let document = json!({
            "paths": {
                "/apis/g/v1/things": {"get": {"responses": {"200": {"schema": {"$ref": "#/definitions/ThingList"}}}}},
                "/apis/g/v1beta1/things": {"get": {"schema": {"$ref": "#/definitions/Old"}}},
                "/api/v1/secrets": {"get": {"schema": {"$ref": "#/definitions/Secret"}}},
            },
            "definitions": {
                "ThingList": {"properties": {"items": {"items": {"$ref": "#/definitions/Thing"}}}},
                "Thing": {"properties": {"next": {"$ref": "#/definitions/Thing"}, "gone": {"$ref": "#/definitions/Gone"}}},
                "Old": {}, "Secret": {},
            },
        });
        let filtered = filtered_v2(&document, "g", "v1");
        let keys = |field: &str| filtered[field].as_object().expect("a map").keys().cloned().collect::<Vec<_>>();
        assert_eq!(
            (keys("paths"), keys("definitions")),
            (vec!["/apis/g/v1/things".to_owned()], vec!["Thing".to_owned(), "ThingList".to_owned()])
        );
    }

    #[test]
    fn shared_parameters_are_taken_along() {
        let body = json!({"in": "body", "schema": {"$ref": "#/definitions/Thing"}});
        let pretty = json!({"in": "query", "name": "pretty"});
        let document = json!({
            "paths": {"/apis/g/v1/things": {
                "post": {"parameters": [{"$ref": "#/parameters/body-1"}, {"in": "query", "name": "own"}]},
                "parameters": [{"$ref": "#/parameters/pretty-1"}, {"$ref": "#/parameters/gone"}],
            }},
            "parameters": {"body-1": body, "pretty-1": pretty},
            "definitions": {"Thing": {}},
        });
        let filtered = filtered_v2(&document, "g", "v1");
        let item = &filtered["paths"]["/apis/g/v1/things"];
        assert_eq!(item["post"]["parameters"], json!([body, {"in": "query", "name": "own"}]));
        assert_eq!(item["parameters"], json!([pretty, {"$ref": "#/parameters/gone"}]));
        assert!(filtered["definitions"]["Thing"].is_object(), "what they need is needed");
    }

    #[test]
    fn definitions_of_one_name_that_differ_are_told_apart() {
        let mut own = json!({
            "paths": {"/apis/g/v1/mine": {"get": 1}},
            "definitions": {"Meta": {"type": "object"}, "Status": {"a": 1, KINDS: [{"kind": "Status", "group": ""}]}},
        });
        let other = json!({
            "paths": {"/apis/g/v1/mine": {"get": 2}, "/apis/g/v1/things": {"$ref": "#/definitions/Meta"}},
            "definitions": {
                "Meta": {"type": "string"},
                "Thing": {"properties": {"metadata": {"$ref": "#/definitions/Meta"}}},
                "Status": {"a": 1, KINDS: [{"kind": "Status", "group": "g"}]},
            },
        });
        merge_v2(&mut own, &other);
        assert_eq!(own["paths"]["/apis/g/v1/mine"]["get"], 1, "what is there stays");
        assert_eq!(own["paths"]["/apis/g/v1/things"]["$ref"], "#/definitions/Meta_v2");
        assert_eq!(own["definitions"]["Meta_v2"]["type"], "string");
        assert_eq!(own["definitions"]["Thing"]["properties"]["metadata"]["$ref"], "#/definitions/Meta_v2");
        assert_eq!(own["definitions"]["Status"][KINDS].as_array().map(Vec::len), Some(2));
        let once = own.clone();
        merge_v2(&mut own, &other);
        assert_eq!(own, once, "the same again changes nothing");
    }

    #[test]
    fn another_servers_root_speaks_for_its_group_version_alone() {
        let root = json!({"paths": {
            "api/v1": {"serverRelativeURL": "/openapi/v3/api/v1?hash=EVIL"},
            "apis/g/v1": {"serverRelativeURL": "/openapi/v3/apis/g/v1?hash=A"},
            "apis/g": {"serverRelativeURL": 3},
        }});
        let paths = filtered_v3_root(&root, "g", "v1");
        assert_eq!(paths.keys().collect::<Vec<_>>(), ["apis/g/v1"]);
        let mut own = json!({"paths": {"api/v1": {"serverRelativeURL": "mine"}}});
        merge_v3_root(&mut own, &paths);
        assert_eq!(own["paths"]["apis/g/v1"]["serverRelativeURL"], "/openapi/v3/apis/g/v1?hash=A");
        assert!(filtered_v3_root(&json!("junk"), "g", "v1").is_empty());
    }
}
