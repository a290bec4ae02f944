//! Lists and watches: pages of one snapshot, selectors, what a watcher sees and in which order, and where it may resume.

use client::{Event, ListParams, VersionMatch, WatchParams};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use testkit::{Cluster, eventually};

use crate::http::{delete, get, merge, post};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

type Events = BoxStream<'static, Result<Event<ConfigMap>, client::Error>>;

async fn next(events: &mut Events) -> String {
    let event = eventually("an event", events.next()).await.expect("an open stream").expect("an event");
    let name = |map: &ConfigMap| map.metadata.name.clone().unwrap_or_default();
    match event {
        Event::Added(map) => format!("ADDED {}", name(&map)),
        Event::Modified(map) => format!("MODIFIED {}", name(&map)),
        Event::Deleted(map) => format!("DELETED {}", name(&map)),
        Event::Bookmark { initial_events_end, .. } => format!("BOOKMARK {initial_events_end}"),
        Event::Undecodable { object, .. } => panic!("cannot be read: {object:?}"),
    }
}

async fn make(client: &client::Client, name: &str, tier: &str) -> String {
    let (code, made) = post(client, MAPS, json!({"metadata": {"name": name, "labels": {"tier": tier}}})).await;
    assert_eq!(code, 201, "{made}");
    made["metadata"]["resourceVersion"].as_str().expect("a stored object has a revision").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_are_of_one_snapshot_even_while_it_changes() {
    let cluster = Cluster::start().await;
    let client = cluster.client();
    for number in 0..7 {
        make(&client, &format!("m{number}"), "x").await;
    }
    let (code, first) = get(&client, &format!("{MAPS}?limit=3&labelSelector=tier")).await;
    assert_eq!(code, 200);
    assert!(first["metadata"]["remainingItemCount"].is_null(), "unknown with a selector");
    let (_, plain) = get(&client, &format!("{MAPS}?limit=3")).await;
    assert_eq!(plain["metadata"]["remainingItemCount"], 4);
    delete(&client, &format!("{MAPS}/m5"), None).await;
    make(&client, "m9", "x").await;
    let mut names = Vec::new();
    let mut page = first;
    loop {
        names.extend(
            page["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()),
        );
        let Some(token) = page["metadata"]["continue"].as_str().map(str::to_owned) else { break };
        page = get(&client, &format!("{MAPS}?limit=3&labelSelector=tier&continue={token}")).await.1;
    }
    assert_eq!(names, ["m0", "m1", "m2", "m3", "m4", "m5", "m6"]);
    for bad in [
        "continue=garbage",
        "resourceVersion=x",
        "resourceVersionMatch=Exact",
        "resourceVersion=0&resourceVersionMatch=Exact",
        "labelSelector=%3D%3D",
        "fieldSelector=spec.what%3Da",
    ] {
        let (code, error) = get(&client, &format!("{MAPS}?{bad}")).await;
        assert!(matches!(code, 400 | 422), "{bad}: {code} {error}");
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exact_list_is_of_the_past_and_a_future_one_is_refused() {
    let cluster = Cluster::start().await;
    let client = cluster.client();
    let before = make(&client, "a", "x").await;
    make(&client, "b", "x").await;
    let params = ListParams {
        resource_version: Some(before),
        resource_version_match: Some(VersionMatch::Exact),
        label_selector: "tier".to_owned(),
        ..ListParams::default()
    };
    let list = client.list::<ConfigMap>("default", &params).await.expect("a list");
    assert_eq!(list.items.len(), 1);
    let (code, error) = get(&client, &format!("{MAPS}?resourceVersion=999999&resourceVersionMatch=NotOlderThan")).await;
    assert_eq!(code, 504);
    assert_eq!(error["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watcher_sees_objects_come_to_match_and_cease_to() {
    let cluster = Cluster::start().await;
    let client = cluster.client();
    make(&client, "a", "x").await;
    let params = WatchParams { label_selector: "tier=x".to_owned(), ..WatchParams::default() };
    let mut events = client.watch::<ConfigMap>("default", &params).await.expect("a watch");
    assert_eq!(next(&mut events).await, "ADDED a");
    make(&client, "b", "y").await;
    merge(&client, &format!("{MAPS}/b"), json!({"metadata": {"labels": {"tier": "x"}}})).await;
    assert_eq!(next(&mut events).await, "ADDED b");
    merge(&client, &format!("{MAPS}/b"), json!({"data": {"k": "v"}})).await;
    assert_eq!(next(&mut events).await, "MODIFIED b");
    merge(&client, &format!("{MAPS}/b"), json!({"metadata": {"labels": {"tier": "y"}}})).await;
    assert_eq!(next(&mut events).await, "DELETED b");
    delete(&client, &format!("{MAPS}/b"), None).await;
    delete(&client, &format!("{MAPS}/a"), None).await;
    assert_eq!(next(&mut events).await, "DELETED a");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_streaming_list_ends_its_initial_events_with_a_bookmark() {
    let cluster = Cluster::start().await;
    let client = cluster.client();
    make(&client, "a", "x").await;
    let params = WatchParams {
        label_selector: "tier".to_owned(),
        send_initial_events: true,
        bookmarks: true,
        ..WatchParams::default()
    };
    let mut events = client.watch::<ConfigMap>("default", &params).await.expect("a watch");
    assert_eq!(next(&mut events).await, "ADDED a");
    assert_eq!(next(&mut events).await, "BOOKMARK true");
    make(&client, "b", "x").await;
    assert_eq!(next(&mut events).await, "ADDED b");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn watchers_resume_after_a_restart_without_a_relist() {
    let mut cluster = Cluster::start().await;
    let client = cluster.client();
    let seen = make(&client, "a", "x").await;
    make(&client, "b", "x").await;
    delete(&client, &format!("{MAPS}/a"), None).await;
    cluster.restart().await;
    let client = cluster.client();
    make(&client, "c", "x").await;
    let params =
        WatchParams { label_selector: "tier".to_owned(), resource_version: Some(seen), ..WatchParams::default() };
    let mut events = client.watch::<ConfigMap>("default", &params).await.expect("a watch");
    for expect in ["ADDED b", "DELETED a", "ADDED c"] {
        assert_eq!(next(&mut events).await, expect);
    }
    cluster.stop().await;
}

/// Whenever a watcher begins, what it sees is what all others see from there on.
#[tokio::test(flavor = "multi_thread")]
async fn watchers_that_begin_at_any_time_see_one_order() {
    let cluster = Cluster::start().await;
    let client = cluster.client();
    let mut begun = vec![make(&client, "first", "x").await];
    let mut changes = tokio::task::JoinSet::new();
    for writer in 0..4 {
        let client = client.clone();
        changes.spawn(async move {
            for number in 0..5 {
                let name = format!("w{writer}-{number}");
                make(&client, &name, "x").await;
                merge(&client, &format!("{MAPS}/{name}"), json!({"data": {"k": "v"}})).await;
                delete(&client, &format!("{MAPS}/{name}"), None).await;
            }
        });
    }
    let follow = async |revision: String| {
        let params = WatchParams {
            label_selector: "tier".to_owned(),
            resource_version: Some(revision),
            ..WatchParams::default()
        };
        let mut events = client.watch::<ConfigMap>("default", &params).await.expect("a watch");
        let mut seen = Vec::new();
        while seen.last().is_none_or(|last| last != "ADDED last") {
            seen.push(next(&mut events).await);
        }
        seen
    };
    for _ in 0..8 {
        let list = client.list::<ConfigMap>("default", &ListParams::default()).await.expect("a list");
        begun.push(list.revision);
    }
    while let Some(done) = changes.join_next().await {
        done.expect("a writer");
    }
    make(&client, "last", "x").await;
    let seen = futures::future::join_all(begun.into_iter().map(follow)).await;
    assert_eq!(seen[0].len(), 4 * 5 * 3 + 1);
    for other in &seen {
        assert!(seen[0].ends_with(other), "{other:?} is no end of {:?}", seen[0]);
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_ends_after_its_timeout() {
    let cluster = Cluster::start().await;
    let client = cluster.client();
    let params = WatchParams { timeout_seconds: Some(1), label_selector: "none".to_owned(), ..WatchParams::default() };
    let mut events = client.watch::<ConfigMap>("default", &params).await.expect("a watch");
    assert!(eventually("the end of the watch", events.next()).await.is_none());
    cluster.stop().await;
}
