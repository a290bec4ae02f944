//! Figures of the requests that leave the process, under upstream's names. Calls within the process are counted by the API server, which is the same process.

use std::time::Duration;

use figures::{Buckets, Counter, Family, Histogram};
use http::{Method, StatusCode};

static REQUESTS: Counter = Counter::new(
    "rest_client_requests_total",
    "[ALPHA] Number of HTTP requests, partitioned by status code, method, and host.",
    &["code", "method", "host"],
);

static RETRIES: Counter = Counter::new(
    "rest_client_request_retries_total",
    "[ALPHA] Number of request retries, partitioned by status code, verb, and host.",
    &["code", "verb", "host"],
);

static DURATION: Histogram = Histogram::new(
    "rest_client_request_duration_seconds",
    "[ALPHA] Request latency in seconds. Broken down by verb, and host.",
    &["verb", "host"],
    Buckets::At(&[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0]),
);

static REQUEST_SIZE: Histogram = Histogram::new(
    "rest_client_request_size_bytes",
    "[ALPHA] Request size in bytes. Broken down by verb and host.",
    &["verb", "host"],
    Buckets::At(&[
        64.0,
        256.0,
        512.0,
        1024.0,
        4096.0,
        16384.0,
        65536.0,
        262_144.0,
        1_048_576.0,
        4_194_304.0,
        16_777_216.0,
    ]),
);

const ALL: &[&dyn Family] = &[&REQUESTS, &RETRIES, &DURATION, &REQUEST_SIZE];

/// Appends the figures of every client of this process.
pub fn write(text: &mut String) {
    figures::write(ALL, text);
}

/// A request is over: with this answer, or without one.
pub(crate) fn answered(method: &Method, host: &str, code: Option<StatusCode>, took: Duration, size: usize) {
    let method = method.as_str();
    REQUESTS.increment(&[code.as_ref().map_or("<error>", StatusCode::as_str), method, host]);
    DURATION.observe(&[method, host], took.as_secs_f64());
    if size > 0 {
        REQUEST_SIZE.observe(&[method, host], size as f64);
    }
}

/// A request that got this answer is sent again.
pub(crate) fn retried(method: &Method, host: &str, code: StatusCode) {
    RETRIES.increment(&[code.as_str(), method.as_str(), host]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_and_failures_are_counted() {
        let took = Duration::from_millis(3);
        answered(&Method::POST, "metrics.test", Some(StatusCode::CREATED), took, 100);
        answered(&Method::GET, "metrics.test", None, took, 0);
        retried(&Method::GET, "metrics.test", StatusCode::TOO_MANY_REQUESTS);
        let mut text = String::new();
        write(&mut text);
        for line in [
            "rest_client_requests_total{code=\"201\",method=\"POST\",host=\"metrics.test\"} 1\n",
            "rest_client_requests_total{code=\"<error>\",method=\"GET\",host=\"metrics.test\"} 1\n",
            "rest_client_request_retries_total{code=\"429\",verb=\"GET\",host=\"metrics.test\"} 1\n",
            "rest_client_request_size_bytes_bucket{verb=\"POST\",host=\"metrics.test\",le=\"256\"} 1\n",
            "rest_client_request_duration_seconds_count{verb=\"GET\",host=\"metrics.test\"} 1\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
