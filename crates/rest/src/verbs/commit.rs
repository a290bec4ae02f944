//! Reading and writing objects in the store: the compare-and-swap loop of every change.

use std::borrow::Borrow;
use std::sync::Arc;
use std::time::Instant;

use gates::Held;
use hops::Hop;
use machinery::Value;
use machinery::object::{Draft, Object};
use machinery::status::ApiError;
use storage::cache::Announced;
use store::{Expect, Fenced, Op, Outcome, Txn};
use threads::heavy;

use super::Api;
use super::author::Target;
use crate::registry::Resource;

/// How often a change is made anew because somebody else was faster. So many at once are more than any cluster has.
pub const MAX_RACES: usize = 256;

/// What a write wants of an object.
pub enum Change<V> {
    Put(V),
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
    Done(Changed),
    /// The object is another by now, or gone.
    Raced(Option<Arc<Object>>),
}

/// An unexpected store error as an answer.
pub fn unavailable(error: store::Error) -> ApiError {
    match error {
        store::Error::TooLarge => ApiError::too_large(gates::body::MAX_BODY),
        other => ApiError::unavailable(other.to_string()),
    }
}

impl Api {
    /// The object as of now, whatever any other server wrote before this call.
    pub async fn read(&self, resource: &Resource, key: &str) -> Result<Option<Arc<Object>>, ApiError> {
        self.caches.settle().await?;
        match resource.cache.get(key) {
            Some(object) => Ok(Some(self.show(resource, object).await?)),
            None => Ok(None),
        }
    }

    /// Writes a new object. `None` if the key is taken.
    pub async fn insert(
        &self,
        target: Target<'_>,
        value: &Value,
        dry_run: bool,
    ) -> Result<Option<Arc<Object>>, ApiError> {
        let Target { resource, key, by } = target;
        let draft = self.draft(resource, value).await?;
        if dry_run {
            let taken = self.read(resource, key).await?.is_some();
            return if taken { Ok(None) } else { self.written(resource, value, &draft, 0).map(Some) };
        }
        let announced = resource.cache.announce(&draft);
        let op = Op::Put { value: draft.stored().clone(), ttl: resource.ttl };
        let (key, write, note) = (stored_key(resource, key), Some(announced.write()), by.note("create"));
        let txn = Txn { key, expect: Expect::Absent, op, write, note };
        match self.commit(target, txn, "create", value).await? {
            Outcome::Committed(revision) => self.written(resource, value, &draft, revision).map(Some),
            Outcome::Conflict(_) => Ok(None),
        }
    }

    /// Changes an object until nobody else was faster, or all too many were. `change` sees the current object and may be called
    /// again.
    pub async fn change(
        &self,
        target: Target<'_>,
        dry_run: bool,
        mut change: impl FnMut(&Value, &Arc<Object>) -> Result<Change<Value>, ApiError>,
    ) -> Result<Option<Changed>, ApiError> {
        let Target { resource, key, .. } = target;
        let mut current = self.read(resource, key).await?;
        for _ in 0..MAX_RACES {
            let Some(old) = current else { return Ok(None) };
            heavy::weigh(old.stored_len()).await;
            let tree = old.to_value();
            match self.swap(target, &old, &tree, change(&tree, &old)?, dry_run).await? {
                Swapped::Done(changed) => return Ok(Some(changed)),
                Swapped::Raced(other) => current = other,
            }
        }
        Err(ApiError::stale(&resource.name, key.rsplit('/').next().unwrap_or(key)))
    }

