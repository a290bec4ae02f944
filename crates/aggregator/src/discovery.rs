//! Discovery with the resources of other servers in it: reading what they say, and merging it into what this server says itself.
//! All of it is pure, and about documents: this server's own are merged as the bytes that they are, whoever made them.

use std::collections::HashMap;

use machinery::{Value, value};
use serde_json::json;

use crate::priorities::Priority;
use crate::service::by_version;

/// A version of a group for discovery: whose it is, its place, and in aggregated discovery what is in it.
#[derive(Debug, Clone)]
pub struct Entry {
    pub group: String,
    pub version: String,
    pub priority: Priority,
    /// Its `APIVersionDiscovery`.
    pub document: Value,
}

/// Reads aggregated discovery (`apidiscovery.k8s.io/v2`): the document of one version of a group.
pub fn read_aggregated(document: &Value, group: &str, version: &str) -> Option<Value> {
    if !matches!(value::text(document, "kind"), "APIGroupDiscoveryList") {
        return None;
    }
    let of_group = value::list(document, "items").iter().filter(|item| value::text(item, "metadata.name") == group);
    let mut versions = of_group.flat_map(|item| value::list(item, "versions"));
    let mut found = versions.find(|found| value::text(found, "version") == version).cloned();
    for resource in found.iter_mut().flat_map(|found| value::list_mut(found, "resources")) {
        // Some clients cannot do without.
        name_kind(resource);
        value::list_mut(resource, "subresources").iter_mut().for_each(name_kind);
    }
    found
}

fn name_kind(resource: &mut Value) {
    if resource.is_object() && !resource["responseKind"].is_object() {
        resource["responseKind"] = json!({"group": "", "version": "", "kind": ""});
    }
}

/// Reads the discovery of old, an `APIResourceList`, as if it were of today.
pub fn read_legacy(document: &Value, version: &str) -> Option<Value> {
    if value::text(document, "kind") != "APIResourceList" {
        return None;
    }
    let mut resources: Vec<Value> = Vec::new();
    let listed = value::list(document, "resources");
    for found in listed.iter().filter(|found| !value::text(found, "name").contains('/')) {
        let mut resource = json!({
            "resource": found["name"],
            "responseKind": response_kind(found),
            "scope": if value::flag(found, "namespaced") { "Namespaced" } else { "Cluster" },
            "singularResource": value::text(found, "singularName"),
            "verbs": found["verbs"],
        });
        for list in ["shortNames", "categories"] {
            if !value::list(found, list).is_empty() {
                resource[list] = found[list].clone();
            }
        }
        resources.push(resource);
    }
    for found in listed {
        let Some((name, subresource)) = value::text(found, "name").split_once('/') else { continue };
        let entry = json!({"subresource": subresource, "responseKind": response_kind(found), "verbs": found["verbs"]});
        let parent = resources.iter_mut().find(|resource| value::text(resource, "resource") == name);
        // A subresource without its resource is told with a resource that has nothing else.
        let parent = match parent {
            Some(parent) => parent,
            None => {
                let scope = if value::flag(found, "namespaced") { "Namespaced" } else { "Cluster" };
                resources.push(json!({"resource": name, "responseKind": {"group": "", "version": "", "kind": ""}, "scope": scope, "singularResource": "", "verbs": []}));
                resources.last_mut()?
            }
        };
        let mut all = value::list(parent, "subresources").to_vec();
        all.push(entry);
        parent["subresources"] = Value::Array(all);
    }
    Some(json!({"version": version, "resources": resources}))
}

fn response_kind(found: &Value) -> Value {
    let text = |path: &str| value::text(found, path);
    json!({"group": text("group"), "version": text("version"), "kind": text("kind")})
}

/// The document of a version with how fresh it is. One that was never read has nothing in it.
pub fn with_freshness(document: Option<&Value>, version: &str, fresh: bool) -> Value {
    let mut document = document.cloned().unwrap_or_else(|| json!({"version": version}));
    document["freshness"] = json!(if fresh { "Current" } else { "Stale" });
    document
}

