//! The past from outside: objects and lists as they were, who changed what, and that nobody sees more of it than of the present.

use bytes::Bytes;
use client::{Client, DeleteOptions};
use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use machinery::rest::{Body, Payload, User};
use serde_json::{Value, json};
use testkit::build::config_map;

use crate::server::{Server, post};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// The tree of an answer, or code and message of a refusal.
async fn get(client: &Client, path: &str) -> Result<Value, (u16, String)> {
    let request = http::Request::get(path).body(Body::Empty).expect("a request");
    let answer = match client.request(request).await {
        Ok(answer) => answer,
        Err(client::Error::Api(error)) => return Err((error.code, error.message.clone())),
        Err(other) => panic!("{path}: {other}"),
    };
    let (parts, payload) = answer.into_parts();
    let tree: Value = match payload {
        Payload::Value(tree) => tree,
        Payload::Object(object) => object.to_value(),
        Payload::List(list) => {
            let items: Vec<Value> = list.items.iter().map(|item| item.to_value()).collect();
            json!({"metadata": {"resourceVersion": list.revision.to_string(), "continue": list.next}, "items": items})
        }
        Payload::Bytes(bytes) => serde_json::from_slice(&bytes).expect("a tree"),
        Payload::Stream(stream) => {
            let chunks: Vec<Bytes> = stream.try_collect().await.expect("the whole answer");
            serde_json::from_slice(&chunks.concat()).expect("a tree")
        }
        _ => panic!("{path}: an answer is a tree"),
    };
    if parts.status.is_success() {
        return Ok(tree);
    }
    Err((parts.status.as_u16(), tree["message"].as_str().unwrap_or_default().to_owned()))
}

fn version(object: &ConfigMap) -> u64 {
    object.metadata.resource_version.as_deref().and_then(|version| version.parse().ok()).expect("a version")
}

/// Names and values of a list of ConfigMaps that the test made.
fn shown(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().expect("items");
    let mine = items.iter().filter(|item| item["metadata"]["name"] != "kube-root-ca.crt");
    mine.map(|item| format!("{}={}", item["metadata"]["name"].as_str().unwrap_or_default(), item["data"]["k"]))
        .collect()
}

