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
