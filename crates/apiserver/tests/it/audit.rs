//! The audit log from outside: what is in it, what never is, and when.

use std::path::Path;
use std::sync::Arc;

use apiserver::audit::{Mode, Settings, log, policy::Policy, webhook};
use bytes::Bytes;
use client::{Client, ListParams, WatchParams};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use machinery::rest::{Body, User};
use serde_json::{Value, json};
use testkit::Https;
use testkit::build::config_map;
use tokio::sync::mpsc;

use crate::server::Server;

fn settings(directory: &Path, rules: Value) -> Settings {
    let path = directory.join("policy.yaml");
    let policy = json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules});
    std::fs::write(&path, policy.to_string()).expect("a file");
    Settings {
        policy: Policy::load(&path).expect("a policy"),
        log: Some(log::Settings {
            path: directory.join("audit.log"),
            mode: Mode::Blocking,
            max_age: 0,
            max_backup: 0,
            max_size: 0,
            compress: false,
            buffer: log::QUEUE,
            truncate: None,
        }),
        webhook: None,
    }
}

async fn audited(rules: Value) -> Server {
    Server::start(move |config, directory| config.audit = Some(settings(directory, rules))).await
}

fn lines(server: &Server) -> Vec<Value> {
    let text = std::fs::read_to_string(server.path("audit.log")).expect("a log");
    text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
}

/// The events about one object, by stage.
fn about<'a>(lines: &'a [Value], verb: &str, name: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["verb"] == verb && line["objectRef"]["name"] == name).collect()
}

fn secret(name: &str) -> Secret {
    serde_json::from_value(json!({"metadata": {"name": name, "namespace": "default"}, "stringData": {"password": "planted-in-the-secret"}}))
        .expect("a secret")
}

#[tokio::test]
async fn a_secret_is_not_in_a_log_of_metadata_and_every_request_is() {
    let server = audited(json!([{"level": "Metadata"}])).await;
    server.admin().create(&secret("planted")).await.expect("a secret");
    server.admin().get::<Secret>("default", "planted").await.expect("the secret");
    let missing = server.admin().get::<Pod>("default", "none").await;
    assert!(missing.is_err());
    let text = std::fs::read_to_string(server.path("audit.log")).expect("a log");
    assert!(!text.contains("planted-in-the-secret") && !text.contains("requestObject"), "{text}");
    let lines = lines(&server);
    let created = about(&lines, "create", "planted");
    assert_eq!(created.len(), 1, "the name of a new object is only in what is sent: {created:?}");
    let created = created[0];
    assert_eq!(created["stage"], "ResponseComplete");
    assert_eq!(created["responseStatus"], json!({"metadata": {}, "code": 201}));
    assert_eq!(created["user"]["username"], "kubernetes-admin");
    assert_eq!(created["annotations"]["authorization.k8s.io/decision"], "allow");
    assert_eq!(created["objectRef"]["resource"], "secrets");
    let received =
        lines.iter().find(|line| line["stage"] == "RequestReceived" && line["auditID"] == created["auditID"]);
    assert!(received.is_some(), "the same request was received first");
    let failed = about(&lines, "get", "none");
    assert_eq!(failed[1]["responseStatus"]["reason"], "NotFound");
    assert_eq!(failed[1]["responseStatus"]["message"], "pods \"none\" not found");
    server.stop().await;
}

#[tokio::test]
async fn levels_and_stages_are_the_policys() {
    let server = audited(json!([
        {"level": "None", "resources": [{"resources": ["serviceaccounts"]}]},
        {"level": "RequestResponse", "namespaces": ["default"], "resources": [{"resources": ["configmaps"]}],
         "omitStages": ["RequestReceived"], "omitManagedFields": true},
        {"level": "Request", "resources": [{"resources": ["pods"]}]},
    ]))
    .await;
    let admin = server.admin();
    admin.create(&config_map("whole", "k", "v")).await.expect("a config map");
    admin.list::<ConfigMap>("default", &ListParams::default()).await.expect("a list");
    let unruled = admin.get::<k8s_openapi::api::core::v1::Namespace>("", "default").await;
    unruled.expect("a namespace");
    let lines = lines(&server);
    assert!(lines.iter().all(|line| line["objectRef"]["resource"] == "configmaps"), "nothing else is ruled: {lines:?}");
    assert!(lines.iter().all(|line| line["stage"] != "RequestReceived"));
    let created = about(&lines, "create", "whole")[0];
    assert_eq!(created["requestObject"]["data"]["k"], "v");
    assert_eq!(created["responseObject"]["data"]["k"], "v");
    assert!(created["responseObject"]["metadata"]["resourceVersion"].is_string());
    assert!(created["responseObject"]["metadata"]["managedFields"].is_null());
    let listed = lines.iter().find(|line| line["verb"] == "list").expect("a list");
    assert!(listed["responseObject"]["items"][0]["metadata"]["managedFields"].is_null());
    server.stop().await;
}

#[tokio::test]
async fn a_watch_is_written_when_it_begins_and_when_it_ends() {
    let server = audited(json!([{"level": "Metadata", "verbs": ["watch"]}])).await;
    let admin = server.admin();
    let mut watch = admin.watch::<ConfigMap>("default", &WatchParams::default()).await.expect("a watch");
    admin.create(&config_map("seen", "k", "v")).await.expect("a config map");
    watch.next().await.expect("an event").expect("no error");
    let stages = |server: &Server| -> Vec<String> {
        lines(server).iter().map(|line| line["stage"].as_str().unwrap_or_default().to_owned()).collect()
    };
    assert_eq!(stages(&server), ["RequestReceived", "ResponseStarted"]);
    drop(watch);
    // What waits to be written is written before the server has stopped.
    let server = server.restart(|_, _| {}).await;
    let text = std::fs::read_to_string(server.path("audit.log")).expect("a log");
    assert_eq!(text.lines().count(), 3, "{text}");
    assert!(
        text.lines().nth(2).is_some_and(|line| line.contains("\"ResponseComplete\"") && line.contains("\"code\":200"))
    );
    server.stop().await;
}

