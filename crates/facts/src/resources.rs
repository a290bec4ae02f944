//! What is served where: groups, versions, resources, subresources, verbs and names.

use std::sync::{Arc, LazyLock};

use crate::types::{Str, Type, TypeId};

/// A set of verbs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Verbs(u8);

/// The verbs of resources, sorted as discovery lists them; their position is their bit in [`Verbs`].
const NAMES: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

impl Verbs {
    pub const NONE: Verbs = Verbs(0);
    pub const ALL: Verbs = Verbs(u8::MAX);

    /// The set of the verbs named; unknown names are left out.
    pub fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Verbs {
        Verbs(names.into_iter().filter_map(bit).fold(0, |set, bit| set | bit))
    }

    /// Whether the verb is in the set.
    pub fn has(self, verb: &str) -> bool {
        bit(verb).is_some_and(|bit| self.0 & bit != 0)
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn iter(self) -> impl Iterator<Item = &'static str> {
        NAMES.iter().enumerate().filter(move |(at, _)| self.0 & (1 << at) != 0).map(|(_, name)| *name)
    }
}

fn bit(verb: &str) -> Option<u8> {
    NAMES.iter().position(|name| *name == verb).map(|at| 1 << at)
}

/// How settled a version is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stability {
    /// Such as `v1`.
    Stable,
    /// Such as `v1beta1`.
    Beta,
    /// Such as `v1alpha1`.
    Alpha,
}

impl Stability {
    /// The stability that the name of a version tells.
    pub fn of(version: &str) -> Stability {
        if version.contains("alpha") {
            Stability::Alpha
        } else if version.contains("beta") {
            Stability::Beta
        } else {
            Stability::Stable
        }
    }
}

/// A group, in the order of discovery.
#[derive(Clone, Debug)]
pub struct Group {
    /// The name; empty for the core group.
    pub name: Str,
    /// The versions, the preferred one first.
    pub versions: Box<[Version]>,
}

/// A version of a group.
#[derive(Clone, Debug)]
pub struct Version {
    /// The name, such as `v1`.
    pub name: Str,
    /// How settled it is.
    pub stability: Stability,
    /// Whether it is served unless `--runtime-config` says otherwise: only stable versions are.
    pub default_on: bool,
    /// The resources, sorted by plural name.
    pub resources: Box<[Resource]>,
}

/// A resource of a version.
#[derive(Clone, Debug)]
pub struct Resource {
    /// The API group; empty for the core group.
    pub group: Str,
    pub version: Str,
    /// The plural name, as in paths.
    pub plural: Str,
    pub singular: Str,
    /// The kind of its objects.
    pub kind: Str,
    /// The kind of lists of its objects.
    pub list_kind: Str,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// What can be done with it.
    pub verbs: Verbs,
    /// Short names for kubectl, such as `po`.
    pub short_names: Box<[Str]>,
    /// Categories for kubectl, such as `all`.
    pub categories: Box<[Str]>,
    /// The hash of the version in which upstream stores it.
    pub storage_version_hash: Option<Str>,
    /// Whether the answer to a deletion is the deleted object; otherwise it is a `Status`.
    pub returns_deleted: bool,
    /// The subresources, sorted by name.
    pub subresources: Box<[Subresource]>,
    /// The type of its objects, when built in.
    pub ty: Option<TypeId>,
    /// The type of lists of its objects, when built in and listable.
    pub list_ty: Option<TypeId>,
    /// The type of its objects, when a definition made it at run time.
    pub made: Option<Made>,
}

/// A type that is made at run time, when somebody first asks for it: a cluster may have thousands of definitions, and few of their kinds are used.
#[derive(Clone, Debug)]
pub struct Made(Arc<LazyLock<Type, Box<dyn FnOnce() -> Type + Send>>>);

impl Made {
    /// The type that `make` will make.
    pub fn new(make: impl FnOnce() -> Type + Send + 'static) -> Self {
        Self(Arc::new(LazyLock::new(Box::new(make))))
    }

    /// For who needs no type: a list of names that is kept for long should not keep what was made for others.
    pub fn unasked() -> Self {
        Self::new(|| Type::new("", Vec::new()))
    }

    pub fn def(&self) -> &Type {
        &self.0
    }
}

impl Resource {
    /// The type of its objects, whether built in or made at run time.
    pub fn def(&self) -> Option<&Type> {
        self.ty.map(TypeId::def).or_else(|| self.made.as_ref().map(Made::def))
    }

    /// Whether a definition made it at run time.
    pub fn is_custom(&self) -> bool {
        self.made.is_some()
    }

    /// A resource with these names, which supports no verb yet, to build upon at run time.
    pub fn new(
        group: impl Into<Str>,
        version: impl Into<Str>,
        plural: impl Into<Str>,
        kind: impl Into<Str>,
    ) -> Resource {
        let kind = kind.into();
        Resource {
            group: group.into(),
            version: version.into(),
            plural: plural.into(),
            singular: Str::Owned(kind.to_lowercase()),
            list_kind: Str::Owned(format!("{kind}List")),
            kind,
            namespaced: false,
            verbs: Verbs::NONE,
            short_names: Box::default(),
            categories: Box::default(),
            storage_version_hash: None,
            returns_deleted: false,
            subresources: Box::default(),
            ty: None,
            list_ty: None,
            made: None,
        }
    }

    /// The subresource of this name.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|sub| sub.name == name)
    }

    /// `group/version`, or the version alone in the core group.
    pub fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }
}

/// A subresource of a resource.
#[derive(Clone, Debug)]
pub struct Subresource {
    /// The name, such as `status`.
    pub name: Str,
    /// The kind of the object read or written there.
    pub kind: Str,
    /// The group and version of that kind where discovery states them; otherwise the resource's.
    pub kind_of: Option<(Str, Str)>,
    /// What can be done with it.
    pub verbs: Verbs,
    /// The type of the object, when built in.
    pub ty: Option<TypeId>,
}

/// The `apiVersion` of a group and version: `group/version`, or the version alone in the core group.
pub fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}
