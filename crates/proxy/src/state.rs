//! How the proxy is doing, for those who ask: `/healthz`, `/livez` and `/metrics`.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;

use crate::http::{self, Answer};

/// A node with this taint is about to go: load balancers should leave it now.
const GOING_TAINT: &str = "ToBeDeletedByClusterAutoscaler";

/// Shared between the proxy and its HTTP servers.
#[derive(Debug, Default)]
pub struct State {
    healthy: AtomicBool,
    eligible: AtomicBool,
    updated: AtomicU64,
    partial: Timing,
    full: Timing,
    failures: AtomicU64,
    forgotten_flows: AtomicU64,
}

#[derive(Debug, Default)]
struct Timing {
    count: AtomicU64,
    microseconds: AtomicU64,
}

impl Timing {
    fn add(&self, took: Duration) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.microseconds.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

impl State {
    /// Whether the kernel has the rules it should have.
    pub fn is_healthy(&self) -> bool {
        self.healthy.load(Ordering::Relaxed)
    }

    pub(crate) fn written(&self, full: bool, took: Duration) {
        self.healthy.store(true, Ordering::Relaxed);
        self.updated.store(u64::try_from(Timestamp::now().as_second()).unwrap_or(0), Ordering::Relaxed);
        if full { self.full.add(took) } else { self.partial.add(took) }
    }

    pub(crate) fn failed(&self, hopeless: bool) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        if hopeless {
            self.healthy.store(false, Ordering::Relaxed);
        }
    }

    pub(crate) fn forgot(&self, flows: usize) {
        self.forgotten_flows.fetch_add(flows as u64, Ordering::Relaxed);
    }

    /// Takes over whether load balancers may send to this node.
    pub(crate) fn observe(&self, node: Option<&Node>) {
        let eligible = node.is_some_and(|node| {
            let taints = node.spec.iter().flat_map(|spec| &spec.taints).flatten();
            node.metadata.deletion_timestamp.is_none() && !taints.into_iter().any(|taint| taint.key == GOING_TAINT)
        });
        self.eligible.store(eligible, Ordering::Relaxed);
    }

    /// The health server's answers.
    pub fn health(&self, path: &str) -> Answer {
        let (healthy, eligible) = (self.is_healthy(), self.eligible.load(Ordering::Relaxed));
        let now = Timestamp::now();
        let updated = self.updated.load(Ordering::Relaxed);
        let last = if healthy { now } else { Timestamp::from_second(updated.cast_signed()).unwrap_or(now) };
        let common = format!("{{\"lastUpdated\":\"{last}\",\"currentTime\":\"{now}\"");
        match path {
            "/healthz" => http::json(healthy && eligible, &[], format!("{common},\"nodeEligible\":{eligible}}}")),
            "/livez" => http::json(healthy, &[], format!("{common}}}")),
            _ => http::not_found(),
        }
    }

    /// The metrics server's answers.
    pub fn metrics(&self, path: &str) -> Answer {
        if path != "/metrics" {
            return http::not_found();
        }
        let mut out = String::new();
        for (name, timing) in [("full", &self.full), ("partial", &self.partial)] {
            let family = format!("kubeproxy_sync_{name}_proxy_rules_duration_seconds");
            let seconds = Duration::from_micros(timing.microseconds.load(Ordering::Relaxed)).as_secs_f64();
            let count = timing.count.load(Ordering::Relaxed);
            let _ = writeln!(out, "# TYPE {family} summary\n{family}_sum {seconds}\n{family}_count {count}");
        }
        let updated = ("kubeproxy_sync_proxy_rules_last_timestamp_seconds", "gauge", &self.updated);
        let failures = ("kubeproxy_sync_proxy_rules_nftables_sync_failures_total", "counter", &self.failures);
        let flows = ("kubeproxy_conntrack_reconciler_deleted_entries_total", "counter", &self.forgotten_flows);
        for (name, kind, value) in [updated, failures, flows] {
            let _ = writeln!(out, "# TYPE {name} {kind}\n{name} {}", value.load(Ordering::Relaxed));
        }
        http::text(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_eligible_until_it_is_about_to_go() {
        let check = |node: Option<serde_json::Value>, want: u16| {
            let state = State::default();
            state.written(true, Duration::ZERO);
            state.observe(node.map(|node| serde_json::from_value(node).unwrap()).as_ref());
            assert_eq!(state.health("/healthz").status(), want);
            assert_eq!(state.health("/livez").status(), 200);
        };
        check(None, 503);
        check(Some(serde_json::json!({"metadata": {"name": "n"}})), 200);
        check(Some(serde_json::json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})), 503);
        check(Some(serde_json::json!({"spec": {"taints": [{"key": GOING_TAINT, "effect": "NoSchedule"}]}})), 503);
    }

    #[test]
    fn rules_that_cannot_be_written_are_unhealthy_until_they_are() {
        let state = State::default();
        state.written(false, Duration::from_millis(3));
        state.failed(false);
        assert!(state.is_healthy());
        state.failed(true);
        assert_eq!(state.health("/livez").status(), 503);
        state.written(true, Duration::ZERO);
        assert_eq!(state.health("/livez").status(), 200);
        assert_eq!(state.health("/other").status(), 404);
    }
}
