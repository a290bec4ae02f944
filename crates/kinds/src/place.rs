//! Where the objects of built-in kinds are kept, and in which version.

use facts::Resource as Facts;

use crate::kind::{Kind, Stored};
use crate::resource;

fn of(facts: &Facts) -> Stored {
    resource(facts).map_or(Stored::ByPlural, Kind::place)
}

/// Whether its objects are kept at all. Reviews and bindings are asked and answered.
pub fn is_stored(facts: &Facts) -> bool {
    facts.verbs.has("get") && of(facts) != Stored::Never
}

/// The version an object is stored in: the preferred one of its group, except where upstream stores another.
pub fn storage_version(facts: &'static Facts) -> &'static Facts {
    if let Stored::As(group, version) = of(facts) {
        return facts::resource(group, version, &facts.plural).unwrap_or(facts);
    }
    let group = facts::groups().iter().find(|candidate| candidate.name == facts.group);
    let versions = group.into_iter().flat_map(|group| &group.versions);
    let mut resources = versions.flat_map(|version| &version.resources);
    resources.find(|candidate| candidate.plural == facts.plural).unwrap_or(facts)
}

/// Where upstream keeps the resource in etcd.
pub fn prefix(facts: &Facts) -> String {
    match of(facts) {
        Stored::At(path) => format!("/registry/{path}/"),
        _ => format!("/registry/{}/", facts.plural),
    }
}
