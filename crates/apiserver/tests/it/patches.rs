//! Any patch of any object succeeds or is refused with a reason that is the client's: never a failure of the server's.

use http::Method;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};

use crate::kinds::{Sample, samples};
use crate::server::Server;

const MEDIA: [&str; 4] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

/// Words that mean something somewhere, so that patches reach deep.
const KEYS: [&str; 24] = [
    "metadata",
    "spec",
    "status",
    "name",
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
    "managedFields",
    "template",
    "containers",
    "ports",
    "env",
    "image",
    "selector",
    "replicas",
    "data",
    "rules",
    "volumes",
    "$patch",
    "$retainKeys",
    "$setElementOrder/containers",
    "$deleteFromPrimitiveList/finalizers",
    "resourceVersion",
];

fn scalar(random: &mut StdRng) -> Value {
    match random.random_range(0..8) {
        0 => Value::Null,
        1 => json!(random.random_range(-2..70_000_i64)),
        2 => json!(random.random_bool(0.5)),
        3 => json!(1.5),
        4 => json!("delete"),
        5 => json!("replace"),
        6 => json!(KEYS.choose(random).expect("there are keys")),
        _ => json!("\u{0}\u{1F980}"),
    }
}

fn tree(random: &mut StdRng, depth: u32) -> Value {
    match random.random_range(0..6) {
        0 | 1 if depth > 0 => {
            let length = random.random_range(0..4);
            (0..length).map(|_| tree(random, depth - 1)).collect()
        }
        2..=4 if depth > 0 => {
            let length = random.random_range(0..4);
            let entry = |random: &mut StdRng| {
                ((*KEYS.choose(random).expect("there are keys")).to_owned(), tree(random, depth - 1))
            };
            Value::Object((0..length).map(|_| entry(random)).collect())
        }
        _ => scalar(random),
    }
}

/// Mostly what could be meant, with something odd at some depth.
fn patch(random: &mut StdRng, media: &str, sample: &Value) -> Value {
    if media == MEDIA[0] {
        let length = random.random_range(0..4);
        let operation = |random: &mut StdRng| {
            let path: String = (0..random.random_range(0..5))
                .map(|_| match random.random_range(0..5) {
                    0 => "/0".to_owned(),
                    1 => "/-".to_owned(),
                    _ => format!("/{}", KEYS.choose(random).expect("there are keys").replace('/', "~1")),
                })
                .collect();
            let kinds = ["add", "remove", "replace", "move", "copy", "test", "odd"];
            let kind = *kinds.choose(random).expect("there are kinds");
            json!({"op": kind, "path": path, "from": "/spec", "value": tree(random, 3)})
        };
        return (0..length).map(|_| operation(random)).collect();
    }
    let mut patch = if random.random_bool(0.7) { sample.clone() } else { json!({}) };
    let mut at = &mut patch;
    for _ in 0..random.random_range(0..4) {
        let inner = match &*at {
            Value::Object(fields) => fields.keys().collect::<Vec<_>>().choose(random).map(|key| (*key).clone()),
            Value::Array(items) if !items.is_empty() => Some("0".to_owned()),
            _ => None,
        };
        let Some(key) = inner else { break };
        at = match at {
            Value::Array(items) => &mut items[0],
            other => &mut other[key.as_str()],
        };
    }
    *at = tree(random, 3);
    patch
}

#[tokio::test]
async fn any_patch_of_any_object_succeeds_or_is_the_clients_mistake() {
    let seed: u64 = std::env::var("TRIREME_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand::random);
    println!("TRIREME_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let server = Server::default().await;
    for Sample { path, name, object: sample, has_status } in samples() {
        let name = format!("{path}/{name}");
        // The last round only makes it again: samples after it may name it, as a pod its service account.
        for round in 0..=24 {
            if server.get(&name).await.status == 404 {
                let made = server.post(&path, &sample).await;
                assert_eq!(made.status, 201, "seed {seed}: {path}: {}", made.text());
            }
            if round == 24 {
                break;
            }
            // Others live in this one.
            if name.ends_with("/ns1") {
                break;
            }
            let media = MEDIA[round % MEDIA.len()];
            let strict = ["Strict", "Warn", "Ignore"][round % 3];
            let subresource = if round % 10 == 9 && has_status { "/status" } else { "" };
            let target = format!("{name}{subresource}?fieldManager=m&fieldValidation={strict}");
            let patch = patch(&mut random, media, &sample);
            let answer = server.send(Method::PATCH, &target, &[("content-type", media)], patch.to_string()).await;
            assert!(
                matches!(answer.status, 200 | 201 | 400 | 403 | 404 | 409 | 413 | 415 | 422),
                "seed {seed}: {media} {target}: {} {}\n{patch}",
                answer.status,
                answer.text()
            );
            if answer.status < 300 {
                // What came of it is an object that can be read, and made anew.
                let read = server.get(&name).await;
                assert!(read.status == 200 || read.status == 404, "seed {seed}: {patch}: {}", read.text());
                let bare = r#"[{"op":"add","path":"/metadata/finalizers","value":[]}]"#;
                server.patch(&name, MEDIA[0], bare).await;
                server.send(Method::DELETE, &format!("{name}?gracePeriodSeconds=0"), &[], "").await;
            }
        }
    }
    server.stop().await;
}