#[tokio::test]
async fn refusals_and_impersonation_are_written() {
    let server = audited(json!([{"level": "Metadata"}])).await;
    let mut config = server.config();
    config.credentials = client::config::Credentials::token("wrong-token-text").expect("a token");
    let refused = Client::https(config).expect("a client").list::<Pod>("default", &ListParams::default()).await;
    assert_eq!(refused.expect_err("refused").code(), Some(401));
    let jane = server.as_user(User::new("jane", []));
    jane.list::<Pod>("default", &ListParams::default()).await.expect_err("forbidden");
    let request = http::Request::get("/api/v1/namespaces/default/pods")
        .header("impersonate-user", "jane")
        .header("audit-id", "chosen-by-the-client")
        .body(Body::Empty)
        .expect("a request");
    let error = server.admin().request(request).await;
    assert!(error.is_err() || error.is_ok_and(|answer| answer.status() == 403));
    let text = std::fs::read_to_string(server.path("audit.log")).expect("a log");
    assert!(!text.contains("wrong-token-text"));
    let lines = lines(&server);
    let unknown =
        lines.iter().find(|line| line["responseStatus"]["code"] == 401).expect("a line about the wrong token");
    assert_eq!(unknown["responseStatus"]["message"], "Authentication failed, attempted: bearer");
    assert_eq!(unknown["sourceIPs"], json!(["127.0.0.1"]));
    let forbidden = lines.iter().find(|line| line["user"]["username"] == "jane" && line["stage"] == "ResponseComplete");
    assert_eq!(forbidden.expect("a line")["annotations"]["authorization.k8s.io/decision"], "forbid");
    let acting = lines
        .iter()
        .find(|line| line["auditID"] == "chosen-by-the-client" && line["stage"] == "ResponseComplete")
        .expect("a line");
    assert_eq!(acting["user"]["username"], "kubernetes-admin");
    assert_eq!(acting["impersonatedUser"]["username"], "jane");
    assert_eq!(acting["authenticationMetadata"]["impersonationConstraint"], "impersonate:user-info");
    server.stop().await;
}

#[tokio::test]
async fn a_mutation_whose_line_cannot_be_written_is_not_acknowledged() {
    // A full device takes no line.
    let server = Server::start(|config, directory| {
        let mut audit = settings(directory, json!([{"level": "Metadata", "users": ["jane"]}]));
        audit.log.as_mut().expect("a log").path = "/dev/full".into();
        config.audit = Some(audit);
    })
    .await;
    server.kubectl().run(&["create", "clusterrolebinding", "jane", "--clusterrole=cluster-admin", "--user=jane"]).await;
    let jane = server.as_user(User::new("jane", []));
    let error = jane.create(&config_map("unwritten", "k", "v")).await.expect_err("no line, no answer");
    assert_eq!(error.code(), Some(500));
    assert!(error.to_string().contains("failed to store audit event"), "{error}");
    // Reads go on: they changed nothing that nobody would know of.
    jane.list::<ConfigMap>("default", &ListParams::default()).await.expect("a list");
    let figures = server.kubectl().run(&["get", "--raw", "/metrics"]).await;
    let failed = figures.lines().find(|line| line.starts_with("apiserver_audit_error_total{plugin=\"log\"}"));
    assert!(failed.is_some_and(|line| !line.ends_with(" 0")), "{failed:?}");
    server.stop().await;
}

#[tokio::test]
async fn a_webhook_gets_the_events_in_lists() {
    let (sender, mut received) = mpsc::unbounded_channel();
    let hook = Https::start(move |_| {
        move |request: http::Request<Bytes>| {
            sender.send(serde_json::from_slice::<Value>(request.body()).expect("JSON")).expect("somebody listens");
            http::Response::new(Bytes::from_static(b"{}"))
        }
    })
    .await;
    let kubeconfig = Arc::new(hook.kubeconfig("/audit"));
    let server = Server::start(move |config, directory| {
        let path = directory.join("hook.kubeconfig");
        std::fs::write(&path, &*kubeconfig).expect("a file");
        let mut audit = settings(
            directory,
            json!([{"level": "Metadata", "namespaces": ["default"], "resources": [{"resources": ["configmaps"]}]}]),
        );
        audit.log = None;
        // Long enough that only the size of a batch or the end sends it.
        audit.webhook = Some(webhook::Settings {
            batch: 2,
            wait: std::time::Duration::from_secs(3600),
            ..webhook::Settings::at(path)
        });
        config.audit = Some(audit);
    })
    .await;
    server.admin().create(&config_map("told", "k", "v")).await.expect("a config map");
    let list = testkit::eventually("two events", received.recv()).await.expect("a list");
    assert_eq!((&list["kind"], list["items"].as_array().map(Vec::len)), (&json!("EventList"), Some(2)));
    assert_eq!(list["items"][1]["objectRef"]["name"], "told");
    server.admin().get::<ConfigMap>("default", "told").await.expect("the config map");
    let _ = testkit::eventually("two more", received.recv()).await.expect("a list");
    let mut watch = server.admin().watch::<ConfigMap>("default", &WatchParams::default()).await.expect("a watch");
    let _ = watch.next().await;
    let _ = testkit::eventually("the watch begins", received.recv()).await.expect("a list");
    drop(watch);
    server.stop().await;
    let last = testkit::eventually("what waited at the end", received.recv()).await.expect("a list");
    assert_eq!(last["items"][0]["stage"], "ResponseComplete");
}
