//! The table holds all of what upstream's published files hold, and no more.

use std::path::{Path, PathBuf};

use facts::{Label, Member, Shape, Type, Wire};
use serde_json::Value;

fn read(path: PathBuf) -> Value {
    serde_json::from_slice(&std::fs::read(&path).expect("readable")).expect("JSON")
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> {
    std::fs::read_dir(folder).expect("readable").map(|entry| entry.expect("an entry").path())
}

#[test]
fn every_resource_of_discovery_has_its_verbs() {
    let versions =
        || facts::groups().iter().flat_map(|group| group.versions.iter().map(move |version| (group, version)));
    let ours = versions().flat_map(|(group, version)| {
        let line =
            move |name: &str, verbs: Vec<&str>| format!("{}/{} {name} {}", group.name, version.name, verbs.join(","));
        version.resources.iter().flat_map(move |resource| {
            let subresources = resource.subresources.iter();
            let subresources = subresources
                .map(move |sub| line(&format!("{}/{}", resource.plural, sub.name), sub.verbs.iter().collect()));
            std::iter::once(line(&resource.plural, resource.verbs.iter().collect())).chain(subresources)
        })
    });
    let theirs = goldens::upstream("discovery").map(|folder| {
        let of_version = |(group, version): (&str, &str)| {
            let name = match group {
                "" => format!("api__{version}.json"),
                group => format!("apis__{group}__{version}.json"),
            };
            let document = read(folder.join(name));
            let resources = document["resources"].as_array().expect("a list").iter();
            let line = |entry: &Value| {
                let verbs: Vec<&str> =
                    entry["verbs"].as_array().expect("verbs").iter().filter_map(Value::as_str).collect();
                format!("{group}/{version} {} {}", entry["name"].as_str().expect("a name"), verbs.join(","))
            };
            resources.map(line).collect::<Vec<_>>()
        };
        versions().flat_map(|(group, version)| of_version((&group.name, &version.name))).collect()
    });
    goldens::facts("facts/verbs", ours, theirs);
}

#[test]
fn every_schema_of_openapi_is_a_type() {
    // How many fields there are is compared where the JSON form is an object.
    let line = |name: &str, of: Option<&Type>, fields: usize| match of {
        Some(of) if of.shape == Shape::Object => format!("{name} {fields}"),
        _ => name.to_owned(),
    };
    let published = facts::table().types().filter(|(_, of)| of.published);
    let ours = published.map(|(_, of)| line(&of.name, Some(of), of.fields().len()));
    let theirs = goldens::upstream("openapi-v3").map(|folder| {
        let mut lines = std::collections::BTreeSet::new();
        for path in entries(&folder) {
            for (name, schema) in read(path)["components"]["schemas"].as_object().into_iter().flatten() {
                let properties = schema["properties"].as_object().map_or(0, serde_json::Map::len);
                lines.insert(line(name, facts::type_named(name).map(|id| id.def()), properties));
            }
        }
        lines.into_iter().collect()
    });
    goldens::facts("facts/types", ours, theirs);
}

#[test]
fn every_number_of_a_message_is_known() {
    let ours = facts::table().types().filter(|(_, of)| of.message).flat_map(|(_, of)| {
        of.members().map(|(number, member)| match member {
            Member::Field(field) => {
                let proto = field.proto.expect("a member has a number");
                let label = match proto.label {
                    Label::Repeated => "repeated",
                    Label::Single => "optional",
                    Label::Map => "map",
                };
                format!("{} {number} {label} {}", of.name, wire(proto.wire))
            }
            Member::Inlined(_) => format!("{} {number} optional message", of.name),
        })
    });
    let theirs = goldens::upstream("proto-tags.json").map(|file| {
        let mut lines = Vec::new();
        for (message, fields) in read(file).as_object().expect("an object") {
            let rest = message.strip_prefix("k8s.io.").expect("a name of Kubernetes").replace("_a", "-a");
            let name = format!("io.k8s.{rest}");
            if facts::type_named(&name).is_none() {
                continue;
            }
            for field in fields.as_object().expect("fields").values() {
                let label = field[2].as_str().filter(|label| !label.is_empty()).unwrap_or("map");
                let of = field[1].as_str().unwrap_or_default();
                let wire = match of.strip_prefix("map<string, ").and_then(|of| of.strip_suffix('>')).unwrap_or(of) {
                    scalar @ ("string" | "bytes" | "int32" | "int64" | "double" | "bool") => scalar,
                    _ => "message",
                };
                lines.push(format!("{name} {} {label} {wire}", field[0]));
            }
        }
        assert!(lines.len() > 3000, "only {} fields were read", lines.len());
        lines
    });
    goldens::facts("facts/numbers", ours, theirs);
}

fn wire(wire: Wire) -> &'static str {
    match wire {
        Wire::Bool => "bool",
        Wire::Int32 => "int32",
        Wire::Int64 => "int64",
        Wire::Double => "double",
        Wire::String => "string",
        Wire::Bytes => "bytes",
        Wire::Message(id) => {
            assert!(id.def().message, "{}", id.def().name);
            "message"
        }
    }
}

/// Upstream publishes an encoded object of many kinds; those of group versions that are served here must be messages of the table.
#[test]
fn every_golden_message_of_a_served_group_version_has_a_type() {
    let names = include_str!("messages.txt").lines().map(str::to_owned);
    let theirs = goldens::upstream("wire").map(|folder| {
        let names = entries(&folder).filter(|path| path.extension().is_some_and(|extension| extension == "pb"));
        names.map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned()).collect()
    });
    goldens::facts("facts/messages", names.clone(), theirs);
    let mut checked = 0;
    for name in names {
        let (rest, kind) = name.rsplit_once('.').expect("a kind");
        let (group, version) = rest.rsplit_once('.').expect("a version");
        let group = if group == "core" { "" } else { group };
        if facts::table().version(group, version).is_none() {
            continue;
        }
        // Served group versions also hold kinds of old that upstream still reads but no longer serves.
        let id = facts::type_of(group, version, kind).unwrap_or_else(|| panic!("{name} has no type"));
        assert!(id.def().message, "{name}");
        checked += 1;
    }
    assert!(checked > 50, "only {checked} messages were checked");
}
