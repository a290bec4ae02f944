//! Reads the checked-in table into the structures of [`crate::types`] and [`crate::resources()`].
//!
//! The table is a text of our own, one fact per line, so that a new version of Kubernetes shows as a
//! readable difference. The first character of a line says what the rest is:
//!
//! ```text
//! G group                                  a group, in the order of discovery ("-" is the core group)
//! V version on|off                         a version of the group; "on" is served by default
//! R plural singular Kind N|C verbs …       a resource, namespaced or of the cluster; s=short names,
//!                                          c=categories, h=storage version hash, o answers a
//!                                          deletion with the object
//! S name Kind verbs [group/version]        a subresource
//! T name …                                 a type; shape if not an object; m=map type; p a protobuf
//!                                          message; u not published in OpenAPI
//! K group version Kind                     a kind of that type
//! Q a,b                                    the required fields, in upstream's order
//! U discriminator|- field=Value,…          a union
//! E number type                            a message inlined in JSON, and its number
//! F name schema …                          a field: #number[?][=wire] (? held by pointer), d=default, ! written
//!                                          even when zero, s=patch strategy, k=merge key, m=map type, b bare
//!                                          reference, x=other OpenAPI keywords
//! ```
//!
//! A schema is a scalar (`s i32 i64 f64 b bytes any …`), `@type`, `[list type]schema` or `{map type}schema`.
//! All strings are slices of the text, which is part of the program: loading copies none of them.

mod line;

use rustc_hash::FxHashMap;

use crate::resources::{Group, Resource, Stability, Subresource, Version};
use crate::types::{Field, Label, List, ListType, Map, Proto, Schema, Shape, Str, Type, TypeId, Wire};

pub(crate) use line::type_name;
use line::{decimal, fixed, gvk, map_type, pair, patch_strategy, resource, shape, subresource, union, word, words};

