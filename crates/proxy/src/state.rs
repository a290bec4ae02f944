//! How the proxy is doing, for those who ask: `/healthz`, `/livez` and `/metrics`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use figures::{Buckets, Histogram};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;

use crate::http::{self, Answer};

/// A node with this taint is about to go: load balancers should leave it now.
const GOING_TAINT: &str = "ToBeDeletedByClusterAutoscaler";

/// Changes that wait longer than this to be written make the proxy unhealthy.
const LATE: Duration = Duration::from_secs(60);
/// What upstream calls a proxy that writes these rules.
const MODE: &str = "nftables";
/// Go's zero time, for what has not happened.
const NEVER: &str = "0001-01-01T00:00:00Z";

/// Shared between the proxy and its HTTP servers.
#[derive(Debug)]
pub struct State {
    progress: Mutex<Progress>,
    eligible: AtomicBool,
    partial: Histogram,
    full: Histogram,
    failures: AtomicU64,
    forgotten_flows: AtomicU64,
    /// Answers by path, well ones and others.
    healthz: [AtomicU64; 2],
    livez: [AtomicU64; 2],
}

/// How far the kernel's rules are behind.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    /// When they were last what they should be.
    updated: Option<Timestamp>,
    /// Since when something waits to be written.
    pending: Option<Timestamp>,
    /// The kernel refused the last full write.
    refused: bool,
}

const SYNCS: Buckets = Buckets::Exponential { start: 0.001, factor: 2.0, count: 15 };

impl Default for State {
    fn default() -> Self {
        Self {
            progress: Mutex::default(),
            eligible: AtomicBool::default(),
            partial: Histogram::new(
                "kubeproxy_sync_partial_proxy_rules_duration_seconds",
                "[ALPHA] SyncProxyRules latency in seconds for partial resyncs",
                &[],
                SYNCS,
            ),
            full: Histogram::new(
                "kubeproxy_sync_full_proxy_rules_duration_seconds",
                "[ALPHA] SyncProxyRules latency in seconds for full resyncs",
                &[],
                SYNCS,
            ),
            failures: AtomicU64::default(),
            forgotten_flows: AtomicU64::default(),
            healthz: Default::default(),
            livez: Default::default(),
        }
    }
}

impl State {
    /// Whether the kernel has the rules it had to have a minute ago. A proxy that is starting up is healthy.
    pub fn is_healthy(&self) -> bool {
        self.healthy_at(Timestamp::now())
    }

    fn healthy_at(&self, now: Timestamp) -> bool {
        let Progress { updated, pending, .. } = *self.progress.lock();
        let late = pending.is_some_and(|since| now.duration_since(since).unsigned_abs() >= LATE);
        updated.is_none() || !late
    }

    /// Whether the kernel took the last full write.
    pub(crate) fn is_written(&self) -> bool {
        let progress = self.progress.lock();
        progress.updated.is_some() && !progress.refused
    }

    /// Something changed that the rules depend on.
    pub(crate) fn queued(&self) {
        self.queued_at(Timestamp::now());
    }

    pub(crate) fn queued_at(&self, time: Timestamp) {
        self.progress.lock().pending.get_or_insert(time);
    }

    /// The rules are what they should be.
    pub(crate) fn settled(&self) {
        *self.progress.lock() = Progress { updated: Some(Timestamp::now()), pending: None, refused: false };
    }

    pub(crate) fn written(&self, full: bool, took: Duration) {
        self.settled();
        let syncs = if full { &self.full } else { &self.partial };
        syncs.observe(&[], took.as_secs_f64());
    }

    pub(crate) fn failed(&self, hopeless: bool) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        self.queued();
        if hopeless {
            self.progress.lock().refused = true;
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
        self.health_at(path, Timestamp::now())
    }

    fn health_at(&self, path: &str, now: Timestamp) -> Answer {
        let (healthy, eligible) = (self.healthy_at(now), self.eligible.load(Ordering::Relaxed));
        let (ok, node, answers) = match path {
            "/healthz" => (healthy && eligible, format!("\"nodeEligible\":{eligible},"), &self.healthz),
            "/livez" => (healthy, String::new(), &self.livez),
            _ => return http::not_found(),
        };
        answers[usize::from(!ok)].fetch_add(1, Ordering::Relaxed);
        let updated = self.progress.lock().updated;
        let shown = |time: Option<Timestamp>| time.map_or_else(|| NEVER.to_owned(), |time| time.to_string());
        // Whoever is well is up to date, also where nothing had to be written for a long time.
        let last = shown(if ok { Some(now) } else { updated });
        let families = updated.map_or_else(String::new, |updated| {
            let one = format!("{{\"lastUpdated\":\"{updated}\",\"healthy\":{healthy}}}");
            format!(",\"status\":{{\"IPv4\":{one},\"IPv6\":{one}}}")
        });
        let body =
            format!("{{\"lastUpdated\":\"{last}\",\"currentTime\":\"{now}\",{node}\"healthy\":{healthy}{families}}}");
        http::json(ok, &[], body)
    }

