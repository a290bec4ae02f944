//! Keeps events from flooding the API: repeated ones are counted, similar ones are combined, and an object that causes too many is ignored for a while.
//!
//! The numbers are upstream's: more than 10 different messages of one reason about one object within 10 minutes become one combined event; an object may
//! cause 25 events at once and one more every 5 minutes.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use k8s_openapi::api::core::v1::Event;
use rustc_hash::{FxBuildHasher, FxHashSet};

/// So many objects, reasons and events are remembered.
const REMEMBERED: usize = 4096;
/// How many different messages make events similar.
const SIMILAR: usize = 10;
const WINDOW: Duration = Duration::from_secs(600);
/// How many events an object may cause at once.
const BURST: f64 = 25.0;
/// How often it may cause one more.
const REFILL: Duration = Duration::from_secs(300);

/// What to do with an event.
#[derive(Debug)]
pub(super) enum Verdict {
    /// Its object caused too many.
    Drop,
    Create(Event),
    /// It happened before; this is the one to write the count, the time and the message to.
    Count(Event),
}

#[derive(Debug, Default)]
pub(super) struct Correlator {
    spam: Recent<Vec<String>, Tokens>,
    similar: Recent<Vec<String>, Similar>,
    counted: Recent<Vec<String>, Counted>,
}

#[derive(Debug)]
struct Tokens {
    left: f64,
    at: Duration,
}

#[derive(Debug, Default)]
struct Similar {
    messages: FxHashSet<String>,
    last: Duration,
}

#[derive(Debug, Clone)]
struct Counted {
    event: Event,
}

impl Correlator {
    /// Decides; `now` is monotonic.
    pub(super) fn correlate(&mut self, event: Event, now: Duration) -> Verdict {
        if !self.may_speak(&event, now) {
            return Verdict::Drop;
        }
        let (mut event, key) = self.combine(event, now);
        match self.counted.get(&key) {
            Some(known) => {
                event.metadata.name.clone_from(&known.event.metadata.name);
                event.metadata.namespace.clone_from(&known.event.metadata.namespace);
                event.first_timestamp.clone_from(&known.event.first_timestamp);
                event.count = Some(known.event.count.unwrap_or(1).saturating_add(1));
                known.event = event.clone();
                Verdict::Count(event)
            }
            None => {
                self.counted.insert(key, Counted { event: event.clone() });
                Verdict::Create(event)
            }
        }
    }

    /// The server's answer has the name that counts go to from now on.
    pub(super) fn written(&mut self, event: &Event) {
        let mut key = reason_key(event);
        let combined = self.counted.get(&key).is_some_and(|known| known.event.message == event.message);
        if !combined {
            key = full_key(event);
        }
        if let Some(known) = self.counted.get(&key) {
            known.event.metadata.name.clone_from(&event.metadata.name);
        }
    }

    fn may_speak(&mut self, event: &Event, now: Duration) -> bool {
        let key = object_key(event);
        let tokens = self.spam.get_or_insert(key, || Tokens { left: BURST, at: now });
        let refilled = now.saturating_sub(tokens.at).as_secs_f64() / REFILL.as_secs_f64();
        tokens.left = (tokens.left + refilled).min(BURST);
        tokens.at = now;
        let may = tokens.left >= 1.0;
        if may {
            tokens.left -= 1.0;
        }
        may
    }

    /// The event as it is, counted by its message; or the combined one, counted by its reason.
    fn combine(&mut self, mut event: Event, now: Duration) -> (Event, Vec<String>) {
        let key = reason_key(&event);
        let message = event.message.clone().unwrap_or_default();
        let similar = self.similar.get_or_insert(key.clone(), Similar::default);
        if now.saturating_sub(similar.last) > WINDOW {
            similar.messages.clear();
        }
        similar.last = now;
        similar.messages.insert(message.clone());
        if similar.messages.len() < SIMILAR {
            let key = full_key(&event);
            return (event, key);
        }
        // Enough are known; one is forgotten so that the set stays small and the next one is combined too.
        similar.messages.remove(&message);
        event.message = Some(format!("(combined from similar events): {message}"));
        (event, key)
    }
}

fn object_key(event: &Event) -> Vec<String> {
    let (source, about) = (event.source.as_ref(), &event.involved_object);
    let parts = [
        source.and_then(|source| source.component.as_deref()),
        source.and_then(|source| source.host.as_deref()),
        about.kind.as_deref(),
        about.namespace.as_deref(),
        about.name.as_deref(),
        about.uid.as_deref(),
        about.api_version.as_deref(),
    ];
    parts.into_iter().map(|part| part.unwrap_or_default().to_owned()).collect()
}

