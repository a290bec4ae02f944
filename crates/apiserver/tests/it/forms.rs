//! The forms of answers: compressed, as protobuf, with warnings; and rules that depend on the version asked for.

use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use http::Method;
use serde_json::{Value, json};

use crate::server::Server;

/// The client speaks HTTP/2, which takes a body after a HEAD for an error.
#[tokio::test]
async fn a_head_tells_everything_but_the_body() {
    let server = Server::default().await;
    for (path, status) in [("/livez", 200), ("/nowhere", 404)] {
        let whole = server.get(path).await;
        let head = server.send(Method::HEAD, path, &[], "").await;
        assert_eq!((head.status, whole.status), (status, status), "{path}");
        assert!(head.body.is_empty() && !whole.body.is_empty(), "{path}");
        assert_eq!(head.headers["content-length"], whole.body.len().to_string().as_str(), "{path}");
        assert_eq!(head.headers["content-type"], whole.headers["content-type"], "{path}");
    }
    let refused = server.send(Method::HEAD, "/version", &[], "").await;
    assert_eq!((refused.status, refused.body.len()), (405, 0), "upstream's routes know no HEAD");
}

#[tokio::test]
async fn large_answers_are_compressed_for_those_who_ask() {
    let server = Server::default().await;
    let data = "x".repeat(40_000);
    for number in 0..8 {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("big-{number}")}, "data": {"k": data}});
        assert_eq!(server.post("/api/v1/namespaces/default/configmaps", &map).await.status, 201);
    }
    let path = "/api/v1/namespaces/default/configmaps";
    let plain = server.get(path).await;
    assert!(plain.headers.get("content-encoding").is_none());
    for accept in ["application/json", "application/yaml", "application/json;as=Table;v=v1;g=meta.k8s.io"] {
        let packed = server
            .send(
                Method::GET,
                &format!("{path}?includeObject=Object"),
                &[("accept", accept), ("accept-encoding", "gzip")],
                "",
            )
            .await;
        assert_eq!(packed.headers["content-encoding"], "gzip", "{accept}");
        assert_eq!(packed.headers["vary"], "Accept-Encoding");
        let mut text = String::new();
        flate2::read::GzDecoder::new(&packed.body[..]).read_to_string(&mut text).expect("gzip");
        assert!(text.len() > 8 * data.len() && packed.body.len() < text.len() / 10);
        if accept == "application/json" {
            assert_eq!(serde_json::from_str::<Value>(&text).expect("a list")["items"], plain.json()["items"]);
        }
    }
    let small = server.send(Method::GET, "/api/v1/namespaces/default", &[("accept-encoding", "gzip")], "").await;
    assert!(small.headers.get("content-encoding").is_none());
    server.stop().await;
}

#[tokio::test]
async fn versions_on_their_way_out_say_so() {
    let server = Server::default().await;
    let endpoints = server.get("/api/v1/namespaces/default/endpoints").await;
    assert_eq!(endpoints.warnings(), ["v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"]);
    assert!(server.get("/api/v1/namespaces/default/pods").await.warnings().is_empty());
    server.stop().await;
}

#[tokio::test]
async fn owners_given_twice_count_once() {
    let server = Server::default().await;
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u-1"});
    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "ownerReferences": [owner, owner]}});
    let made = server.post("/api/v1/namespaces/default/configmaps", &map).await;
    assert_eq!(made.status, 201, "{}", made.text());
    assert_eq!(made.json()["metadata"]["ownerReferences"].as_array().map(Vec::len), Some(1));
    assert_eq!(
        made.warnings(),
        [
            ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: u-1"
        ]
    );
    server.stop().await;
}

