//! The documents of old: one per root, group and group version. Fields are in the order of upstream's structs.

use facts::{Group, Version};
use serde::Serialize;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ApiVersions<'a> {
    kind: &'static str,
    versions: Vec<&'a str>,
    #[serde(rename = "serverAddressByClientCIDRs")]
    server_addresses: [ServerAddress<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ServerAddress<'a> {
    #[serde(rename = "clientCIDR")]
    client_cidr: &'static str,
    server_address: &'a str,
}

/// The root of the core group. It has no `apiVersion`: clients older than groups would not know it.
pub(super) fn api_versions<'a>(versions: Vec<&'a str>, server_address: &'a str) -> ApiVersions<'a> {
    let everyone = ServerAddress { client_cidr: "0.0.0.0/0", server_address };
    ApiVersions { kind: "APIVersions", versions, server_addresses: [everyone] }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GroupList<'a> {
    kind: &'static str,
    api_version: &'static str,
    groups: Vec<ApiGroup<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ApiGroup<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    api_version: Option<&'static str>,
    name: &'a str,
    versions: Vec<GroupVersion<'a>>,
    preferred_version: Option<GroupVersion<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GroupVersion<'a> {
    group_version: String,
    version: &'a str,
}

/// The list of groups.
pub(super) fn group_list<'a>(groups: impl Iterator<Item = &'a Group>) -> GroupList<'a> {
    let groups = groups.map(|of| ApiGroup { kind: None, api_version: None, ..group(of) });
    GroupList { kind: "APIGroupList", api_version: "v1", groups: groups.collect() }
}

pub(super) fn group(group: &Group) -> ApiGroup<'_> {
    let name = |version: &Version| facts::api_version(&group.name, &version.name);
    let mut versions = group.versions.iter().map(|of| GroupVersion { group_version: name(of), version: &of.name });
    let preferred_version = versions.clone().next();
    let versions = versions.by_ref().collect();
    ApiGroup { kind: Some("APIGroup"), api_version: Some("v1"), name: &group.name, versions, preferred_version }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ResourceList<'a> {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    api_version: Option<&'static str>,
    group_version: String,
    resources: Vec<ApiResource<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ApiResource<'a> {
    name: String,
    singular_name: &'a str,
    namespaced: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'a str>,
    kind: &'a str,
    verbs: Vec<&'static str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    short_names: &'a [facts::Str],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    categories: &'a [facts::Str],
    #[serde(skip_serializing_if = "Option::is_none")]
    storage_version_hash: Option<&'a str>,
}

/// The resources of a group version, each followed by its subresources. The core group's list has no
/// `apiVersion`, as its root has none.
pub(super) fn resource_list<'a>(group: &str, version: &'a Version) -> ResourceList<'a> {
    let mut resources = Vec::new();
    for resource in &version.resources {
        resources.push(ApiResource {
            name: resource.plural.to_string(),
            singular_name: &resource.singular,
            namespaced: resource.namespaced,
            group: None,
            version: None,
            kind: &resource.kind,
            verbs: super::verbs(resource),
            short_names: &resource.short_names,
            categories: &resource.categories,
            storage_version_hash: resource.storage_version_hash.as_deref(),
        });
        resources.extend(resource.subresources.iter().map(|sub| ApiResource {
            name: format!("{}/{}", resource.plural, sub.name),
            singular_name: "",
            namespaced: resource.namespaced,
            group: sub.kind_of.as_ref().map(|(group, _)| &**group),
            version: sub.kind_of.as_ref().map(|(_, version)| &**version),
            kind: &sub.kind,
            verbs: sub.verbs.iter().collect(),
            short_names: &[],
            categories: &[],
            storage_version_hash: None,
        }));
    }
    ResourceList {
        kind: "APIResourceList",
        api_version: (!group.is_empty()).then_some("v1"),
        group_version: facts::api_version(group, &version.name),
        resources,
    }
}
