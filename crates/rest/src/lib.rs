//! What is done to stored resources: one generic flow for all of them, and what may change or refuse a write.
//!
//! A reader starts at [`verbs`], a file per verb; [`admission`] has the chain that a write passes, [`registry`] says which
//! resources there are. What differs from kind to kind is asked of its strategy, in `kinds`; what is more than a change of one
//! object is an action, or an allocation.

mod actions;
pub mod admission;
pub mod allocation;
pub mod metrics;
pub mod registry;
pub mod verbs;

use std::sync::Arc;

use registry::Registry;
use storage::Lookup;
use storage::cache::Cache;
pub use verbs::*;

impl Lookup for Registry {
    fn objects(&self, group: &str, plural: &str) -> Option<Arc<Cache>> {
        self.stored(group, plural).map(|resource| resource.cache.clone())
    }
}
