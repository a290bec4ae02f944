//! What the API server keeps: the objects of every resource in memory, and the store behind them.
//!
//! [`cache`] answers reads and watches; [`encryption`] seals what goes to the store and opens what comes from it. Neither
//! knows what a kind means: a resource is a beginning of keys and a list of fields that selectors may name.

pub mod cache;
pub mod encryption;

use std::sync::Arc;

use cache::Cache;
use machinery::object::Object;

/// Finds the objects of resources, for whoever needs some to judge a request by: accounts, roles, leases.
pub trait Lookup: Send + Sync {
    /// The objects of the resource of this group and plural; none if it is not served.
    fn objects(&self, group: &str, plural: &str) -> Option<Arc<Cache>>;

    /// One object. Without a namespace, the resource has none.
    fn object(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Arc<Object>> {
        let objects = self.objects(group, plural)?;
        if namespace.is_empty() { objects.get(name) } else { objects.get(&format!("{namespace}/{name}")) }
    }
}
