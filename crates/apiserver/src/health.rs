//! `/healthz`, `/livez` and `/readyz`: the whole, with `?verbose`, or one check; and what came of them, at `/metrics/slis`.
//!
//! The checks have upstream's names, in upstream's order. Those that are about a step of the start-up pass when the server has done
//! all of it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use figures::{Counter, Family as _, Gauge};
use gates::answer::text;
use http::StatusCode;
use machinery::query::Query;
use machinery::rest::Response;
use machinery::status::go_quote;
use storage::cache::Caches;
use storage::encryption::Encryption;

use crate::metrics::process;

/// The check of key management services.
const KMS: &str = "kms-providers";

/// What every probe looks at first, and what only some do.
const HEALTHZ: &[&str] = &["ping", "log", "loopback-serving-certificate", "etcd"];
const LIVEZ: &[&str] = HEALTHZ;
const READYZ: &[&str] = &["ping", "log", "etcd", "etcd-readiness", "informer-sync"];

/// The steps of the start-up, which every probe has.
const STEPS: [&str; 31] = [
    "poststarthook/start-apiserver-admission-initializer",
    "poststarthook/generic-apiserver-start-informers",
    "poststarthook/priority-and-fairness-config-consumer",
    "poststarthook/priority-and-fairness-filter",
    "poststarthook/storage-object-count-tracker-hook",
    "poststarthook/start-apiextensions-informers",
    "poststarthook/start-apiextensions-controllers",
    "poststarthook/crd-informer-synced",
    "poststarthook/start-system-namespaces-controller",
    "poststarthook/start-cluster-authentication-info-controller",
    "poststarthook/start-kube-apiserver-identity-lease-controller",
    "poststarthook/start-kube-apiserver-identity-lease-garbage-collector",
    "poststarthook/storage-readiness",
    "poststarthook/start-legacy-token-tracking-controller",
    "poststarthook/start-service-ip-repair-controllers",
    "poststarthook/rbac/bootstrap-roles",
    "poststarthook/scheduling/bootstrap-system-priority-classes",
    "poststarthook/priority-and-fairness-config-producer",
    "poststarthook/bootstrap-controller",
    "poststarthook/start-kubernetes-service-cidr-controller",
    "poststarthook/aggregator-reload-proxy-client-cert",
    "poststarthook/start-kube-aggregator-informers",
    "poststarthook/apiservice-status-local-available-controller",
    "poststarthook/apiservice-status-remote-available-controller",
    "poststarthook/apiservice-registration-controller",
    "poststarthook/apiservice-discovery-controller",
    "poststarthook/kube-apiserver-autoregistration",
    "autoregister-completion",
    "poststarthook/apiservice-openapi-controller",
    "poststarthook/apiservice-openapiv3-controller",
    "shutdown",
];

/// What is known of the server's well-being.
pub struct Health {
    caches: Arc<Caches>,
    encryption: Option<Arc<Encryption>>,
    bootstrapped: AtomicBool,
    stopping: AtomicBool,
    /// What came of each check when it was last asked for, and of all of them.
    last: Gauge,
    all: Counter,
}

impl Health {
    /// A server that has not bootstrapped yet.
    pub fn new(caches: Arc<Caches>, encryption: Option<Arc<Encryption>>) -> Self {
        Self {
            caches,
            encryption,
            bootstrapped: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            last: Gauge::new(
                "kubernetes_healthcheck",
                "[STABLE] This metric records the result of a single healthcheck.",
                &["name", "type"],
            ),
            all: Counter::new(
                "kubernetes_healthchecks_total",
                "[STABLE] This metric records the results of all healthcheck.",
                &["name", "status", "type"],
            ),
        }
    }

    /// Everything a client relies on is there.
    pub fn set_bootstrapped(&self) {
        self.bootstrapped.store(true, Ordering::Release);
    }

    /// The server is going: it still answers, but is not ready for more.
    pub fn set_stopping(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// The whole of a probe.
    pub fn answer(&self, probe: &str, query: &Query) -> Response {
        let excluded: BTreeSet<&str> = query.all("exclude").collect();
        let mut unknown = excluded.clone();
        let mut report = String::new();
        let mut failed = false;
        for check in self.checks(probe) {
            if unknown.remove(check) || excluded.contains(check) {
                report.push_str(&format!("[+]{check} excluded: ok\n"));
                continue;
            }
            let why = self.fails(probe, check);
            let (figure, status) = if why.is_none() { (1.0, "success") } else { (0.0, "error") };
            self.last.set(&[check, probe], figure);
            self.all.increment(&[check, status, probe]);
            match why {
                None => report.push_str(&format!("[+]{check} ok\n")),
                Some(_) => {
                    failed = true;
                    report.push_str(&format!("[-]{check} failed: reason withheld\n"));
                }
            }
        }
        if !unknown.is_empty() {
            let names: Vec<String> = unknown.into_iter().map(go_quote).collect();
            let names = names.join(",");
            report.push_str(&format!("warn: some health checks cannot be excluded: no matches for {names}\n"));
        }
        if failed {
            return text(StatusCode::INTERNAL_SERVER_ERROR, format!("{report}{probe} check failed\n"));
        }
        if query.has("verbose") {
            return text(StatusCode::OK, format!("{report}{probe} check passed\n"));
        }
        text(StatusCode::OK, "ok".to_owned())
    }

    /// One check of a probe.
    pub fn check(&self, probe: &str, check: &str) -> Option<Response> {
        self.checks(probe).any(|known| known == check).then(|| match self.fails(probe, check) {
            None => text(StatusCode::OK, "ok".to_owned()),
            Some(why) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("internal server error: {why}")),
        })
    }

    /// What came of the checks so far, in the Prometheus text format.
    pub fn figures(&self) -> String {
        let mut text = String::new();
        self.last.write(&mut text);
        self.all.write(&mut text);
        process::write_start(&mut text);
        text
    }

    /// Why the store is not well, if it is not.
    pub fn store_failure(&self) -> Option<String> {
        self.caches.store_failure()
    }

    /// Why a check fails, if it does.
    fn fails(&self, probe: &str, check: &str) -> Option<String> {
        let why = match check {
            KMS => return self.encryption.as_ref().and_then(|encryption| encryption.health()?.err()),
            // A restart gives a full disk no room: that the store answers is enough to live.
            "etcd" if probe == "livez" => (!self.caches.store_answers()).then_some("the store does not answer")?,
            "etcd" | "etcd-readiness" => return self.store_failure(),
            "shutdown" => self.stopping.load(Ordering::Acquire).then_some("process is shutting down")?,
            "ping" | "log" | "loopback-serving-certificate" => return None,
            _ => (!self.bootstrapped.load(Ordering::Acquire)).then_some("not finished")?,
        };
        Some(why.to_owned())
    }

    /// The checks of a probe; key management services only where there are any.
    pub fn checks(&self, probe: &str) -> impl Iterator<Item = &'static str> {
        let first = match probe {
            "livez" => LIVEZ,
            "readyz" => READYZ,
            _ => HEALTHZ,
        };
        let is_live = probe == "livez";
        let kms = self.encryption.as_ref().filter(|_| !is_live).and_then(|encryption| encryption.health()).map(|_| KMS);
        let (is_ready, steps) = (probe == "readyz", STEPS.into_iter());
        let steps = steps.filter(move |step| is_ready || *step != "shutdown");
        first.iter().copied().chain(kms).chain(steps)
    }
}
