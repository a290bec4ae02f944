//! What holds for all kinds, shown on an object of each: `kinds.yaml`.

use machinery::codec::{Limits, yaml};
use machinery::{Value, value};

use crate::server::Server;

/// An object, and where it is made.
pub struct Sample {
    /// The path of its collection.
    pub path: String,
    /// Its name.
    pub name: String,
    /// Itself.
    pub object: Value,
    /// Whether it has a status of its own.
    pub has_status: bool,
}

/// At least one of every kind that is served by default and kept.
pub fn samples() -> Vec<Sample> {
    let documents = include_str!("kinds.yaml").split("\n---\n");
    documents.map(|text| sample(yaml::decode(text.as_bytes(), Limits::default()).expect("YAML").value)).collect()
}

fn facts_of(object: &Value) -> &'static facts::Resource {
    let (group, version) = value::text(object, "apiVersion").rsplit_once('/').unwrap_or(("", "v1"));
    facts::kind(group, version, value::text(object, "kind")).expect("a built-in kind")
}

fn sample(object: Value) -> Sample {
    let facts = facts_of(&object);
    let root = if facts.group.is_empty() { "/api" } else { "/apis" };
    let space = if facts.namespaced { value::text(&object, "metadata.namespace") } else { "" };
    let space = if space.is_empty() { String::new() } else { format!("/namespaces/{space}") };
    Sample {
        path: format!("{root}/{}{space}/{}", facts.api_version(), facts.plural),
        name: value::text(&object, "metadata.name").to_owned(),
        has_status: facts.subresource("status").is_some(),
        object,
    }
}

#[test]
fn there_is_a_sample_of_every_kind() {
    let known: Vec<*const facts::Resource> =
        samples().iter().map(|sample| &raw const *facts_of(&sample.object)).collect();
    let served = facts::groups().iter().flat_map(|group| &group.versions).filter(|version| version.default_on);
    let kept = served
        .flat_map(|version| &version.resources)
        .filter(|facts| facts.verbs.has("create") && facts.verbs.has("get"));
    for facts in kept {
        assert!(known.contains(&(&raw const *facts)), "no sample of {} {}", facts.api_version(), facts.kind);
    }
}

/// Every kind is made by apply, and applying the same again is no news to anybody.
#[tokio::test]
async fn applying_the_same_again_changes_nothing() {
    // A new node gets a taint that nobody applied.
    let server = Server::start(|config, _| {
        config.admission =
            apiserver::admission::Settings::parse("", "TaintNodesByCondition").expect("the name of a plug-in");
    })
    .await;
    for Sample { path, name, object, .. } in samples() {
        let target = format!("{path}/{name}?fieldManager=m");
        let body = object.to_string();
        let made = server.patch(&target, "application/apply-patch+yaml", &body).await;
        assert_eq!(made.status, 201, "{path}/{name}: {}", made.text());
        let again = server.patch(&target, "application/apply-patch+yaml", &body).await;
        assert_eq!(again.status, 200, "{path}/{name}: {}", again.text());
        let (mut again, mut made) = (again.json(), made.json());
        if path.ends_with("/flowschemas") {
            // The server itself says in the status whether the level exists, as soon as it sees the object.
            for object in [&mut again, &mut made] {
                object["status"].take();
                object["metadata"]["resourceVersion"].take();
            }
        }
        assert_eq!(again, made, "{path}/{name}");
    }
    server.stop().await;
}
