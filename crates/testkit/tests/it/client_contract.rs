//! What every client call promises, checked on both transports against a real server.

use std::collections::BTreeMap;
use std::sync::Arc;

use client::{Client, DeleteOptions, Event, Gvr, ListParams, Patch, VersionMatch, WatchParams};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use serde_json::json;
use testkit::build::{Build as _, config_map, namespace, pod, service_account};
use testkit::{Cluster, eventually};

/// The suite. Each transport gets a namespace of its own on the same server.
async fn suite(client: &Client, space: &str) {
    client.create(&namespace(space)).await.expect("a namespace");
    client.create(&service_account("default").in_namespace(space)).await.expect("a service account");
    objects_are_created_read_changed_and_deleted(client, space).await;
    errors_are_typed(client, space).await;
    lists_are_selected_and_paged(client, space).await;
    watches_start_where_they_are_told_and_follow_selectors(client, space).await;
    streaming_lists_say_where_they_end(client, space).await;
    patches_of_each_kind(client, space).await;
    status_is_a_world_of_its_own(client, space).await;
    untyped_calls_see_the_same_objects(client, space).await;
}

async fn on(transport: &str) {
    let cluster = Cluster::start().await;
    let client = match transport {
        "https" => cluster.client(),
        _ => cluster.in_process(),
    };
    suite(&client, transport).await;
    cluster.stop().await;
}

#[tokio::test]
async fn the_contract_holds_over_https() {
    on("https").await;
}

#[tokio::test]
async fn the_contract_holds_in_process() {
    on("in-process").await;
}

#[tokio::test]
async fn both_transports_see_one_another() {
    let cluster = Cluster::start().await;
    let (outside, inside) = (cluster.client(), cluster.in_process());
    let made = outside.create(&config_map("shared", "k", "v")).await.expect("created over HTTPS");
    let read: ConfigMap = inside.get("default", "shared").await.expect("read in process");
    assert_eq!(made, read);
    cluster.stop().await;
}

async fn objects_are_created_read_changed_and_deleted(client: &Client, space: &str) {
    let made = client.create(&config_map("a", "k", "1").in_namespace(space)).await.expect("created");
    let uid = made.metadata.uid.clone().expect("a uid");
    assert!(made.metadata.creation_timestamp.is_some() && made.metadata.resource_version.is_some());
    assert_eq!(made.metadata.managed_fields, None, "the server's own record");
    let read: ConfigMap = client.get(space, "a").await.expect("read");
    assert_eq!(read, made);

    let mut changed = read.clone();
    changed.data = Some([("k".to_owned(), "2".to_owned())].into());
    let written = client.update(&changed).await.expect("updated");
    assert_ne!(written.metadata.resource_version, read.metadata.resource_version);
    assert!(client.update(&changed).await.expect_err("stale").is_conflict());
    let same = client.update(&written).await.expect("nothing to change");
    assert_eq!(same.metadata.resource_version, written.metadata.resource_version, "a no-op is no write");

    let other = DeleteOptions { uid: Some("another".to_owned()), ..DeleteOptions::default() };
    assert!(client.delete::<ConfigMap>(space, "a", &other).await.expect_err("another object").is_conflict());
    let this = DeleteOptions { uid: Some(uid), ..DeleteOptions::default() };
    client.delete::<ConfigMap>(space, "a", &this).await.expect("deleted");
    assert!(client.get::<ConfigMap>(space, "a").await.expect_err("gone").is_not_found());
}

async fn errors_are_typed(client: &Client, space: &str) {
    let error = client.get::<Pod>(space, "nobody").await.expect_err("not there");
    assert_eq!((error.code(), error.to_string().as_str()), (Some(404), "pods \"nobody\" not found"));
    client.create(&config_map("twice", "k", "1").in_namespace(space)).await.expect("created");
    let again = client.create(&config_map("twice", "k", "1").in_namespace(space)).await.expect_err("taken");
    assert!(again.is_already_exists());
    let invalid = client.create(&config_map("No_Name", "k", "1").in_namespace(space)).await.expect_err("no name");
    assert!(invalid.is_invalid(), "{invalid}");
    assert!(!invalid.api().expect("a status").details.as_ref().expect("details").causes.is_empty());
    let orphan = client.create(&config_map("x", "k", "1").in_namespace("nowhere")).await.expect_err("no namespace");
    assert!(orphan.is_not_found(), "{orphan}");
}

