//! Counts of the server's own requests.

use std::collections::BTreeMap;

use http::Method;
use parking_lot::Mutex;

type Key = (&'static str, &'static str);

/// Requests by method and path, of which both are few.
#[derive(Debug, Default)]
pub struct Requests {
    counts: Mutex<BTreeMap<Key, (u64, u64)>>,
}

/// A request under way.
pub struct Under<'a> {
    requests: &'a Requests,
    key: Key,
}

impl Drop for Under<'_> {
    fn drop(&mut self) {
        self.requests.counts.lock().entry(self.key).or_default().1 -= 1;
    }
}

impl Requests {
    /// Counts a request; it is under way for as long as the answer is kept.
    pub fn begin(&self, method: &Method, path: &'static str) -> Under<'_> {
        let known = ["OPTIONS", "GET", "HEAD", "POST", "PUT", "DELETE", "TRACE", "CONNECT"];
        let method = known.into_iter().find(|known| *known == method.as_str()).unwrap_or("other");
        let key = (method, path);
        let mut counts = self.counts.lock();
        let count = counts.entry(key).or_default();
        count.0 += 1;
        count.1 += 1;
        Under { requests: self, key }
    }

    pub fn render(&self, text: &mut String) {
        let counts = self.counts.lock().clone();
        type Read = fn(&(u64, u64)) -> u64;
        let families: [(&str, &str, &str, Read); 2] = [
            (
                "kubelet_http_requests_total",
                "counter",
                "[ALPHA] Number of the http requests received since the server started",
                |count| count.0,
            ),
            ("kubelet_http_inflight_requests", "gauge", "[ALPHA] Number of the inflight http requests", |count| {
                count.1
            }),
        ];
        for (name, kind, help, read) in families {
            let mut family = figures::samples(text, name, kind, help);
            for ((method, path), count) in &counts {
                let long_running =
                    if matches!(*path, "exec" | "attach" | "portforward" | "debug") { "true" } else { "false" };
                let labels =
                    [("long_running", long_running), ("method", method), ("path", path), ("server_type", "readwrite")];
                family.add(&labels, read(count) as f64);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_and_those_under_way_too() {
        let requests = Requests::default();
        let first = requests.begin(&Method::GET, "pods");
        drop(requests.begin(&Method::GET, "pods"));
        drop(requests.begin(&"BREW".parse().unwrap(), "other"));
        let mut text = String::new();
        requests.render(&mut text);
        for line in [
            "kubelet_http_requests_total{long_running=\"false\",method=\"GET\",path=\"pods\",server_type=\"readwrite\"} 2",
            "kubelet_http_inflight_requests{long_running=\"false\",method=\"GET\",path=\"pods\",server_type=\"readwrite\"} 1",
            "kubelet_http_requests_total{long_running=\"false\",method=\"other\",path=\"other\",server_type=\"readwrite\"} 1",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        }
        drop(first);
    }
}
