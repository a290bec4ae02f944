//! An object that its type cannot hold: named, so that everything beside it can go on.

use std::fmt::Write as _;

use k8s_openapi::api::core::v1::ObjectReference;
use machinery::object::Object;
use serde::Deserialize;

use crate::client::Kind;

/// An object that the server has and this program cannot read. [`List`](crate::List) and [`Event`](crate::Event) name it
/// instead of failing as a whole, so that one object never stands in the way of others.
#[derive(Debug, Clone, PartialEq)]
pub struct Undecodable {
    /// Which object at which revision it is. Boxed, because it is rare and travels where others do.
    pub object: Box<ObjectReference>,
    /// What is wrong with it, without any of its values.
    pub error: String,
}

impl Undecodable {
    /// An object that was read, and then proved to be more than somebody can work with.
    pub fn of<K: Kind>(object: &K, error: impl Into<String>) -> Self {
        let meta = object.metadata();
        let object = ObjectReference {
            api_version: Some(K::API_VERSION.to_owned()),
            kind: Some(K::KIND.to_owned()),
            namespace: meta.namespace.clone(),
            name: meta.name.clone(),
            uid: meta.uid.clone(),
            resource_version: meta.resource_version.clone(),
            ..ObjectReference::default()
        };
        Self { object: Box::new(object), error: error.into() }
    }

    /// A shared object of this process.
    pub(crate) fn shared(object: &Object, error: &serde_json::Error) -> Self {
        let (api_version, kind) = object.type_meta();
        let meta = object.meta();
        let object = ObjectReference {
            api_version: Some(api_version),
            kind: Some(kind),
            namespace: Some(meta.namespace.to_string()),
            name: Some(meta.name.to_string()),
            uid: Some(meta.uid.to_string()),
            resource_version: Some(object.revision().to_string()),
            ..ObjectReference::default()
        };
        Self { object: Box::new(object), error: without_values(error) }
    }

    /// From the wire. Where not even its name can be read, nothing of it is named but its kind.
    pub(crate) fn wire(bytes: &[u8], api_version: &str, kind: &str, error: &serde_json::Error) -> Self {
        let Identity { type_meta, metadata } = serde_json::from_slice(bytes).unwrap_or_default();
        let (api_version, kind) = type_meta.unwrap_or_else(|| (api_version.to_owned(), kind.to_owned()));
        let object = ObjectReference {
            api_version: Some(api_version),
            kind: Some(kind),
            namespace: metadata.namespace,
            name: metadata.name,
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            ..ObjectReference::default()
        };
        Self { object: Box::new(object), error: without_values(error) }
    }
}

/// What is read of an object that cannot be read. Everything else is skipped, however odd or deep it is.
#[derive(Default, Deserialize)]
#[serde(default, from = "Parts")]
struct Identity {
    type_meta: Option<(String, String)>,
    metadata: IdentityMeta,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Parts {
    api_version: Option<String>,
    kind: Option<String>,
    metadata: Option<IdentityMeta>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct IdentityMeta {
    namespace: Option<String>,
    name: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
}

impl From<Parts> for Identity {
    fn from(parts: Parts) -> Self {
        // Items of a list do not say what they are.
        let type_meta = parts.api_version.zip(parts.kind);
        Self { type_meta, metadata: parts.metadata.unwrap_or_default() }
    }
}

/// What an error says, without the texts that it quotes: they may be a Secret's.
fn without_values(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let mut masked = String::with_capacity(text.len());
    let (mut quoted, mut escaped) = (false, false);
    for letter in text.chars() {
        match letter {
            '"' if !escaped => {
                quoted = !quoted;
                if quoted {
                    // Writing into a String does not fail.
                    let _ = masked.write_str("\"...\"");
                }
            }
            _ if quoted => escaped = letter == '\\' && !escaped,
            _ => masked.push(letter),
        }
    }
    masked
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Secret;
    use machinery::codec::typed;

    #[test]
    fn errors_do_not_tell_what_is_in_an_object() {
        let secret =
            br#"{"metadata":{"name":"s","namespace":"n","uid":"u","resourceVersion":"7"},"data":"p\"ss\\w\\\"rd x"}"#;
        let error = typed::from_slice::<Secret>(secret, ("v1", "Secret")).expect_err("data is a map");
        let found = Undecodable::wire(secret, "v1", "Secret", &error);
        assert!(!["ss", "rd", "x\""].iter().any(|part| found.error.contains(part)), "{}", found.error);
        assert!(found.error.starts_with("invalid type: string \"...\", expected a map"), "{}", found.error);
        let named = [found.object.kind, found.object.namespace, found.object.name, found.object.resource_version];
        assert_eq!(named.map(Option::unwrap), ["Secret", "n", "s", "7"]);
    }

    #[test]
    fn what_has_no_name_is_still_named_by_its_kind() {
        let error = typed::from_slice::<Secret>(b"[]", ("v1", "Secret")).expect_err("no object");
        let found = Undecodable::wire(br#"{"metadata":{"name":3}}"#, "v1", "Secret", &error);
        assert_eq!((found.object.kind.as_deref(), found.object.name), (Some("Secret"), None));
    }
}
