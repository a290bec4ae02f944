//! Counters, by the names dashboards for cluster DNS already use.

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
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64;
        let [udp, tcp] = &self.requests;
        let [misses, hits] = &self.cache;
        figures::samples(
            &mut out,
            "coredns_dns_requests_total",
            "counter",
            "Counter of DNS requests made per protocol.",
        )
        .add(&[("proto", "udp")], read(udp))
        .add(&[("proto", "tcp")], read(tcp));
        figures::samples(&mut out, "coredns_dns_responses_total", "counter", "Counter of response status codes.")
            .add(&[("rcode", "NOERROR")], read(&self.no_error))
            .add(&[("rcode", "NXDOMAIN")], read(&self.no_such_name))
            .add(&[("rcode", "SERVFAIL")], read(&self.failed))
            .add(&[("rcode", "other")], read(&self.other));
        for (name, help, count) in [
            ("coredns_cache_misses_total", "The count of cache misses.", misses),
            ("coredns_cache_hits_total", "The count of cache hits.", hits),
            ("coredns_proxy_requests_total", "Counter of questions that were passed on.", &self.forwarded),
        ] {
            figures::samples(&mut out, name, "counter", help).add(&[], read(count));
        }
        out
    }
}