#[tokio::test]
async fn policies_that_nobody_can_have_meant_are_taken_with_a_warning() {
    let server = Server::default().await;
    let pod = |name: &str, host: bool| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": {
            "hostNetwork": host,
            "initContainers": [{"name": "s", "image": "i", "restartPolicy": "Always", "ports": [{"name": "side", "containerPort": 81}]}],
            "containers": [{"name": "c", "image": "i", "ports": [{"name": "web", "containerPort": 80}]}]}})
    };
    for (name, host) in [("web", false), ("host", true)] {
        let made = server.post("/api/v1/namespaces/default/pods", &pod(name, host)).await;
        assert_eq!(made.status, 201, "{}", made.text());
    }
    let path = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies";
    let ports = |name: &str| json!([{"ports": [{"port": name}]}]);
    let missing = |name: &str| {
        format!("NetworkPolicy \"p\" names port \"{name}\" of TCP, which none of the pods it is about has")
    };
    let nothing = || "NetworkPolicy \"p\" selects no pod".to_owned();
    for (app, ingress, egress, want) in [
        ("web", ports("web"), ports("side"), vec![]),
        ("web", ports("wbe"), ports("sdie"), vec![missing("wbe"), missing("sdie")]),
        ("wbe", ports("wbe"), ports("web"), vec![nothing()]),
        // It has its node's addresses, of which policies do not speak.
        ("host", json!([]), json!([]), vec![nothing()]),
    ] {
        let policy = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "p"},
            "spec": {"podSelector": {"matchLabels": {"app": app}}, "policyTypes": ["Ingress", "Egress"], "ingress": ingress, "egress": egress}});
        let mut made = server.post(path, &policy).await;
        assert_eq!((made.status, made.warnings()), (201, want.clone()), "{}", made.text());
        made = server.get(&format!("{path}/p")).await;
        let mut again = made.json();
        again["metadata"]["labels"] = json!({"a": "b"});
        let put = server
            .send(Method::PUT, &format!("{path}/p"), &[("content-type", "application/json")], again.to_string())
            .await;
        assert_eq!((put.status, put.warnings().len()), (200, 0), "what it says is as it was: {}", put.text());
        again = put.json();
        again["spec"]["podSelector"] = json!({"matchLabels": {"app": "nobody"}});
        let put = server
            .send(Method::PUT, &format!("{path}/p"), &[("content-type", "application/json")], again.to_string())
            .await;
        assert_eq!(put.warnings().first(), Some(&nothing()), "{}", put.text());
        server.send(Method::DELETE, &format!("{path}/p"), &[], "").await;
    }
    server.stop().await;
}

#[tokio::test]
async fn events_of_the_newer_group_are_stricter() {
    let server = Server::default().await;
    let event = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"}, "reason": "Made", "action": "Make",
        "type": "Normal", "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "test.io/maker",
        "reportingInstance": "maker-1", "regarding": {"kind": "Pod", "name": "p", "namespace": "default"}, "note": "made",
    });
    let path = "/apis/events.k8s.io/v1/namespaces/default/events";
    let mut wrong = event.clone();
    wrong["type"] = json!("Odd");
    wrong["deprecatedCount"] = json!(2);
    wrong["series"] = json!({"count": 1});
    wrong["eventTime"] = Value::Null;
    let refused = server.post(path, &wrong).await;
    assert_eq!(refused.status, 422, "{}", refused.text());
    for expected in [
        "series.count: Invalid value: \"\": should be at least 2",
        "series.lastObservedTime: Required value",
        "eventTime: Required value",
        "type: Invalid value: \"\": has invalid value: Odd",
        "count: Invalid value: \"\": needs to be unset",
    ] {
        assert!(refused.message().contains(expected), "{expected}: {}", refused.message());
    }
    let made = server.post(path, &event).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let mut changed = made.json();
    changed["note"] = json!("other");
    let refused = server.put(&format!("{path}/e"), &changed).await;
    assert!(refused.message().contains("message: Invalid value: \"other\": field is immutable"), "{}", refused.text());
    changed["note"] = json!("made");
    changed["series"] = json!({"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"});
    assert_eq!(server.put(&format!("{path}/e"), &changed).await.status, 200);
    // Selectors use the group's own names.
    let found = |selector: &str| format!("{path}?fieldSelector={selector}");
    let listed = server.get(&found("regarding.name%3Dp,reportingController%3Dtest.io/maker")).await.json();
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(1), "{listed}");
    let refused = server.get(&found("involvedObject.name%3Dp")).await;
    assert_eq!((refused.status, refused.message()), (400, "field label not supported: involvedObject.name".to_owned()));
    server.stop().await;
}

