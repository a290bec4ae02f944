//! The table of API facts: what a kind of Kubernetes v1.37 *is*, as data.
//!
//! Groups, versions, resources, verbs, fields, types, list and merge keys, defaults and protobuf numbers
//! of the built-in API live in one checked-in text, `table.txt`, which `cargo run -p facts --example
//! generate` writes from upstream's published facts. Everything that must know a kind (pruning, defaults,
//! validation, patches, server-side apply, transcoding, discovery, OpenAPI) asks this table and holds no
//! list of kinds of its own. Custom resources are expressed in the same structures at run time.
//!
//! There is no logic here and no I/O: the text is part of the program and is read once, on first use, in a
//! few milliseconds.

mod golang;
mod internal;
pub mod rbac;
mod resources;
mod table;
mod types;

use std::sync::OnceLock;

pub use golang::{GoField, go_field, go_order};
pub use internal::{InternalField, internal_type};
pub use resources::{Group, Made, Resource, Stability, Subresource, Verbs, Version, api_version};
pub use table::Table;
pub use types::{
    Field, Gvk, Label, List, ListType, Map, MapType, Member, Opaque, PatchStrategy, Proto, Schema, Shape, Str, Type,
    TypeId, Union, Wire,
};

/// The table as it is written: what identifies the facts of this build.
pub const SOURCE: &str = include_str!("../table.txt");

/// The table of the built-in API.
pub fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| Table::parse(SOURCE))
}

/// Every group in the order of discovery, the core group first.
pub fn groups() -> &'static [Group] {
    table().groups()
}

/// Every resource of every group and version, those that are off by default too.
pub fn resources() -> impl Iterator<Item = &'static Resource> {
    table().resources()
}

/// The resource of this plural name.
pub fn resource(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    table().resource(group, version, plural)
}

/// The resource whose objects are of this kind.
pub fn kind(group: &str, version: &str, kind: &str) -> Option<&'static Resource> {
    table().kind(group, version, kind)
}

/// The type of objects of this kind, also of those that are no resource: lists, options, reviews.
pub fn type_of(group: &str, version: &str, kind: &str) -> Option<TypeId> {
    table().type_of(group, version, kind)
}

/// The type of this OpenAPI name, such as `io.k8s.api.core.v1.PodSpec`.
pub fn type_named(name: &str) -> Option<TypeId> {
    table().type_named(name)
}

/// The OpenAPI name of the one built-in type of a shape that is not an object.
pub fn shape_name(shape: Shape) -> Option<&'static str> {
    table::type_name(shape)
}

/// The roles and bindings that a cluster has from the beginning.
pub fn rbac() -> &'static rbac::Rbac {
    static RBAC: OnceLock<rbac::Rbac> = OnceLock::new();
    RBAC.get_or_init(|| rbac::Rbac::parse(include_str!("../rbac.txt")))
}
