//! Webhook servers of every temper: each ends as upstream's would.

use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Service, ServiceAccount};
use serde_json::{Value, json};
use testkit::build::{config_map, node, pod};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::server::Server;

/// What a webhook server does with a question.
#[derive(Clone, Copy)]
pub enum Temper {
    Inject,
    /// Appends a letter to the annotation `seen`, if the object has not that letter yet.
    Mark(&'static str),
    /// Writes a record of owners that nobody can read.
    Disown,
    Allow,
    Deny,
    Hang,
    Garbage,
    Redirect,
}

/// A running webhook server.
pub struct Hook {
    url: String,
    port: u16,
    authority: String,
    /// What it was asked.
    questions: Arc<Mutex<Vec<Value>>>,
}

pub fn typed<T: serde::de::DeserializeOwned>(tree: Value) -> T {
    serde_json::from_value(tree).expect("an object of that kind")
}

impl Hook {
    pub async fn start(temper: Temper) -> Self {
        let now = jiff::Timestamp::now();
        let year = std::time::Duration::from_secs(365 * 86_400);
        let key = pki::PrivateKey::generate().expect("a key");
        let authority = pki::Authority::new("webhooks", key, now, year).expect("an authority");
        let key = pki::PrivateKey::generate().expect("a key");
        let subject = pki::Subject::new("webhook", []);
        let names = vec![pki::San::host("127.0.0.1"), pki::San::host("hook.default.svc")];
        let leaf = pki::Leaf::server(subject, names, year);
        let certificate = authority.issue(&leaf, &key.public(), now).expect("a certificate");
        let pair = pki::Pair { chain_pem: certificate.to_pem(), key_pem: key.to_pem().to_owned() };
        let pem = authority.certificate().to_pem();
        let tls = pki::server_config(&pair, &pem).expect("TLS");
        let mut tls = (*tls).clone();
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let questions = Arc::new(Mutex::new(Vec::new()));
        let asked = questions.clone();
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, asked) = (acceptor.clone(), asked.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(move |request| answer(temper, asked.clone(), request));
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Self { url: format!("https://127.0.0.1:{port}/hook"), port, authority: pem, questions }
    }

    /// The webhook of a configuration, for creations of pods unless said otherwise.
    pub fn webhook(&self, changes: Value) -> Value {
        let mut tree = json!({
            "name": "hook.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": {"url": self.url, "caBundle": STANDARD.encode(&self.authority)},
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
        });
        for (key, value) in changes.as_object().expect("changes") {
            tree[key] = value.clone();
        }
        tree
    }

    pub fn asked(&self) -> usize {
        self.questions.lock().expect("questions").len()
    }

