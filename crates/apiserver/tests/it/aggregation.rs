//! Other servers' APIs behind this one: real servers, good and bad, registered by APIServices.

use std::sync::Arc;
use std::time::{Duration, Instant};

use apiserver::registry::RuntimeConfig;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gates::authentication::certificates::FrontProxy;
use http::Method;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::{APIService, APIServiceCondition};
use machinery::rest::User;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::holes::{connect, head, typed};
use crate::server::Server;

/// A group version that a server has only when it is told to.
const GROUP: &str = "internal.apiserver.k8s.io";
const NAME: &str = "v1alpha1.internal.apiserver.k8s.io";
const PATH: &str = "/apis/internal.apiserver.k8s.io/v1alpha1";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// A certificate for `api.default.svc`, and the authority that signed it.
fn certificate() -> (pki::Pair, String) {
    let (now, year) = (jiff::Timestamp::now(), Duration::from_secs(365 * 86_400));
    let key = pki::PrivateKey::generate().expect("a key");
    let authority = pki::Authority::new("others", key, now, year).expect("an authority");
    let key = pki::PrivateKey::generate().expect("a key");
    let leaf = pki::Leaf::server(pki::Subject::new("api", []), vec![pki::San::host("api.default.svc")], year);
    let certificate = authority.issue(&leaf, &key.public(), now).expect("a certificate");
    let pair = pki::Pair { chain_pem: certificate.to_pem(), key_pem: key.to_pem().to_owned() };
    (pair, authority.certificate().to_pem())
}

/// A second server with a group that the first does not have, which believes what the first says about clients.
async fn second(first: &Server) -> (Server, String) {
    let (pair, authority) = certificate();
    let proxies = first.keys.front_proxy_authority.certificate().to_pem();
    let second = Server::start(|config, directory| {
        config.runtime_config = RuntimeConfig::parse(&format!("{GROUP}/v1alpha1=true")).expect("a configuration");
        let own = std::fs::read_to_string(directory.join("pki/ca.crt")).expect("its own authority");
        config.tls = pki::Reception::new(&pair, &format!("{own}\n{proxies}"), &pki::Handshake::default()).expect("TLS");
        config.authentication.front_proxy = Some(FrontProxy {
            authority: proxies.clone(),
            clients: own,
            allowed_names: vec!["front-proxy-client".to_owned()],
            user_headers: vec!["X-Remote-User".to_owned()],
            uid_headers: vec!["X-Remote-Uid".to_owned()],
            group_headers: vec!["X-Remote-Group".to_owned()],
            extra_prefixes: vec!["X-Remote-Extra-".to_owned()],
        });
    })
    .await;
    (second, authority)
}

fn port(server: &Server) -> u16 {
    server.address().rsplit_once(':').and_then(|(_, port)| port.parse().ok()).expect("a port")
}

/// A Service of this machine. It has no endpoints: those of the API may not be on loopback.
pub async fn with_service(server: &Server) {
    let service = json!({"metadata": {"name": "api", "namespace": "default"}, "spec": {"type": "ExternalName", "externalName": "localhost"}});
    server.admin().create(&typed::<Service>(service)).await.expect("a Service");
}

fn registration(name: &str, port: u16, changes: Value) -> APIService {
    let (version, group) = name.split_once('.').expect("a name");
    let mut tree = json!({"metadata": {"name": name}, "spec": {
        "group": group, "version": version, "groupPriorityMinimum": 2000, "versionPriority": 200,
        "service": {"namespace": "default", "name": "api", "port": port},
    }});
    for (key, value) in changes.as_object().expect("changes") {
        tree["spec"][key] = value.clone();
    }
    typed(tree)
}

fn available(service: &APIService) -> Option<&APIServiceCondition> {
    let conditions = service.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == "Available")
}

/// Waits until an APIService says this of itself, and returns the message.
async fn says(server: &Server, name: &str, reason: &str) -> String {
    let what = format!("{name} says {reason}");
    let met = |services: &[Arc<APIService>]| {
        let mut named = services.iter().filter(|service| service.metadata.name.as_deref() == Some(name));
        named.any(|service| available(service).and_then(|known| known.reason.as_deref()) == Some(reason))
    };
    let all = testkit::objects::<APIService>(&server.admin(), "", &what, met).await;
    let service = all.iter().find(|service| service.metadata.name.as_deref() == Some(name)).expect("it is there");
    available(service).and_then(|known| known.message.clone()).unwrap_or_default()
}

