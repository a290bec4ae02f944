//! Priority and fairness from outside: one greedy client does not starve another.

use std::sync::Arc;

use apiserver::gates::flow_control::Settings;
use client::{Client, ListParams};
use http::{Request, StatusCode};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::flowcontrol::v1::{FlowSchema, PriorityLevelConfiguration};
use machinery::rest::{Body, User};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use crate::server::Server;

fn typed<T: serde::de::DeserializeOwned>(tree: Value) -> T {
    serde_json::from_value(tree).expect("an object of that kind")
}

/// A request that holds its seat until it is let go: its body does not come. `seated` hears of it when it has its seat.
async fn hold(client: Client, go: Arc<Semaphore>, seated: mpsc::UnboundedSender<()>) -> Option<u16> {
    let body = futures::stream::once(async move {
        // Nobody listens any more when the test is over.
        let _ = seated.send(());
        match go.acquire().await {
            Ok(permit) => permit.forget(),
            Err(_) => return Err(std::io::Error::other("the test is over")),
        }
        Err(std::io::Error::other("let go"))
    });
    let body = Body::Incoming(futures::StreamExt::boxed(body));
    let request = Request::post("/api/v1/namespaces/default/configmaps")
        .header("content-type", "application/json")
        .body(body)
        .expect("a request");
    client.request(request).await.map_or_else(|error| error.code(), |answer| Some(answer.status().as_u16()))
}

async fn everybody_may(server: &Server) {
    let binding = json!({"metadata": {"name": "all"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "system:authenticated"}]});
    let binding: k8s_openapi::api::rbac::v1::ClusterRoleBinding = typed(binding);
    server.admin().create(&binding).await.expect("a binding");
}

