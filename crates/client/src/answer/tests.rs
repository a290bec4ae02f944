use super::*;
use k8s_openapi::api::core::v1::ConfigMap;

fn reader() -> Reader<ConfigMap> {
    Reader { what: "ConfigMap", api_version: "v1", shared: |object| object.decode(), trim: |_| () }
}

fn stream(text: &'static str, size: usize) -> Payload {
    let chunks = text.as_bytes().chunks(size).map(|chunk| Ok(Bytes::from_static(chunk)));
    Payload::Stream(stream::iter(chunks.collect::<Vec<_>>()).boxed())
}

fn status(code: u16, payload: Payload) -> Response {
    http::Response::builder().status(code).body(payload).expect("a response")
}

#[tokio::test]
async fn a_watch_over_the_wire_is_decoded_frame_by_frame_and_ends_with_its_error() {
    let text = concat!(
        r#"{"type":"ADDED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"3"}}}"#,
        "\n",
        r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"4","annotations":{"k8s.io/initial-events-end":"true"}}}}"#,
        "\n",
        r#"{"type":"ERROR","object":{"kind":"Status","status":"Failure","reason":"Expired","code":410,"message":"too old"}}"#,
        "\n",
        r#"{"type":"DELETED","object":{"metadata":{"name":"never seen"}}}"#,
        "\n",
    );
    for size in [1, 7, 1000] {
        let events: Vec<_> = reader().watch(status(200, stream(text, size))).await.expect("a watch").collect().await;
        assert_eq!(events.len(), 3, "chunks of {size}");
        assert!(matches!(&events[0], Ok(Event::Added(map)) if map.metadata.name.as_deref() == Some("a")));
        assert!(matches!(&events[1], Ok(Event::Bookmark { revision, initial_events_end: true }) if revision == "4"));
        assert!(events[2].as_ref().is_err_and(Error::is_gone));
    }
}

#[tokio::test]
async fn lists_read_the_same_from_both_transports() {
    let text = r#"{"kind":"ConfigMapList","metadata":{"resourceVersion":"9","continue":"t","remainingItemCount":4},
        "items":[{"metadata":{"name":"a","resourceVersion":"3"}}]}"#;
    let wire = reader().list(status(200, stream(text, 10))).await.expect("a list");
    let value = serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let object = Object::from_value(&value, 3, &machinery::object::FieldPaths::default()).expect("an object");
    let shared = machinery::rest::List {
        api_version: "v1".to_owned(),
        kind: "ConfigMapList".to_owned(),
        revision: 9,
        next: Some("t".to_owned()),
        remaining: Some(4),
        items: vec![Arc::new(object)],
    };
    let shared = reader().list(status(200, Payload::List(shared))).await.expect("a list");
    assert_eq!(wire.items, shared.items);
    assert_eq!((&wire.revision, &wire.next, wire.remaining), (&shared.revision, &shared.next, shared.remaining));
}

#[tokio::test]
async fn failures_become_typed_errors_even_from_strangers() {
    let missing = r#"{"kind":"Status","reason":"NotFound","message":"pods \"x\" not found","code":404}"#;
    let error = reader().one(status(404, stream(missing, 5))).await.expect_err("not found");
    assert!(error.is_not_found());
    assert_eq!(error.to_string(), "pods \"x\" not found");
    let error = reader().one(status(502, stream("bad gateway\n", 50))).await.expect_err("a proxy's error");
    assert_eq!((error.code(), error.to_string().as_str()), (Some(502), "bad gateway"));
    let error = reader().one(status(503, Payload::Empty)).await.expect_err("nothing said");
    assert_eq!(error.to_string(), "503 Service Unavailable");
}

const ODD: &str = r#"{"metadata":{"name":"odd","uid":"u","resourceVersion":"4"},"data":"no map"}"#;
const GOOD: &str = r#"{"metadata":{"name":"good","resourceVersion":"5"},"data":{"a":null}}"#;

fn shared(item: &str, revision: u64) -> Arc<Object> {
    let stored = Bytes::from(item.replacen('{', r#"{"apiVersion":"v1","kind":"ConfigMap","#, 1));
    let object = Object::from_stored(stored, revision, &machinery::object::FieldPaths::default());
    Arc::new(object.expect("an object"))
}

fn named(odd: &Undecodable) -> String {
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    let object = &odd.object;
    [&object.api_version, &object.kind, &object.name, &object.uid, &object.resource_version].map(text).join(" ")
}

#[tokio::test]
async fn an_object_that_cannot_be_read_does_not_hide_the_others_of_its_list() {
    let text = format!(r#"{{"metadata":{{"resourceVersion":"9"}},"items":[{ODD},{GOOD}]}}"#);
    let wire = status(200, Payload::Bytes(Bytes::from(text)));
    let list = machinery::rest::List {
        api_version: "v1".to_owned(),
        kind: "ConfigMapList".to_owned(),
        revision: 9,
        next: None,
        remaining: None,
        items: vec![shared(ODD, 4), shared(GOOD, 5)],
    };
    for response in [wire, status(200, Payload::List(list))] {
        let list = reader().list(response).await.expect("a list");
        assert_eq!(list.revision, "9");
        assert_eq!(list.items.len(), 1);
        let data = list.items[0].data.as_ref().expect("data");
        assert_eq!(data.get("a").map(String::as_str), Some(""), "a null is read as Go reads it");
        assert_eq!(list.undecodable.iter().map(named).collect::<Vec<_>>(), ["v1 ConfigMap odd u 4"]);
    }
}

#[tokio::test]
async fn an_object_that_cannot_be_read_does_not_end_the_watch() {
    let text: String = [("ADDED", ODD), ("ADDED", GOOD), ("DELETED", ODD)]
        .map(|(kind, object)| format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n"))
        .concat();
    let events =
        [WatchEvent::Added(shared(ODD, 4)), WatchEvent::Added(shared(GOOD, 5)), WatchEvent::Deleted(shared(ODD, 4))];
    for payload in
        [Payload::Stream(stream::iter([Ok(Bytes::from(text))]).boxed()), Payload::Watch(stream::iter(events).boxed())]
    {
        let events: Vec<_> = reader().watch(status(200, payload)).await.expect("a watch").collect().await;
        let [Ok(first), Ok(second), Ok(third)] = &events[..] else { panic!("three events: {events:?}") };
        assert!(
            matches!(first, Event::Undecodable { object, deleted: false } if named(object) == "v1 ConfigMap odd u 4")
        );
        assert!(matches!(second, Event::Added(map) if map.metadata.name.as_deref() == Some("good")));
        assert!(
            matches!(third, Event::Undecodable { object, deleted: true } if named(object) == "v1 ConfigMap odd u 4")
        );
    }
}
