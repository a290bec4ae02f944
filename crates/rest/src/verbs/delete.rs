//! Delete and delete-collection: preconditions, grace, finalizers, propagation.

use std::sync::Arc;

use http::StatusCode;
use machinery::gvk::GroupResource;
use machinery::object::Object;
use machinery::rest::{Body, Response};
use machinery::status::ApiError;
use machinery::{Value, time, value};
use serde_json::json;

use super::author::Target;
use super::commit::{Change, Changed};
use super::options::{DeleteOptions, Propagation};
use super::{Api, Call, object_response, value_response};
use crate::admission::Operation;
use crate::registry::{Grace, Resource};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

impl Api {
    /// Deletes one object, or begins to.
    pub(super) async fn delete(&self, call: &Call<'_>, body: Body) -> Result<Response, ApiError> {
        let options = self.delete_options(call, body).await?;
        let object = self.read(call.resource, &call.key()).await?.ok_or_else(|| call.not_found())?;
        let changed = self.delete_named(call, object, &options).await?;
        Ok(match changed {
            Changed::Deleted(object) if !call.resource.storage.returns_deleted => {
                value_response(StatusCode::OK, deleted_status(call.resource, &object))
            }
            Changed::Deleted(object) => {
                let last = self.last_words(call, object, &options)?;
                object_response(StatusCode::OK, self.convert(call, last)?)
            }
            Changed::Now(object) => {
                let status =
                    if options.orphan_dependents == Some(false) { StatusCode::ACCEPTED } else { StatusCode::OK };
                object_response(status, self.convert(call, object)?)
            }
        })
    }

    /// Deletes every object of a collection that the selectors choose, and answers with what it found.
    pub(super) async fn delete_collection(&self, call: &Call<'_>, body: Body) -> Result<Response, ApiError> {
        let options = self.delete_options(call, body).await?;
        let mut list = self.list_items(call).await?;
        for item in &list.items {
            let info = gates::RequestInfo {
                name: item.meta().name.to_string(),
                namespace: item.meta().namespace.to_string(),
                ..call.info.clone()
            };
            let one = Call { info: &info, ..*call };
            let Some(object) = call.resource.cache.get(&one.key()) else { continue };
            let object = self.show(call.resource, object).await?;
            match self.delete_named(&one, object, &options).await {
                Err(error) if error.is(machinery::status::Reason::NotFound) => {}
                outcome => {
                    outcome?;
                }
            }
        }
        let items = std::mem::take(&mut list.items);
        list.items = items.into_iter().map(|item| self.convert(call, item)).collect::<Result<_, _>>()?;
        Ok(super::response(StatusCode::OK, machinery::rest::Payload::List(list)))
    }

    async fn delete_options(&self, call: &Call<'_>, body: Body) -> Result<DeleteOptions, ApiError> {
        let body = match body {
            Body::Empty => None,
            Body::Value(value) => Some(value),
            body => super::body::read_options(call.headers, body, "DeleteOptions").await?,
        };
        DeleteOptions::parse(call.query, body.as_ref())
    }

    async fn delete_named(
        &self,
        call: &Call<'_>,
        object: Arc<Object>,
        options: &DeleteOptions,
    ) -> Result<Changed, ApiError> {
        let request = self.admission_request(call, Operation::Delete, options.dry_run);
        self.admission.delete(self, &request, &object.to_value()).await?;
        self.delete_admitted(call, options).await
    }

    /// Deletes an object, or begins to, for the server itself: when what defines it goes.
    pub async fn delete_own(&self, resource: &Resource, key: &str) -> Result<(), ApiError> {
        let (options, now) = (DeleteOptions::default(), (self.clock)());
        self.change(Target::own(resource, key), false, |old, _| Ok(begin(resource, old, &options, now)))
            .await
            .map(|_| ())
    }

    /// Deletes what nobody objects to; an eviction was admitted as what it is.
    pub(crate) async fn delete_admitted(&self, call: &Call<'_>, options: &DeleteOptions) -> Result<Changed, ApiError> {
        let now = (self.clock)();
        let key = call.key();
        let changed = self
            .change(call.writes(call.resource, &key), options.dry_run, |old, object| {
                self.check_preconditions(call.resource, object, options)?;
                Ok(begin(call.resource, old, options, now))
            })
            .await?
            .ok_or_else(|| call.not_found())?;
        if let Changed::Deleted(object) = &changed
            && !options.dry_run
        {
            self.allocator.release_all(self, call.resource, &object.to_value()).await;
        }
        Ok(changed)
    }

    /// What the one who deletes an object is shown of it: where objects go gracefully, that it was on its way.
    fn last_words(
        &self,
        call: &Call<'_>,
        object: Arc<Object>,
        options: &DeleteOptions,
    ) -> Result<Arc<Object>, ApiError> {
        let tree = object.to_value();
        match call.resource.strategy.grace(&tree, options.grace_period) {
            Grace::None => Ok(object),
            Grace::Seconds(_) => self.shown(call.resource, &marked(&tree, 0, (self.clock)()), object.revision()),
        }
    }