#[tokio::test]
async fn options_that_do_not_go_together_are_all_named() {
    let server = Server::default().await;
    let path = "/api/v1/configmaps";
    let unless =
        "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided";
    let with_continue = "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided";
    let odd = "resourceVersionMatch: Unsupported value: \"Odd\": supported values: ";
    for (query, expected) in [
        (
            "resourceVersionMatch=Odd&continue=x&sendInitialEvents=true",
            vec![unless, with_continue, odd, "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"],
        ),
        (
            "watch=1&resourceVersionMatch=Odd&continue=x",
            vec![
                "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                odd,
                with_continue,
            ],
        ),
    ] {
        let refused = server.get(&format!("{path}?{query}")).await;
        assert_eq!(refused.status, 422, "{query}");
        for cause in expected {
            assert!(refused.message().contains(cause), "{cause}: {}", refused.message());
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn pages_show_the_state_of_the_first_one_for_five_minutes() {
    let later = Arc::new(AtomicI64::new(0));
    let server = Server::start({
        let later = later.clone();
        move |config, _| {
            let now = jiff::Timestamp::now();
            config.clock = Arc::new(move || now + jiff::SignedDuration::from_secs(later.load(Ordering::Relaxed)));
        }
    })
    .await;
    let path = "/api/v1/namespaces/default/configmaps";
    for name in ["a", "b", "c", "d", "e"] {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        assert_eq!(server.post(path, &map).await.status, 201);
    }
    let page = async |token: &str| server.get(&format!("{path}?limit=2&continue={token}")).await;
    let first = page("").await.json();
    let token = first["metadata"]["continue"].as_str().expect("more").to_owned();
    assert_eq!(server.send(Method::DELETE, &format!("{path}/d"), &[], "").await.status, 200);
    later.store(299, Ordering::Relaxed);
    let second = page(&token).await.json();
    assert_eq!(second["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    assert_eq!(second["items"][1]["metadata"]["name"], "d", "{second}");
    later.store(301, Ordering::Relaxed);
    // The token of the second page is as old as the first page is.
    for old in [&token, second["metadata"]["continue"].as_str().expect("more")] {
        let gone = page(old).await;
        assert_eq!((gone.status, gone.json()["reason"].as_str()), (410, Some("Expired")), "{}", gone.text());
    }
    let rest = page(&token).await.json()["metadata"]["continue"].as_str().expect("a token for the rest").to_owned();
    let rest = page(&rest).await.json();
    let names: Vec<_> =
        rest["items"].as_array().into_iter().flatten().map(|map| map["metadata"]["name"].clone()).collect();
    assert_eq!(names, ["c", "e"]);
    assert_ne!(rest["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    server.stop().await;
}

#[tokio::test]
async fn a_field_that_is_not_set_is_selected_by_its_types_empty_value() {
    let server = Server::default().await;
    for (name, spec) in [("open", json!({})), ("closed", json!({"unschedulable": true}))] {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec});
        assert_eq!(server.post("/api/v1/nodes", &node).await.status, 201);
    }
    let nodes = async |selector: &str| {
        let answer = server.get(&format!("/api/v1/nodes?fieldSelector={selector}")).await;
        let list = answer.json();
        let names: Vec<String> =
            list["items"].as_array().into_iter().flatten().map(|node| node["metadata"]["name"].to_string()).collect();
        (answer.status, if answer.status == 200 { names.join(" ") } else { answer.message() })
    };
    assert_eq!(nodes("spec.unschedulable%3Dfalse").await, (200, "\"open\"".to_owned()));
    assert_eq!(nodes("spec.unschedulable%3Dtrue").await, (200, "\"closed\"".to_owned()));
    let refused = (400, "field label not supported: metadata.namespace".to_owned());
    assert_eq!(nodes("metadata.namespace%3Da").await, refused);
    let answer = server.get("/apis/apps/v1/replicasets?fieldSelector=status.replicas%3D0").await;
    let why = "\"status.replicas\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"";
    assert_eq!((answer.status, answer.message()), (400, why.to_owned()));
    for path in
        ["/apis/apps/v1/replicasets?fieldSelector=metadata.namespace%3Da", "/api/v1/pods?fieldSelector=spec.host%3Dn"]
    {
        assert_eq!(server.get(path).await.status, 200, "{path}");
    }
    server.stop().await;
}

#[tokio::test]
async fn finalizers_of_built_in_kinds_say_whose_they_are() {
    let server = Server::default().await;
    let map = |finalizer: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "finalizers": [finalizer]}});
    let path = "/api/v1/namespaces/default/configmaps";
    let refused = server.post(path, &map("mine")).await;
    assert_eq!(
        refused.message(),
        "ConfigMap \"m\" is invalid: metadata.finalizers[0]: Invalid value: \"mine\": name is neither a standard finalizer name nor is it fully qualified"
    );
    assert_eq!(server.post(path, &map("example.com/mine")).await.status, 201);
    server.stop().await;
}

#[tokio::test]
async fn openapi_comes_as_protobuf_too() {
    let server = Server::default().await;
    let accept = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf";
    let document = server.send(Method::GET, "/openapi/v3/apis/apps/v1", &[("accept", accept)], "").await;
    assert_eq!(document.status, 200);
    assert_eq!(document.headers["content-type"], "application/com.github.proto-openapi.spec.v3.v1.0+protobuf");
    assert!(document.body.starts_with(b"\x0a\x053.0.0"));
    assert!(document.body.windows(26).any(|part| part == b"io.k8s.api.apps.v1.Deploym"));
    server.stop().await;
}

#[tokio::test]
async fn empties_are_judged_where_upstream_judges_them_and_forgotten_when_stored() {
    let server = Server::default().await;
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {
        "overhead": {}, "nodeSelector": {}, "containers": [{"name": "c", "image": "i", "args": []}]}});
    let refused = server.post(pods, &pod).await;
    assert_eq!(refused.status, 403, "{}", refused.text());
    assert_eq!(
        refused.json()["message"],
        "pods \"p\" is forbidden: pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
    );

    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
    let role =
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r"}, "rules": []});
    assert_eq!(server.post(&format!("{roles}?dryRun=All"), &role).await.json()["rules"], Value::Null);
    let made = server.post(roles, &role).await.json();
    assert_eq!(made["rules"], Value::Null);
    // Saying it again changes nothing.
    let (path, json_type) = (format!("{roles}/r"), [("content-type", "application/json")]);
    let put = server.send(Method::PUT, &path, &json_type, role.to_string()).await;
    assert_eq!(put.json()["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"]);

    let scalers = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    let mut scaler = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"}, "spec": {
        "maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}});
    assert_eq!(server.post(scalers, &scaler).await.status, 201);
    scaler["spec"]["behavior"] = json!({"scaleUp": {"policies": []}});
    let path = format!("{scalers}/h");
    let put = server.send(Method::PUT, &path, &json_type, scaler.to_string()).await;
    assert_eq!(
        put.json()["message"],
        "HorizontalPodAutoscaler.autoscaling \"h\" is invalid: spec.behavior.scaleUp.policies: Required value: must specify at least one Policy"
    );
    server.stop().await;
}