    fn question(&self) -> Value {
        self.questions.lock().expect("questions").last().expect("a question")["request"].clone()
    }
}

async fn answer(
    temper: Temper,
    asked: Arc<Mutex<Vec<Value>>>,
    request: http::Request<Incoming>,
) -> Result<http::Response<Full<Bytes>>, hyper::Error> {
    assert!(
        request.uri().query().is_some_and(|query| query.starts_with("timeout=")),
        "webhooks are told how long they have"
    );
    let body = request.into_body().collect().await?.to_bytes();
    let review: Value = serde_json::from_slice(&body).expect("a review");
    asked.lock().expect("questions").push(review.clone());
    let uid = &review["request"]["uid"];
    let respond = |response: Value| {
        let tree = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response});
        http::Response::new(Full::new(Bytes::from(tree.to_string())))
    };
    Ok(match temper {
        Temper::Inject => {
            let patch = json!([
                {"op": "add", "path": "/spec/containers/-", "value": {"name": "sidecar", "image": "sidecar:1"}},
                {"op": "add", "path": "/metadata/labels", "value": {"injected": "yes"}},
            ]);
            let done = review["request"]["object"]["metadata"]["labels"]["injected"] == "yes";
            let patch = if done { json!([]) } else { patch };
            respond(
                json!({"uid": uid, "allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(patch.to_string()), "warnings": ["a sidecar was added"]}),
            )
        }
        Temper::Mark(letter) => {
            let seen = review["request"]["object"]["metadata"]["annotations"]["seen"].as_str().unwrap_or_default();
            let patch =
                json!([{"op": "add", "path": "/metadata/annotations", "value": {"seen": format!("{seen}{letter}")}}]);
            let patch = if seen.contains(letter) { json!([]) } else { patch };
            respond(
                json!({"uid": uid, "allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(patch.to_string())}),
            )
        }
        Temper::Disown => {
            let patch = json!([{"op": "replace", "path": "/metadata/managedFields", "value": [{"manager": "me"}]}]);
            respond(
                json!({"uid": uid, "allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(patch.to_string())}),
            )
        }
        Temper::Allow => respond(json!({"uid": uid, "allowed": true})),
        Temper::Deny => respond(json!({"uid": uid, "allowed": false, "status": {"code": 403, "message": "not today"}})),
        Temper::Hang => std::future::pending().await,
        Temper::Garbage => http::Response::new(Full::new(Bytes::from_static(b"<html>no review</html>"))),
        Temper::Redirect => {
            let mut response = http::Response::new(Full::new(Bytes::new()));
            *response.status_mut() = http::StatusCode::FOUND;
            response.headers_mut().insert("location", http::HeaderValue::from_static("https://169.254.169.254/latest"));
            response
        }
    })
}

pub async fn mutating(server: &Server, webhook: Value) {
    let tree = json!({"metadata": {"name": "m"}, "webhooks": [webhook]});
    server.admin().create(&typed::<MutatingWebhookConfiguration>(tree)).await.expect("a configuration");
    settle(server).await;
}

pub async fn validating(server: &Server, name: &str, webhook: Value) {
    let tree = json!({"metadata": {"name": name}, "webhooks": [webhook]});
    server.admin().create(&typed::<ValidatingWebhookConfiguration>(tree)).await.expect("a configuration");
    settle(server).await;
}

/// A list sees everything that was acknowledged before it, and so does what is admitted after it.
pub async fn settle(server: &Server) {
    server.admin().list::<ConfigMap>("default", &Default::default()).await.expect("a list");
}

#[tokio::test]
async fn a_sidecar_is_injected_and_gets_its_defaults() {
    let server = Server::default().await;
    let hook = Hook::start(Temper::Inject).await;
    mutating(&server, hook.webhook(json!({"reinvocationPolicy": "IfNeeded"}))).await;
    let made = server.admin().create(&pod("web")).await.expect("a pod");
    let containers = made.spec.expect("a spec").containers;
    assert_eq!(containers.len(), 2);
    let sidecar = &containers[1];
    assert_eq!(sidecar.termination_message_policy.as_deref(), Some("File"), "defaults");
    assert!(sidecar.volume_mounts.as_ref().is_some_and(|mounts| !mounts.is_empty()), "the built-in plug-ins ran again");
    let kubectl = server.kubectl().output(&["run", "second", "--image=i"], "").await;
    assert_eq!(kubectl.stderr, "Warning: a sidecar was added\n");
    assert!(hook.asked() >= 3, "asked again after the plug-ins changed the sidecar: {}", hook.asked());
    server.stop().await;
}

#[tokio::test]
async fn a_name_is_generated_after_those_who_change_the_object_saw_none() {
    let server = Server::default().await;
    let (changes, judges) = (Hook::start(Temper::Mark("x")).await, Hook::start(Temper::Allow).await);
    mutating(&server, changes.webhook(json!({}))).await;
    validating(&server, "v", judges.webhook(json!({}))).await;
    let mut nameless = pod("");
    nameless.metadata.name = None;
    nameless.metadata.generate_name = Some("web-".to_owned());
    let made = server.admin().create(&nameless).await.expect("a pod");
    let name = made.metadata.name.expect("a name");
    assert!(name.starts_with("web-") && name.len() == 9, "{name}");
    let (seen, judged) = (changes.question(), judges.question());
    assert_eq!((&seen["name"], &seen["object"]["metadata"]["name"]), (&Value::Null, &Value::Null));
    assert_eq!((judged["name"].as_str(), judged["object"]["metadata"]["name"].as_str()), (Some(&*name), Some(&*name)));
    server.stop().await;
}

#[tokio::test]
async fn a_record_of_owners_that_a_webhook_breaks_is_put_back() {
    let server = Server::default().await;
    let hook = Hook::start(Temper::Disown).await;
    mutating(&server, hook.webhook(json!({}))).await;
    let said = server.kubectl().output(&["run", "web", "--image=i", "--field-manager=me"], "").await;
    assert_eq!(
        said.stderr,
        "Warning: .metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating admission controller; please fix your requests: operation must be `Apply` or `Update`\n"
    );
    let managers = ["get", "pod", "web", "-o", "jsonpath={.metadata.managedFields[*].manager}"];
    assert_eq!(server.kubectl().output(&managers, "").await.stdout, "me");
    server.stop().await;
}

#[tokio::test]
async fn a_denial_carries_the_webhooks_words() {
    let server = Server::default().await;
    let hook = Hook::start(Temper::Deny).await;
    let selected = json!({"objectSelector": {"matchLabels": {"guarded": "yes"}}});
    validating(&server, "v", hook.webhook(selected)).await;
    let admin = server.admin();
    admin.create(&pod("free")).await.expect("not selected");
    let mut guarded = pod("guarded");
    guarded.metadata.labels = Some([("guarded".to_owned(), "yes".to_owned())].into());
    let refused = admin.create(&guarded).await.expect_err("refused");
    assert_eq!(
        (refused.code(), refused.to_string().as_str()),
        (Some(403), "admission webhook \"hook.example.com\" denied the request: not today")
    );
    assert_eq!(hook.asked(), 1);
    // A configuration of webhooks is never shown to webhooks: this one can be removed.
    admin.delete::<ValidatingWebhookConfiguration>("", "v", &Default::default()).await.expect("removed");
    settle(&server).await;
    admin.create(&guarded).await.expect("nobody minds");
    server.stop().await;
}

#[tokio::test]
async fn webhooks_that_cannot_be_asked_refuse_or_are_ignored() {
    let server = Server::default().await;
    let admin = server.admin();
    let cases = [
        (Temper::Hang, "Post \"{url}?timeout=1s\": context deadline exceeded"),
        (
            Temper::Garbage,
            "couldn't get version/kind; json parse error: json: cannot unmarshal string into Go value of type struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }",
        ),
        (Temper::Redirect, "the server responded with the status code 302 but did not return more information"),
    ];
    for (at, (temper, why)) in cases.into_iter().enumerate() {
        let hook = Hook::start(temper).await;
        validating(&server, "closed", hook.webhook(json!({"timeoutSeconds": 1, "failurePolicy": "Fail"}))).await;
        let refused = admin.create(&pod("closed")).await.expect_err("refused");
        let expect = format!(
            "Internal error occurred: failed calling webhook \"hook.example.com\": failed to call webhook: {}",
            why.replace("{url}", &hook.url)
        );
        assert_eq!((refused.code(), refused.to_string()), (Some(500), expect));
        assert_eq!(hook.asked(), 1, "no redirect is followed and nothing is asked twice");
        admin.delete::<ValidatingWebhookConfiguration>("", "closed", &Default::default()).await.expect("removed");
        validating(&server, "open", hook.webhook(json!({"timeoutSeconds": 1, "failurePolicy": "Ignore"}))).await;
        admin.create(&pod(&format!("open-{at}"))).await.expect("ignored");
        admin.delete::<ValidatingWebhookConfiguration>("", "open", &Default::default()).await.expect("removed");
        settle(&server).await;
    }
    // Nobody listens there.
    let nobody = json!({"name": "hook.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": {"url": "https://127.0.0.1:1/hook"},
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]});
    validating(&server, "nobody", nobody).await;
    let refused = admin.create(&pod("nobody")).await.expect_err("refused").to_string();
    assert!(refused.ends_with("failed to call webhook: Post \"https://127.0.0.1:1/hook?timeout=10s\": dial tcp 127.0.0.1:1: connect: connection refused"), "{refused}");
    server.stop().await;
}

#[tokio::test]
async fn mutating_webhooks_are_asked_in_order_and_again_if_needed() {
    let server = Server::default().await;
    let (first, second) = (Hook::start(Temper::Mark("a")).await, Hook::start(Temper::Mark("b")).await);
    let named = |hook: &Hook, name: &str, again: &str| {
        hook.webhook(json!({"name": format!("{name}.example.com"), "reinvocationPolicy": again}))
    };
    let webhooks = json!([named(&first, "first", "IfNeeded"), named(&second, "second", "Never")]);
    let tree = json!({"metadata": {"name": "m"}, "webhooks": webhooks});
    server.admin().create(&typed::<MutatingWebhookConfiguration>(tree)).await.expect("a configuration");
    settle(&server).await;
    let made = server.admin().create(&pod("web")).await.expect("a pod");
    assert_eq!(made.metadata.annotations.expect("annotations")["seen"], "ab");
    assert_eq!((first.asked(), second.asked()), (2, 1), "the first looks again at what the second did");
    assert_eq!(first.question()["object"]["metadata"]["annotations"]["seen"], "ab");
    server.stop().await;
}

#[tokio::test]
async fn a_webhook_behind_a_service_is_found_through_it() {
    let server = Server::default().await;
    let admin = server.admin();
    let hook = Hook::start(Temper::Deny).await;
    let client = json!({"service": {"namespace": "default", "name": "hook", "path": "/check", "port": hook.port},
        "caBundle": STANDARD.encode(&hook.authority)});
    validating(&server, "v", hook.webhook(json!({"clientConfig": client}))).await;
    let refused = admin.create(&pod("web")).await.expect_err("refused").to_string();
    let expect =
        format!("Post \"https://hook.default.svc:{}/check?timeout=10s\": service \"hook\" not found", hook.port);
    assert!(refused.ends_with(&expect), "{refused}");
    // The name that its certificate must have is the Service's, wherever that leads.
    let service = json!({"metadata": {"name": "hook", "namespace": "default"}, "spec": {"type": "ExternalName", "externalName": "localhost"}});
    admin.create(&typed::<Service>(service)).await.expect("a service");
    settle(&server).await;
    let refused = admin.create(&pod("web")).await.expect_err("refused").to_string();
    assert_eq!(refused, "admission webhook \"hook.example.com\" denied the request: not today");
    server.stop().await;
}

#[tokio::test]
async fn a_webhook_behind_a_service_is_reached_at_its_endpoints() {
    let server = Server::default().await;
    let admin = server.admin();
    let hook = Hook::start(Temper::Deny).await;
    let client = json!({"service": {"namespace": "default", "name": "hook", "path": "/check"},
        "caBundle": STANDARD.encode(&hook.authority)});
    validating(&server, "v", hook.webhook(json!({"clientConfig": client, "timeoutSeconds": 5}))).await;
    let service = |port: u16| {
        json!({"metadata": {"name": "hook", "namespace": "default"},
        "spec": {"clusterIP": "None", "selector": {"app": "hook"}, "ports": [{"name": "https", "port": port}]}})
    };
    let ask = async || admin.create(&pod("web")).await.expect_err("refused").to_string();
    let failed = |why: &str| {
        format!(
            "Internal error occurred: failed calling webhook \"hook.example.com\": failed to call webhook: \
             Post \"https://hook.default.svc:443/check?timeout=5s\": {why}"
        )
    };
    admin.create(&typed::<Service>(service(8443))).await.expect("a service");
    settle(&server).await;
    assert_eq!(ask().await, failed("no service port 443 found for service \"hook\""));
    admin.delete::<Service>("default", "hook", &Default::default()).await.expect("deleted");
    admin.create(&typed::<Service>(service(443))).await.expect("a service");
    settle(&server).await;
    assert_eq!(ask().await, failed("cannot route to service with ClusterIP \"None\""));
    // The API lets nobody name loopback as an endpoint, and a test may not send elsewhere: the slice comes from below.
    let slice = |port: u16, ready: bool| {
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": "hook-1", "namespace": "default", "uid": "u", "labels": {"kubernetes.io/service-name": "hook"}},
            "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
            "endpoints": [{"addresses": ["127.0.0.2"], "conditions": {"ready": false}},
                {"addresses": ["127.0.0.1"], "conditions": {"ready": ready}}]})
    };
    let put = async |tree: &Value, expect: store::Expect| {
        let op = store::Op::Put { value: Bytes::from(tree.to_string()), ttl: None };
        let txn = store::Txn {
            key: "/registry/endpointslices/default/hook-1".into(),
            expect,
            op,
            write: None,
            note: Default::default(),
        };
        let outcome = store::Store::txn(server.store(), txn).await;
        let store::Outcome::Committed(revision) = outcome.expect("the store is well") else { panic!("it was written") };
        settle(&server).await;
        revision
    };
    let revision = put(&slice(hook.port, true), store::Expect::Absent).await;
    assert_eq!(ask().await, "admission webhook \"hook.example.com\" denied the request: not today");
    assert_eq!(hook.asked(), 1);
    // An endpoint that is not ready is not asked.
    put(&slice(hook.port, false), store::Expect::At(revision)).await;
    assert_eq!(ask().await, failed("cannot route to service with ClusterIP \"None\""));
    assert_eq!(hook.asked(), 1);
    server.stop().await;
}

#[tokio::test]
async fn every_way_to_change_something_is_shown() {
    let server = Server::default().await;
    let admin = server.admin();
    let hook = Hook::start(Temper::Allow).await;
    let everything = json!([{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}]);
    admin.create(&node("n1")).await.expect("a node");
    admin.create(&pod("web")).await.expect("a pod");
    admin.create(&testkit::build::deployment("d", 1)).await.expect("a deployment");
    validating(&server, "v", hook.webhook(json!({"rules": everything}))).await;
    let kubectl = server.kubectl();
    let last = |expect: [&str; 4]| {
        let question = hook.question();
        let text = |path: &str| question[path].as_str().unwrap_or_default().to_owned();
        let kind = question["kind"]["kind"].as_str().unwrap_or_default().to_owned();
        assert_eq!([text("operation"), text("subResource"), text("name"), kind], expect, "{question}");
        question
    };
    kubectl.output(&["debug", "web", "--image=i"], "").await;
    let debug = last(["UPDATE", "ephemeralcontainers", "web", "Pod"]);
    assert_eq!(debug["object"]["spec"]["ephemeralContainers"].as_array().map(Vec::len), Some(1));
    kubectl.output(&["scale", "deployment", "d", "--replicas=3"], "").await;
    let scale = last(["UPDATE", "scale", "d", "Scale"]);
    assert_eq!((&scale["object"]["spec"]["replicas"], &scale["oldObject"]["spec"]["replicas"]), (&json!(3), &json!(1)));
    assert_eq!(scale["kind"]["group"], "autoscaling");
    assert_eq!(scale["requestResource"]["resource"], "deployments");
    kubectl.output(&["exec", "web", "--", "true"], "").await;
    let exec = last(["CONNECT", "exec", "web", "PodExecOptions"]);
    assert_eq!(exec["object"]["command"], json!(["true"]));
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "web"}, "target": {"kind": "Node", "name": "n1"}});
    admin.create_subresource::<Pod, _, Value>("default", "web", "binding", &binding).await.expect("bound");
    last(["CREATE", "binding", "web", "Binding"]);
    let token = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    admin.create_subresource::<ServiceAccount, _, Value>("default", "default", "token", &token).await.expect("a token");
    last(["CREATE", "token", "default", "TokenRequest"]);
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web"}});
    admin.create_subresource::<Pod, _, Value>("default", "web", "eviction", &eviction).await.expect("evicted");
    last(["CREATE", "eviction", "web", "Eviction"]);
    admin.delete::<Deployment>("default", "d", &Default::default()).await.expect("deleted");
    let delete = last(["DELETE", "", "d", "Deployment"]);
    assert!(delete["object"].is_null() && delete["oldObject"]["metadata"]["name"] == "d");
    server.stop().await;
}