async fn lists_are_selected_and_paged(client: &Client, space: &str) {
    for number in 0..7 {
        let parity = if number % 2 == 0 { "even" } else { "odd" };
        let map = config_map(&format!("list-{number}"), "k", "v").in_namespace(space).label("parity", parity);
        client.create(&map).await.expect("created");
    }
    let names = |items: &[Arc<ConfigMap>]| -> Vec<String> {
        items.iter().map(|item| item.metadata.name.clone().unwrap_or_default()).collect()
    };
    let even = ListParams { label_selector: "parity=even".to_owned(), ..ListParams::default() };
    let list = client.list::<ConfigMap>(space, &even).await.expect("a list");
    assert_eq!(names(&list.items), ["list-0", "list-2", "list-4", "list-6"]);
    let one = ListParams { field_selector: "metadata.name=list-3".to_owned(), ..ListParams::default() };
    assert_eq!(names(&client.list::<ConfigMap>(space, &one).await.expect("a list").items), ["list-3"]);

    let mut page = ListParams { label_selector: "parity".to_owned(), limit: Some(3), ..ListParams::default() };
    let mut seen = Vec::new();
    let mut revisions = Vec::new();
    loop {
        let list = client.list::<ConfigMap>(space, &page).await.expect("a page");
        seen.extend(names(&list.items));
        revisions.push(list.revision.clone());
        match list.next {
            Some(next) => page.next = Some(next),
            None => break,
        }
    }
    assert_eq!(seen, (0..7).map(|number| format!("list-{number}")).collect::<Vec<_>>());
    revisions.dedup();
    assert_eq!(revisions.len(), 1, "all pages are of one moment");

    let exact = ListParams {
        resource_version: Some(revisions[0].clone()),
        resource_version_match: Some(VersionMatch::Exact),
        label_selector: "parity".to_owned(),
        ..ListParams::default()
    };
    client.delete::<ConfigMap>(space, "list-0", &DeleteOptions::default()).await.expect("deleted");
    let past = client.list::<ConfigMap>(space, &exact).await.expect("the past");
    assert_eq!(past.items.len(), 7);
    let bad = ListParams { label_selector: "a in (".to_owned(), ..ListParams::default() };
    assert_eq!(client.list::<ConfigMap>(space, &bad).await.expect_err("no selector").code(), Some(400));
}

async fn watches_start_where_they_are_told_and_follow_selectors(client: &Client, space: &str) {
    let start = client.list::<ConfigMap>(space, &ListParams::default()).await.expect("a list").revision;
    let params =
        WatchParams { label_selector: "w=yes".to_owned(), resource_version: Some(start), ..WatchParams::default() };
    let mut events = client.watch::<ConfigMap>(space, &params).await.expect("a watch");
    let made = client.create(&config_map("w", "k", "1").in_namespace(space).label("w", "yes")).await.expect("created");
    let changed =
        client.update(&config_map("w", "k", "2").in_namespace(space).label("w", "yes")).await.expect("updated");
    client.update(&config_map("w", "k", "2").in_namespace(space).label("w", "no")).await.expect("hidden");
    let shown = client.update(&config_map("w", "k", "3").in_namespace(space).label("w", "yes")).await.expect("shown");
    client.delete::<ConfigMap>(space, "w", &DeleteOptions::default()).await.expect("deleted");
    let mut next = async || eventually("an event", events.next()).await.expect("no end").expect("no error");
    assert!(matches!(next().await, Event::Added(map) if *map == made));
    assert!(matches!(next().await, Event::Modified(map) if *map == changed));
    assert!(matches!(next().await, Event::Deleted(map) if map.metadata.uid == made.metadata.uid));
    assert!(matches!(next().await, Event::Added(map) if *map == shown));
    assert!(matches!(next().await, Event::Deleted(map) if map.metadata.uid == made.metadata.uid));

    let ended = WatchParams { timeout_seconds: Some(1), ..WatchParams::default() };
    let events = client.watch::<ConfigMap>(space, &ended).await.expect("a watch");
    let all: Vec<_> = eventually("the server ends the watch", events.collect()).await;
    assert!(all.iter().all(Result::is_ok), "a watch that times out ends without an error");
}

async fn streaming_lists_say_where_they_end(client: &Client, space: &str) {
    let params =
        WatchParams { send_initial_events: true, label_selector: "parity=odd".to_owned(), ..WatchParams::default() };
    let mut events = client.watch::<ConfigMap>(space, &params).await.expect("a watch");
    let mut initial = Vec::new();
    loop {
        match eventually("initial events", events.next()).await.expect("no end").expect("no error") {
            Event::Added(map) => initial.push(map.metadata.name.clone().unwrap_or_default()),
            Event::Bookmark { initial_events_end: true, revision } => {
                assert!(revision.parse::<u64>().is_ok(), "{revision}");
                break;
            }
            other => panic!("unexpected {other:?}"),
        }
    }
    assert_eq!(initial, ["list-1", "list-3", "list-5"]);
}