type Key = (&'static str, &'static str, &'static str);

/// Every fact about the built-in API.
#[derive(Debug)]
pub struct Table {
    pub(crate) types: Vec<Type>,
    groups: Vec<Group>,
    by_name: FxHashMap<&'static str, TypeId>,
    by_kind: FxHashMap<Key, TypeId>,
    /// Positions (group, version, resource) by group, version and plural name.
    by_plural: FxHashMap<Key, [u16; 3]>,
    /// The same by group, version and kind.
    resource_by_kind: FxHashMap<Key, [u16; 3]>,
}

impl Table {
    /// The groups in the order of discovery, the core group first.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// The group of this name; the core group's is empty.
    pub fn group(&self, name: &str) -> Option<&Group> {
        self.groups.iter().find(|group| group.name == name)
    }

    /// The version of a group.
    pub fn version(&self, group: &str, version: &str) -> Option<&Version> {
        self.group(group)?.versions.iter().find(|found| found.name == version)
    }

    /// Every resource of every group and version, those that are off by default too.
    pub fn resources(&self) -> impl Iterator<Item = &Resource> {
        self.groups.iter().flat_map(|group| &group.versions).flat_map(|version| &version.resources)
    }

    /// The resource of this plural name.
    pub fn resource(&self, group: &str, version: &str, plural: &str) -> Option<&Resource> {
        Some(self.at(*self.by_plural.get(&(group, version, plural))?))
    }

    /// The resource whose objects are of this kind.
    pub fn kind(&self, group: &str, version: &str, kind: &str) -> Option<&Resource> {
        Some(self.at(*self.resource_by_kind.get(&(group, version, kind))?))
    }

    /// The type of objects of this kind, also of those that are no resource: lists, options, reviews.
    pub fn type_of(&self, group: &str, version: &str, kind: &str) -> Option<TypeId> {
        if let Some(id) = self.by_kind.get(&(group, version, kind)) {
            return Some(*id);
        }
        // Upstream registers the options of requests and the watch event in every group version.
        let everywhere = matches!(
            kind,
            "CreateOptions"
                | "DeleteOptions"
                | "GetOptions"
                | "ListOptions"
                | "PatchOptions"
                | "UpdateOptions"
                | "WatchEvent"
        );
        if everywhere { self.by_kind.get(&("", "v1", kind)).copied() } else { None }
    }

    /// The type of this OpenAPI name.
    pub fn type_named(&self, name: &str) -> Option<TypeId> {
        self.by_name.get(name).copied()
    }

    /// Every type with its number.
    pub fn types(&self) -> impl ExactSizeIterator<Item = (TypeId, &Type)> {
        self.types.iter().enumerate().map(|(at, of)| (TypeId(at as u32), of))
    }

    fn at(&self, [group, version, resource]: [u16; 3]) -> &Resource {
        &self.groups[group as usize].versions[version as usize].resources[resource as usize]
    }

    /// Reads a table. The text is part of the program and tests read all of it, so a mistake in it is a
    /// broken invariant and panics.
    pub(crate) fn parse(text: &'static str) -> Table {
        let by_name: FxHashMap<&'static str, TypeId> = text
            .lines()
            .filter_map(|line| line.strip_prefix("T "))
            .enumerate()
            .map(|(at, rest)| (word(rest), TypeId(at as u32)))
            .collect();
        let reader = Reader { by_name: &by_name };
        let types = reader.types(text);
        let mut by_kind = FxHashMap::default();
        for (at, of) in types.iter().enumerate() {
            for gvk in &of.gvks {
                by_kind.insert((fixed(&gvk.group), fixed(&gvk.version), fixed(&gvk.kind)), TypeId(at as u32));
            }
        }
        let groups = reader.groups(text, &by_kind);
        let mut by_plural = FxHashMap::default();
        let mut resource_by_kind = FxHashMap::default();
        for (g, group) in groups.iter().enumerate() {
            for (v, version) in group.versions.iter().enumerate() {
                for (r, resource) in version.resources.iter().enumerate() {
                    let at = [g as u16, v as u16, r as u16];
                    let (name, of) = (fixed(&group.name), fixed(&version.name));
                    by_plural.insert((name, of, fixed(&resource.plural)), at);
                    resource_by_kind.insert((name, of, fixed(&resource.kind)), at);
                }
            }
        }
        Table { types, groups, by_name, by_kind, by_plural, resource_by_kind }
    }
}

struct Reader<'a> {
    by_name: &'a FxHashMap<&'static str, TypeId>,
}