#[tokio::test]
async fn one_greedy_client_does_not_starve_another() {
    const GREEDY: usize = 100;
    let server = Server::start(|config, _| config.flow_control = Settings { reads: 2, writes: 2 }).await;
    everybody_may(&server).await;
    let (greedy, modest) = (server.as_user(User::new("greedy", [])), server.as_user(User::new("modest", [])));
    let (go, (sender, mut seated)) = (Arc::new(Semaphore::new(0)), mpsc::unbounded_channel());
    let mut requests = JoinSet::new();
    for _ in 0..GREEDY {
        requests.spawn(hold(greedy.clone(), go.clone(), sender.clone()));
    }
    testkit::eventually("the first has its seat", seated.recv()).await;
    // All the others wait before the modest one comes.
    let waits = async {
        loop {
            let dump = server.admin().raw("/debug/api_priority_and_fairness/dump_requests").await.expect("a dump");
            if String::from_utf8_lossy(&dump).lines().count() > GREEDY - 5 {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    testkit::eventually("the others wait", waits).await;
    let list = tokio::spawn(async move { modest.list::<ConfigMap>("default", &ListParams::default()).await });
    let mut let_go = 0;
    while !list.is_finished() {
        assert!(let_go < 20, "it waited for {let_go} of the other's {GREEDY} requests");
        go.add_permits(1);
        let_go += 1;
        // The seat goes to the modest one, or to the next of the greedy one's.
        let next = async {
            tokio::select! {
                _ = seated.recv() => {}
                () = async { while !list.is_finished() { tokio::task::yield_now().await } } => {}
            }
        };
        testkit::eventually("somebody is next", next).await;
    }
    list.await.expect("no panic").expect("its list");
    go.add_permits(GREEDY);
    while let Some(ended) = requests.join_next().await {
        assert_eq!(ended.expect("no panic"), Some(400), "each of them gets its own answer");
    }
    // The administrator never waited.
    let figures = server.admin().raw("/metrics").await.expect("figures");
    let figures = String::from_utf8_lossy(&figures).into_owned();
    assert!(
        figures.contains("apiserver_flowcontrol_current_executing_seats{priority_level=\"global-default\"} 0\n"),
        "{figures}"
    );
    assert!(figures.contains("apiserver_flowcontrol_current_inqueue_requests{priority_level=\"global-default\"} 0\n"));
    server.stop().await;
}

#[tokio::test]
async fn a_level_that_rejects_answers_429() {
    let server = Server::default().await;
    everybody_may(&server).await;
    let level = json!({"metadata": {"name": "tiny"}, "spec": {"type": "Limited", "limited": {
        "nominalConcurrencyShares": 1, "borrowingLimitPercent": 0, "limitResponse": {"type": "Reject"}}}});
    let level = server.admin().create(&typed::<PriorityLevelConfiguration>(level)).await.expect("a level");
    let schema = json!({"metadata": {"name": "bound"}, "spec": {
        "priorityLevelConfiguration": {"name": "tiny"}, "matchingPrecedence": 50, "distinguisherMethod": {"type": "ByUser"},
        "rules": [{"subjects": [{"kind": "User", "user": {"name": "bound"}}],
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": true}]}]}});
    let schema = server.admin().create(&typed::<FlowSchema>(schema)).await.expect("a schema");
    let bound = server.as_user(User::new("bound", []));
    let request = || Request::get("/api/v1/namespaces/default/configmaps").body(Body::Empty).expect("a request");
    let header = |answer: &machinery::rest::Response, name: &str| {
        answer.headers().get(name).and_then(|header| header.to_str().ok()).map(str::to_owned)
    };
    let in_force = async {
        while header(&bound.request(request()).await.expect("an answer"), "x-kubernetes-pf-flowschema-uid")
            != schema.metadata.uid
        {
            tokio::task::yield_now().await;
        }
    };
    testkit::eventually("the caches have the new objects", in_force).await;
    let (go, (sender, mut seated)) = (Arc::new(Semaphore::new(0)), mpsc::unbounded_channel());
    let mut requests = JoinSet::new();
    // 600 seats, 246 shares: this level has three.
    for _ in 0..3 {
        requests.spawn(hold(bound.clone(), go.clone(), sender.clone()));
        testkit::eventually("a seat", seated.recv()).await;
    }
    // The answer is a line of text, as upstream's is.
    let answer = bound.request(request()).await.expect("an answer");
    assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(header(&answer, "retry-after").as_deref(), Some("1"));
    assert_eq!(header(&answer, "content-type").as_deref(), Some("text/plain; charset=utf-8"));
    assert_eq!(header(&answer, "x-content-type-options").as_deref(), Some("nosniff"));
    let machinery::rest::Payload::Bytes(body) = answer.into_body() else { panic!("text is bytes") };
    assert_eq!(&body[..], b"Too many requests, please try again later.\n");
    let refused = bound.list::<ConfigMap>("default", &ListParams::default()).await.expect_err("refused");
    assert!(refused.is_too_many_requests(), "{refused}");
    assert_eq!(refused.api().and_then(|error| error.details.as_ref()).map(|details| details.retry_after), Some(1));
    // Others have seats of their own.
    let jane = server.as_user(User::new("jane", []));
    jane.list::<ConfigMap>("default", &ListParams::default()).await.expect("a list");
    go.add_permits(3);
    while requests.join_next().await.is_some() {}
    let answer = bound.request(request()).await.expect("an answer");
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(header(&answer, "x-kubernetes-pf-prioritylevel-uid"), level.metadata.uid);
    let figures = server.admin().raw("/metrics").await.expect("figures");
    let rejected = "apiserver_flowcontrol_rejected_requests_total{flow_schema=\"bound\",priority_level=\"tiny\",reason=\"concurrency-limit\"} 2\n";
    assert!(String::from_utf8_lossy(&figures).contains(rejected));
    server.stop().await;
}

#[tokio::test]
async fn the_bootstrap_objects_are_there_and_can_be_looked_at() {
    let server = Server::default().await;
    let kubectl = server.kubectl();
    let schemas = kubectl.run(&["get", "flowschemas"]).await;
    for name in [
        "exempt",
        "probes",
        "system-leader-election",
        "system-nodes",
        "service-accounts",
        "global-default",
        "catch-all",
    ] {
        assert!(schemas.lines().any(|line| line.starts_with(name)), "{name}: {schemas}");
    }
    let levels = kubectl.run(&["get", "prioritylevelconfigurations"]).await;
    assert_eq!(levels.lines().count(), 9, "{levels}");
    let dump = kubectl.run(&["get", "--raw", "/debug/api_priority_and_fairness/dump_priority_levels"]).await;
    assert!(dump.starts_with("PriorityLevelName,") && dump.contains("\nexempt, "), "{dump}");
    let dump = kubectl.run(&["get", "--raw", "/debug/api_priority_and_fairness/dump_queues"]).await;
    assert!(dump.contains("\nleader-election,"), "{dump}");
    kubectl.fail(&["get", "--raw", "/debug/api_priority_and_fairness/nonsense"]).await;
    server.stop().await;
}

/// The condition that says whether a schema's level exists.
fn dangling(schema: Option<&FlowSchema>) -> Option<(String, String)> {
    let conditions = schema?.status.as_ref()?.conditions.as_ref()?;
    let found = conditions.iter().find(|condition| condition.type_ == "Dangling")?;
    Some((found.status.clone()?, found.reason.clone()?))
}

#[tokio::test]
async fn what_must_be_comes_back_and_what_dangles_says_so() {
    let server = Server::default().await;
    let admin = server.admin();
    // Mandatory and suggested objects that somebody deletes are there again, and one that is changed is as it was.
    for name in ["catch-all", "exempt", "probes"] {
        let before = admin.get::<FlowSchema>("", name).await.expect("a schema").metadata.uid;
        admin.delete::<FlowSchema>("", name, &Default::default()).await.expect("deleted");
        testkit::object::<FlowSchema>(&admin, "", name, "a new one", |schema| {
            schema.is_some_and(|schema| schema.metadata.uid != before)
        })
        .await;
    }
    let patch = client::Patch::Merge(json!({"spec": {"limited": {"nominalConcurrencyShares": 77}}}));
    let shares = |level: Option<&PriorityLevelConfiguration>| level?.spec.limited.as_ref()?.nominal_concurrency_shares;
    admin.patch::<PriorityLevelConfiguration>("", "workload-low", &patch).await.expect("changed");
    testkit::object::<PriorityLevelConfiguration>(&admin, "", "workload-low", "as it was", |level| {
        shares(level) == Some(100)
    })
    .await;
    // Who says that a suggestion is theirs keeps it.
    let theirs =
        client::Patch::Merge(json!({"metadata": {"annotations": {"apf.kubernetes.io/autoupdate-spec": "false"}},
        "spec": {"limited": {"nominalConcurrencyShares": 77}}}));
    admin.patch::<PriorityLevelConfiguration>("", "workload-low", &theirs).await.expect("changed");

    let schema = json!({"metadata": {"name": "lost"}, "spec": {
        "priorityLevelConfiguration": {"name": "nowhere"}, "matchingPrecedence": 50,
        "rules": [{"subjects": [{"kind": "User", "user": {"name": "lost"}}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]}]}});
    admin.create(&typed::<FlowSchema>(schema)).await.expect("a schema");
    let is = |status: &'static str, reason: &'static str| {
        move |schema: Option<&FlowSchema>| dangling(schema) == Some((status.to_owned(), reason.to_owned()))
    };
    testkit::object::<FlowSchema>(&admin, "", "lost", "it dangles", is("True", "NotFound")).await;
    let level = json!({"metadata": {"name": "nowhere"}, "spec": {"type": "Limited", "limited": {
        "nominalConcurrencyShares": 1, "limitResponse": {"type": "Reject"}}}});
    admin.create(&typed::<PriorityLevelConfiguration>(level)).await.expect("a level");
    testkit::object::<FlowSchema>(&admin, "", "lost", "it is found", is("False", "Found")).await;
    admin.delete::<PriorityLevelConfiguration>("", "nowhere", &Default::default()).await.expect("deleted");
    testkit::object::<FlowSchema>(&admin, "", "lost", "it dangles again", is("True", "NotFound")).await;
    let kept = admin.get::<PriorityLevelConfiguration>("", "workload-low").await.expect("a level");
    assert_eq!(shares(Some(&kept)), Some(77), "theirs stays theirs");
    server.stop().await;
}
