//! One line of the table, or one token of it.

use crate::resources::{Resource, Subresource, Verbs};
use crate::types::{Gvk, MapType, Opaque, PatchStrategy, Shape, Str, Union};

pub(super) fn resource(line: &'static str) -> Resource {
    let mut tokens = line.split(' ');
    let mut next = || tokens.next().unwrap_or_default();
    let (plural, singular, kind, scope, verbs) = (next(), next(), next(), next(), next());
    let mut resource = Resource::new("", "", plural, kind);
    resource.singular = singular.into();
    resource.namespaced = scope == "N";
    resource.verbs = verb_set(verbs);
    for token in tokens {
        match token.split_once('=').unwrap_or((token, "")) {
            ("o", "") => resource.returns_deleted = true,
            ("s", names) => resource.short_names = words(names),
            ("c", names) => resource.categories = words(names),
            ("h", hash) => resource.storage_version_hash = Some(hash.into()),
            _ => panic!("facts: unknown mark {token} in: {line}"),
        }
    }
    resource
}

pub(super) fn subresource(line: &'static str) -> Subresource {
    let mut tokens = line.split(' ');
    let mut next = || tokens.next().unwrap_or_default();
    let (name, kind, verbs) = (next(), next(), next());
    let kind_of = tokens.next().map(|of| pair(of, '/')).map(|(group, version)| (group.into(), version.into()));
    Subresource { name: name.into(), kind: kind.into(), kind_of, verbs: verb_set(verbs), ty: None }
}

pub(super) fn verb_set(text: &str) -> Verbs {
    if text == "*" { Verbs::ALL } else { Verbs::of(text.split(',')) }
}

pub(super) fn gvk(line: &'static str) -> Gvk {
    let mut tokens = line.split(' ');
    let mut next = || tokens.next().unwrap_or_default();
    let (group, version, kind) = (next(), next(), next());
    Gvk { group: if group == "-" { "" } else { group }.into(), version: version.into(), kind: kind.into() }
}

pub(super) fn union(line: &'static str) -> Union {
    let (discriminator, members) = pair(line, ' ');
    let members = members.split(',').map(|member| pair(member, '=')).map(|(field, of)| (field.into(), of.into()));
    Union { discriminator: (discriminator != "-").then(|| discriminator.into()), members: members.collect() }
}

pub(super) fn shape(token: &str) -> Shape {
    match token {
        "time" => Shape::Time,
        "micro" => Shape::MicroTime,
        "quantity" => Shape::Quantity,
        "intorstring" => Shape::IntOrString,
        "duration" => Shape::Duration,
        "strings" => Shape::Strings,
        "raw" => Shape::Opaque(Opaque::RawExtension),
        "fields" => Shape::Opaque(Opaque::FieldsV1),
        "patch" => Shape::Opaque(Opaque::Patch),
        "json" => Shape::Opaque(Opaque::Json),
        "schemaorarray" => Shape::Opaque(Opaque::SchemaOrArray),
        "schemaorbool" => Shape::Opaque(Opaque::SchemaOrBool),
        "schemaorstrings" => Shape::Opaque(Opaque::SchemaOrStrings),
        _ => panic!("facts: unknown shape {token}"),
    }
}

/// The one built-in type of a shape that is not an object.
pub(crate) fn type_name(shape: Shape) -> Option<&'static str> {
    Some(match shape {
        Shape::Time => "io.k8s.apimachinery.pkg.apis.meta.v1.Time",
        Shape::MicroTime => "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime",
        Shape::Quantity => "io.k8s.apimachinery.pkg.api.resource.Quantity",
        Shape::IntOrString => "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
        Shape::Duration => "io.k8s.apimachinery.pkg.apis.meta.v1.Duration",
        Shape::Opaque(Opaque::RawExtension) => "io.k8s.apimachinery.pkg.runtime.RawExtension",
        Shape::Opaque(Opaque::FieldsV1) => "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1",
        Shape::Opaque(Opaque::Patch) => "io.k8s.apimachinery.pkg.apis.meta.v1.Patch",
        Shape::Opaque(Opaque::Json) => "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON",
        Shape::Opaque(Opaque::SchemaOrArray) => {
            "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray"
        }
        Shape::Opaque(Opaque::SchemaOrBool) => {
            "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool"
        }
        Shape::Opaque(Opaque::SchemaOrStrings) => {
            "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray"
        }
        Shape::Object | Shape::Strings | Shape::Opaque(Opaque::Preserved) => return None,
    })
}

pub(super) fn map_type(text: &str) -> MapType {
    match text {
        "a" => MapType::Atomic,
        "g" => MapType::Granular,
        _ => panic!("facts: unknown map type {text}"),
    }
}

pub(super) fn patch_strategy(text: &str) -> PatchStrategy {
    let has = |strategy| text.split(',').any(|word| word == strategy);
    PatchStrategy { merge: has("merge"), retain_keys: has("retainKeys"), replace: has("replace") }
}

pub(super) fn word(text: &'static str) -> &'static str {
    text.split(' ').next().unwrap_or(text)
}

pub(super) fn words(text: &'static str) -> Box<[Str]> {
    text.split(',').filter(|word| !word.is_empty()).map(Str::Borrowed).collect()
}

pub(super) fn pair(text: &'static str, at: char) -> (&'static str, &'static str) {
    text.split_once(at).unwrap_or_else(|| panic!("facts: no {at} in: {text}"))
}

pub(super) fn decimal(text: &str) -> u32 {
    text.parse().unwrap_or_else(|_| panic!("facts: {text} is no number"))
}

pub(super) fn fixed(text: &Str) -> &'static str {
    match text {
        Str::Borrowed(text) => text,
        Str::Owned(text) => panic!("facts: {text} is not a slice of the table"),
    }
}
