//! The past: an object or a list as it was (`?at=`), and what changed when and by whom (`?changes=true`).
//!
//! Both are parameters of the resource's own path, so that every gate sees what it sees of a read today: who may get or list something now
//! may see how it was, and who may not any more may not. What the past is made of is the store's matter; here a moment becomes a
//! revision, and changes become words.

mod changes;
mod fields;
mod moment;

use std::sync::Arc;

use http::StatusCode;
use jiff::Timestamp;
use machinery::object::Object;
use machinery::rest::Response;
use machinery::status::ApiError;
use serde_json::{Value, json};
use store::{Kept, Revision};

use self::moment::Moment;
pub use self::moment::span;
use super::{Api, Call, object_response};

/// Where it is asked what is kept.
pub const PATH: &str = "/trireme/history";

const AT: &str = "at";
const CHANGES: &str = "changes";

/// The time that an answer is of: an extension of it, for those who show ages.
#[derive(Debug, Clone, Copy)]
pub struct AsOf(pub Timestamp);

/// Refuses questions about the past where there are none.
pub(super) fn refuse(call: &Call<'_>, what: &str) -> Result<(), ApiError> {
    match [AT, CHANGES].into_iter().find(|name| call.query.has(name)) {
        Some(name) => Err(ApiError::bad_request(format!("{name} is not supported for {what}"))),
        None => Ok(()),
    }
}

/// Whether a request is about the past, and only that.
fn asks(call: &Call<'_>, name: &str) -> Result<bool, ApiError> {
    let reads = matches!(call.info.verb, "get" | "list");
    if !reads || !call.query.has(name) || (name == CHANGES && !call.query.flag(CHANGES)) {
        return Ok(false);
    }
    if !call.info.subresource.is_empty() {
        return Err(ApiError::bad_request(format!("{name} is not supported for subresources: ask for the object")));
    }
    let other = ["resourceVersion", "resourceVersionMatch", AT, CHANGES].into_iter();
    match other.filter(|other| *other != name).find(|other| call.query.has(other)) {
        Some(other) => Err(ApiError::bad_request(format!("{name} is forbidden when {other} is provided"))),
        None => Ok(true),
    }
}

impl Api {
    /// The answer to a get about the past.
    pub(super) async fn get_past(&self, call: &Call<'_>) -> Result<Option<Response>, ApiError> {
        if asks(call, CHANGES)? {
            return self.changes(call).await.map(Some);
        }
        if !asks(call, AT)? {
            return Ok(None);
        }
        let (revision, resource) = (self.moment(call.query.get(AT)).await?, call.resource);
        let key = format!("{}{}", resource.prefix, call.key());
        let record = self.store.at(&key, revision).await.map_err(|error| lost(error, revision))?;
        let record = record.ok_or_else(|| call.not_found())?;
        threads::heavy::weigh(record.value.len()).await;
        let object = Object::from_stored(record.value, record.revision, resource.cache.fields());
        let object = self.show(resource, Arc::new(object.map_err(ApiError::internal)?)).await?;
        Ok(Some(object_response(StatusCode::OK, self.convert(call, object)?)))
    }

    /// The answer to a list about changes.
    pub(super) async fn list_past(&self, call: &Call<'_>) -> Result<Option<Response>, ApiError> {
        if asks(call, CHANGES)? { self.changes(call).await.map(Some) } else { Ok(None) }
    }

    /// The revision at which a list is asked for by `at`. A page's continuation knows its own.
    pub(super) async fn list_revision(&self, call: &Call<'_>) -> Result<Option<Revision>, ApiError> {
        if !call.query.get("continue").is_empty() || !asks(call, AT)? {
            return Ok(None);
        }
        self.moment(call.query.get(AT)).await.map(Some)
    }

