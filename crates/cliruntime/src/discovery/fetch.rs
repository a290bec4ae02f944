//! Asks a server what it serves: in one answer for `/api` and one for `/apis`, or in one per version where it is too old for that.

use futures::future::join_all;
use serde::Deserialize;

use super::{Discovery, Entry, Group, Mapping, Resources, or_default};
use crate::api::{Api, decode};
use crate::error::Outcome;
use crate::kept::Kept;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

/// How long the server may take for each answer, where the user does not say.
pub const PATIENCE: &str = "32s";

/// Either form of answer: an `APIGroupDiscoveryList`, or `APIVersions` and `APIGroupList`.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Answer {
    kind: String,
    #[serde(deserialize_with = "or_default")]
    items: Vec<Aggregated>,
    #[serde(deserialize_with = "or_default")]
    versions: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    groups: Vec<super::cache::Named>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Aggregated {
    metadata: Name,
    #[serde(deserialize_with = "or_default")]
    versions: Vec<Version>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Name {
    name: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Version {
    version: String,
    freshness: String,
    #[serde(deserialize_with = "or_default")]
    resources: Vec<Resource>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Resource {
    resource: String,
    singular_resource: String,
    #[serde(deserialize_with = "or_default")]
    response_kind: ResponseKind,
    scope: String,
    #[serde(deserialize_with = "or_default")]
    short_names: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    categories: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    verbs: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    subresources: Vec<Subresource>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ResponseKind {
    kind: String,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Subresource {
    subresource: String,
    #[serde(deserialize_with = "or_default")]
    response_kind: ResponseKind,
    #[serde(deserialize_with = "or_default")]
    verbs: Vec<String>,
}

pub async fn fetch(api: &Api, kept: &Kept) -> Outcome<Discovery> {
    // A limit that the user gave goes with every request.
    let limit = |path: &str| if api.is_limited() { path.to_owned() } else { format!("{path}?timeout={PATIENCE}") };
    let mut found = Discovery { fresh: true, ..Discovery::default() };
    let mut old: Vec<(String, String, String)> = Vec::new();
    for root in ["/api", "/apis"] {
        let answer: Answer = decode(&kept.get(api, &limit(root), AGGREGATED).await?)?;
        if answer.kind == "APIGroupDiscoveryList" {
            for group in answer.items {
                aggregated(&mut found, group);
            }
        } else {
            old.extend(separate(&mut found, answer));
        }
    }
    let lists = old.iter().map(|(_, _, path)| async {
        let path = limit(path);
        decode::<Resources>(&kept.get(api, &path, crate::api::JSON).await?)
    });
    let lists = join_all(lists).await;
    for ((group, version, _), list) in old.iter().zip(lists) {
        match list {
            Ok(list) => {
                found.resources.extend(list.resources.into_iter().map(|one| Entry::mapping(one, group, version)));
            }
            Err(error) => found.failed.push((facts::api_version(group, version), error.bare())),
        }
    }
    Ok(found)
}

fn aggregated(found: &mut Discovery, group: Aggregated) {
    let name = group.metadata.name;
    let mut versions = Vec::new();
    for entry in group.versions {
        if entry.freshness == "Stale" {
            let version = facts::api_version(&name, &entry.version);
            let stale = format!("stale GroupVersion discovery: {version}");
            found.failed.push((version, stale));
        }
        for resource in entry.resources {
            push(found, &name, &entry.version, resource);
        }
        versions.push(entry.version);
    }
    let preferred = versions.first().cloned().unwrap_or_default();
    found.groups.push(Group { name, versions, preferred });
}

fn push(found: &mut Discovery, group: &str, version: &str, resource: Resource) {
    let whole = Mapping {
        group: group.to_owned(),
        version: version.to_owned(),
        resource: resource.resource,
        singular: resource.singular_resource,
        kind: resource.response_kind.kind,
        namespaced: resource.scope == "Namespaced",
        short_names: resource.short_names,
        categories: resource.categories,
        verbs: resource.verbs,
    };
    for part in resource.subresources {
        found.resources.push(Mapping {
            group: group.to_owned(),
            version: version.to_owned(),
            resource: format!("{}/{}", whole.resource, part.subresource),
            kind: part.response_kind.kind,
            namespaced: whole.namespaced,
            verbs: part.verbs,
            ..Mapping::default()
        });
    }
    // A resource without a kind only carries its subresources.
    if !whole.kind.is_empty() {
        found.resources.push(whole);
    }
}

/// The groups of an old answer, and what is still to be asked.
fn separate(found: &mut Discovery, answer: Answer) -> Vec<(String, String, String)> {
    let mut asked = Vec::new();
    if answer.kind == "APIVersions" {
        let versions = answer.versions;
        asked.extend(versions.iter().map(|version| (String::new(), version.clone(), format!("/api/{version}"))));
        let preferred = versions.first().cloned().unwrap_or_default();
        found.groups.push(Group { name: String::new(), versions, preferred });
        return asked;
    }
    for group in answer.groups.into_iter().map(Group::from) {
        let path = |version: &String| format!("/apis/{}/{version}", group.name);
        asked.extend(group.versions.iter().map(|version| (group.name.clone(), version.clone(), path(version))));
        found.groups.push(group);
    }
    asked
}
