//! Counters, by the names dashboards for cluster DNS already use.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use hickory_proto::op::ResponseCode;

/// What happened since the start.
#[derive(Debug, Default)]
pub struct Metrics {
    requests: [AtomicU64; 2],
    no_error: AtomicU64,
    no_such_name: AtomicU64,
    failed: AtomicU64,
    other: AtomicU64,
    cache: [AtomicU64; 2],
    forwarded: AtomicU64,
}

impl Metrics {
    pub(crate) fn request(&self, tcp: bool) {
        self.requests[usize::from(tcp)].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn response(&self, code: ResponseCode) {
        let counter = match code {
            ResponseCode::NoError => &self.no_error,
            ResponseCode::NXDomain => &self.no_such_name,
            ResponseCode::ServFail => &self.failed,
            _ => &self.other,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn cached(&self, hit: bool) {
        self.cache[usize::from(hit)].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn forwarded(&self) {
        self.forwarded.fetch_add(1, Ordering::Relaxed);
    }

    /// All of them in Prometheus' text format.
    pub fn render(&self) -> String {
        let mut out = String::new();
        let lines = [
            ("coredns_dns_requests_total{proto=\"udp\"}", &self.requests[0]),
            ("coredns_dns_requests_total{proto=\"tcp\"}", &self.requests[1]),
            ("coredns_dns_responses_total{rcode=\"NOERROR\"}", &self.no_error),
            ("coredns_dns_responses_total{rcode=\"NXDOMAIN\"}", &self.no_such_name),
            ("coredns_dns_responses_total{rcode=\"SERVFAIL\"}", &self.failed),
            ("coredns_dns_responses_total{rcode=\"other\"}", &self.other),
            ("coredns_cache_misses_total", &self.cache[0]),
            ("coredns_cache_hits_total", &self.cache[1]),
            ("coredns_proxy_requests_total", &self.forwarded),
        ];
        let mut typed = "";
        for (name, value) in lines {
            let family = name.split('{').next().unwrap_or(name);
            if family != typed {
                let _ = writeln!(out, "# TYPE {family} counter");
                typed = family;
            }
            let _ = writeln!(out, "{name} {}", value.load(Ordering::Relaxed));
        }
        out
    }
}
