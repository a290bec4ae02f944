//! The page at `/ui/`: who may load it, and how its files are sent.

use client::Client;
use http::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH, LOCATION,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, Method};
use machinery::rest::Body;
use serde_json::json;
use testkit::Browser;

use crate::server::Server;

/// The status and headers of an answer.
async fn ask(client: &Client, method: Method, path: &str, headers: &[(HeaderName, &str)]) -> (u16, HeaderMap) {
    let mut request = http::Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(name, *value);
    }
    let answer = client.request(request.body(Body::Empty).expect("a request")).await.expect("an answer");
    (answer.status().as_u16(), answer.headers().clone())
}

#[tokio::test]
async fn somebody_who_is_to_sign_in_can_load_the_page_and_nothing_else() {
    let server = Server::default().await;
    let nobody = Client::https(server.config()).expect("a client");
    let (status, headers) = ask(&nobody, Method::GET, "/ui/", &[]).await;
    assert_eq!((status, &headers[CONTENT_TYPE]), (200, &"text/html; charset=utf-8".parse().expect("a header")));
    assert_eq!(headers[X_CONTENT_TYPE_OPTIONS], "nosniff");
    let policy = headers[CONTENT_SECURITY_POLICY].to_str().expect("text");
    assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
    assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
    for (path, expected) in [
        ("/ui/main.js", 200),
        ("/ui/vendor/preact.js", 200),
        ("/ui/nothing", 404),
        ("/ui/../api", 404),
        ("/uix", 403),
        ("/api/v1/pods", 403),
        ("/debug/hops?uid=x", 403),
        ("/metrics", 403),
    ] {
        assert_eq!(ask(&nobody, Method::GET, path, &[]).await.0, expected, "{path}");
    }
    assert_eq!(ask(&nobody, Method::POST, "/ui/", &[]).await.0, 403);
    assert_eq!(ask(&server.admin(), Method::POST, "/ui/", &[]).await.0, 405);
    let (status, headers) = ask(&nobody, Method::GET, "/ui", &[]).await;
    assert_eq!((status, &headers[LOCATION]), (301, &"ui/".parse().expect("a header")), "also below another path");
    server.stop().await;
}

#[tokio::test]
async fn files_are_packed_for_who_reads_gzip_and_not_sent_twice() {
    let server = Server::default().await;
    let nobody = Client::https(server.config()).expect("a client");
    let (_, plain) = ask(&nobody, Method::GET, "/ui/main.js", &[]).await;
    assert_eq!(plain.get(CONTENT_ENCODING), None);
    let (_, packed) = ask(&nobody, Method::GET, "/ui/main.js", &[(ACCEPT_ENCODING, "gzip")]).await;
    assert_eq!(packed[CONTENT_ENCODING], "gzip");
    assert_eq!(plain[ETAG], packed[ETAG]);
    let known = packed[ETAG].to_str().expect("text").to_owned();
    assert_eq!(ask(&nobody, Method::GET, "/ui/main.js", &[(IF_NONE_MATCH, &known)]).await.0, 304);
    assert_eq!(ask(&nobody, Method::GET, "/ui/api.js", &[(IF_NONE_MATCH, &known)]).await.0, 200);
    server.stop().await;
}

#[tokio::test]
async fn an_administrator_takes_the_page_away_for_good() {
    let server = Server::default().await;
    let change = json!({
        "metadata": {"annotations": {"rbac.authorization.kubernetes.io/autoupdate": "false"}}, "subjects": null,
    });
    let patch = ["patch", "clusterrolebinding", "trireme:page", "--type=merge", "-p", &change.to_string()];
    server.kubectl().run(&patch).await;
    let server = server.restart(|_, _| {}).await;
    let nobody = Client::https(server.config()).expect("a client");
    assert_eq!(ask(&nobody, Method::GET, "/ui/", &[]).await.0, 403);
    assert_eq!(ask(&server.admin(), Method::GET, "/ui/", &[]).await.0, 200);
    server.stop().await;
}

/// The modules that only compute, in the browser that runs them.
#[tokio::test(flavor = "multi_thread")]
async fn what_only_computes_computes_right() {
    let server = Server::default().await;
    let browser = Browser::start().await;
    browser.open(&format!("{}/ui/", server.address())).await;
    browser.says("Sign in with a token of this cluster.").await;
    assert_eq!(browser.evaluate(include_str!("page.js")).await, json!([]));
    assert_eq!(browser.complaints(), [] as [String; 0]);
    server.stop().await;
}
