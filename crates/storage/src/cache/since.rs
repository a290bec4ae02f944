//! How a derived index (the rules of RBAC, what a node's pods refer to) keeps up with a cache: by asking what is new.
//!
//! Asking costs a comparison when nothing is. So an index is never behind a write that its asker has seen, needs no task
//! of its own, and pays for what changed only. The cache has changes at hand for less than a minute: who asks less often than every
//! 25 s pays for everything.

use std::sync::Arc;

use machinery::object::Object;
use store::Revision;

use super::{Cache, Change};

/// What an index has to do to be up to date.
pub enum News {
    /// Take in these changes, in this order.
    Changes(Vec<Arc<Change>>),
    /// Forget everything and take in these objects.
    Everything(Vec<Arc<Object>>),
}

/// An index's place in a cache.
#[derive(Debug, Default)]
pub struct Place {
    seen: Option<Revision>,
}

impl Place {
    /// Whether anything was ever taken in.
    pub fn has_begun(&self) -> bool {
        self.seen.is_some()
    }

    /// Whether there is something new.
    pub fn is_behind(&self, cache: &Cache) -> bool {
        self.seen != Some(cache.last_change())
    }

    /// What is new; the place moves on.
    pub fn advance(&mut self, cache: &Cache) -> Option<News> {
        let state = cache.state.read();
        let last = state.ring.last();
        if self.seen == Some(last) {
            return None;
        }
        let changes = self.seen.filter(|seen| *seen <= last).and_then(|seen| state.ring.after(seen));
        let news = match changes {
            Some(changes) => News::Changes(changes.cloned().collect()),
            None => News::Everything(state.objects.values().cloned().collect()),
        };
        self.seen = Some(last);
        Some(news)
    }
}
