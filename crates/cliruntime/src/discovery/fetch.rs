//! Asks a server what it serves: in one answer for `/api` and one for `/apis`, or in one per version where it is too old for that.

use futures::future::join_all;
use serde_json::Value;

use super::{Discovery, Group, Mapping};
use crate::api::Api;
use crate::error::Outcome;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

/// How long the server may take for each answer, where the user does not say.
pub const PATIENCE: &str = "32s";

pub async fn fetch(api: &Api) -> Outcome<Discovery> {
    // A limit that the user gave goes with every request.
    let limit = |path: &str| if api.is_limited() { path.to_owned() } else { format!("{path}?timeout={PATIENCE}") };
    let (all, groups) = (limit("/api"), limit("/apis"));
    let (core, named) = futures::join!(api.get_as(&all, AGGREGATED), api.get_as(&groups, AGGREGATED));
    let (core, named) = (core?, named?);
    let mut found = Discovery { fresh: true, ..Discovery::default() };
    let mut old: Vec<(String, String, String)> = Vec::new();
    for answer in [&core, &named] {
        if answer.get("kind").and_then(Value::as_str) == Some("APIGroupDiscoveryList") {
            for group in items(answer, "items") {
                aggregated(&mut found, group);
            }
        } else {
            old.extend(separate(&mut found, answer));
        }
    }
    let paths: Vec<String> = old.iter().map(|(_, _, path)| limit(path)).collect();
    let lists = join_all(paths.iter().map(|path| api.get(path))).await;
    for ((group, version, _), list) in old.iter().zip(lists) {
        match list {
            Ok(list) => {
                found
                    .resources
                    .extend(items(&list, "resources").iter().map(|one| Mapping::from_value(one, group, version)));
            }
            Err(error) => found.failed.push((facts::api_version(group, version), error.bare())),
        }
    }
    Ok(found)
}

fn items<'a>(tree: &'a Value, name: &str) -> &'a [Value] {
    tree.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn text<'a>(tree: &'a Value, name: &str) -> &'a str {
    tree.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn aggregated(found: &mut Discovery, group: &Value) {
    let name = machinery::value::text(group, "metadata.name").to_owned();
    let mut versions = Vec::new();
    for entry in items(group, "versions") {
        let version = text(entry, "version");
        versions.push(version.to_owned());
        if text(entry, "freshness") == "Stale" {
            let stale = "stale GroupVersion discovery";
            found
                .failed
                .push((facts::api_version(&name, version), format!("{stale}: {}", facts::api_version(&name, version))));
        }
        for resource in items(entry, "resources") {
            push(found, &name, version, resource);
        }
    }
    let preferred = versions.first().cloned().unwrap_or_default();
    found.groups.push(Group { name, versions, preferred });
}

fn push(found: &mut Discovery, group: &str, version: &str, resource: &Value) {
    let strings = |tree: &Value, name: &str| {
        items(tree, name).iter().filter_map(|item| item.as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    let kind = |tree: &Value| machinery::value::text(tree, "responseKind.kind").to_owned();
    let namespaced = text(resource, "scope") == "Namespaced";
    let whole = Mapping {
        group: group.to_owned(),
        version: version.to_owned(),
        resource: text(resource, "resource").to_owned(),
        singular: text(resource, "singularResource").to_owned(),
        kind: kind(resource),
        namespaced,
        short_names: strings(resource, "shortNames"),
        categories: strings(resource, "categories"),
        verbs: strings(resource, "verbs"),
    };
    for part in items(resource, "subresources") {
        found.resources.push(Mapping {
            resource: format!("{}/{}", whole.resource, text(part, "subresource")),
            kind: kind(part),
            verbs: strings(part, "verbs"),
            short_names: Vec::new(),
            categories: Vec::new(),
            singular: String::new(),
            ..whole.clone()
        });
    }
    // A resource without a kind only carries its subresources.
    if !whole.kind.is_empty() {
        found.resources.push(whole);
    }
}

/// The groups of an old answer, and what is still to be asked.
fn separate(found: &mut Discovery, answer: &Value) -> Vec<(String, String, String)> {
    let mut asked = Vec::new();
    if text(answer, "kind") == "APIVersions" {
        let versions: Vec<String> =
            items(answer, "versions").iter().filter_map(|v| v.as_str().map(str::to_owned)).collect();
        asked.extend(versions.iter().map(|version| (String::new(), version.clone(), format!("/api/{version}"))));
        let preferred = versions.first().cloned().unwrap_or_default();
        found.groups.push(Group { name: String::new(), versions, preferred });
        return asked;
    }
    for group in items(answer, "groups") {
        let name = text(group, "name").to_owned();
        let versions: Vec<String> =
            items(group, "versions").iter().map(|entry| text(entry, "version").to_owned()).collect();
        asked.extend(versions.iter().map(|version| (name.clone(), version.clone(), format!("/apis/{name}/{version}"))));
        let preferred = machinery::value::text(group, "preferredVersion.version").to_owned();
        found.groups.push(Group { name, versions, preferred });
    }
    asked
}