fn reason_key(event: &Event) -> Vec<String> {
    let mut key = object_key(event);
    let parts = [event.type_.as_deref(), event.reason.as_deref(), event.reporting_component.as_deref()];
    key.extend(parts.into_iter().map(|part| part.unwrap_or_default().to_owned()));
    key
}

fn full_key(event: &Event) -> Vec<String> {
    let mut key = reason_key(event);
    key.push(event.involved_object.field_path.clone().unwrap_or_default());
    key.push(event.message.clone().unwrap_or_default());
    key
}

/// A map that forgets what was not used for longest once it holds too much.
#[derive(Debug)]
struct Recent<K, V> {
    entries: HashMap<K, (V, u64), FxBuildHasher>,
    tick: u64,
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Self { entries: HashMap::default(), tick: 0 }
    }
}

impl<K: Hash + Eq, V> Recent<K, V> {
    fn get(&mut self, key: &K) -> Option<&mut V> {
        self.tick += 1;
        let tick = self.tick;
        self.entries.get_mut(key).map(|(value, used)| {
            *used = tick;
            value
        })
    }

    fn insert(&mut self, key: K, value: V) {
        self.get_or_insert(key, || value);
    }

    fn get_or_insert(&mut self, key: K, value: impl FnOnce() -> V) -> &mut V {
        if self.entries.len() >= REMEMBERED {
            // A quarter at a time, so that the search for the oldest is rare.
            let oldest = self.tick.saturating_sub(REMEMBERED as u64 * 3 / 4);
            let before = self.entries.len();
            self.entries.retain(|_, (_, used)| *used > oldest);
            if self.entries.len() == before {
                self.entries.clear();
            }
        }
        self.tick += 1;
        let entry = self.entries.entry(key).or_insert_with(|| (value(), 0));
        entry.1 = self.tick;
        &mut entry.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ObjectReference;

    fn event(object: &str, reason: &str, message: &str) -> Event {
        Event {
            involved_object: ObjectReference { name: Some(object.into()), ..ObjectReference::default() },
            reason: Some(reason.into()),
            message: Some(message.into()),
            count: Some(1),
            ..Event::default()
        }
    }

    #[test]
    fn a_repeated_event_is_counted() {
        let mut correlator = Correlator::default();
        assert!(matches!(correlator.correlate(event("a", "Failed", "x"), Duration::ZERO), Verdict::Create(_)));
        for count in 2..5 {
            let verdict = correlator.correlate(event("a", "Failed", "x"), Duration::from_secs(1));
            assert!(matches!(verdict, Verdict::Count(event) if event.count == Some(count)));
        }
        assert!(matches!(correlator.correlate(event("b", "Failed", "x"), Duration::ZERO), Verdict::Create(_)));
    }

    #[test]
    fn many_similar_events_are_combined() {
        let mut correlator = Correlator::default();
        for number in 0..9 {
            let verdict = correlator.correlate(event("a", "Failed", &format!("try {number}")), Duration::ZERO);
            assert!(matches!(verdict, Verdict::Create(_)), "message {number} stands alone");
        }
        let verdict = correlator.correlate(event("a", "Failed", "try 9"), Duration::ZERO);
        let Verdict::Create(combined) = verdict else { panic!("the first combined event is a new one") };
        assert_eq!(combined.message.as_deref(), Some("(combined from similar events): try 9"));
        let verdict = correlator.correlate(event("a", "Failed", "try 10"), Duration::ZERO);
        assert!(matches!(verdict, Verdict::Count(event) if event.count == Some(2)));
        let later = WINDOW + Duration::from_secs(1);
        assert!(matches!(correlator.correlate(event("a", "Failed", "try 11"), later), Verdict::Create(_)));
    }

    #[test]
    fn an_object_that_causes_too_many_is_not_heard() {
        let mut correlator = Correlator::default();
        let spoken = (0..100)
            .filter(|_| !matches!(correlator.correlate(event("a", "Failed", "x"), Duration::ZERO), Verdict::Drop))
            .count();
        assert_eq!(spoken, 25);
        assert!(matches!(correlator.correlate(event("a", "Failed", "x"), REFILL), Verdict::Count(_)));
        assert!(matches!(correlator.correlate(event("b", "Failed", "x"), Duration::ZERO), Verdict::Create(_)));
    }

    #[test]
    fn memory_is_bounded() {
        let mut recent = Recent::default();
        for number in 0..3 * REMEMBERED {
            recent.insert(number, ());
        }
        assert!(recent.entries.len() <= REMEMBERED);
        assert!(recent.get(&(3 * REMEMBERED - 1)).is_some());
        assert!(recent.get(&0).is_none());
    }
}
