//! Discovery: which groups, versions and resources are served.
//!
//! Everything here is a pure function of a list of groups: the built-in ones that are enabled, followed by
//! those of custom resources. When that list changes a new [`Discovery`] takes the place of the old one.
//! [`legacy`] has a document per group version, [`aggregated`] has all of them in one.

mod aggregated;
mod legacy;
#[cfg(test)]
mod tests;

use std::sync::OnceLock;

use bytes::Bytes;
use facts::{Group, Version};
use ring::digest::{SHA512, digest};
use serde::Serialize;

pub use gates::forms::Aggregated;

/// A document with the tag by which clients recognize a copy that they have.
#[derive(Clone, Debug)]
pub struct Document {
    pub body: Bytes,
    /// What identifies its content, without quotes: upper-case hexadecimal digits, as upstream writes them.
    pub etag: String,
}

impl Document {
    /// A document of these bytes.
    pub fn new(body: impl Into<Bytes>) -> Document {
        let body = body.into();
        Document { etag: etag(&body), body }
    }

    fn json(value: &impl Serialize) -> Document {
        Document::new(to_json(value))
    }
}

/// The tag of a document's content.
pub fn etag(body: &[u8]) -> String {
    digest(&SHA512, body).as_ref().iter().map(|byte| format!("{byte:02X}")).collect()
}

/// The two roots of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Root {
    /// `/api`: the core group.
    Api,
    /// `/apis`: every other group.
    Apis,
}

/// The discovery documents of what is served.
#[derive(Debug)]
pub struct Discovery {
    groups: Vec<Group>,
    /// By root and version; made when first asked for.
    aggregated: [[OnceLock<Document>; 2]; 2],
}

impl Discovery {
    /// The documents of these groups, which are in the order of discovery, the preferred version of each first.
    pub fn new(groups: Vec<Group>) -> Discovery {
        Discovery { groups, aggregated: Default::default() }
    }

    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// `/api`: the versions of the core group, and the `host:port` at which clients reach this server.
    pub fn api_versions(&self, server_address: &str) -> Bytes {
        let core = self.groups.iter().filter(|group| group.name.is_empty());
        let versions = core.flat_map(|group| &group.versions).map(|version| &*version.name).collect();
        to_json(&legacy::api_versions(versions, server_address))
    }

    /// `/apis`: every group but the core group.
    pub fn group_list(&self) -> Bytes {
        to_json(&legacy::group_list(self.groups.iter().filter(|group| !group.name.is_empty())))
    }

    /// `/apis/GROUP`, if it is served.
    pub fn group(&self, name: &str) -> Option<Bytes> {
        let group = self.groups.iter().find(|group| group.name == name && !name.is_empty())?;
        Some(to_json(&legacy::group(group)))
    }

    /// `/api/VERSION` and `/apis/GROUP/VERSION`, if it is served.
    pub fn resources(&self, group: &str, version: &str) -> Option<Bytes> {
        let found = self.groups.iter().find(|found| found.name == group)?;
        let version = found.versions.iter().find(|found| found.name == version)?;
        Some(to_json(&legacy::resource_list(group, version)))
    }

    /// `/api` and `/apis` for clients that ask for all of it at once.
    pub fn aggregated(&self, root: Root, version: Aggregated) -> &Document {
        self.aggregated[root as usize][version as usize].get_or_init(|| {
            let of_root = |group: &&Group| group.name.is_empty() == (root == Root::Api);
            Document::json(&aggregated::list(version.api_version(), self.groups.iter().filter(of_root)))
        })
    }
}

/// The built-in groups with the versions that `serves` lets through; groups without any are left out.
pub fn built_in(serves: impl Fn(&str, &Version) -> bool) -> Vec<Group> {
    let enabled = facts::groups().iter().map(|group| Group {
        name: group.name.clone(),
        versions: group.versions.iter().filter(|version| serves(&group.name, version)).cloned().collect(),
    });
    enabled.filter(|group| !group.versions.is_empty()).collect()
}

/// The verbs of a resource in upstream's order, which is another one for custom resources.
fn verbs(resource: &facts::Resource) -> Vec<&'static str> {
    let mut verbs: Vec<&'static str> = resource.verbs.iter().collect();
    let created = verbs.iter().position(|verb| *verb == "create").filter(|_| resource.is_custom());
    if let Some(created) = created {
        verbs.remove(created);
        let updated = verbs.iter().position(|verb| *verb == "update").unwrap_or(verbs.len());
        verbs.insert(updated, "create");
    }
    verbs
}

fn to_json(value: &impl Serialize) -> Bytes {
    serde_json::to_vec(value).expect("documents are structs and lists of strings").into()
}
