//! `/metrics`: figures in the Prometheus text format, under upstream's names where upstream has them.

pub(crate) mod histogram;
pub mod process;
mod requests;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use parking_lot::Mutex;

use crate::audit::Audit;
use crate::registry::Resource;
use crate::rest::Api;
use histogram::Histogram;
pub use requests::{Measure, Requests};

/// What is counted as it happens; everything else is asked for when somebody looks.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Requests that passed the gates.
    pub requests: Requests,
    /// Commits, by group, resource and operation.
    commits: Mutex<BTreeMap<(&'static str, &'static str, &'static str), Histogram>>,
}

impl Metrics {
    /// Counts a commit to the store.
    pub fn committed(&self, resource: &Resource, operation: &'static str, took: Duration) {
        let of = (resource.storage.group.as_ref(), resource.storage.plural.as_ref(), operation);
        self.commits.lock().entry(of).or_default().observe(took);
    }
}

/// The text.
pub fn render(api: &Api, audit: Option<&Audit>) -> String {
    let mut text = String::with_capacity(64 * 1024);
    api.metrics.requests.write(&mut text);
    let help = "[STABLE] [DEPRECATED, consider using apiserver_resource_objects instead] Number of stored objects at the time of last check split by kind. In case of a fetching error, the value will be -1.";
    head(&mut text, "apiserver_storage_objects", "gauge", help);
    for resource in api.registry.all() {
        let _ = writeln!(text, "apiserver_storage_objects{{resource=\"{}\"}} {}", resource.name, resource.cache.len());
    }
    let help = "[ALPHA] Number of stored objects at the time of last check split by kind. In case of a fetching error, the value will be -1.";
    head(&mut text, "apiserver_resource_objects", "gauge", help);
    for resource in api.registry.all() {
        let (group, plural, count) = (&resource.storage.group, &resource.storage.plural, resource.cache.len());
        let _ = writeln!(text, "apiserver_resource_objects{{group=\"{group}\",resource=\"{plural}\"}} {count}");
    }
    let help = "[ALPHA] Etcd request latency in seconds for each operation and object type.";
    head(&mut text, "etcd_request_duration_seconds", "histogram", help);
    for ((group, plural, operation), durations) in api.metrics.commits.lock().iter() {
        let labels = format!("group=\"{group}\",operation=\"{operation}\",resource=\"{plural}\"");
        durations.write(&mut text, "etcd_request_duration_seconds", &labels);
    }
    head(&mut text, "trireme_store_revision", "gauge", "The revision the watch cache has come to.");
    let _ = writeln!(text, "trireme_store_revision {}", api.caches.revision());
    if let Some(audit) = audit {
        audit.metrics(&mut text);
    }
    process::write(&mut text);
    text
}

/// What comes before the series of a name. `help` begins with the stability that upstream gives it.
pub fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}
