//! Metadata: owners, finalizers, annotations.

use client::Kind;
use informer::Key;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

/// Short questions about metadata, so that decisions read like sentences.
pub trait MetaExt {
    fn name(&self) -> &str;
    fn namespace(&self) -> &str;
    fn uid(&self) -> &str;
    fn is_deleting(&self) -> bool;
    fn annotation(&self, key: &str) -> Option<&str>;
    fn label(&self, key: &str) -> Option<&str>;
    fn has_finalizer(&self, finalizer: &str) -> bool;
    fn controller(&self) -> Option<&OwnerReference>;
    fn key(&self) -> Key;
}

impl MetaExt for ObjectMeta {
    fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or_default()
    }

    fn uid(&self) -> &str {
        self.uid.as_deref().unwrap_or_default()
    }

    fn is_deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.as_ref()?.get(key).map(String::as_str)
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.labels.as_ref()?.get(key).map(String::as_str)
    }

    fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers.iter().flatten().any(|known| known == finalizer)
    }

    fn controller(&self) -> Option<&OwnerReference> {
        rules::owners::controller(self)
    }

    fn key(&self) -> Key {
        Key::of(self)
    }
}

/// The reference that makes an object the controller of another.
pub fn controller_reference<K: Kind>(owner: &K) -> OwnerReference {
    let meta = owner.metadata();
    OwnerReference {
        api_version: K::API_VERSION.to_owned(),
        kind: K::KIND.to_owned(),
        name: meta.name().to_owned(),
        uid: meta.uid().to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// The key of an object's controller, if that is of this kind.
pub fn controller_key<K: Kind>(meta: &ObjectMeta) -> Option<Key> {
    let owner = meta.controller()?;
    let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
    (owner.kind == K::KIND && group == K::GROUP).then(|| Key::new(meta.namespace(), &owner.name))
}
