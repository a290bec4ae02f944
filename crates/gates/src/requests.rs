//! Which requests there were, how they ended and how long they took.
//!
//! Labels are words of the table of API facts, never of the request: what clients make up cannot make series.

use std::sync::Arc;
use std::time::Instant;

use common::held;
use facts::{Resource as Facts, Str};
use figures::{Buckets, Distribution, samples};
use machinery::query::Query;
use machinery::rest::{Payload, Response};
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;

use crate::RequestInfo;

/// How long things take, in seconds. Requests and the store share these buckets, so that the two can be compared.
pub const DURATIONS: Buckets = Buckets::At(&[
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
]);

/// What tells one series from another.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Labels {
    /// Group, version and plural of a resource; none for other paths. Those of a built-in one are not copied.
    of: Option<(Str, Str, Str)>,
    /// The subresource, or the path of what is no resource.
    subresource: Str,
    verb: &'static str,
    scope: &'static str,
    dry_run: bool,
}

#[derive(Debug)]
struct Series {
    /// Answers by status code.
    codes: Vec<(u16, u64)>,
    durations: Distribution,
    /// Long-running requests under way.
    open: u64,
}

impl Default for Series {
    fn default() -> Self {
        Self { codes: Vec::new(), durations: Distribution::new(DURATIONS), open: 0 }
    }
}

#[derive(Debug, Default)]
pub struct Requests {
    series: RwLock<FxHashMap<Labels, Arc<Mutex<Series>>>>,
    /// Short requests under way: reads, and changes.
    under_way: [Arc<Mutex<u64>>; 2],
}

/// One request under way. It is counted when its answer has gone out, a watch when it ends.
pub struct Measure {
    series: Arc<Mutex<Series>>,
    begun: Instant,
    code: u16,
    /// The gauge it stands in; none for long-running requests, which their series counts.
    under_way: Option<Arc<Mutex<u64>>>,
}

impl Requests {
    /// Begins to measure a request that passed the gates. `of` is what it is about; `begun` is when it came in.
    pub fn begin(
        &self,
        of: Option<&Facts>,
        info: &RequestInfo,
        query: &Query,
        applies: bool,
        begun: Instant,
    ) -> Measure {
        let labels = Labels {
            of: of.map(|of| (of.group.clone(), of.version.clone(), of.plural.clone())),
            subresource: subresource(of, info),
            verb: verb(info, applies),
            scope: scope(info),
            dry_run: query.has("dryRun"),
        };
        let known = self.series.read().get(&labels).cloned();
        let series = known.unwrap_or_else(|| Arc::clone(self.series.write().entry(labels).or_default()));
        let under_way = if info.is_long_running() {
            series.lock().open += 1;
            None
        } else {
            let gauge = Arc::clone(&self.under_way[usize::from(info.is_mutating())]);
            *gauge.lock() += 1;
            Some(gauge)
        };
        Measure { series, begun, code: 0, under_way }
    }

    pub fn write(&self, text: &mut String) {
        let mut all: Vec<_> =
            self.series.read().iter().map(|(labels, series)| (labels.clone(), Arc::clone(series))).collect();
        all.sort_by(|(a, _), (b, _)| (&a.of, &a.subresource, a.verb).cmp(&(&b.of, &b.subresource, b.verb)));
        let mut family = samples(
            text,
            "apiserver_current_inflight_requests",
            "gauge",
            "[STABLE] Maximal number of currently used inflight request limit of this apiserver per request kind in last second.",
        );
        for (kind, gauge) in ["readOnly", "mutating"].into_iter().zip(&self.under_way) {
            family.add(&[("request_kind", kind)], *gauge.lock() as f64);
        }
        let mut family = samples(
            text,
            "apiserver_longrunning_requests",
            "gauge",
            "[STABLE] Gauge of all active long-running apiserver requests broken out by verb, group, version, resource, scope and component. Not all requests are tracked this way.",
        );
        for (labels, series) in &all {
            let open = series.lock().open;
            if open > 0 {
                family.add(&labels.pairs(), open as f64);
            }
        }
        let mut family = samples(
            text,
            "apiserver_request_duration_seconds",
            "histogram",
            "[STABLE] Response latency distribution in seconds for each verb, dry run value, group, version, resource, subresource, scope and component.",
        );
        for (labels, series) in &all {
            let series = series.lock();
            if !series.codes.is_empty() {
                family.distribution(&labels.pairs_with_dry_run(), &series.durations);
            }
        }
        let mut family = samples(
            text,
            "apiserver_request_total",
            "counter",
            "[STABLE] Counter of apiserver requests broken out for each verb, dry run value, group, version, resource, scope, component, and HTTP response code.",
        );
        for (labels, series) in &all {
            for (code, count) in &series.lock().codes {
                let code = code.to_string();
                let mut pairs = labels.pairs_with_dry_run();
                pairs.insert(0, ("code", &code));
                family.add(&pairs, *count as f64);
            }
        }
    }
}

impl Labels {
    /// Names and values, in the order of the names.
    fn pairs(&self) -> Vec<(&'static str, &str)> {
        let (group, resource, version) =
            self.of.as_ref().map_or(("", "", ""), |(group, version, plural)| (&**group, &**plural, &**version));
        vec![
            ("component", "apiserver"),
            ("group", group),
            ("resource", resource),
            ("scope", self.scope),
            ("subresource", &*self.subresource),
            ("verb", self.verb),
            ("version", version),
        ]
    }