    /// The metrics server's answers.
    pub fn metrics(&self, path: &str) -> Answer {
        match path {
            "/metrics" => http::figures(self.figures()),
            "/proxyMode" => http::text(MODE),
            "/healthz" => http::text("ok"),
            _ => http::not_found(),
        }
    }

    fn figures(&self) -> String {
        let mut out = String::new();
        figures::write(&[&self.full, &self.partial], &mut out);
        let seconds = self.progress.lock().updated.map_or(0, |updated| u64::try_from(updated.as_second()).unwrap_or(0));
        let mut one = |name: &str, kind: &str, help: &str, value: &AtomicU64| {
            figures::samples(&mut out, name, kind, help).add(&[], value.load(Ordering::Relaxed) as f64);
        };
        one(
            "kubeproxy_sync_proxy_rules_last_timestamp_seconds",
            "gauge",
            "[ALPHA] The last time proxy rules were successfully synced",
            &AtomicU64::new(seconds),
        );
        one(
            "kubeproxy_sync_proxy_rules_nftables_sync_failures_total",
            "counter",
            "[ALPHA] Cumulative proxy nftables sync failures",
            &self.failures,
        );
        one(
            "kubeproxy_conntrack_reconciler_deleted_entries_total",
            "counter",
            "[ALPHA] Cumulative conntrack flows deleted by conntrack reconciler",
            &self.forgotten_flows,
        );
        for (name, answers) in [("healthz", &self.healthz), ("livez", &self.livez)] {
            let family = format!("kubeproxy_proxy_{name}_total");
            let help = format!("[ALPHA] Cumulative proxy {name} HTTP status");
            let mut samples = figures::samples(&mut out, &family, "counter", &help);
            for (code, count) in ["200", "503"].iter().zip(answers) {
                samples.add(&[("code", code)], count.load(Ordering::Relaxed) as f64);
            }
        }
        out
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
    fn rules_that_cannot_be_written_for_a_minute_are_unhealthy_until_they_are() {
        let state = State::default();
        assert_eq!(state.health("/livez").status(), 200, "while it is starting up");
        assert!(!state.is_written());
        state.written(false, Duration::from_millis(3));
        state.failed(true);
        assert!(!state.is_written());
        let after = |time: Duration| Timestamp::now() + time;
        assert_eq!(state.health("/livez").status(), 200);
        assert_eq!(state.health_at("/livez", after(LATE)).status(), 503);
        state.written(true, Duration::ZERO);
        assert_eq!(state.health_at("/livez", after(LATE)).status(), 200);
        assert_eq!(state.health("/other").status(), 404);
        let body = state.metrics("/metrics").into_body();
        assert_eq!(
            ["/proxyMode", "/healthz", "/other"].map(|path| state.metrics(path).status().as_u16()),
            [200, 200, 404]
        );
        assert!(format!("{:?}", state.metrics("/proxyMode").into_body()).contains("nftables"));
        let text = format!("{body:?}");
        assert!(text.contains("kubeproxy_proxy_livez_total{code=\\\"503\\\"} 1"), "{text}");
    }

    #[tokio::test]
    async fn the_answer_is_upstreams_document() {
        use http_body_util::BodyExt as _;
        let text = async |answer: Answer| {
            String::from_utf8(answer.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
        };
        let (state, now) = (State::default(), Timestamp::from_second(2_000_000_000).unwrap());
        assert_eq!(
            text(state.health_at("/healthz", now)).await,
            "{\"lastUpdated\":\"0001-01-01T00:00:00Z\",\"currentTime\":\"2033-05-18T03:33:20Z\",\"nodeEligible\":false,\"healthy\":true}"
        );
        let updated = Timestamp::from_second(1_999_999_990).unwrap();
        *state.progress.lock() = Progress { updated: Some(updated), pending: None, refused: false };
        let one = "{\"lastUpdated\":\"2033-05-18T03:33:10Z\",\"healthy\":true}";
        assert_eq!(
            text(state.health_at("/livez", now)).await,
            format!(
                "{{\"lastUpdated\":\"2033-05-18T03:33:20Z\",\"currentTime\":\"2033-05-18T03:33:20Z\",\"healthy\":true,\
                 \"status\":{{\"IPv4\":{one},\"IPv6\":{one}}}}}"
            )
        );
    }
}
