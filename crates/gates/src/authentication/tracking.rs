//! Notes on tokens in Secrets: when each was last used, so that those nobody uses can be found and removed.
//!
//! The note is a label with a day, so it costs one write per token and day. It is written after the answer, never before, and by
//! somebody else ([`Use`] says what to write): whoever uses a token does not wait for it.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use parking_lot::Mutex;
use tokio::sync::mpsc;

const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
/// Notes that wait to be written; more are left to the next use.
const MAX_PENDING: usize = 1_000;

/// The day of a moment, in UTC.
pub fn day(at: Timestamp) -> String {
    at.to_zoned(TimeZone::UTC).date().to_string()
}

type Pending = Arc<Mutex<HashSet<(String, String)>>>;

/// Who is being noted.
#[derive(Debug)]
pub struct Tracking {
    pending: Pending,
    uses: mpsc::Sender<Use>,
}

/// A note to be written. Until it is dropped, no other one about the same Secret is sent.
#[derive(Debug)]
pub struct Use {
    /// The namespace of the Secret.
    pub namespace: String,
    pub name: String,
    /// The day for its label.
    pub day: String,
    pending: Pending,
}

impl Drop for Use {
    fn drop(&mut self) {
        let key = (std::mem::take(&mut self.namespace), std::mem::take(&mut self.name));
        self.pending.lock().remove(&key);
    }
}

/// Who finds out about uses, and where they are received.
pub fn tracking() -> (Tracking, mpsc::Receiver<Use>) {
    let (uses, receiver) = mpsc::channel(MAX_PENDING);
    (Tracking { pending: Arc::default(), uses }, receiver)
}

impl Tracking {
    /// A token was used whose Secret has this note.
    pub(super) fn used(&self, namespace: &str, name: &str, note: Option<&str>, now: Timestamp) {
        if is_fresh(note, now) || !self.pending.lock().insert((namespace.to_owned(), name.to_owned())) {
            return;
        }
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        let noted = Use { namespace, name, day: day(now), pending: self.pending.clone() };
        // Where too many wait, or nobody writes any more, the note that is dropped may be sent at the next use.
        let _ = self.uses.try_send(noted);
    }

    /// The label with the note.
    pub const LABEL: &str = LAST_USED;
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

    #[test]
    fn a_secret_is_noted_once_until_the_note_is_written() {
        let now: Timestamp = "2026-02-28T23:59:59Z".parse().expect("a time");
        let (tracking, mut uses) = tracking();
        for _ in 0..3 {
            tracking.used("a", "token", None, now);
        }
        let noted = uses.try_recv().expect("a use");
        assert_eq!((&*noted.namespace, &*noted.name, &*noted.day), ("a", "token", "2026-02-28"));
        assert!(uses.try_recv().is_err());
        tracking.used("a", "token", None, now);
        assert!(uses.try_recv().is_err(), "the first is not written yet");
        drop(noted);
        tracking.used("a", "token", None, now);
        assert!(uses.try_recv().is_ok());
        for number in 0..2 * MAX_PENDING {
            tracking.used("a", &number.to_string(), None, now);
        }
        assert_eq!(tracking.pending.lock().len(), MAX_PENDING, "what found no room is not held back for ever");
    }
}