#[tokio::test]
async fn what_nobody_can_read_is_refused_in_upstreams_words() {
    let server = Server::default().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let status = |answer: &crate::http::Answer| (answer.status, answer.message());
    let html = [("accept", "text/html")];
    let refused = server.send(Method::GET, &format!("{maps}/m"), &html, "").await;
    let routed = "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf";
    assert_eq!(status(&refused), (406, routed.to_owned()));
    assert!(refused.text().starts_with("{\n") && refused.json()["details"] == json!({}));
    let table = [("accept", "application/json;as=Table;v=v1beta1;g=meta.k8s.io")];
    let missing = server.send(Method::GET, &format!("{maps}/m"), &table, "").await;
    assert_eq!(status(&missing), (404, "configmaps \"m\" not found".to_owned()));
    assert!(missing.text().starts_with("{\n"));
    let listed = server.send(Method::GET, maps, &table, "").await.json();
    assert_eq!(listed["apiVersion"], "meta.k8s.io/v1beta1");

    for (path, accept) in [("/api", "APIVersions"), ("/apis/apps/v1", "APIResourceList"), ("/apis", "APIGroupList")] {
        let document = server.send(Method::GET, path, &[("accept", "application/yaml")], "").await;
        assert_eq!(document.headers["content-type"], "application/yaml");
        assert!(document.text().contains(&format!("kind: {accept}\n")), "{}", document.text());
        let message = server.send(Method::GET, path, &[("accept", "application/vnd.kubernetes.protobuf")], "").await;
        assert_eq!(message.headers["content-type"], "application/vnd.kubernetes.protobuf");
        assert!(message.body.starts_with(b"k8s\0") && message.body.len() > 20);
    }
    for (method, path, expect) in [
        (Method::PUT, "/api", 405),
        (Method::POST, "/apis", 200),
        (Method::POST, "/version", 405),
        (Method::GET, "/apis/apps/v9", 404),
        (Method::GET, "/api//v1", 404),
        (Method::GET, "/healthz/", 404),
    ] {
        let answer = server.send(method.clone(), path, &[], "").await;
        assert_eq!(answer.status, expect, "{method} {path} {}", answer.text());
    }
    for path in ["/apis/nope/v1/things", "/apis/nope", "/nope"] {
        assert_eq!(server.get(path).await.text(), "404 page not found\n", "{path}");
    }
    let odd = server.get(&format!("{maps}/a%25b")).await;
    assert_eq!(status(&odd), (400, "Name parameter invalid: \"a%b\": may not contain '%'".to_owned()));
    server.stop().await;
}

