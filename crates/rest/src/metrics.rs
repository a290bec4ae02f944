//! What is counted of requests and of commits.

use std::collections::BTreeMap;
use std::time::Duration;

use figures::{Distribution, samples};
use gates::requests::{DURATIONS, Requests};
use parking_lot::Mutex;

use crate::registry::Resource;

/// What is counted as it happens; everything else is asked for when somebody looks.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Requests that passed the gates.
    pub requests: Requests,
    /// Commits, by group, resource and operation.
    commits: Mutex<BTreeMap<(facts::Str, facts::Str, &'static str), Distribution>>,
}

impl Metrics {
    /// Counts a commit to the store.
    pub fn committed(&self, resource: &Resource, operation: &'static str, took: Duration) {
        let of = (resource.storage.group.clone(), resource.storage.plural.clone(), operation);
        let new = || Distribution::new(DURATIONS);
        self.commits.lock().entry(of).or_insert_with(new).observe(took.as_secs_f64());
    }

    /// Writes the figures of commits, in the Prometheus text format.
    pub fn write_commits(&self, text: &mut String) {
        let (name, help) = (
            "etcd_request_duration_seconds",
            "[ALPHA] Etcd request latency in seconds for each operation and object type.",
        );
        let mut family = samples(text, name, "histogram", help);
        for ((group, plural, operation), durations) in self.commits.lock().iter() {
            let labels = [("group", &**group), ("operation", operation), ("resource", &**plural)];
            family.distribution(&labels, durations);
        }
    }
}
