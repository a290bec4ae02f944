//! `/healthz`, `/livez` and `/readyz`: the whole, with `?verbose`, or one check.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::StatusCode;
use machinery::rest::Response;

use crate::cache::Caches;
use crate::encryption::Encryption;
use crate::gates::text;
use crate::query::Query;

/// The check of key management services.
const KMS: &str = "kms-providers";

/// What is known of the server's well-being.
pub struct Health {
    caches: Arc<Caches>,
    encryption: Option<Arc<Encryption>>,
    bootstrapped: AtomicBool,
    stopping: AtomicBool,
}

impl Health {
    /// The names of the checks.
    pub const CHECKS: [&'static str; 5] =
        ["ping", "log", "etcd", "informer-sync", "poststarthook/bootstrap-controller"];

    /// A server that has not bootstrapped yet.
    pub fn new(caches: Arc<Caches>, encryption: Option<Arc<Encryption>>) -> Self {
        Self { caches, encryption, bootstrapped: AtomicBool::new(false), stopping: AtomicBool::new(false) }
    }

    /// Everything a client relies on is there.
    pub fn set_bootstrapped(&self) {
        self.bootstrapped.store(true, Ordering::Release);
    }

    /// The server is going: it still answers, but is not ready for more.
    pub fn set_stopping(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// Whether every check of a probe passes.
    pub fn is_ready(&self) -> bool {
        self.checks("readyz").all(|check| self.passes(check).is_none())
    }

    /// The whole of a probe.
    pub fn answer(&self, probe: &str, query: &Query) -> Response {
        let excluded: Vec<&str> = query.all("exclude").collect();
        let mut report = String::new();
        let mut failed = false;
        for check in self.checks(probe) {
            if excluded.contains(&check) {
                report.push_str(&format!("[+]{check} excluded: ok\n"));
                continue;
            }
            match self.passes(check) {
                None => report.push_str(&format!("[+]{check} ok\n")),
                Some(_) => {
                    failed = true;
                    report.push_str(&format!("[-]{check} failed: reason withheld\n"));
                }
            }
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
        self.checks(probe).any(|known| known == check).then(|| match self.passes(check) {
            None => text(StatusCode::OK, "ok".to_owned()),
            Some(why) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("internal server error: {why}")),
        })
    }

    /// Why a check fails, if it does.
    pub fn passes(&self, check: &str) -> Option<String> {
        let why = match check {
            KMS => return self.encryption.as_ref().and_then(|encryption| encryption.health()?.err()),
            "etcd" => return self.caches.store_failure(),
            "informer-sync" | "poststarthook/bootstrap-controller" if !self.bootstrapped.load(Ordering::Acquire) => {
                "not finished"
            }
            "shutdown" if self.stopping.load(Ordering::Acquire) => "process is shutting down",
            _ => return None,
        };
        Some(why.to_owned())
    }

    /// The checks of a probe; key management services only where there are any.
    fn checks(&self, probe: &str) -> impl Iterator<Item = &'static str> {
        let kms = self.encryption.as_ref().and_then(|encryption| encryption.health()).map(|_| KMS);
        checks(probe).iter().copied().chain(kms)
    }
}

/// The checks of a probe: liveness does not depend on what a restart cannot cure.
fn checks(probe: &str) -> &'static [&'static str] {
    match probe {
        "readyz" => &["ping", "log", "etcd", "informer-sync", "poststarthook/bootstrap-controller", "shutdown"],
        "livez" => &["ping", "log", "poststarthook/bootstrap-controller"],
        _ => &Health::CHECKS,
    }
}