    /// The same, with one that only some figures have.
    fn pairs_with_dry_run(&self) -> Vec<(&'static str, &str)> {
        let mut pairs = self.pairs();
        pairs.insert(1, ("dry_run", if self.dry_run { "All" } else { "" }));
        pairs
    }
}

fn subresource(of: Option<&Facts>, info: &RequestInfo) -> Str {
    match of {
        Some(facts) => facts.subresource(&info.subresource).map_or(Str::Borrowed(""), |of| of.name.clone()),
        None => ["/healthz", "/livez", "/metrics", "/readyz", "/version"]
            .into_iter()
            .find(|path| *path == info.path)
            .unwrap_or_default()
            .into(),
    }
}

fn verb(info: &RequestInfo, applies: bool) -> &'static str {
    if matches!(info.subresource.as_str(), "exec" | "attach" | "portforward" | "proxy") {
        return "CONNECT";
    }
    match info.verb {
        "get" => "GET",
        "head" => "HEAD",
        "list" => "LIST",
        "watch" => "WATCH",
        "create" | "post" => "POST",
        "update" | "put" => "PUT",
        "patch" if applies => "APPLY",
        "patch" => "PATCH",
        "delete" => "DELETE",
        "deletecollection" => "DELETECOLLECTION",
        _ => "other",
    }
}

fn scope(info: &RequestInfo) -> &'static str {
    match info {
        RequestInfo { is_resource: false, .. } => "",
        RequestInfo { verb: "create", .. } => "resource",
        RequestInfo { name, .. } if !name.is_empty() => "resource",
        RequestInfo { namespace, .. } if !namespace.is_empty() => "namespace",
        _ => "cluster",
    }
}

impl Measure {
    /// Counts the request, or leaves that to the end of its stream.
    pub fn answered(mut self, response: Response) -> Response {
        self.code = response.status().as_u16();
        let (parts, payload) = response.into_parts();
        let payload = match payload {
            Payload::Watch(events) => Payload::Watch(held(events, self)),
            Payload::Stream(pieces) => Payload::Stream(held(pieces, self)),
            other => other,
        };
        Response::from_parts(parts, payload)
    }
}

impl Drop for Measure {
    fn drop(&mut self) {
        let mut series = self.series.lock();
        match &self.under_way {
            Some(gauge) => *gauge.lock() -= 1,
            None => series.open -= 1,
        }
        // Without an answer there is no status: the client went away.
        if self.code == 0 {
            return;
        }
        series.durations.observe(self.begun.elapsed().as_secs_f64());
        match series.codes.iter_mut().find(|(code, _)| *code == self.code) {
            Some((_, count)) => *count += 1,
            None => series.codes.push((self.code, 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt as _;
    use http::{Method, StatusCode};

    use super::*;

    fn answer(requests: &Requests, method: &Method, path: &str, query: &str, payload: Payload) -> Response {
        let query = Query::parse(query);
        let info = RequestInfo::of(method, path, &query);
        let facts = facts::resource(&info.group, &info.version, &info.resource);
        let measure = requests.begin(facts, &info, &query, false, Instant::now());
        let mut response = Response::new(payload);
        *response.status_mut() = StatusCode::OK;
        measure.answered(response)
    }

    fn written(requests: &Requests) -> String {
        let mut text = String::new();
        requests.write(&mut text);
        text
    }

    #[test]
    fn requests_are_counted_under_upstreams_labels() {
        let requests = Requests::default();
        for _ in 0..2 {
            answer(&requests, &Method::GET, "/api/v1/namespaces/a/pods", "", Payload::Empty);
        }
        answer(&requests, &Method::POST, "/api/v1/namespaces/a/pods", "dryRun=All", Payload::Empty);
        answer(&requests, &Method::GET, "/apis/apps/v1/namespaces/a/deployments/b/scale", "", Payload::Empty);
        answer(&requests, &Method::GET, "/healthz", "", Payload::Empty);
        let text = written(&requests);
        for line in [
            r#"apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="pods",scope="namespace",subresource="",verb="LIST",version="v1"} 2"#,
            r#"apiserver_request_total{code="200",component="apiserver",dry_run="All",group="",resource="pods",scope="resource",subresource="",verb="POST",version="v1"} 1"#,
            r#"apiserver_request_total{code="200",component="apiserver",dry_run="",group="apps",resource="deployments",scope="resource",subresource="scale",verb="GET",version="v1"} 1"#,
            r#"apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="",scope="",subresource="/healthz",verb="GET",version=""} 1"#,
            r#"apiserver_current_inflight_requests{request_kind="mutating"} 0"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn a_watch_is_open_until_its_stream_is_gone_and_counted_then() {
        let requests = Requests::default();
        let events = Payload::Watch(futures::stream::pending().boxed());
        let response = answer(&requests, &Method::GET, "/api/v1/pods", "watch=1", events);
        let open = r#"apiserver_longrunning_requests{component="apiserver",group="",resource="pods",scope="cluster",subresource="",verb="WATCH",version="v1"} 1"#;
        let text = written(&requests);
        assert!(text.contains(open) && !text.contains("apiserver_request_total{"), "{text}");
        drop(response);
        let text = written(&requests);
        assert!(!text.contains(open) && text.contains("verb=\"WATCH\",version=\"v1\"} 1"), "{text}");
    }
}