async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    let wait = async {
        while !holds().await {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    testkit::eventually(what, wait).await;
}

/// What the tests look back at: `a` is 1, then 2, then gone; `b` comes in between.
struct Story {
    first: u64,
    second: u64,
    both: u64,
    gone: u64,
}

async fn tell(server: &Server) -> Story {
    let admin = server.admin();
    let a = admin.create(&config_map("a", "k", "1")).await.expect("a");
    let mut changed = a.clone();
    changed.data = Some([("k".to_owned(), "2".to_owned())].into());
    let changed = admin.update(&changed).await.expect("a change");
    let b = admin.create(&config_map("b", "k", "x")).await.expect("b");
    admin.delete::<ConfigMap>("default", "a", &DeleteOptions::default()).await.expect("a deletion");
    let later = admin.create(&config_map("c", "k", "y")).await.expect("c");
    Story { first: version(&a), second: version(&changed), both: version(&b), gone: version(&later) - 1 }
}

async fn check(server: &Server, story: &Story) {
    let admin = server.admin();
    let value =
        async |moment: u64| get(&admin, &format!("{MAPS}/a?at={moment}")).await.map(|map| map["data"]["k"].clone());
    assert_eq!(value(story.first).await, Ok(json!("1")));
    assert_eq!(value(story.second).await, Ok(json!("2")));
    assert_eq!(value(story.both).await, Ok(json!("2")));
    let missing = (404, "configmaps \"a\" not found".to_owned());
    assert_eq!(value(story.gone).await, Err(missing.clone()));
    assert_eq!(value(story.first - 1).await, Err(missing));
    for query in ["at=", "resourceVersionMatch=Exact&resourceVersion="] {
        let list = async |moment: u64| get(&admin, &format!("{MAPS}?{query}{moment}")).await.expect("a list");
        assert_eq!(shown(&list(story.first).await), ["a=\"1\""], "{query}");
        let both = list(story.both).await;
        assert_eq!(shown(&both), ["a=\"2\"", "b=\"x\""], "{query}");
        assert_eq!(both["metadata"]["resourceVersion"], story.both.to_string());
        assert_eq!(shown(&list(story.gone).await), ["b=\"x\""], "{query}");
    }
    // Pages of the past are of one moment, and selectors select what was.
    let page =
        get(&admin, &format!("{MAPS}?limit=1&fieldSelector=metadata.name%21%3Dkube-root-ca.crt&at={}", story.both))
            .await;
    let page = page.expect("a page");
    assert_eq!(shown(&page), ["a=\"2\""]);
    let next = page["metadata"]["continue"].as_str().expect("more");
    let rest =
        get(&admin, &format!("{MAPS}?limit=9&fieldSelector=metadata.name%21%3Dkube-root-ca.crt&continue={next}")).await;
    assert_eq!(shown(&rest.expect("the rest")), ["b=\"x\""]);
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_and_lists_are_shown_as_they_were_and_after_a_restart() {
    let server = Server::default().await;
    let story = tell(&server).await;
    check(&server, &story).await;
    let server = server.restart(|_, _| {}).await;
    check(&server, &story).await;
    // A real kubectl asks as Kubernetes has it.
    let path = format!("{MAPS}?resourceVersion={}&resourceVersionMatch=Exact", story.first);
    let seen: Value = serde_json::from_str(&server.kubectl().run(&["get", "--raw", &path]).await).expect("JSON");
    assert_eq!(shown(&seen), ["a=\"1\""]);
    // Time and revision fit together.
    let admin = server.admin();
    let kept = get(&admin, &format!("/trireme/history?at={}", story.second)).await.expect("what is kept");
    assert_eq!(
        (&kept["engine"], &kept["at"]["resourceVersion"]),
        (&json!("embedded"), &json!(story.second.to_string()))
    );
    let time = kept["at"]["time"].as_str().expect("a time");
    let then = get(&admin, &format!("{MAPS}?at={time}")).await.expect("a list");
    let resolved: u64 = then["metadata"]["resourceVersion"].as_str().and_then(|v| v.parse().ok()).expect("a version");
    assert!((story.second..=story.gone + 1).contains(&resolved), "{resolved}");
    let now = get(&admin, &format!("{MAPS}?at=0s")).await.expect("a moment ago");
    assert_eq!(shown(&now), ["b=\"x\"", "c=\"y\""]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_moments_are_refused_in_clear_words() {
    let server = Server::default().await;
    let story = tell(&server).await;
    let admin = server.admin();
    let refused = async |query: &str| get(&admin, &format!("{MAPS}{query}")).await.expect_err(query);
    let (code, why) = refused("?at=99999999").await;
    assert!(code == 400 && why.contains("revision 99999999 is in the future: the latest is "), "{why}");
    let (code, why) = refused("/a?at=2999-01-01T00:00:00Z").await;
    assert!(code == 400 && why.contains("is in the future"), "{why}");
    for odd in ["yesterday", "-5m", "0", ""] {
        let (code, why) = refused(&format!("?at={odd}")).await;
        assert!(code == 400 && why.contains("is no moment"), "{why}");
    }
    let (code, why) = refused("?at=5&resourceVersion=5").await;
    assert_eq!((code, &*why), (400, "at is forbidden when resourceVersion is provided"));
    let (code, why) = refused("?watch=true&at=5").await;
    assert_eq!((code, &*why), (400, "at is not supported for watch"));
    let (code, why) = refused("?changes=true&labelSelector=a").await;
    assert_eq!((code, &*why), (400, "labelSelector is not supported for changes"));
    let (code, why) = refused("?at=10000d").await;
    assert!(code == 410 && why.contains("is no longer kept: the oldest that is left is 1 ("), "{why}");
    // What was given up.
    store::Store::compact(server.store(), story.both).await.expect("a compaction");
    for query in [format!("?at={}", story.second), format!("/a?at={}", story.second)] {
        let (code, why) = refused(&query).await;
        let expected =
            format!("revision {} is no longer kept: the oldest that is left is {}", story.second, story.both);
        assert!(code == 410 && why.starts_with(&expected), "{why}");
    }
    let (code, why) = refused(&format!("?resourceVersionMatch=Exact&resourceVersion={}", story.second)).await;
    assert_eq!((code, &*why), (410, "The resourceVersion for the provided list is too old."));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_say_when_who_and_which_fields() {
    let server = Server::default().await;
    let story = tell(&server).await;
    let path = format!("{MAPS}/b?fieldManager=a-test");
    let patch =
        server.kubectl().run(&["patch", "configmap", "b", "--type=merge", "-p", r#"{"data":{"k":"z","n":"1"}}"#]).await;
    assert!(patch.contains("patched"), "{patch} {path}");
    let changes = get(&server.admin(), &format!("{MAPS}/b?changes=true")).await.expect("changes");
    assert_eq!((&changes["kind"], &changes["apiVersion"]), (&json!("ChangeList"), &json!("trireme.io/v1")));
    let items = changes["items"].as_array().expect("items");
    assert_eq!(items.len(), 2, "{items:?}");
    let patched = &items[0];
    assert_eq!(
        (&patched["type"], &patched["verb"], &patched["user"]),
        (&json!("Modified"), &json!("patch"), &json!("kubernetes-admin"))
    );
    assert_eq!(patched["manager"], "kubectl-patch");
    let fields = json!([{"path": "data.k", "old": "x", "new": "z"}, {"path": "data.n", "new": "1"}]);
    assert_eq!(patched["fields"], fields);
    assert!(patched["time"].as_str().is_some_and(|time| time.parse::<jiff::Timestamp>().is_ok()), "{patched}");
    assert_eq!((&items[1]["type"], &items[1]["verb"]), (&json!("Added"), &json!("create")));
    assert_eq!(items[1]["resourceVersion"], story.both.to_string());
    // Of a collection, in pages, between two moments.
    let (mut next, mut seen) = (String::new(), Vec::new());
    loop {
        let query = format!("{MAPS}?changes=true&limit=2&from={}&to={}{next}", story.first - 1, story.gone);
        let page = get(&server.admin(), &query).await.expect("changes");
        for item in page["items"].as_array().expect("items") {
            seen.push(format!(
                "{} {}",
                item["type"].as_str().unwrap_or_default(),
                item["name"].as_str().unwrap_or_default()
            ));
        }
        match page["metadata"]["continue"].as_str() {
            Some(token) => next = format!("&continue={token}"),
            None => break,
        }
    }
    seen.retain(|line| !line.contains("kube-root-ca"));
    assert_eq!(seen, ["Deleted a", "Added b", "Modified a", "Added a"]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_huge_objects_come_in_shorter_pages_and_all_of_them_come() {
    const CHANGES: usize = 25;
    let server = Server::default().await;
    let admin = server.admin();
    let value = |round: usize| format!("{round}{}", "x".repeat(900_000));
    let mut map = admin.create(&config_map("huge", "k", &value(0))).await.expect("a map");
    for round in 1..CHANGES {
        map.data = Some([("k".to_owned(), value(round))].into());
        map = admin.update(&map).await.expect("a change");
    }
    let (mut pages, mut next) = (Vec::new(), String::new());
    loop {
        let page = get(&admin, &format!("{MAPS}/huge?changes=true&limit=500{next}")).await.expect("changes");
        let items = page["items"].as_array().expect("items");
        // What is long is left out, and said to be.
        assert!(items.iter().all(|item| item["fields"].to_string().len() < 1_000), "{items:?}");
        pages.push(items.len());
        match page["metadata"]["continue"].as_str() {
            Some(token) => next = format!("&continue={token}"),
            None => break,
        }
    }
    assert!(pages.len() > 1 && pages.iter().sum::<usize>() == CHANGES, "{pages:?}");
    let then = get(&admin, &format!("{MAPS}/huge?at={}", version(&map) - 1)).await.expect("the past");
    assert_eq!(then["data"]["k"], value(CHANGES - 2));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_lost_the_right_to_read_lost_the_past_too() {
    let server = Server::default().await;
    let admin = server.admin();
    let group = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}]);
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "reader"}, "rules": rules});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}]});
    post(&admin, &format!("{group}/roles"), role).await.expect("a role");
    post(&admin, &format!("{group}/rolebindings"), binding).await.expect("a binding");
    let story = tell(&server).await;
    let alice = server.as_user(User::new("alice", ["system:authenticated"]));
    let paths = [
        format!("{MAPS}/a?at={}", story.second),
        format!("{MAPS}?at={}", story.second),
        format!("{MAPS}/a?changes=true"),
        format!("{MAPS}?changes=true"),
        format!("{MAPS}?resourceVersion={}&resourceVersionMatch=Exact", story.second),
    ];
    until("the role counts", async || get(&alice, &paths[0]).await.is_ok()).await;
    for path in &paths {
        get(&alice, path).await.unwrap_or_else(|error| panic!("{path}: {error:?}"));
    }
    assert_eq!(get(&alice, "/trireme/history").await.expect_err("no rule for it").0, 403);
    assert_eq!(
        get(&alice, &format!("/api/v1/configmaps?at={}", story.second)).await.expect_err("one namespace").0,
        403
    );
    admin
        .delete::<k8s_openapi::api::rbac::v1::RoleBinding>("default", "reader", &DeleteOptions::default())
        .await
        .expect("a deletion");
    until("the role is gone", async || get(&alice, &paths[0]).await.is_err()).await;
    for path in &paths {
        assert_eq!(get(&alice, path).await.expect_err("no right").0, 403, "{path}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_sealed_is_sealed_in_the_past_too() {
    const PLANTED: &str = "planted-in-the-past";
    let configure = |config: &mut apiserver::Config, directory: &std::path::Path| {
        let path = directory.join("encryption.yaml");
        let key = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, [7_u8; 32]);
        let text = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration", "resources": [
            {"resources": ["secrets"], "providers": [{"aesgcm": {"keys": [{"name": "k", "secret": key}]}}]}]});
        std::fs::write(&path, text.to_string()).expect("a file");
        config.encryption = Some(apiserver::encryption::Settings { path, reload: false });
    };
    let server = Server::start(configure).await;
    let admin = server.admin();
    let secret: Secret = serde_json::from_value(
        json!({"metadata": {"name": "s", "namespace": "default"}, "stringData": {"password": PLANTED}}),
    )
    .expect("a secret");
    let made = admin.create(&secret).await.expect("a secret");
    let version = made.metadata.resource_version.clone().expect("a version");
    admin.delete::<Secret>("default", "s", &DeleteOptions::default()).await.expect("a deletion");
    // A start puts everything into the archive.
    let server = server.restart(configure).await;
    let archived = || std::fs::read_dir(server.path("store/history")).is_ok_and(|files| files.count() > 0);
    until("the archive has it", async || archived()).await;
    // Below the one who opens it the past is as it was written.
    let at = version.parse().expect("a revision");
    let below = store::Store::at(server.store(), "/registry/secrets/default/s", at).await.expect("the store");
    let below = below.expect("the secret was there").value;
    assert!(below.starts_with(b"k8s:enc:aesgcm:v1:k:"), "{below:?}");
    let base64 = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, PLANTED);
    for text in [PLANTED, &base64[..20]] {
        assert!(!below.windows(text.len()).any(|window| window == text.as_bytes()));
    }
    let then =
        get(&server.admin(), &format!("/api/v1/namespaces/default/secrets/s?at={version}")).await.expect("the past");
    assert_eq!(then["data"]["password"], base64);
    let changes = get(&server.admin(), "/api/v1/namespaces/default/secrets/s?changes=true").await.expect("changes");
    assert_eq!(changes["items"][0]["type"], "Deleted");
    assert_eq!(changes["items"][0]["uid"], made.metadata.uid.clone().unwrap_or_default());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hop_of_a_commit_is_tied_to_its_request() {
    let server = Server::default().await;
    let made = server.admin().create(&config_map("traced", "k", "1")).await.expect("a map");
    let uid = made.metadata.uid.expect("a uid");
    let trail = get(&server.admin(), &format!("/debug/hops?uid={uid}")).await.expect("hops");
    let spans = trail["hops"].as_array().expect("a list");
    let of = |hop: hops::Hop| spans.iter().filter(move |span| span["hop"] == hop.number() && span["stage"].is_null());
    let commit = of(hops::Hop::Commit).next().expect("a commit");
    assert_ne!(commit["request"], 0, "{commit}");
    for gate in [hops::Hop::Authentication, hops::Hop::Authorisation] {
        assert!(of(gate).any(|span| span["request"] == commit["request"]), "{gate:?} in {spans:?}");
    }
    server.stop().await;
}
