//! The protobuf messages, named as OpenAPI names their types.

use std::collections::BTreeMap;
use std::path::Path;

use super::{Failure, read_json};

/// A field of a message.
pub struct ProtoField {
    pub number: u64,
    /// `1` single, `*` repeated, `%` map.
    pub label: char,
    /// A scalar in the table's notation, or `@` and the OpenAPI name of a message.
    pub wire: String,
}

/// Messages by OpenAPI name, their fields by protobuf name.
pub type Messages = BTreeMap<String, BTreeMap<String, ProtoField>>;

/// Packages of messages that no OpenAPI document publishes but that are exchanged: reviews sent to
/// webhooks, aggregated discovery, and what wraps every object.
const UNPUBLISHED: [&str; 11] = [
    "io.k8s.api.admission.v1.",
    "io.k8s.api.admission.v1beta1.",
    "io.k8s.api.apidiscovery.v2.",
    "io.k8s.api.apidiscovery.v2beta1.",
    "io.k8s.api.authentication.v1beta1.",
    "io.k8s.api.authorization.v1beta1.",
    "io.k8s.api.imagepolicy.v1alpha1.",
    "io.k8s.apimachinery.pkg.api.resource.",
    "io.k8s.apimachinery.pkg.apis.meta.v1.",
    "io.k8s.apimachinery.pkg.apis.meta.v1beta1.",
    "io.k8s.apimachinery.pkg.runtime.",
];

/// Whether the table holds the message: its package is published (`packages` end in a dot), or is one of
/// the few that are exchanged all the same.
pub fn is_wanted(name: &str, packages: &[String]) -> bool {
    UNPUBLISHED.iter().any(|package| in_package(name, package))
        || packages.iter().any(|package| in_package(name, package))
}

fn in_package(name: &str, package: &str) -> bool {
    name.strip_prefix(package).is_some_and(|rest| !rest.contains('.'))
}

pub fn read(facts: &Path) -> Result<Messages, Failure> {
    let document = read_json(&facts.join("proto-tags.json"))?;
    let mut messages = Messages::new();
    for (message, fields) in document.as_object().ok_or("proto-tags.json holds no object")? {
        let package = message.rsplit_once('.').map_or("", |(package, _)| package);
        let mut read = BTreeMap::new();
        for (name, field) in fields.as_object().ok_or("a message without fields")? {
            let kind = field[1].as_str().unwrap_or_default();
            let (label, kind) = match kind.strip_prefix("map<string, ").and_then(|rest| rest.strip_suffix('>')) {
                Some(value) => ('%', value),
                None if field[2] == "repeated" => ('*', kind),
                None => ('1', kind),
            };
            let number = field[0].as_u64().ok_or_else(|| format!("{message}.{name} has no number"))?;
            read.insert(name.clone(), ProtoField { number, label, wire: wire(kind, package) });
        }
        messages.insert(openapi_name(message), read);
    }
    Ok(messages)
}

fn wire(kind: &str, package: &str) -> String {
    match kind {
        "bool" => "b".to_owned(),
        "int32" => "i32".to_owned(),
        "int64" => "i64".to_owned(),
        "double" => "f64".to_owned(),
        "string" => "s".to_owned(),
        "bytes" => "bytes".to_owned(),
        message => {
            let message = message.trim_start_matches('.');
            let full = if message.contains('.') { message.to_owned() } else { format!("{package}.{message}") };
            format!("@{}", openapi_name(&full))
        }
    }
}

fn openapi_name(message: &str) -> String {
    let rest = message.strip_prefix("k8s.io.").unwrap_or(message);
    format!(
        "io.k8s.{}",
        rest.replace("apiextensions_apiserver", "apiextensions-apiserver")
            .replace("kube_aggregator", "kube-aggregator")
    )
}