#[tokio::test]
async fn options_of_a_deletion_are_read_as_what_they_are() {
    let server = Server::default().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}});
    assert_eq!(server.post(maps, &map).await.status, 201);
    let scheme = "in scheme \"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27\"";
    for (body, message) in [
        ("{", "couldn't get version/kind; json parse error: unexpected end of JSON input".to_owned()),
        (r#"{"kind":"Pod"}"#, format!("no kind \"Pod\" is registered for version \"meta.k8s.io/v1\" {scheme}")),
        (
            r#"{"gracePeriodSeconds":"x"}"#,
            "json: cannot unmarshal string into Go struct field DeleteOptions.gracePeriodSeconds of type int64"
                .to_owned(),
        ),
    ] {
        let refused = server.send(Method::DELETE, &format!("{maps}/m"), &[], body).await;
        assert_eq!((refused.status, refused.message()), (400, message));
    }
    // What the query says counts only where there is no body.
    let path = format!("{maps}/m?dryRun=All");
    assert_eq!(server.send(Method::DELETE, &path, &[], "").await.status, 200);
    assert_eq!(server.get(&format!("{maps}/m")).await.status, 200);
    assert_eq!(server.send(Method::DELETE, &path, &[], "{}").await.status, 200);
    assert_eq!(server.get(&format!("{maps}/m")).await.status, 404);
    server.stop().await;
}

#[tokio::test]
async fn bodies_that_are_no_objects_are_refused_alike_everywhere() {
    let server = Server::default().await;
    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let scale = "/apis/apps/v1/namespaces/default/deployments/x/scale";
    for (method, path, kind) in [(Method::POST, reviews, "SelfSubjectAccessReview"), (Method::PUT, scale, "Scale")] {
        let refused = server.send(method.clone(), path, &[], "[1").await;
        let why = "couldn't get version/kind; json parse error: unexpected end of JSON input (5b31)";
        let message = format!("the object provided is unrecognized (must be of type {kind}): {why}");
        assert_eq!((refused.status, refused.message()), (400, message));
        let odd = server.send(method, path, &[("content-type", "text/yaml")], "{}").await;
        assert_eq!(odd.status, 415);
    }
    let maps = "/api/v1/namespaces/default/configmaps";
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}}).to_string();
    let made = server.send(Method::POST, maps, &[("content-type", "APPLICATION/JSON")], map.clone()).await;
    assert_eq!(made.status, 201);
    let empty = [("content-type", "application/vnd.kubernetes.protobuf")];
    let refused = server.send(Method::POST, maps, &empty, "k8s\0").await;
    assert!(refused.message().contains("empty body"), "{}", refused.text());
    let late = server.send(Method::POST, &format!("{maps}?timeout=abc"), &[], map).await;
    let message = "invalid timeout specified in the request URL - time: invalid duration \"abc\"";
    assert_eq!((late.status, late.message()), (400, message.to_owned()));
    let watched = server.send(Method::GET, &format!("{maps}?watch=true"), &[("accept", "application/yaml")], "").await;
    assert_eq!(watched.status, 406);
    server.stop().await;
}

/// As upstream stores them, whatever a machine could ever have.
#[tokio::test]
async fn amounts_and_times_beyond_all_bounds_are_kept() {
    let server = Server::default().await;
    for (number, (said, stored)) in [
        ("9223372036854775807Ei", "9223372036854775807"),
        ("9Ei", "9223372036854775807"),
        ("9223372036854775807", "9223372036854775807"),
        ("1e1000", "10e999"),
        ("1e-1000", "1e-3"),
        ("1n", "1m"),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("pod-{number}");
        let resources = json!({"requests": {"memory": said}, "limits": {"memory": said}});
        let pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]}});
        let made = server.post("/api/v1/namespaces/default/pods", &pod).await;
        assert_eq!(made.status, 201, "{said}: {}", made.text());
        assert_eq!(made.json()["spec"]["containers"][0]["resources"]["requests"]["memory"], stored, "{said}");
    }
    let lease = json!({"metadata": {"name": "late"}, "spec": {"renewTime": "9999-12-31T23:59:59.999999Z"}});
    let made = server.post("/apis/coordination.k8s.io/v1/namespaces/default/leases", &lease).await;
    assert_eq!(made.status, 201, "{}", made.text());
    assert_eq!(made.json()["spec"]["renewTime"], "9999-12-31T23:59:59.999999Z");
    server.stop().await;
}
