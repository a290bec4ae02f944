//! Aggregated discovery: all groups, versions and resources in one document.

use facts::{Group, Resource, Str, Subresource, Version};
use serde::Serialize;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GroupDiscoveryList<'a> {
    kind: &'static str,
    api_version: &'static str,
    metadata: NoMetadata,
    items: Vec<GroupDiscovery<'a>>,
}

#[derive(Serialize)]
struct NoMetadata {}

#[derive(Serialize)]
struct Metadata<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
}

#[derive(Serialize)]
struct GroupDiscovery<'a> {
    metadata: Metadata<'a>,
    versions: Vec<VersionDiscovery<'a>>,
}

#[derive(Serialize)]
struct VersionDiscovery<'a> {
    version: &'a str,
    resources: Vec<ResourceDiscovery<'a>>,
    freshness: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceDiscovery<'a> {
    resource: &'a str,
    response_kind: ResponseKind<'a>,
    scope: &'static str,
    singular_resource: &'a str,
    verbs: Vec<&'static str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    short_names: &'a [Str],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    categories: &'a [Str],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    subresources: Vec<SubresourceDiscovery<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SubresourceDiscovery<'a> {
    subresource: &'a str,
    response_kind: ResponseKind<'a>,
    verbs: Vec<&'static str>,
}

/// Group and version are empty where they are those of the built-in resource: clients fill them in.
#[derive(Serialize)]
struct ResponseKind<'a> {
    group: &'a str,
    version: &'a str,
    kind: &'a str,
}

/// The document of these groups.
pub(super) fn list<'a>(api_version: &'static str, groups: impl Iterator<Item = &'a Group>) -> GroupDiscoveryList<'a> {
    let items = groups.map(|group| GroupDiscovery {
        metadata: Metadata { name: &group.name },
        versions: group.versions.iter().map(version).collect(),
    });
    GroupDiscoveryList { kind: "APIGroupDiscoveryList", api_version, metadata: NoMetadata {}, items: items.collect() }
}

fn version(version: &Version) -> VersionDiscovery<'_> {
    let resources = version.resources.iter().map(resource).collect();
    VersionDiscovery { version: &version.name, resources, freshness: "Current" }
}

/// Where the objects of a resource are, as far as it is told.
fn home(resource: &Resource) -> (&str, &str) {
    if resource.is_custom() { (&resource.group, &resource.version) } else { ("", "") }
}

fn resource(resource: &Resource) -> ResourceDiscovery<'_> {
    let (group, version) = home(resource);
    ResourceDiscovery {
        resource: &resource.plural,
        response_kind: ResponseKind { group, version, kind: &resource.kind },
        scope: if resource.namespaced { "Namespaced" } else { "Cluster" },
        singular_resource: &resource.singular,
        verbs: super::verbs(resource),
        short_names: &resource.short_names,
        categories: &resource.categories,
        subresources: resource.subresources.iter().map(|sub| subresource(resource, sub)).collect(),
    }
}

fn subresource<'a>(resource: &'a Resource, sub: &'a Subresource) -> SubresourceDiscovery<'a> {
    let (group, version) =
        sub.kind_of.as_ref().map_or_else(|| home(resource), |(group, version)| (&**group, &**version));
    SubresourceDiscovery {
        subresource: &sub.name,
        response_kind: ResponseKind { group, version, kind: &sub.kind },
        verbs: sub.verbs.iter().collect(),
    }
}