    /// Changes an object if it is still `old`, whose tree the caller has.
    pub async fn swap(
        &self,
        target: Target<'_>,
        old: &Arc<Object>,
        old_tree: &Value,
        change: Change<impl Borrow<Value>>,
        dry_run: bool,
    ) -> Result<Swapped, ApiError> {
        let Target { resource, key, by } = target;
        let new = match change {
            Change::Keep => return Ok(Swapped::Done(Changed::Now(old.clone()))),
            Change::Delete => None,
            Change::Put(new) => {
                let draft = self.draft(resource, new.borrow()).await?;
                // A write that changes nothing must not take a revision: controllers would wake each other for ever.
                // Unless it is stored with a key that has been replaced: then this is how it gets the new one.
                let same = match &resource.form {
                    None => *draft.stored() == old.stored(),
                    Some(_) => resource.cache.get(key).is_some_and(|stored| *draft.stored() == stored.stored()),
                };
                if same && !self.stale(resource, key).await? {
                    return Ok(Swapped::Done(Changed::Now(old.clone())));
                }
                Some((draft, new))
            }
        };
        let outcome = if dry_run {
            Outcome::Committed(old.revision())
        } else {
            let announced = new.as_ref().map(|(draft, _)| resource.cache.announce(draft));
            let (op, verb) = match &new {
                Some((draft, _)) => (Op::Put { value: draft.stored().clone(), ttl: resource.ttl }, "update"),
                None => (Op::Delete, "delete"),
            };
            let (key, expect) = (stored_key(resource, key), Expect::At(old.revision()));
            let (write, note) = (announced.as_ref().map(Announced::write), by.note(verb));
            let txn = Txn { key, expect, op, write, note };
            self.commit(target, txn, verb, old_tree).await?
        };
        Ok(match (outcome, new) {
            (Outcome::Committed(at), Some((draft, new))) => {
                Swapped::Done(Changed::Now(self.written(resource, new.borrow(), &draft, at)?))
            }
            (Outcome::Committed(at), None) => Swapped::Done(Changed::Deleted(Arc::new(old.at_revision(at)))),
            (Outcome::Conflict(None), _) => Swapped::Raced(None),
            (Outcome::Conflict(Some(record)), _) => {
                let other = Object::from_stored(record.value, record.revision, resource.cache.fields());
                Swapped::Raced(Some(self.show(resource, Arc::new(other.map_err(ApiError::internal)?)).await?))
            }
        })
    }

    /// An object for an answer, as it never was in the store.
    pub(super) fn shown(&self, resource: &Resource, value: &Value, revision: u64) -> Result<Arc<Object>, ApiError> {
        match &resource.form {
            Some(form) => form.object(value, revision),
            None => Ok(Arc::new(draft(resource, value)?.at_revision(revision))),
        }
    }

    /// Whether the object is stored as it would not be stored now: with a key that has been replaced, or in another version.
    pub(super) async fn stale(&self, resource: &Resource, key: &str) -> Result<bool, ApiError> {
        if let Some(form) = &resource.form
            && resource.cache.get(key).is_some_and(|stored| !form.is_current(&stored))
        {
            return Ok(true);
        }
        self.store.stale(&stored_key(resource, key)).await.map_err(unavailable)
    }

    async fn commit(
        &self,
        target: Target<'_>,
        txn: Txn,
        verb: &'static str,
        value: &Value,
    ) -> Result<Outcome, ApiError> {
        let hop = hops::start(Hop::Commit, verb).within(target.by.trace());
        // Before anybody can have seen it.
        hop.causes(machinery::value::text(value, "metadata.uid"), owner(value));
        let begun = Instant::now();
        let outcome = match target.by.held() {
            None => self.store.txn(txn).await.map_err(unavailable)?,
            Some(held) => self.commit_under(held, txn).await?,
        };
        self.metrics.committed(target.resource, verb, begun.elapsed());
        let revision = if let Outcome::Committed(revision) = outcome { revision } else { 0 };
        let hop = hop.amount(self.store.group(revision));
        hop.end(machinery::value::text(value, "metadata.uid"), owner(value), revision);
        Ok(outcome)
    }

    /// The write of somebody who leads, as long as they do.
    async fn commit_under(&self, held: &Held, txn: Txn) -> Result<Outcome, ApiError> {
        let mut fence = held.fence.clone();
        for _ in 0..MAX_RACES {
            match self.store.txn_behind(fence, txn.clone()).await.map_err(unavailable)? {
                Fenced::Stood(outcome) => return Ok(outcome),
                Fenced::Fell(lease) => fence = held.judge(lease)?,
            }
        }
        Err(held.restless())
    }
}

/// The key of an object in the store.
fn stored_key(resource: &Resource, key: &str) -> Arc<str> {
    format!("{}{key}", resource.prefix).into()
}

pub(super) fn draft(resource: &Resource, value: &Value) -> Result<Draft, ApiError> {
    Draft::new(value, resource.cache.fields()).map_err(ApiError::internal)
}

/// The uid of the object's controller.
fn owner(value: &Value) -> &str {
    rules::owners::controller_in(value).map_or("", |reference| machinery::value::text(reference, "uid"))
}