/// Waits until something holds that nobody tells of.
async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    testkit::eventually(what, async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

async fn discovered(server: &Server) -> Option<Value> {
    let document = server.send(Method::GET, "/apis", &[("accept", AGGREGATED)], "").await.json();
    let groups = document["items"].as_array().cloned().unwrap_or_default();
    groups.into_iter().find(|group| group["metadata"]["name"] == GROUP)
}

#[tokio::test]
async fn built_in_groups_have_api_services_which_are_put_right_at_the_start() {
    let server = Server::default().await;
    let kubectl = server.kubectl();
    let shown = kubectl.run(&["get", "apiservices", "--no-headers"]).await;
    let mut lines = shown.lines().map(|line| line.split_whitespace().take(3).collect::<Vec<_>>().join(" "));
    assert_eq!(lines.next().as_deref(), Some("v1. Local True"), "{shown}");
    assert!(shown.contains("v1.apps ") && shown.contains("v2.autoscaling "), "{shown}");
    assert!(!shown.contains("apiregistration"), "{shown}");
    let apps = server.admin().get::<APIService>("", "v1.apps").await.expect("an APIService");
    let labels = apps.metadata.labels.clone().expect("labels");
    assert_eq!(labels["kube-aggregator.kubernetes.io/automanaged"], "onstart");
    let condition = available(&apps).expect("a condition");
    assert_eq!(condition.message.as_deref(), Some("Local APIServices are always available"));
    let spec = apps.spec.expect("a spec");
    assert_eq!((spec.group_priority_minimum, spec.version_priority), (17800, 15));

    // What somebody says of it otherwise is put right; that it is gone, only when the server starts again.
    kubectl
        .run(&[
            "patch",
            "apiservice",
            "v1.apps",
            "--subresource=status",
            "--type=merge",
            "-p",
            r#"{"status":{"conditions":[{"type":"Available","status":"False","reason":"Mine"}]}}"#,
        ])
        .await;
    says(&server, "v1.apps", "Local").await;
    kubectl.run(&["delete", "apiservice", "v1.apps"]).await;
    assert_eq!(server.send(Method::GET, "/apis/apps/v1/deployments", &[], "").await.status, 200);
    let server = server.restart(|_, _| {}).await;
    server.admin().get::<APIService>("", "v1.apps").await.expect("it is there again");
    server.stop().await;
}

#[tokio::test]
async fn groups_of_custom_resources_have_api_services_for_as_long_as_they_are_served() {
    let server = Server::default().await;
    let definition = json!({"metadata": {"name": "ships.harbour.example"}, "spec": {
        "group": "harbour.example", "scope": "Namespaced", "names": {"plural": "ships", "singular": "ship", "kind": "Ship"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
    }});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(server.post(definitions, &definition).await.status, 201);
    says(&server, "v1.harbour.example", "Local").await;
    let made = server.admin().get::<APIService>("", "v1.harbour.example").await.expect("an APIService");
    let labels = made.metadata.labels.clone().expect("labels");
    assert_eq!(labels["kube-aggregator.kubernetes.io/automanaged"], "true");
    let spec = made.spec.expect("a spec");
    assert_eq!((spec.group_priority_minimum, spec.version_priority), (1000, 100));
    // It comes back, and goes with the definition.
    let kubectl = server.kubectl();
    kubectl.run(&["delete", "apiservice", "v1.harbour.example"]).await;
    says(&server, "v1.harbour.example", "Local").await;
    kubectl.run(&["delete", "customresourcedefinition", "ships.harbour.example"]).await;
    let gone = |services: &[Arc<APIService>]| {
        services.iter().all(|service| service.metadata.name.as_deref() != Some("v1.harbour.example"))
    };
    testkit::objects::<APIService>(&server.admin(), "", "the APIService goes", gone).await;
    server.stop().await;
}

#[tokio::test]
async fn another_server_answers_for_a_group() {
    let first = Server::default().await;
    let (second, authority) = second(&first).await;
    with_service(&first).await;
    let missing = first.send(Method::GET, &format!("{PATH}/storageversions"), &[], "").await;
    assert_eq!(missing.status, 404);
    let bundle = json!({"caBundle": STANDARD.encode(&authority)});
    first.admin().create(&registration(NAME, port(&second), bundle)).await.expect("an APIService");
    assert_eq!(says(&first, NAME, "Passed").await, "all checks passed");

    // Writes, reads and watches; what is written is the other server's.
    let object = json!({"metadata": {"name": "one"}, "spec": {}});
    let made = first.post(&format!("{PATH}/storageversions"), &object).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let there = second.admin().raw(&format!("{PATH}/storageversions/one")).await.expect("the object");
    let there: Value = serde_json::from_slice(&there).expect("JSON");
    assert_eq!(there["metadata"]["uid"], made.json()["metadata"]["uid"]);
    let kubectl = first.kubectl();
    assert!(kubectl.run(&["get", "storageversions"]).await.contains("one"));
    let mut stream = connect(&first, b"http/1.1").await;
    let asked = format!(
        "GET {PATH}/storageversions?watch=true HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
         origin: https://x\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(asked.as_bytes()).await.expect("a request");
    let mut reader = BufReader::new(stream);
    let answer = head(&mut reader).await;
    assert!(answer.starts_with("HTTP/1.1 101"), "{answer}");
    let mut event = [0; 64];
    testkit::eventually("an event", reader.read_exact(&mut event)).await.expect("an event");
    assert!(String::from_utf8_lossy(&event).contains("ADDED"), "{:?}", String::from_utf8_lossy(&event));

    // The other server knows who asks.
    let jane = first.as_user(User::new("jane", ["system:masters"]));
    jane.raw(&format!("{PATH}/storageversions")).await.expect("an administrator there, too");
    kubectl.run(&["create", "clusterrole", "all", "--verb=*", "--resource=*.*"]).await;
    kubectl.run(&["create", "clusterrolebinding", "all", "--clusterrole=all", "--user=jane"]).await;
    let jane = first.as_user(User::new("jane", []));
    let refused = testkit::eventually("the refusal", async {
        loop {
            let refused = jane.raw(&format!("{PATH}/storageversions")).await.expect_err("nobody there");
            // Until the first server has heard of her role it is the one that refuses.
            if !refused.to_string().contains("at the cluster scope: ") {
                break refused.to_string();
            }
        }
    })
    .await;
    assert_eq!(
        refused,
        "storageversions.internal.apiserver.k8s.io is forbidden: User \"jane\" cannot list resource \"storageversions\" in API group \"internal.apiserver.k8s.io\" at the cluster scope"
    );
    first.stop().await;
    second.stop().await;
}

#[tokio::test]
async fn what_another_server_has_is_part_of_discovery_and_of_openapi() {
    let first = Server::default().await;
    let (second, authority) = second(&first).await;
    with_service(&first).await;
    let bundle = json!({"caBundle": STANDARD.encode(&authority)});
    first.admin().create(&registration(NAME, port(&second), bundle)).await.expect("an APIService");
    says(&first, NAME, "Passed").await;
    until("discovery", async || {
        discovered(&first).await.is_some_and(|group| group["versions"][0]["freshness"] == "Current")
    })
    .await;
    let group = discovered(&first).await.expect("the group");
    assert_eq!(group["versions"][0]["resources"][0]["resource"], "storageversions");
    let document = first.send(Method::GET, "/apis", &[("accept", AGGREGATED)], "").await.json();
    let names: Vec<&str> = document["items"]
        .as_array()
        .expect("groups")
        .iter()
        .filter_map(|group| group["metadata"]["name"].as_str())
        .collect();
    let last = names[names.len() - 2..].to_vec();
    assert_eq!((names[0], last), ("apiregistration.k8s.io", vec![GROUP, "metrics.k8s.io"]), "by priority: {names:?}");
    let groups = first.send(Method::GET, "/apis", &[], "").await.json();
    let listed = groups["groups"].as_array().expect("groups").iter().find(|group| group["name"] == GROUP).cloned();
    assert_eq!(listed.expect("listed")["preferredVersion"]["version"], "v1alpha1");
    let one = first.send(Method::GET, &format!("/apis/{GROUP}"), &[], "").await;
    assert_eq!((one.status, &one.json()["kind"]), (200, &json!("APIGroup")));
    assert_eq!(first.send(Method::GET, PATH, &[], "").await.json()["kind"], "APIResourceList");
    assert!(first.kubectl().run(&["api-resources"]).await.contains("storageversions"));

    let of_group = format!("apis/{GROUP}/v1alpha1");
    until("the root of OpenAPI", async || {
        first.send(Method::GET, "/openapi/v3", &[], "").await.json()["paths"].get(&of_group).is_some()
    })
    .await;
    let root = first.send(Method::GET, "/openapi/v3", &[], "").await.json();
    let address = root["paths"][&of_group]["serverRelativeURL"].as_str().expect("an address").to_owned();
    let described = first.send(Method::GET, &address, &[], "").await;
    assert_eq!((described.status, &described.json()["openapi"]), (200, &json!("3.0.0")));
    let whole = first.send(Method::GET, "/openapi/v2", &[], "").await.json();
    assert!(whole["paths"].get(format!("{PATH}/storageversions")).is_some());
    assert!(whole["paths"].get("/api/v1/pods").is_some());
    assert!(
        first.kubectl().run(&["explain", "storageversions"]).await.contains("GROUP:      internal.apiserver.k8s.io")
    );
    second.stop().await;

    // It is gone: known by what is heard of its Service, told as what it is, and nobody else waits for it.
    let kubectl = first.kubectl();
    kubectl.run(&["label", "service", "api", "look=again"]).await;
    let why = says(&first, NAME, "FailedDiscoveryCheck").await;
    assert!(why.starts_with("failing or missing response from https://localhost:"), "{why}");
    assert!(why.ends_with("connect: connection refused"), "{why}");
    until("503", async || {
        first.send(Method::GET, &format!("{PATH}/storageversions"), &[], "").await.text() == "service unavailable\n"
    })
    .await;
    kubectl.run(&["patch", "apiservice", NAME, "--type=merge", "-p", r#"{"spec":{"versionPriority":400}}"#]).await;
    until("stale discovery", async || {
        discovered(&first).await.is_some_and(|group| group["versions"][0]["freshness"] == "Stale")
    })
    .await;
    let stale = discovered(&first).await.expect("the group");
    assert_eq!(stale["versions"][0]["resources"][0]["resource"], "storageversions", "what was known is still told");
    let shown = kubectl.run(&["get", "apiservice", NAME, "--no-headers"]).await;
    assert!(shown.contains("default/api") && shown.contains("False (FailedDiscoveryCheck)"), "{shown}");
    kubectl.run(&["delete", "apiservice", NAME]).await;
    until("the end", async || discovered(&first).await.is_none()).await;
    assert_eq!(first.send(Method::GET, &format!("/apis/{GROUP}"), &[], "").await.status, 404);
    first.stop().await;
}

#[tokio::test]
async fn what_is_wrong_with_a_service_is_told_as_it_changes() {
    let server = Server::default().await;
    let name = "v1.wardle.example.com";
    server
        .admin()
        .create(&registration(name, 443, json!({"insecureSkipTLSVerify": true})))
        .await
        .expect("an APIService");
    assert_eq!(says(&server, name, "ServiceNotFound").await, "service/api in \"default\" is not present");
    let unavailable = server.send(Method::GET, "/apis/wardle.example.com/v1/flunders", &[], "").await;
    assert_eq!((unavailable.status, unavailable.text().as_str()), (503, "service unavailable\n"));
    assert_eq!(unavailable.headers["content-type"], "text/plain; charset=utf-8");
    let service = json!({"metadata": {"name": "api", "namespace": "default"}, "spec": {"ports": [{"port": 80}]}});
    server.admin().create(&typed::<Service>(service)).await.expect("a Service");
    assert_eq!(
        says(&server, name, "ServicePortError").await,
        "service/api in \"default\" is not listening on port 443"
    );
    let kubectl = server.kubectl();
    kubectl
        .run(&["patch", "service", "api", "--type=merge", "-p", r#"{"spec":{"ports":[{"port":443,"name":"https"}]}}"#])
        .await;
    assert_eq!(
        says(&server, name, "EndpointsNotFound").await,
        "cannot find endpointslices for service/api in \"default\""
    );
    let slice = json!({
        "metadata": {"name": "api-1", "namespace": "default", "labels": {"kubernetes.io/service-name": "api"}},
        "addressType": "IPv4", "ports": [{"name": "https", "port": 443}],
        "endpoints": [{"addresses": ["192.0.2.1"], "conditions": {"ready": false}}],
    });
    server.admin().create(&typed::<EndpointSlice>(slice)).await.expect("a slice");
    let missing = "endpointslices for service/api in \"default\" have no addresses with port name \"https\"";
    assert_eq!(says(&server, name, "MissingEndpoints").await, missing);
    let figure = |value: u8| format!("aggregator_unavailable_apiservice{{name=\"{name}\"}} {value}\n");
    let figures = async || server.send(Method::GET, "/metrics", &[], "").await.text();
    until("it counts as unavailable", async || figures().await.contains(&figure(1))).await;
    // One that this server answers for again needs nobody.
    kubectl
        .run(&[
            "patch",
            "apiservice",
            name,
            "--type=merge",
            "-p",
            r#"{"spec":{"service":null,"insecureSkipTLSVerify":false}}"#,
        ])
        .await;
    says(&server, name, "Local").await;
    until("it counts as available", async || figures().await.contains(&figure(0))).await;
    server.stop().await;
}

/// A server that says it has `v1.bad.example.com`, and misbehaves below it as the path says: its port, and who signed its certificate.
pub async fn misbehaving() -> (u16, String) {
    let (pair, authority) = certificate();
    let tls = pki::server_config(&pair, "").expect("TLS");
    let mut tls = (*tls).clone();
    tls.alpn_protocols = Vec::new();
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let mut stream = BufReader::new(stream);
                let told = head(&mut stream).await;
                let path = told.split(' ').nth(1).unwrap_or_default().to_owned();
                let plain = |body: &str| format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
                let answer = match path.split('?').next().unwrap_or_default() {
                    "/apis/bad.example.com/v1" => plain("}{"),
                    "/apis/bad.example.com/v1/echo" => plain(&told),
                    "/apis/bad.example.com/v1/redirect" => {
                        "HTTP/1.1 302 Found\r\nlocation: https://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n".to_owned()
                    }
                    "/apis/bad.example.com/v1/garbage" => "\u{1}\u{2}\u{3} this is no HTTP\r\n\r\n".to_owned(),
                    "/apis/bad.example.com/v1/hang" => std::future::pending().await,
                    // Discovery, OpenAPI and one more: without end.
                    _ => {
                        let mut endless =
                            b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: application/json\r\n\r\n".to_vec();
                        while stream.write_all(&endless).await.is_ok() {
                            endless = vec![b' '; 65_536];
                        }
                        return;
                    }
                };
                let _ = stream.write_all(answer.as_bytes()).await;
                let _ = stream.flush().await;
            });
        }
    });
    (port, authority)
}

#[tokio::test]
async fn a_server_that_misbehaves_delays_nobody() {
    let server = Server::default().await;
    let (port, _) = misbehaving().await;
    with_service(&server).await;
    let name = "v1.bad.example.com";
    server
        .admin()
        .create(&registration(name, port, json!({"insecureSkipTLSVerify": true})))
        .await
        .expect("an APIService");
    says(&server, name, "Passed").await;
    let get = async |path: &str| server.send(Method::GET, &format!("/apis/bad.example.com/v1/{path}"), &[], "").await;
    until("the backend", async || get("redirect").await.status != 503).await;

    let redirected = get("redirect").await;
    assert_eq!(redirected.status, 502);
    assert_eq!(redirected.text(), "the backend attempted to redirect this request, which is not permitted");
    assert!(redirected.headers.get("location").is_none());
    let garbage = get("garbage").await;
    assert_eq!(garbage.status, 503);
    assert!(garbage.text().starts_with("error trying to reach service: "), "{}", garbage.text());
    let begun = Instant::now();
    let hung = get("hang?timeout=1s").await;
    assert_eq!(hung.status, 504, "{}", hung.text());
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());

    // Nobody names themselves.
    let spoofed = [("x-remote-user", "root"), ("x-remote-extra-spoofed", "b")];
    let told = server.send(Method::GET, "/apis/bad.example.com/v1/echo", &spoofed, "").await.text().to_lowercase();
    assert!(
        told.contains("x-remote-user: kubernetes-admin\r\n") && told.contains("x-remote-group: system:masters\r\n"),
        "{told}"
    );
    assert!(!told.contains("root") && !told.contains("spoofed"), "{told}");
    assert!(told.contains("audit-id: ") && told.contains("x-forwarded-for: 127.0.0.1"), "{told}");

    let parent = hops::Context { trace: 5, span: 7, sampled: false };
    let told = hops::scope(parent, server.admin().raw("/apis/bad.example.com/v1/echo")).await.expect("an answer");
    let told = String::from_utf8_lossy(&told).to_lowercase();
    assert!(told.contains(&format!("traceparent: {}\r\n", parent.header())), "{told}");

    // An endless answer is passed on for as long as somebody reads it; what the server itself reads of it has a limit.
    let mut stream = connect(&server, b"http/1.1").await;
    stream.write_all(b"GET /apis/bad.example.com/v1/endless HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("a request");
    let mut some = vec![0; 4 << 20];
    testkit::eventually("four megabytes", stream.read_exact(&mut some)).await.expect("four megabytes");
    drop(stream);
    let groups = server.send(Method::GET, "/apis", &[("accept", AGGREGATED)], "").await.json();
    let bad =
        groups["items"].as_array().expect("groups").iter().find(|group| group["metadata"]["name"] == "bad.example.com");
    assert_eq!(bad.expect("it is listed")["versions"][0]["freshness"], "Stale");
    assert_eq!(server.send(Method::GET, "/openapi/v3", &[], "").await.status, 200);
    assert!(server.kubectl().run(&["get", "namespaces"]).await.contains("kube-system"));
    server.stop().await;
}