/// An `APIGroupDiscoveryList` with these versions among its own. `place` tells where this server's own ones come; a version
/// that both have is the other server's.
pub fn merge_aggregated(own: &mut Value, others: &[Entry], place: impl Fn(&str, &str) -> Priority) {
    let Some(items) = own.get_mut("items").and_then(Value::as_array_mut) else { return };
    for entry in others {
        let item = match items.iter_mut().find(|item| value::text(item, "metadata.name") == entry.group) {
            Some(item) => item,
            None => {
                items.push(json!({"metadata": {"name": entry.group}, "versions": []}));
                items.last_mut().expect("just pushed")
            }
        };
        let Some(versions) = item.get_mut("versions").and_then(Value::as_array_mut) else { continue };
        versions.retain(|version| value::text(version, "version") != entry.version);
        versions.push(entry.document.clone());
    }
    let place = placed(others, place);
    for item in items.iter_mut() {
        let group = value::text(item, "metadata.name").to_owned();
        sort_versions(item, &group, "version", &place);
    }
    sort_groups(items, "metadata.name", |item| &item["versions"], &place);
}

/// An `APIGroupList` with these versions among its own.
pub fn merge_groups(own: &mut Value, others: &[Entry], place: impl Fn(&str, &str) -> Priority) {
    let Some(groups) = own.get_mut("groups").and_then(Value::as_array_mut) else { return };
    for entry in others {
        if !groups.iter().any(|group| value::text(group, "name") == entry.group) {
            groups.push(json!({"name": entry.group, "versions": []}));
        }
    }
    let place = placed(others, place);
    for group in groups.iter_mut() {
        let name = value::text(group, "name").to_owned();
        let of_group: Vec<&Entry> = others.iter().filter(|entry| entry.group == name).collect();
        add_versions(group, &of_group, &place);
    }
    sort_groups(groups, "name", |group| &group["versions"], &place);
}

/// An `APIGroup` with these versions of it among its own; `own` is nothing for a group that only other servers have.
pub fn merge_group(
    own: Option<Value>,
    name: &str,
    others: &[Entry],
    place: impl Fn(&str, &str) -> Priority,
) -> Option<Value> {
    let of_group: Vec<&Entry> = others.iter().filter(|entry| entry.group == name).collect();
    if own.is_none() && of_group.is_empty() {
        return None;
    }
    let new = || json!({"kind": "APIGroup", "apiVersion": "v1", "name": name, "versions": []});
    let mut group = own.unwrap_or_else(new);
    add_versions(&mut group, &of_group, &placed(others, place));
    Some(group)
}

fn add_versions(group: &mut Value, others: &[&Entry], place: &impl Fn(&str, &str) -> Priority) {
    if others.is_empty() {
        return;
    }
    let name = value::text(group, "name").to_owned();
    let Some(versions) = group.get_mut("versions").and_then(Value::as_array_mut) else { return };
    for entry in others {
        if !versions.iter().any(|version| value::text(version, "version") == entry.version) {
            versions.push(json!({"groupVersion": format!("{name}/{}", entry.version), "version": entry.version}));
        }
    }
    sort_versions(group, &name, "version", place);
    group["preferredVersion"] = group["versions"][0].clone();
}

/// Where a version comes: as its APIService says, or as this server's own do.
fn placed(others: &[Entry], place: impl Fn(&str, &str) -> Priority) -> impl Fn(&str, &str) -> Priority {
    let known: HashMap<(String, String), Priority> =
        others.iter().map(|entry| ((entry.group.clone(), entry.version.clone()), entry.priority)).collect();
    move |group: &str, version: &str| {
        let known = known.get(&(group.to_owned(), version.to_owned()));
        known.copied().unwrap_or_else(|| place(group, version))
    }
}

fn sort_versions(item: &mut Value, group: &str, name: &str, place: &impl Fn(&str, &str) -> Priority) {
    let Some(versions) = item.get_mut("versions").and_then(Value::as_array_mut) else { return };
    versions.sort_by(|a, b| {
        let of = |version: &Value| value::text(version, name).to_owned();
        let (a, b) = (of(a), of(b));
        by_version((&a, place(group, &a).version), (&b, place(group, &b).version))
    });
}

