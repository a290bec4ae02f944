//! Holes that Kubernetes once had, one test per class, where admission closes them. Redirects and forged requests through
//! webhooks are in `webhooks`, what a node may write in `admission`.

use apiserver::admission::Settings;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, StatusCode};
use k8s_openapi::api::core::v1::{ConfigMap, LimitRange, Namespace, Node, Pod, Secret, Service, ServiceAccount};
use machinery::rest::{Body, Payload, Request, User};
use serde_json::{Value, json};
use testkit::build::{Build as _, config_map, node, pod};

use crate::server::Server;

fn typed<T: serde::de::DeserializeOwned>(tree: Value) -> T {
    serde_json::from_value(tree).expect("an object of that kind")
}

/// Sends bytes as they are.
async fn send(server: &Server, method: Method, path: &str, media: &'static str, body: String) -> (StatusCode, String) {
    let mut request = Request::new(Body::Bytes(Bytes::from(body)));
    *request.method_mut() = method;
    *request.uri_mut() = path.parse().expect("a path");
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media));
    match server.admin().request(request).await {
        Ok(response) => {
            let message = match response.body() {
                Payload::Value(status) => machinery::value::text(status, "message").to_owned(),
                _ => String::new(),
            };
            (response.status(), message)
        }
        Err(error) => {
            let code = error.code().expect("an answer of the server's");
            (StatusCode::from_u16(code).expect("a code"), error.to_string())
        }
    }
}

#[tokio::test]
async fn subresources_are_no_way_around_what_is_asked_of_pods() {
    let server = Server::default().await;
    let admin = server.admin();
    let labels = json!({"pod-security.kubernetes.io/enforce": "baseline", "pod-security.kubernetes.io/enforce-version": "v1.30"});
    admin
        .create(&typed::<Namespace>(json!({"metadata": {"name": "safe", "labels": labels}})))
        .await
        .expect("a namespace");
    let account = json!({"metadata": {"name": "default", "namespace": "safe", "annotations": {"kubernetes.io/enforce-mountable-secrets": "true"}}});
    admin.create(&typed::<ServiceAccount>(account)).await.expect("an account");
    admin.create(&typed::<Secret>(json!({"metadata": {"name": "s", "namespace": "safe"}}))).await.expect("a secret");
    let range = json!({"metadata": {"name": "r", "namespace": "safe"}, "spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}});
    admin.create(&typed::<LimitRange>(range)).await.expect("a limit range");
    admin.list::<LimitRange>("safe", &Default::default()).await.expect("settled");
    let wish = json!({"metadata": {"name": "web", "namespace": "safe"}, "spec": {"containers": [{"name": "c", "image": "i",
        "resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": "200m"}}}]}});
    admin.create(&typed::<Pod>(wish)).await.expect("a pod");
    let ephemeral = |container: Value| {
        let patch = json!({"spec": {"ephemeralContainers": [container]}}).to_string();
        send(
            &server,
            Method::PATCH,
            "/api/v1/namespaces/safe/pods/web/ephemeralcontainers",
            "application/strategic-merge-patch+json",
            patch,
        )
    };
    let (code, why) = ephemeral(json!({"name": "d", "image": "i", "securityContext": {"privileged": true}})).await;
    assert_eq!(code, StatusCode::FORBIDDEN);
    assert!(why.contains("violates PodSecurity \"baseline:v1.30\": privileged (container \"d\""), "{why}");
    let (code, why) = ephemeral(json!({"name": "d", "image": "i", "envFrom": [{"secretRef": {"name": "s"}}]})).await;
    assert_eq!(code, StatusCode::FORBIDDEN);
    assert!(why.ends_with("ephemeral container d with envFrom referencing secret.secretName=\"s\" is not allowed because service account default does not reference that secret"), "{why}");
    let patch = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}}]}});
    let (code, why) = send(
        &server,
        Method::PATCH,
        "/api/v1/namespaces/safe/pods/web/resize",
        "application/strategic-merge-patch+json",
        patch.to_string(),
    )
    .await;
    assert_eq!(code, StatusCode::FORBIDDEN, "{why}");
    assert!(why.contains("maximum cpu usage per Container is 1, but limit is 2"), "{why}");
    // A namespace that becomes stricter tells which of its pods would not be let in again.
    let told = server
        .kubectl()
        .output(&["label", "namespace", "safe", "--overwrite", "pod-security.kubernetes.io/enforce=restricted"], "")
        .await;
    assert!(told.stderr.contains("Warning: existing pods in namespace \"safe\" violate the new PodSecurity enforce level \"restricted:v1.30\""), "{}", told.stderr);
    assert!(told.stderr.contains("Warning: web: allowPrivilegeEscalation != false, unrestricted capabilities, runAsNonRoot != true, seccompProfile"), "{}", told.stderr);
    server.stop().await;
}

