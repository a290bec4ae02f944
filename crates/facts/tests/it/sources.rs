//! The table holds all of what the sources hold.

use std::path::PathBuf;

use facts::{Label, Member, Shape, Wire};
use serde_json::Value;

use crate::generator;

fn sources() -> Option<PathBuf> {
    let folder = generator::default_folder();
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!("skipped: no upstream facts beside the workspace");
    None
}

fn read(path: PathBuf) -> Value {
    serde_json::from_slice(&std::fs::read(&path).expect("readable")).expect("JSON")
}

#[test]
fn every_resource_of_discovery_has_its_verbs() {
    let Some(folder) = sources() else { return };
    for version in facts::groups().iter().flat_map(|group| group.versions.iter().map(move |version| (group, version))) {
        let (group, version) = version;
        let name = match &*group.name {
            "" => format!("api__{}.json", version.name),
            group => format!("apis__{group}__{}.json", version.name),
        };
        let document = read(folder.join("discovery").join(name));
        let expected = document["resources"].as_array().expect("a list").len();
        let found: usize = version.resources.iter().map(|resource| 1 + resource.subresources.len()).sum();
        assert_eq!(found, expected, "{}/{}", group.name, version.name);
        for entry in document["resources"].as_array().expect("a list") {
            let name = entry["name"].as_str().expect("a name");
            let (plural, sub) = name.split_once('/').map_or((name, None), |(plural, sub)| (plural, Some(sub)));
            let resource = facts::resource(&group.name, &version.name, plural).expect("is in the table");
            let verbs = sub.map_or(resource.verbs, |sub| resource.subresource(sub).expect("is in the table").verbs);
            assert!(
                verbs.iter().eq(entry["verbs"].as_array().expect("verbs").iter().filter_map(Value::as_str)),
                "{name}"
            );
        }
    }
}

#[test]
fn every_schema_of_openapi_is_a_type() {
    let Some(folder) = sources() else { return };
    let mut names = std::collections::BTreeSet::new();
    for entry in std::fs::read_dir(folder.join("openapi-v3")).expect("readable") {
        let document = read(entry.expect("an entry").path());
        for (name, schema) in document["components"]["schemas"].as_object().into_iter().flatten() {
            let of = facts::type_named(name).unwrap_or_else(|| panic!("{name} is missing")).def();
            let properties = schema["properties"].as_object().map_or(0, serde_json::Map::len);
            if of.shape == Shape::Object {
                assert_eq!(of.fields().len(), properties, "{name}");
            }
            names.insert(name.clone());
        }
    }
    let published = facts::table().types().filter(|(_, of)| of.published).count();
    assert_eq!(published, names.len());
}

#[test]
fn every_number_of_a_message_is_known() {
    let Some(folder) = sources() else { return };
    let messages = read(folder.join("proto-tags.json"));
    let mut checked = 0;
    for (message, fields) in messages.as_object().expect("an object") {
        let rest = message.strip_prefix("k8s.io.").expect("a name of Kubernetes").replace("_a", "-a");
        let Some(id) = facts::type_named(&format!("io.k8s.{rest}")) else { continue };
        let of = id.def();
        assert!(of.message, "{message}");
        assert_eq!(of.members().len(), fields.as_object().expect("fields").len(), "{message}");
        for (name, field) in fields.as_object().expect("fields") {
            let number = field[0].as_u64().expect("a number") as u32;
            let member = of.member(number).unwrap_or_else(|| panic!("{message}.{name} is missing"));
            if let Member::Field(found) = member {
                let proto = found.proto.expect("a member has a number");
                let label = match field[2].as_str() {
                    Some("repeated") => Label::Repeated,
                    Some("optional") => Label::Single,
                    _ => Label::Map,
                };
                assert_eq!(proto.label, label, "{message}.{name}");
                let expected = match field[1].as_str() {
                    Some("string" | "map<string, string>") => Some(Wire::String),
                    Some("bytes" | "map<string, bytes>") => Some(Wire::Bytes),
                    Some("int32") => Some(Wire::Int32),
                    Some("int64") => Some(Wire::Int64),
                    Some("double") => Some(Wire::Double),
                    Some("bool") => Some(Wire::Bool),
                    _ => None,
                };
                match expected {
                    Some(wire) => assert_eq!(proto.wire, wire, "{message}.{name}"),
                    None => assert!(matches!(proto.wire, Wire::Message(id) if id.def().message), "{message}.{name}"),
                }
            }
            checked += 1;
        }
    }
    assert!(checked > 3000, "only {checked} fields were checked");
}

#[test]
fn every_golden_message_of_a_served_group_version_has_a_type() {
    let Some(folder) = sources() else { return };
    let mut checked = 0;
    for entry in std::fs::read_dir(folder.join("wire")).expect("readable") {
        let name = entry.expect("an entry").file_name().into_string().expect("UTF-8");
        let Some(name) = name.strip_suffix(".pb") else { continue };
        let (rest, kind) = name.rsplit_once('.').expect("a kind");
        let (group, version) = rest.rsplit_once('.').expect("a version");
        let group = if group == "core" { "" } else { group };
        if facts::table().version(group, version).is_none() {
            continue;
        }
        // Served group versions also hold kinds of old that upstream still reads but no longer serves.
        match facts::type_of(group, version, kind) {
            Some(id) => assert!(id.def().message, "{name}"),
            None => panic!("{name} has no type"),
        }
        checked += 1;
    }
    assert!(checked > 50, "only {checked} messages were checked");
}
