//! Objects that cannot be read are set aside, so that everything beside them goes on.
//!
//! The cache keeps the last version of them that could be read: an object that seemed to be deleted would be worse, because its
//! controller would delete or replace what belongs to it. One that was never read is absent. A later version that can be read, or the end of the
//! object, heals it.
//!
//! A process has many informers, often several of one kind. What is set aside is therefore known once per process: it is counted, logged and
//! named in an Event once per object and revision, however many informers meet it and however often they read it again.

use std::collections::{BTreeMap, HashMap};

use client::Undecodable;
use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;

use crate::Key;
use crate::metrics::{SET_ASIDE, SET_ASIDE_TOTAL};

/// What one informer has set aside.
pub(crate) struct Aside {
    resource: String,
    held: Mutex<HashMap<Key, Undecodable, FxBuildHasher>>,
}

impl Aside {
    pub(crate) fn new(resource: String) -> Self {
        Self { resource, held: Mutex::default() }
    }

    /// Sets an object aside. True if nobody in this process knew that of it at this revision.
    pub(crate) fn put(&self, object: Undecodable) -> bool {
        let key = key(&object);
        let mut held = self.held.lock();
        let id = self.id(&object);
        let known = held.insert(key, object.clone()).map(|before| self.id(&before));
        let mut all = ALL.lock();
        if let Some(before) = known.as_ref().filter(|before| **before != id) {
            release(&mut all, before);
        }
        let revision = object.object.resource_version.unwrap_or_default();
        let entry = all.entry(id.clone()).or_default();
        if known != Some(id) {
            entry.holders += 1;
        }
        let news = entry.revision.is_empty() || later(&revision, &entry.revision);
        if news {
            entry.revision = revision;
            SET_ASIDE_TOTAL.increment(&[&self.resource]);
        }
        self.show(&all);
        news
    }

    /// The object can be read again, or is gone.
    pub(crate) fn heal(&self, key: &Key) {
        let mut held = self.held.lock();
        if held.is_empty() {
            return;
        }
        if let Some(object) = held.remove(key) {
            let mut all = ALL.lock();
            release(&mut all, &self.id(&object));
            self.show(&all);
        }
    }

    /// Heals all that are not among these.
    pub(crate) fn keep_only(&self, all: &[Undecodable]) {
        let healed: Vec<Key> = {
            let held = self.held.lock();
            held.keys().filter(|known| !all.iter().any(|object| key(object) == **known)).cloned().collect()
        };
        healed.iter().for_each(|key| self.heal(key));
    }

    /// What is set aside now.
    pub(crate) fn list(&self) -> Vec<Undecodable> {
        self.held.lock().values().cloned().collect()
    }

    fn id(&self, object: &Undecodable) -> Id {
        let uid = object.object.uid.clone().unwrap_or_default();
        (self.resource.clone(), uid, key(object))
    }

    fn show(&self, all: &BTreeMap<Id, Entry>) {
        let count = all.keys().filter(|(resource, ..)| *resource == self.resource).count();
        SET_ASIDE.set(&[&self.resource], count as f64);
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        self.keep_only(&[]);
    }
}

/// The name of an object that cannot be read.
pub(crate) fn key(object: &Undecodable) -> Key {
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    Key::new(text(&object.object.namespace), text(&object.object.name))
}

/// Resource, uid and name.
type Id = (String, String, Key);

#[derive(Default)]
struct Entry {
    /// The latest that was reported.
    revision: String,
    /// How many informers have it.
    holders: usize,
}

/// What all informers of the process have set aside. It holds no more than they do.
static ALL: Mutex<BTreeMap<Id, Entry>> = Mutex::new(BTreeMap::new());

fn release(all: &mut BTreeMap<Id, Entry>, id: &Id) {
    if let Some(entry) = all.get_mut(id) {
        entry.holders = entry.holders.saturating_sub(1);
        if entry.holders == 0 {
            all.remove(id);
        }
    }
}

/// Informers do not all stand at the same revision; one that lags behind has no news.
fn later(one: &str, other: &str) -> bool {
    match (one.parse::<u64>(), other.parse::<u64>()) {
        (Ok(one), Ok(other)) => one > other,
        _ => one != other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ObjectReference;

    fn odd(name: &str, uid: &str, revision: &str) -> Undecodable {
        let object = ObjectReference {
            name: Some(name.to_owned()),
            uid: Some(uid.to_owned()),
            resource_version: Some(revision.to_owned()),
            ..ObjectReference::default()
        };
        Undecodable { object: Box::new(object), error: "odd".to_owned() }
    }

    #[test]
    fn an_object_is_news_once_per_revision_however_many_informers_meet_it() {
        let (one, two) = (Aside::new("asides".to_owned()), Aside::new("asides".to_owned()));
        assert!(one.put(odd("a", "1", "5")));
        assert!(!two.put(odd("a", "1", "5")) && !one.put(odd("a", "1", "5")));
        assert!(two.put(odd("a", "1", "10")), "a later revision is news");
        assert!(!one.put(odd("a", "1", "9")), "somebody lags behind");
        assert!(one.put(odd("b", "2", "11")));
        assert_eq!(SET_ASIDE.value(&["asides"]), Some(2.0));
        assert_eq!(SET_ASIDE_TOTAL.value(&["asides"]) as u32, 3);

        one.heal(&Key::cluster("a"));
        assert_eq!(SET_ASIDE.value(&["asides"]), Some(2.0), "the other informer still has it");
        two.heal(&Key::cluster("a"));
        assert_eq!(SET_ASIDE.value(&["asides"]), Some(1.0));
        assert!(one.put(odd("b", "3", "12")), "another object of the same name");
        assert_eq!(SET_ASIDE.value(&["asides"]), Some(1.0));
        drop((one, two));
        assert_eq!(SET_ASIDE.value(&["asides"]), Some(0.0), "an informer that ends has nothing aside");
    }
}