/// The group of the highest priority that one of its versions has comes first, and then by name.
fn sort_groups(
    groups: &mut [Value],
    name: &str,
    versions: impl Fn(&Value) -> &Value,
    place: &impl Fn(&str, &str) -> Priority,
) {
    groups.sort_by_cached_key(|group| {
        let of = value::text(group, name).to_owned();
        let versions = versions(group).as_array().into_iter().flatten();
        let highest = versions.map(|version| place(&of, value::text(version, "version")).group).max();
        (std::cmp::Reverse(highest.unwrap_or_default()), of)
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(group: &str, version: &str, of_group: i64, of_version: i64) -> Entry {
        Entry {
            group: group.to_owned(),
            version: version.to_owned(),
            priority: Priority { group: of_group, version: of_version },
            document: with_freshness(None, version, false),
        }
    }

    fn place(group: &str, version: &str) -> Priority {
        crate::priorities::built_in(group, version).unwrap_or(crate::priorities::CUSTOM)
    }

    #[test]
    fn groups_and_versions_are_merged_by_priority() {
        let mut own = json!({"items": [
            {"metadata": {"name": "apps"}, "versions": [{"version": "v1", "freshness": "Current"}]},
            {"metadata": {"name": "policy"}, "versions": [{"version": "v1", "freshness": "Current"}]},
            {"metadata": {"name": "zoo.example"}, "versions": [{"version": "v1"}]},
        ]});
        let others = [
            entry("wardle.example", "v1alpha1", 17500, 1),
            entry("wardle.example", "v1", 20, 2),
            entry("zoo.example", "v2", 1000, 100),
            entry("apps", "v2", 1, 1),
        ];
        merge_aggregated(&mut own, &others, place);
        let shown: Vec<String> = value::list(&own, "items")
            .iter()
            .map(|item| {
                let versions: Vec<&str> =
                    value::list(item, "versions").iter().map(|version| value::text(version, "version")).collect();
                format!("{} {}", value::text(item, "metadata.name"), versions.join(" "))
            })
            .collect();
        assert_eq!(shown, ["apps v1 v2", "wardle.example v1 v1alpha1", "policy v1", "zoo.example v2 v1"]);
        assert_eq!(own["items"][1]["versions"][0]["freshness"], "Stale");

        let mut own = json!({"groups": [{"name": "apps", "versions": [{"groupVersion": "apps/v1", "version": "v1"}], "preferredVersion": {"groupVersion": "apps/v1", "version": "v1"}}]});
        merge_groups(&mut own, &others, place);
        assert_eq!(own["groups"][1]["name"], "wardle.example");
        assert_eq!(own["groups"][1]["preferredVersion"]["groupVersion"], "wardle.example/v1");
        assert_eq!(own["groups"][0]["versions"].as_array().map(Vec::len), Some(2));
        let group = merge_group(None, "wardle.example", &others, place).expect("a group of another server");
        assert_eq!((&group["kind"], &group["versions"][1]["version"]), (&json!("APIGroup"), &json!("v1alpha1")));
        assert!(merge_group(None, "nobodys.example", &others, place).is_none());
    }

    #[test]
    fn what_other_servers_say_is_read_in_both_forms() {
        let aggregated = json!({"kind": "APIGroupDiscoveryList", "items": [{"metadata": {"name": "g"}, "versions": [
            {"version": "v1", "resources": [{"resource": "things", "subresources": [{"subresource": "status"}]}]}]}]});
        let read = read_aggregated(&aggregated, "g", "v1").expect("the version");
        assert!(read["resources"][0]["responseKind"].is_object());
        assert!(read["resources"][0]["subresources"][0]["responseKind"].is_object());
        assert!(read_aggregated(&aggregated, "g", "v2").is_none());
        let legacy = json!({"kind": "APIResourceList", "resources": [
            {"name": "things", "singularName": "thing", "namespaced": true, "kind": "Thing", "verbs": ["get"], "shortNames": ["th"]},
            {"name": "things/status", "namespaced": true, "kind": "Thing", "verbs": ["get", "update"]},
            {"name": "lone/scale", "namespaced": false, "group": "autoscaling", "version": "v1", "kind": "Scale", "verbs": ["get"]}]});
        let read = read_legacy(&legacy, "v1").expect("a list");
        assert_eq!(read["resources"][0]["scope"], "Namespaced");
        assert_eq!(read["resources"][0]["subresources"][0]["subresource"], "status");
        assert_eq!(read["resources"][1]["subresources"][0]["responseKind"]["kind"], "Scale");
        for garbage in [json!(null), json!([]), json!({"kind": "Status"}), json!({"kind": 3})] {
            assert!(read_aggregated(&garbage, "g", "v1").is_none() && read_legacy(&garbage, "v1").is_none());
        }
    }
}