#[tokio::test]
async fn an_equivalent_version_is_shown_in_the_version_asked_for() {
    let server = Server::default().await;
    let hook = Hook::start(Temper::Allow).await;
    let rules = json!([{"operations": ["CREATE"], "apiGroups": ["autoscaling"], "apiVersions": ["v1"], "resources": ["horizontalpodautoscalers"]}]);
    validating(&server, "v", hook.webhook(json!({"rules": rules}))).await;
    let scaler = json!({"metadata": {"name": "h", "namespace": "default"}, "spec": {"maxReplicas": 3,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}}]}});
    server.admin().create(&typed::<HorizontalPodAutoscaler>(scaler)).await.expect("a scaler");
    let question = hook.question();
    assert_eq!((&question["kind"]["version"], &question["requestKind"]["version"]), (&json!("v1"), &json!("v2")));
    assert_eq!(question["object"]["spec"]["targetCPUUtilizationPercentage"], 60);
    server.stop().await;
}

#[tokio::test]
async fn namespaces_are_selected_by_their_labels() {
    let server = Server::default().await;
    let hook = Hook::start(Temper::Deny).await;
    let selector = json!({"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["default"]}]});
    let rules = json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps", "namespaces"]}]);
    validating(&server, "v", hook.webhook(json!({"namespaceSelector": selector, "rules": rules}))).await;
    let admin = server.admin();
    admin.create(&config_map("free", "a", "b")).await.expect("not selected");
    let space =
        typed::<Namespace>(json!({"metadata": {"name": "other", "labels": {"kubernetes.io/metadata.name": "other"}}}));
    let refused = admin.create(&space).await.expect_err("refused").to_string();
    assert_eq!(refused, "admission webhook \"hook.example.com\" denied the request: not today");
    server.stop().await;
}

#[tokio::test]
async fn conditions_keep_webhooks_out_and_dry_runs_do_not() {
    let server = Server::default().await;
    let hook = Hook::start(Temper::Deny).await;
    let conditions = json!([{"name": "not-exempt", "expression": "!object.metadata.name.startsWith('exempt')"}]);
    validating(&server, "v", hook.webhook(json!({"matchConditions": conditions}))).await;
    let admin = server.admin();
    admin.create(&pod("exempt-1")).await.expect("the condition keeps the webhook out");
    assert_eq!(hook.asked(), 0);
    let dry = server.kubectl().output(&["run", "dry", "--image=i", "--dry-run=server"], "").await;
    assert!(dry.stderr.contains("denied the request: not today"), "{}", dry.stderr);
    assert_eq!(hook.asked(), 1, "a webhook without side effects is asked in a dry run too");
    server.stop().await;
}