    /// Whether the object is the one that is to go.
    pub(crate) fn check_preconditions(
        &self,
        resource: &Resource,
        object: &Object,
        options: &DeleteOptions,
    ) -> Result<(), ApiError> {
        let subject = GroupResource::new(&*resource.storage.group, &*resource.storage.kind);
        let name = &object.meta().name;
        if let Some(uid) = &options.uid
            && **uid != *object.meta().uid
        {
            let why = format!(
                "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted and then recreated",
                object.meta().uid
            );
            return Err(ApiError::conflict(&subject, name, &why));
        }
        if let Some(version) = &options.resource_version
            && *version != object.revision().to_string()
        {
            let why = format!(
                "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({}). The object might have been modified",
                object.revision()
            );
            return Err(ApiError::conflict(&subject, name, &why));
        }
        Ok(())
    }
}

/// What a deletion does to the object as it is: removes it, marks it, or (when it is on its way already) nothing.
fn begin(resource: &Resource, old: &Value, options: &DeleteOptions, now: jiff::Timestamp) -> Change<Value> {
    let strategy = &resource.strategy;
    let Some(grace) = time_left(resource, old, options) else { return Change::Keep };
    let finalizers = finalizers(strategy.flags().orphans_by_default, old, options);
    let held = !finalizers.is_empty() || strategy.holds(old);
    if !held && grace == 0 {
        return Change::Delete;
    }
    let mut new = marked(old, grace, now);
    if finalizers.is_empty() {
        value::remove(&mut new, "metadata.finalizers");
    } else {
        value::set(&mut new, "metadata.finalizers", finalizers);
    }
    if value::at(old, "metadata.deletionTimestamp").is_none() {
        strategy.prepare_for_deletion(&mut new);
    }
    Change::Put(new)
}

/// How many seconds somebody has to finish the object; `None` if it is on its way already, and this changes nothing.
fn time_left(resource: &Resource, old: &Value, options: &DeleteOptions) -> Option<i64> {
    let first = value::at(old, "metadata.deletionTimestamp").is_none();
    let pending = value::int(old, "metadata.deletionGracePeriodSeconds").unwrap_or(0);
    match (first, resource.strategy.grace(old, options.grace_period)) {
        (true, Grace::Seconds(seconds)) => Some(seconds),
        (_, Grace::None) => Some(0),
        // The time left may only become shorter.
        (false, Grace::Seconds(_)) => match (pending, options.grace_period) {
            (0, _) => Some(0),
            (left, Some(asked)) if asked < left => Some(asked),
            _ => None,
        },
    }
}

/// The object with its end in sight.
fn marked(old: &Value, grace: i64, now: jiff::Timestamp) -> Value {
    let mut new = old.clone();
    let marked_at = value::at(old, "metadata.deletionTimestamp").and_then(Value::as_str);
    let pending = value::int(old, "metadata.deletionGracePeriodSeconds");
    let begun = marked_at
        .and_then(time::parse_clamped)
        .zip(pending)
        .and_then(|(at, pending)| at.checked_sub(jiff::SignedDuration::from_secs(pending)).ok())
        .unwrap_or(now);
    let due = begun.checked_add(jiff::SignedDuration::from_secs(grace)).unwrap_or(now);
    let (due, grace) = match due < now {
        // The whole of a shortened grace is over: the least that still lets somebody finish the object.
        true if marked_at.is_some() => (now, grace.min(1)),
        _ => (due, grace),
    };
    if marked_at.is_none() || grace != pending.unwrap_or(0) {
        value::set(&mut new, "metadata.deletionTimestamp", time::format(due));
        value::set(&mut new, "metadata.deletionGracePeriodSeconds", grace);
    }
    if marked_at.is_none()
        && let Some(generation) = value::int(old, "metadata.generation").filter(|generation| *generation > 0)
    {
        value::set(&mut new, "metadata.generation", generation.saturating_add(1));
    }
    new
}

/// The object's finalizers with those of the garbage collector as this deletion wants them.
fn finalizers(orphans_by_default: bool, old: &Value, options: &DeleteOptions) -> Vec<String> {
    let present: Vec<&str> = value::list(old, "metadata.finalizers").iter().filter_map(Value::as_str).collect();
    let (orphan, foreground) = match (options.orphan_dependents, options.propagation) {
        (Some(orphan), _) => (orphan, false),
        (None, Some(policy)) => (policy == Propagation::Orphan, policy == Propagation::Foreground),
        (None, None) => {
            let foreground = present.contains(&FOREGROUND);
            (present.contains(&ORPHAN) || (orphans_by_default && !foreground), foreground)
        }
    };
    let mut finalizers: Vec<String> =
        present.into_iter().filter(|name| !matches!(*name, ORPHAN | FOREGROUND)).map(str::to_owned).collect();
    if orphan {
        finalizers.push(ORPHAN.to_owned());
    }
    if foreground {
        finalizers.push(FOREGROUND.to_owned());
    }
    finalizers
}

/// The `Status` of a deletion that is over.
fn deleted_status(resource: &Resource, object: &Object) -> Value {
    let mut details = json!({"name": object.meta().name, "kind": resource.storage.plural, "uid": object.meta().uid});
    if !resource.storage.group.is_empty() {
        details["group"] = json!(resource.storage.group);
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_at_its_end_does_not_begin_anew() {
        for (generation, expect) in [(1, 2), (i64::MAX, i64::MAX)] {
            let new = marked(&json!({"metadata": {"generation": generation}}), 0, jiff::Timestamp::UNIX_EPOCH);
            assert_eq!(new["metadata"]["generation"], expect);
        }
    }
}
