//! What a resource is called: group, version, kind, name and namespace, and how these are compared.

use std::fmt;

use serde::Deserialize;

use crate::schema;

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct Gvk {
    pub group: String,
    pub version: String,
    pub kind: String,
}

impl Gvk {
    pub fn new(api_version: &str, kind: &str) -> Self {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        Self { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned() }
    }

    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Whether every part that a selector names is the same.
    pub fn is_selected(&self, selector: &Self) -> bool {
        let fits = |part: &str, wanted: &str| wanted.is_empty() || part == wanted;
        fits(&self.group, &selector.group) && fits(&self.version, &selector.version) && fits(&self.kind, &selector.kind)
    }

    pub fn is_cluster_scoped(&self) -> bool {
        schema::scope(&self.api_version(), &self.kind) == Some(schema::Scope::Cluster)
    }

    /// What kinds are sorted by where their place in an order is the same.
    pub fn sort_key(&self) -> String {
        let or = |part: &str, absent: &str| if part.is_empty() { absent.to_owned() } else { part.to_owned() };
        format!("{}_{}_{}", or(&self.group, "~G"), or(&self.version, "~V"), or(&self.kind, "~K"))
    }
}

impl fmt::Display for Gvk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or = |part: &str, absent: &str| if part.is_empty() { absent.to_owned() } else { part.to_owned() };
        let (kind, version) = (or(&self.kind, "[noKind]"), or(&self.version, "[noVer]"));
        write!(f, "{kind}.{version}.{}", or(&self.group, "[noGrp]"))
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct Id {
    #[serde(flatten)]
    pub gvk: Gvk,
    pub name: String,
    pub namespace: String,
}

/// Group, version, kind, name and effective namespace.
pub type Key = (Gvk, String, String);

/// The namespace of what is in none.
const NOWHERE: &str = "_non_namespaceable_";

impl Id {
    pub fn effective_namespace(&self) -> &str {
        if self.gvk.is_cluster_scoped() {
            return NOWHERE;
        }
        if self.namespace.is_empty() { "default" } else { &self.namespace }
    }

    /// What two ids of the same object have in common.
    pub fn key(&self) -> Key {
        (self.gvk.clone(), self.name.clone(), self.effective_namespace().to_owned())
    }

    pub fn same_object(&self, other: &Self) -> bool {
        self.same_namespace(other) && self.same_name(other)
    }

    /// Whether all but the namespace is the same.
    pub fn same_name(&self, other: &Self) -> bool {
        self.name == other.name && self.gvk == other.gvk
    }

    pub fn same_namespace(&self, other: &Self) -> bool {
        self.effective_namespace() == other.effective_namespace()
    }

    pub fn is_selected_by(&self, selector: &Self) -> bool {
        (selector.name.is_empty() || selector.name == self.name)
            && (selector.namespace.is_empty() || selector.same_namespace(self))
            && self.gvk.is_selected(&selector.gvk)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or = |part: &str, absent: &str| if part.is_empty() { absent.to_owned() } else { part.to_owned() };
        write!(f, "{}/{}.{}", self.gvk, or(&self.name, "[noName]"), or(&self.namespace, "[noNs]"))
    }
}