#[tokio::test]
async fn nobody_draws_the_traffic_of_addresses_that_are_not_theirs() {
    let server = Server::start(|config, _| {
        config.admission = Settings::parse("DenyServiceExternalIPs", "").expect("a plug-in");
    })
    .await;
    let admin = server.admin();
    let service = |addresses: Value| -> Service {
        typed(
            json!({"metadata": {"name": "s", "namespace": "default"}, "spec": {"ports": [{"port": 443}], "externalIPs": addresses}}),
        )
    };
    let refused = admin.create(&service(json!(["1.1.1.1"]))).await.expect_err("refused").to_string();
    assert_eq!(refused, "services \"s\" is forbidden: Use of external IPs is denied by admission control");
    let mut made = admin.create(&service(json!([]))).await.expect("a plain service");
    made.spec.as_mut().expect("a spec").external_ips = Some(vec!["1.1.1.1".to_owned()]);
    assert!(admin.update(&made).await.is_err(), "nor by an update");
    server.stop().await;
}

#[tokio::test]
async fn a_node_gets_rid_of_nothing_by_owning_it_and_mirrors_no_claims() {
    let server = Server::default().await;
    let admin = server.admin();
    admin.create(&node("n1")).await.expect("a node");
    let n1 = server.as_user(User::new("system:node:n1", ["system:nodes"]));
    // Whoever sets the owners of a node lets the garbage collector delete it.
    let mut own: Node = n1.get("", "n1").await.expect("itself");
    own.metadata.owner_references =
        Some(vec![typed(json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "no-such-uid"}))]);
    let refused = n1.update(&own).await.expect_err("refused").to_string();
    assert!(refused.contains("is not allowed to modify ownerReferences"), "{refused}");
    let owner =
        json!([{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": own.metadata.uid, "controller": true}]);
    let mut mirror: Pod = pod("static");
    mirror.metadata.annotations = Some([("kubernetes.io/config.mirror".to_owned(), "x".to_owned())].into());
    mirror.metadata.owner_references = Some(typed(owner));
    let spec = mirror.spec.as_mut().expect("a spec");
    spec.node_name = Some("n1".to_owned());
    spec.resource_claims = Some(vec![typed(json!({"name": "gpu", "resourceClaimName": "others"}))]);
    let refused = n1.create(&mirror).await.expect_err("refused").to_string();
    assert!(refused.contains("resource"), "{refused}");
    mirror.spec.as_mut().expect("a spec").resource_claims = None;
    mirror.spec.as_mut().expect("a spec").service_account_name = Some("default".to_owned());
    assert!(n1.create(&mirror).await.is_err(), "nor does it run as an account");
    server.stop().await;
}

#[tokio::test]
async fn bombs_do_not_go_off() {
    let server = Server::default().await;
    let admin = server.admin();
    admin.create(&config_map("target", "a", "0123456789")).await.expect("a config map");
    let path = "/api/v1/namespaces/default/configmaps/target";
    // Copies of copies: 2^n bytes for n operations.
    let doubling: Vec<Value> = (0..40)
        .flat_map(|n| {
            [
                json!({"op": "add", "path": format!("/x{}", n + 1), "value": {}}),
                json!({"op": "copy", "from": format!("/x{n}"), "path": format!("/x{}/a", n + 1)}),
                json!({"op": "copy", "from": format!("/x{n}"), "path": format!("/x{}/b", n + 1)}),
            ]
        })
        .collect();
    let mut patch = vec![json!({"op": "add", "path": "/x0", "value": "0123456789"})];
    patch.extend(doubling);
    let (code, _) = send(&server, Method::PATCH, path, "application/json-patch+json", json!(patch).to_string()).await;
    assert!(code.is_client_error(), "{code}");
    // More operations than anybody needs.
    let many = vec![json!({"op": "test", "path": "/kind", "value": "ConfigMap"}); 10_001];
    let (code, why) = send(&server, Method::PATCH, path, "application/json-patch+json", json!(many).to_string()).await;
    assert_eq!(code, StatusCode::PAYLOAD_TOO_LARGE, "{why}");
    // Nesting without an end.
    let deep = format!("{{\"data\": {}1{}}}", "{\"a\":".repeat(200_000), "}".repeat(200_000));
    let (code, _) = send(&server, Method::PATCH, path, "application/merge-patch+json", deep).await;
    assert!(code.is_client_error(), "{code}");
    // Names for names: nine levels of nine are 387 million.
    let mut yaml =
        String::from("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: bomb}\na0: &a0 [x,x,x,x,x,x,x,x,x]\n");
    for level in 1..10 {
        let last = format!("*a{}", level - 1);
        yaml.push_str(&format!("a{level}: &a{level} [{}]\n", [last.as_str(); 9].join(",")));
    }
    let (code, _) =
        send(&server, Method::POST, "/api/v1/namespaces/default/configmaps", "application/yaml", yaml).await;
    assert!(code.is_client_error(), "{code}");
    let large = format!(
        "{{\"kind\": \"ConfigMap\", \"apiVersion\": \"v1\", \"metadata\": {{\"name\": \"l\"}}, \"data\": {{\"a\": \"{}\"}}}}",
        "x".repeat(4 << 20)
    );
    let (code, _) =
        send(&server, Method::POST, "/api/v1/namespaces/default/configmaps", "application/json", large).await;
    assert_eq!(code, StatusCode::PAYLOAD_TOO_LARGE);
    // And the server is as it was.
    let kept: ConfigMap = admin.get("default", "target").await.expect("the config map");
    assert_eq!(kept.data.expect("data")["a"], "0123456789");
    admin.create(&pod("after").in_namespace("default")).await.expect("a pod");
    server.stop().await;
}
