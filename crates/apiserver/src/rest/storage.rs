//! Reading and writing objects in the store: the compare-and-swap loop of every change.

use std::borrow::Borrow;
use std::sync::Arc;
use std::time::Instant;

use hops::Hop;
use machinery::Value;
use machinery::object::{Draft, Object};
use machinery::status::ApiError;
use store::{Expect, Op, Outcome, Txn};
use threads::heavy;

use super::Api;
use crate::registry::Resource;

/// What a write wants of an object.
pub enum Change<V> {
    /// Write this.
    Put(V),
    /// Remove it.
    Delete,
    /// Leave it as it is.
    Keep,
}

/// How a change ended.
#[derive(Debug)]
pub enum Changed {
    /// It was written, or was that way already.
    Now(Arc<Object>),
    /// It was removed; its last state, at the revision of the removal.
    Deleted(Arc<Object>),
}

impl Changed {
    /// The object, there or gone.
    pub fn object(self) -> Arc<Object> {
        match self {
            Self::Now(object) | Self::Deleted(object) => object,
        }
    }
}

/// How an attempt to change one version of an object ended.
pub enum Swapped {
    /// As wanted.
    Done(Changed),
    /// The object is another by now, or gone.
    Raced(Option<Arc<Object>>),
}

/// An unexpected store error as an answer.
pub fn unavailable(error: store::Error) -> ApiError {
    match error {
        store::Error::TooLarge => ApiError::too_large(super::MAX_BODY),
        other => ApiError::unavailable(other.to_string()),
    }
}

impl Api {
    /// The object as of now, whatever any other server wrote before this call.
    pub async fn read(&self, resource: &Resource, key: &str) -> Result<Option<Arc<Object>>, ApiError> {
        self.caches.settle().await?;
        Ok(resource.cache.get(key))
    }

    /// Writes a new object. `None` if the key is taken.
    pub async fn insert(
        &self,
        resource: &Resource,
        key: &str,
        value: &Value,
        dry_run: bool,
    ) -> Result<Option<Arc<Object>>, ApiError> {
        let draft = draft(resource, value)?;
        if dry_run {
            let taken = self.read(resource, key).await?.is_some();
            return Ok((!taken).then(|| Arc::new(draft.at_revision(0))));
        }
        let _expected = resource.cache.expect(&draft);
        let op = Op::Put { value: draft.stored().clone(), ttl: resource.ttl };
        match self.commit(resource, key, Expect::Absent, op, "create", value).await? {
            Outcome::Committed(revision) => Ok(Some(Arc::new(draft.at_revision(revision)))),
            Outcome::Conflict(_) => Ok(None),
        }
    }

    /// Changes an object until nobody else was faster. `change` sees the current object and may be called again.
    pub async fn change(
        &self,
        resource: &Resource,
        key: &str,
        dry_run: bool,
        mut change: impl FnMut(&Value, &Arc<Object>) -> Result<Change<Value>, ApiError>,
    ) -> Result<Option<Changed>, ApiError> {
        let mut current = self.read(resource, key).await?;
        loop {
            let Some(old) = current else { return Ok(None) };
            heavy::weigh(old.stored().len()).await;
            let tree = old.to_value();
            match self.swap(resource, key, &old, &tree, change(&tree, &old)?, dry_run).await? {
                Swapped::Done(changed) => return Ok(Some(changed)),
                Swapped::Raced(other) => current = other,
            }
        }
    }

    /// Changes an object if it is still `old`, whose tree the caller has.
    pub async fn swap(
        &self,
        resource: &Resource,
        key: &str,
        old: &Arc<Object>,
        old_tree: &Value,
        change: Change<impl Borrow<Value>>,
        dry_run: bool,
    ) -> Result<Swapped, ApiError> {
        let new = match change {
            Change::Keep => return Ok(Swapped::Done(Changed::Now(old.clone()))),
            Change::Delete => None,
            Change::Put(new) => {
                let draft = draft(resource, new.borrow())?;
                // A write that changes nothing must not take a revision: controllers would wake each other for ever.
                // Unless it is stored with a key that has been replaced: then this is how it gets the new one.
                if draft.stored() == old.stored() && !self.stale(resource, key).await? {
                    return Ok(Swapped::Done(Changed::Now(old.clone())));
                }
                Some(draft)
            }
        };
        let outcome = if dry_run {
            Outcome::Committed(old.revision())
        } else {
            let _expected = new.as_ref().map(|draft| resource.cache.expect(draft));
            let (op, verb) = match &new {
                Some(draft) => (Op::Put { value: draft.stored().clone(), ttl: resource.ttl }, "update"),
                None => (Op::Delete, "delete"),
            };
            self.commit(resource, key, Expect::At(old.revision()), op, verb, old_tree).await?
        };
        Ok(match (outcome, new) {
            (Outcome::Committed(at), Some(draft)) => Swapped::Done(Changed::Now(Arc::new(draft.at_revision(at)))),
            (Outcome::Committed(at), None) => Swapped::Done(Changed::Deleted(Arc::new(old.at_revision(at)))),
            (Outcome::Conflict(None), _) => Swapped::Raced(None),
            (Outcome::Conflict(Some(record)), _) => {
                let other = Object::from_stored(record.value, record.revision, resource.cache.fields());
                Swapped::Raced(Some(Arc::new(other.map_err(ApiError::internal)?)))
            }
        })
    }

    /// An object for an answer, as it never was in the store.
    pub(super) fn shown(&self, resource: &Resource, value: &Value, revision: u64) -> Result<Arc<Object>, ApiError> {
        Ok(Arc::new(draft(resource, value)?.at_revision(revision)))
    }

    /// Whether the object is stored as it would not be stored now: with a key that has been replaced.
    pub(super) async fn stale(&self, resource: &Resource, key: &str) -> Result<bool, ApiError> {
        self.store.stale(&format!("{}{key}", resource.prefix)).await.map_err(unavailable)
    }

    async fn commit(
        &self,
        resource: &Resource,
        key: &str,
        expect: Expect,
        op: Op,
        verb: &'static str,
        value: &Value,
    ) -> Result<Outcome, ApiError> {
        let hop = hops::start(Hop::Commit, verb);
        let key = format!("{}{key}", resource.prefix).into();
        let begun = Instant::now();
        let outcome = self.store.txn(Txn { key, expect, op }).await.map_err(unavailable)?;
        self.metrics.committed(resource, verb, begun.elapsed());
        let revision = if let Outcome::Committed(revision) = outcome { revision } else { 0 };
        hop.end(machinery::value::text(value, "metadata.uid"), owner(value), revision);
        Ok(outcome)
    }
}

fn draft(resource: &Resource, value: &Value) -> Result<Draft, ApiError> {
    Draft::new(value, resource.cache.fields()).map_err(ApiError::internal)
}

/// The uid of the object's controller.
fn owner(value: &Value) -> &str {
    machinery::value::list(value, "metadata.ownerReferences")
        .iter()
        .find(|reference| machinery::value::flag(reference, "controller"))
        .map_or("", |reference| machinery::value::text(reference, "uid"))
}
