//! Which pods are having others evicted for them right now.

use std::sync::Arc;

use parking_lot::RwLock;
use rustc_hash::FxHashSet;

/// Pods whose evictions are under way. They are not tried again before these are done.
#[derive(Debug, Default)]
pub struct Preempting(RwLock<FxHashSet<Arc<str>>>);

impl Preempting {
    pub fn begin(&self, uid: &Arc<str>) {
        self.0.write().insert(uid.clone());
    }

    pub fn end(&self, uid: &str) {
        self.0.write().remove(uid);
    }

    /// Whether evictions are under way.
    pub fn is_running(&self, uid: &str) -> bool {
        self.0.read().contains(uid)
    }
}