impl Reader<'_> {
    fn types(&self, text: &'static str) -> Vec<Type> {
        let mut types = Vec::with_capacity(self.by_name.len());
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            let Some(rest) = line.strip_prefix("T ") else { continue };
            let (mut fields, mut required, mut inlined) = (Vec::new(), Vec::new(), Vec::new());
            let (mut gvks, mut unions) = (Vec::new(), Vec::new());
            while let Some(line) = lines.next_if(|line| !line.starts_with("T ")) {
                let (tag, rest) = line.split_at(2);
                match tag {
                    "F " => fields.push(self.field(rest)),
                    "K " => gvks.push(gvk(rest)),
                    "Q " => required = rest.split(',').collect(),
                    "U " => unions.push(union(rest)),
                    "E " => {
                        let (number, name) = pair(rest, ' ');
                        inlined.push((decimal(number), self.id(name)));
                    }
                    _ => panic!("facts: unknown line in a type: {line}"),
                }
            }
            for field in &mut fields {
                field.required = required.contains(&&*field.name);
            }
            let mut of = Type::from_table(word(rest), fields, &required, &inlined);
            of.gvks = gvks.into();
            of.unions = unions.into();
            for token in rest.split(' ').skip(1) {
                match token {
                    "p" => of.message = true,
                    "u" => of.published = false,
                    _ => match token.strip_prefix("m=") {
                        Some(map_type) => of.map_type = Some(self::map_type(map_type)),
                        None => of.shape = shape(token),
                    },
                }
            }
            types.push(of);
        }
        types
    }

    fn field(&self, line: &'static str) -> Field {
        let mut tokens = line.split(' ');
        let name = tokens.next().unwrap_or_default();
        let mut field = Field::new(name, self.schema(tokens.next().unwrap_or_default()));
        for token in tokens {
            match token.split_at(1) {
                ("#", rest) => field.proto = Some(self.proto(rest, &field.schema)),
                ("!", "") => field.always = true,
                ("b", "") => field.bare_ref = true,
                (tag, rest) => {
                    let value = rest.strip_prefix('=').unwrap_or_default();
                    match tag {
                        "d" => field.default = Some(Str::Borrowed(value)),
                        "k" => field.patch_merge_key = Some(Str::Borrowed(value)),
                        "s" => field.patch_strategy = patch_strategy(value),
                        "m" => field.map_type = Some(map_type(value)),
                        "x" => field.extra = Some(Str::Borrowed(value)),
                        _ => panic!("facts: unknown mark {token} in: {line}"),
                    }
                }
            }
        }
        field
    }

    fn schema(&self, text: &'static str) -> Schema {
        if let Some(name) = text.strip_prefix('@') {
            let id = self.id(name);
            return Schema::Ref(id);
        }
        if let Some(rest) = text.strip_prefix('[') {
            let (kind, items) = pair(rest, ']');
            let (kind, keys) = kind.split_once(':').unwrap_or((kind, ""));
            let list_type = match kind {
                "" => None,
                "a" => Some(ListType::Atomic),
                "s" => Some(ListType::Set),
                "m" => Some(ListType::Map),
                _ => panic!("facts: unknown list type in: {text}"),
            };
            return Schema::Array(Box::new(List { items: self.schema(items), list_type, keys: words(keys) }));
        }
        if let Some(rest) = text.strip_prefix('{') {
            let (kind, values) = pair(rest, '}');
            let map_type = (!kind.is_empty()).then(|| map_type(kind));
            return Schema::Map(Box::new(Map { values: self.schema(values), map_type }));
        }
        match text {
            "s" => Schema::String,
            "bytes" => Schema::Bytes,
            "i32" => Schema::Int32,
            "i64" => Schema::Int64,
            "f64" => Schema::Double,
            "b" => Schema::Bool,
            _ => match shape(text) {
                Shape::Time => Schema::Time,
                Shape::MicroTime => Schema::MicroTime,
                Shape::Quantity => Schema::Quantity,
                Shape::IntOrString => Schema::IntOrString,
                Shape::Duration => Schema::Duration,
                Shape::Opaque(opaque) => Schema::Any(opaque),
                Shape::Object | Shape::Strings => panic!("facts: {text} is no schema"),
            },
        }
    }

    /// `number[?][=label wire]`; without a wire the schema tells it.
    fn proto(&self, text: &'static str, schema: &Schema) -> Proto {
        let (number, wire) = text.split_once('=').map_or((text, None), |(number, wire)| (number, Some(wire)));
        let (number, pointer) = number.strip_suffix('?').map_or((number, false), |number| (number, true));
        let (label, wire) = match wire {
            Some(wire) => {
                let (label, wire) = wire.split_at(1);
                let label = match label {
                    "1" => Label::Single,
                    "*" => Label::Repeated,
                    "%" => Label::Map,
                    _ => panic!("facts: unknown label in: {text}"),
                };
                (label, self.explicit_wire(wire))
            }
            None => match schema {
                Schema::Array(list) => (Label::Repeated, self.implied_wire(&list.items)),
                Schema::Map(map) => (Label::Map, self.implied_wire(&map.values)),
                single => (Label::Single, self.implied_wire(single)),
            },
        };
        Proto { number: decimal(number), wire, label, pointer }
    }

    fn explicit_wire(&self, text: &'static str) -> Wire {
        match text.strip_prefix('@') {
            Some(name) => Wire::Message(self.id(name)),
            None => self.implied_wire(&self.schema(text)),
        }
    }

    fn implied_wire(&self, schema: &Schema) -> Wire {
        match schema {
            Schema::String => Wire::String,
            Schema::Bytes => Wire::Bytes,
            Schema::Int32 => Wire::Int32,
            Schema::Int64 => Wire::Int64,
            Schema::Double => Wire::Double,
            Schema::Bool => Wire::Bool,
            Schema::Ref(id) => Wire::Message(*id),
            Schema::Time => self.message(Shape::Time),
            Schema::MicroTime => self.message(Shape::MicroTime),
            Schema::Quantity => self.message(Shape::Quantity),
            Schema::IntOrString => self.message(Shape::IntOrString),
            Schema::Duration => self.message(Shape::Duration),
            Schema::Any(opaque) => self.message(Shape::Opaque(*opaque)),
            Schema::Object(_) | Schema::Array(_) | Schema::Map(_) => panic!("facts: a nested list has no wire type"),
        }
    }

    fn message(&self, shape: Shape) -> Wire {
        Wire::Message(self.id(type_name(shape).expect("only shapes with a type of their own are implied")))
    }

    fn id(&self, name: &str) -> TypeId {
        *self.by_name.get(name).unwrap_or_else(|| panic!("facts: unknown type {name}"))
    }

    fn groups(&self, text: &'static str, by_kind: &FxHashMap<Key, TypeId>) -> Vec<Group> {
        let mut groups: Vec<(&'static str, Vec<Version>)> = Vec::new();
        let mut resources: Vec<Resource> = Vec::new();
        let mut subresources: Vec<Subresource> = Vec::new();
        // Lines come outside in; the table is read backwards so that parts are there before their whole.
        let end = text.find("\nT ").unwrap_or(text.len());
        let mut version_of: Vec<Version> = Vec::new();
        for line in text[..end].lines().rev() {
            let Some((tag, rest)) = line.split_once(' ') else { continue };
            match tag {
                "S" => subresources.push(subresource(rest)),
                "R" => {
                    let mut resource = resource(rest);
                    subresources.reverse();
                    resource.subresources = std::mem::take(&mut subresources).into();
                    resources.push(resource);
                }
                "V" => {
                    resources.reverse();
                    let (name, on) = pair(rest, ' ');
                    version_of.push(Version {
                        name: name.into(),
                        stability: Stability::of(name),
                        default_on: on == "on",
                        resources: std::mem::take(&mut resources).into(),
                    });
                }
                "G" => {
                    version_of.reverse();
                    groups.push((if rest == "-" { "" } else { rest }, std::mem::take(&mut version_of)));
                }
                _ => {}
            }
        }
        groups.reverse();
        groups.into_iter().map(|(name, versions)| link(name, versions, by_kind)).collect()
    }
}

/// Tells the resources of a group where they are and which types their objects have.
fn link(name: &'static str, mut versions: Vec<Version>, by_kind: &FxHashMap<Key, TypeId>) -> Group {
    for version in &mut versions {
        for resource in &mut version.resources {
            resource.group = Str::Borrowed(name);
            resource.version = version.name.clone();
            let find = |group: &str, version: &str, kind: &str| by_kind.get(&(group, version, kind)).copied();
            resource.ty = find(name, &version.name, &resource.kind);
            if resource.verbs.has("list") {
                resource.list_ty = find(name, &version.name, &format!("{}List", resource.kind));
            }
            for sub in &mut resource.subresources {
                let (group, version) = match &sub.kind_of {
                    Some((group, version)) => (&**group, &**version),
                    None => (name, &*version.name),
                };
                sub.ty = find(group, version, &sub.kind);
            }
        }
    }
    Group { name: Str::Borrowed(name), versions: versions.into() }
}