async fn patches_of_each_kind(client: &Client, space: &str) {
    client.create(&config_map("p", "k", "1").in_namespace(space)).await.expect("created");
    let data = |map: &ConfigMap| map.data.clone().unwrap_or_default();
    let merge = Patch::Merge(json!({"data": {"m": "2"}}));
    let patched: ConfigMap = client.patch(space, "p", &merge).await.expect("merged");
    assert_eq!(data(&patched), BTreeMap::from([("k".into(), "1".into()), ("m".into(), "2".into())]));
    let operations = json!([{"op": "test", "path": "/data/m", "value": "2"}, {"op": "remove", "path": "/data/m"}]);
    let patched: ConfigMap = client.patch(space, "p", &Patch::Json(operations.clone())).await.expect("patched");
    assert_eq!(data(&patched), BTreeMap::from([("k".into(), "1".into())]));
    let failed = client.patch::<ConfigMap>(space, "p", &Patch::Json(operations)).await.expect_err("test fails");
    assert_eq!(failed.code(), Some(422), "{failed}");
    let strategic = Patch::Strategic(json!({"data": {"k": null, "s": "3"}}));
    let patched: ConfigMap = client.patch(space, "p", &strategic).await.expect("merged by strategy");
    assert_eq!(data(&patched), BTreeMap::from([("s".into(), "3".into())]));
}

async fn status_is_a_world_of_its_own(client: &Client, space: &str) {
    let made = client.create(&pod("s").in_namespace(space)).await.expect("created");
    let mut wanted = made.clone();
    wanted.status.get_or_insert_default().message = Some("hello".to_owned());
    let unchanged = client.update(&wanted).await.expect("updated");
    assert_eq!(unchanged.status.as_ref().and_then(|status| status.message.as_ref()), None);
    wanted.metadata.resource_version = unchanged.metadata.resource_version;
    let changed = client.update_status(&wanted).await.expect("status updated");
    assert_eq!(changed.status.and_then(|status| status.message).as_deref(), Some("hello"));
    let patch = Patch::Merge(json!({"status": {"message": "bye"}}));
    let patched: Pod = client.patch_status(space, "s", &patch).await.expect("status patched");
    assert_eq!(patched.status.and_then(|status| status.message).as_deref(), Some("bye"));
}

async fn untyped_calls_see_the_same_objects(client: &Client, space: &str) {
    let maps = client.dynamic(&Gvr::new("", "v1", "configmaps"));
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "d"}, "data": {"k": "1"}});
    let made = maps.create(space, &object).await.expect("created");
    assert_eq!(maps.get(space, "d").await.expect("read"), made);
    let partial = maps.get_metadata(space, "d").await.expect("metadata");
    assert_eq!(partial.metadata.uid.as_deref(), made["metadata"]["uid"].as_str());
    let params = ListParams { field_selector: "metadata.name=d".to_owned(), ..ListParams::default() };
    assert_eq!(maps.list(space, &params).await.expect("a list").items.len(), 1);
    assert_eq!(maps.list_metadata(space, &params).await.expect("a list").items.len(), 1);
    let watch = WatchParams {
        field_selector: "metadata.name=d".to_owned(),
        resource_version: made["metadata"]["resourceVersion"].as_str().map(str::to_owned),
        ..WatchParams::default()
    };
    let mut events = maps.watch_metadata(space, &watch).await.expect("a watch");
    maps.patch(space, "d", "", &Patch::Merge(json!({"data": {"k": "2"}}))).await.expect("patched");
    let event = eventually("an event", events.next()).await.expect("no end").expect("no error");
    assert!(matches!(event, Event::Modified(partial) if partial.metadata.name.as_deref() == Some("d")));
    maps.delete(space, "d", &DeleteOptions::default()).await.expect("deleted");
    maps.delete_collection(space, &ListParams::default(), &DeleteOptions::default()).await.expect("all deleted");
    assert!(maps.list(space, &ListParams::default()).await.expect("a list").items.is_empty());
    let found: Namespace = client.get("", space).await.expect("cluster-scoped kinds need no namespace");
    assert_eq!(found.metadata.name.as_deref(), Some(space));
}
