//! The probes.

use crate::server::Server;

/// The checks of the probes have upstream's names, can be asked for one by one, and what came of them is counted.
#[tokio::test]
async fn probes_tell_upstreams_checks_and_count_them() {
    let server = Server::start(|_, _| {}).await;
    let admin = server.admin();
    let page = async |path: &str| String::from_utf8(admin.raw(path).await.expect(path).to_vec()).expect("text");
    let report = page("/healthz?verbose").await;
    let lines: Vec<&str> = report.lines().collect();
    assert_eq!(lines[..4], ["[+]ping ok", "[+]log ok", "[+]loopback-serving-certificate ok", "[+]etcd ok"]);
    assert_eq!(lines[4], "[+]poststarthook/start-apiserver-admission-initializer ok");
    assert_eq!(
        lines[lines.len() - 2..],
        ["[+]poststarthook/apiservice-openapiv3-controller ok", "healthz check passed"]
    );
    let report = page("/readyz?verbose&exclude=etcd&exclude=nonsense").await;
    assert!(
        report.starts_with("[+]ping ok\n[+]log ok\n[+]etcd excluded: ok\n[+]etcd-readiness ok\n[+]informer-sync ok\n")
    );
    let end = "[+]shutdown ok\nwarn: some health checks cannot be excluded: no matches for \"nonsense\"\nreadyz check passed\n";
    assert!(report.ends_with(end), "{report}");
    assert_eq!(page("/livez/poststarthook/rbac/bootstrap-roles").await, "ok");
    assert!(admin.raw("/livez/shutdown").await.is_err(), "only readiness ends before the server does");
    let figures = page("/metrics/slis").await;
    for line in [
        "# HELP kubernetes_healthcheck [STABLE] This metric records the result of a single healthcheck.",
        "kubernetes_healthcheck{name=\"ping\",type=\"healthz\"} 1",
        "kubernetes_healthchecks_total{name=\"shutdown\",status=\"success\",type=\"readyz\"} 1",
    ] {
        assert!(figures.lines().any(|found| found == line), "{line} is not in\n{figures}");
    }
    assert!(figures.contains("\nprocess_start_time_seconds "), "{figures}");
    // Prometheus asks for messages first, and for text if there are none.
    let media = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.7,text/plain;version=0.0.4;q=0.3";
    let answer = server.send(http::Method::GET, "/metrics/slis", &[("accept", media)], "").await;
    assert_eq!(
        answer.headers["content-type"],
        "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited; escaping=underscores"
    );
    server.stop().await;
}

/// What Prometheus calls these messages, as far as the test looks at them.
#[derive(Clone, PartialEq, prost::Message)]
struct Family {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "4")]
    metrics: Vec<Metric>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Metric {
    #[prost(message, optional, tag = "7")]
    histogram: Option<Histogram>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Histogram {
    #[prost(uint64, tag = "1")]
    count: u64,
    #[prost(bytes = "vec", repeated, tag = "3")]
    buckets: Vec<Vec<u8>>,
    #[prost(sint32, optional, tag = "5")]
    schema: Option<i32>,
    #[prost(bytes = "vec", repeated, tag = "12")]
    positive_spans: Vec<Vec<u8>>,
}

/// Scrapers that take messages get classic and native buckets in the same histogram; text has the classic ones only.
#[tokio::test]
async fn histograms_have_native_buckets_in_messages() {
    let server = Server::start(|_, _| {}).await;
    let admin = server.admin();
    server.send(http::Method::GET, "/api/v1/namespaces", &[], "").await;
    let media = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";
    let answer = server.send(http::Method::GET, "/metrics", &[("accept", media)], "").await;
    let mut rest = &answer.body[..];
    let mut families = Vec::new();
    while !rest.is_empty() {
        families.push(<Family as prost::Message>::decode_length_delimited(&mut rest).expect("a family"));
    }
    let took = families.iter().find(|family| family.name == "apiserver_request_duration_seconds").expect("the family");
    let seen: Vec<&Histogram> = took.metrics.iter().filter_map(|metric| metric.histogram.as_ref()).collect();
    assert!(!seen.is_empty());
    for histogram in seen {
        assert!(histogram.count > 0 && !histogram.buckets.is_empty(), "{histogram:?}");
        assert_eq!((histogram.schema, histogram.positive_spans.is_empty()), (Some(3), false), "{histogram:?}");
    }
    let text = String::from_utf8(admin.raw("/metrics").await.expect("text").to_vec()).expect("text");
    assert!(text.contains("apiserver_request_duration_seconds_bucket{") && !text.to_lowercase().contains("native"));
    server.stop().await;
}
