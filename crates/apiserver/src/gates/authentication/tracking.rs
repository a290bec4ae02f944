//! Notes on tokens in Secrets: when each was last used, so that those nobody uses can be found and removed.
//!
//! The note is a label with a day, so it costs one write per token and day. It is written after the answer, never before: whoever uses a token does not
//! wait for it.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use machinery::{Value, value};
use parking_lot::Mutex;

use crate::registry::Resource;
use crate::rest::Api;
use crate::rest::storage::Change;

const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
/// Notes that are being written at the same time; more are left to the next use.
const MAX_PENDING: usize = 1_000;

/// The day of a moment, in UTC.
pub(crate) fn day(at: Timestamp) -> String {
    at.to_zoned(TimeZone::UTC).date().to_string()
}

/// Who is being noted.
#[derive(Debug, Default, Clone)]
pub(super) struct Tracking {
    pending: Arc<Mutex<HashSet<String>>>,
}

impl Tracking {
    /// A token was used whose Secret has this note.
    pub(super) fn used(&self, api: &Arc<Api>, secrets: &Arc<Resource>, key: &str, note: Option<&str>, now: Timestamp) {
        if is_fresh(note, now) {
            return;
        }
        {
            let mut pending = self.pending.lock();
            if pending.len() >= MAX_PENDING || !pending.insert(key.to_owned()) {
                return;
            }
        }
        let (api, secrets, key, pending) = (Arc::clone(api), Arc::clone(secrets), key.to_owned(), self.pending.clone());
        tokio::spawn(async move {
            let today = day(now);
            let written = api
                .change(&secrets, &key, false, |old, _| {
                    let mut new = old.clone();
                    let labels = value::object_mut(&mut new, "metadata").entry("labels").or_insert(Value::Null);
                    value::as_object_mut(labels).insert(LAST_USED.to_owned(), today.clone().into());
                    Ok(Change::Put(new))
                })
                .await;
            if let Err(error) = written {
                tracing::warn!(%error, "cannot note that a token in a secret was used");
            }
            pending.lock().remove(&key);
        });
    }

    /// The label with the note.
    pub(super) const LABEL: &str = LAST_USED;
}

/// A note of today needs no other; one of tomorrow is by a server whose clock is ahead.
fn is_fresh(note: Option<&str>, now: Timestamp) -> bool {
    let tomorrow = now.checked_add(jiff::SignedDuration::from_hours(24)).map_or_else(|_| String::new(), day);
    note.is_some_and(|note| note == day(now) || note == tomorrow)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_needs_one_note() {
        let now: Timestamp = "2026-02-28T23:59:59Z".parse().expect("a time");
        assert!(is_fresh(Some("2026-02-28"), now));
        assert!(is_fresh(Some("2026-03-01"), now));
        assert!(!is_fresh(Some("2026-02-27"), now));
        assert!(!is_fresh(Some("nonsense"), now));
        assert!(!is_fresh(None, now));
    }
}