    /// The revision of a moment, which is kept.
    async fn moment(&self, text: &str) -> Result<Revision, ApiError> {
        let now = (self.clock)();
        let kept = self.store.kept().await.map_err(super::commit::unavailable)?;
        match Moment::parse(text, now).map_err(ApiError::bad_request)? {
            Moment::Now => Ok(kept.latest),
            Moment::Revision(revision) if revision > kept.latest => {
                let what = format!("revision {revision} is in the future: the latest is {}", kept.latest);
                Err(ApiError::bad_request(what))
            }
            Moment::Revision(revision) if revision < kept.oldest => Err(gone(&format!("revision {revision}"), &kept)),
            Moment::Revision(revision) => Ok(revision),
            Moment::Time(time) if time > now => {
                Err(ApiError::bad_request(format!("{text} is in the future: it is {now} at the server")))
            }
            Moment::Time(time) => {
                let millis = u64::try_from(time.as_millisecond()).unwrap_or(0);
                match self.store.moment(millis).await {
                    Ok(Some(revision)) => Ok(revision),
                    Ok(None) => Err(ApiError::bad_request(format!(
                        "etcd keeps no times: name a revision, from {} to {}",
                        kept.oldest, kept.latest
                    ))),
                    Err(store::Error::Compacted { .. }) => Err(gone(text, &kept)),
                    Err(error) => Err(super::commit::unavailable(error)),
                }
            }
        }
    }

    /// Which time a table of the past is of: ages are as they were then. None where nobody knows, and for the present.
    pub(super) async fn as_of(&self, call: &Call<'_>) -> Option<AsOf> {
        if !matches!(call.info.verb, "get" | "list") || !call.query.has(AT) || !call.wants_table() {
            return None;
        }
        match Moment::parse(call.query.get(AT), (self.clock)()).ok()? {
            Moment::Now => None,
            Moment::Time(time) => Some(AsOf(time)),
            Moment::Revision(revision) => {
                let millis = self.store.made(revision).await.ok()??;
                Timestamp::from_millisecond(i64::try_from(millis).ok()?).ok().map(AsOf)
            }
        }
    }

    /// What is kept of the past; with `at`, also which revision a moment was.
    pub async fn kept(&self, at: &str) -> Result<Value, ApiError> {
        let revision = if at.is_empty() { None } else { Some(self.moment(at).await?) };
        let kept = self.store.kept().await.map_err(super::commit::unavailable)?;
        let mut answer = json!({
            "kind": "History", "apiVersion": "trireme.io/v1",
            "engine": if kept.latest_time.is_some() { "embedded" } else { "etcd" },
            "latest": {"resourceVersion": kept.latest.to_string(), "time": shown(kept.latest_time)},
            "oldest": oldest(&kept),
            "bytes": kept.bytes,
        });
        if let Some(revision) = revision {
            let time = self.store.made(revision).await.map_err(super::commit::unavailable)?;
            answer["at"] = json!({"resourceVersion": revision.to_string(), "time": shown(time)});
        }
        Ok(answer)
    }
}

fn oldest(kept: &Kept) -> Value {
    json!({"resourceVersion": kept.oldest.to_string(), "time": shown(kept.oldest_time)})
}

/// A time, if it is known.
fn shown(millis: Option<u64>) -> Value {
    let time = millis.and_then(|millis| Timestamp::from_millisecond(i64::try_from(millis).ok()?).ok());
    time.map_or(Value::Null, |time| format!("{time:.3}").into())
}

fn gone(what: &str, kept: &Kept) -> ApiError {
    let since = match shown(kept.oldest_time) {
        Value::String(time) => format!(" ({time})"),
        _ => String::new(),
    };
    ApiError::expired(format!("{what} is no longer kept: the oldest that is left is {}{since}", kept.oldest))
}

/// A reading failed that was possible a moment ago.
fn lost(error: store::Error, revision: Revision) -> ApiError {
    match error {
        store::Error::Compacted { oldest } => {
            ApiError::expired(format!("revision {revision} is no longer kept: the oldest that is left is {oldest}"))
        }
        store::Error::TooLarge => ApiError::bad_request("there are too many changes: ask for a shorter time"),
        other => super::commit::unavailable(other),
    }
}
