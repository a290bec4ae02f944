//! Kinds that come and go while the server runs.

use std::collections::HashMap;
use std::sync::Arc;

use facts::Resource as Facts;
use kinds::Shared;

use super::{Resource, Served};

/// One kind, with the versions it is served in.
struct Kind {
    resource: Arc<Resource>,
    served: Vec<Arc<Served>>,
}

/// All of them. Names that two groups have in common are rare, so lists of kinds of one name are short.
#[derive(Default)]
pub struct Custom {
    by_plural: HashMap<String, Vec<Arc<Kind>>>,
    by_kind: HashMap<String, Vec<Arc<Kind>>>,
}

impl Custom {
    /// Serves a kind in these versions, in place of what was served under its group and plural.
    pub fn add(&mut self, resource: Arc<Resource>, versions: Vec<Served>) {
        self.remove(&resource.name.group, &resource.name.resource);
        let kind = Arc::new(Kind { served: versions.into_iter().map(Arc::new).collect(), resource: resource.clone() });
        self.by_plural.entry(resource.name.resource.clone()).or_default().push(kind.clone());
        self.by_kind.entry(resource.storage.kind.to_string()).or_default().push(kind);
    }

    /// Serves a kind no longer.
    pub fn remove(&mut self, group: &str, plural: &str) -> Option<Arc<Resource>> {
        let resource = self.stored(group, plural)?;
        take_out(&mut self.by_plural, plural, &resource);
        take_out(&mut self.by_kind, &resource.storage.kind, &resource);
        Some(resource)
    }

    /// The resource at this group, version and plural.
    pub fn get(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Served>> {
        in_version(&self.by_plural, group, version, plural)
    }

    /// The resource whose objects are of this kind.
    pub fn kind(&self, group: &str, version: &str, kind: &str) -> Option<Arc<Served>> {
        in_version(&self.by_kind, group, version, kind)
    }

    /// The stored resource of this group and plural.
    pub fn stored(&self, group: &str, plural: &str) -> Option<Arc<Resource>> {
        let kinds = self.by_plural.get(plural)?;
        kinds.iter().find(|kind| kind.resource.name.group == group).map(|kind| kind.resource.clone())
    }

    /// The versions in which a resource is served.
    pub fn versions(&self, resource: &Arc<Resource>) -> Vec<Shared<Facts>> {
        let kinds = self.by_plural.get(&resource.name.resource).into_iter().flatten();
        let of = kinds.filter(|kind| kind.resource.name.group == resource.name.group);
        of.flat_map(|kind| kind.served.iter().map(|served| served.facts.clone())).collect()
    }

    /// Every one of them, by name.
    pub fn all(&self) -> Vec<Arc<Resource>> {
        let mut all: Vec<_> = self.by_plural.values().flatten().map(|kind| kind.resource.clone()).collect();
        all.sort_by(|a, b| (&a.name.group, &a.name.resource).cmp(&(&b.name.group, &b.name.resource)));
        all
    }
}

fn in_version(
    by_name: &HashMap<String, Vec<Arc<Kind>>>,
    group: &str,
    version: &str,
    name: &str,
) -> Option<Arc<Served>> {
    let kind = by_name.get(name)?.iter().find(|kind| kind.resource.name.group == group)?;
    kind.served.iter().find(|served| served.facts.version == version).cloned()
}

fn take_out(by_name: &mut HashMap<String, Vec<Arc<Kind>>>, name: &str, resource: &Arc<Resource>) {
    let Some(kinds) = by_name.get_mut(name) else { return };
    kinds.retain(|kind| !Arc::ptr_eq(&kind.resource, resource));
    if kinds.is_empty() {
        by_name.remove(name);
    }
}
