//! Killed with SIGKILL while a definition changes its schema and its storage version and its objects are migrated: no object is lost, none
//! is unreadable in either version, and the migration comes to its end. Short as a test, long as `make soak`.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use client::{Client, Gvr, ListParams, Patch};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};
use testkit::{Server, ServerOptions, eventually};
use tokio_util::sync::CancellationToken;

const GROUP: &str = "harbour.example.com";
const NAME: &str = "ships.harbour.example.com";
const SHIPS: usize = 60;

fn rounds() -> u32 {
    if std::env::var_os("TRIREME_SOAK").is_some() { 50 } else { 3 }
}

fn definition(stored: &str, change: usize) -> Value {
    let version = |name: &str| {
        let mut fields = json!({"size": {"type": "integer"}, "home": {"type": "string", "default": "Piraeus"}});
        // Another field each time, which nobody uses: the schema is another one, and what is stored is as good as before.
        fields[format!("field{change}")] = json!({"type": "string"});
        json!({"name": name, "served": true, "storage": name == stored, "schema": {"openAPIV3Schema": {
            "type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}}})
    };
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": NAME}, "spec": {
        "group": GROUP, "scope": "Namespaced", "names": {"plural": "ships", "kind": "Ship"},
        "versions": [version("v1"), version("v2")]}})
}

fn definitions() -> Gvr {
    Gvr::new("apiextensions.k8s.io", "v1", "customresourcedefinitions")
}

fn ships(version: &str) -> Gvr {
    Gvr::new(GROUP, version, "ships")
}

/// What is known of a ship: the last size that was acknowledged, and the last that was sent.
#[derive(Default)]
struct Known {
    acknowledged: AtomicI64,
    sent: AtomicI64,
}

struct World {
    ships: Vec<Known>,
    /// How often anything was acknowledged.
    progress: AtomicUsize,
}

/// Writes sizes, each larger than the one before, in either version. Whatever fails may have happened all the same.
async fn write(client: Client, world: Arc<World>, seed: u64, stop: CancellationToken) {
    let mut random = StdRng::seed_from_u64(seed);
    while !stop.is_cancelled() {
        let at = random.random_range(0..SHIPS);
        let known = &world.ships[at];
        let size = known.sent.load(Ordering::SeqCst) + 1;
        known.sent.store(size, Ordering::SeqCst);
        let dynamic = client.dynamic(&ships(if random.random_bool(0.5) { "v1" } else { "v2" }));
        let patch = Patch::Merge(json!({"spec": {"size": size}}));
        match dynamic.patch("default", &format!("s{at}"), "", &patch).await {
            Ok(_) => {
                known.acknowledged.store(size, Ordering::SeqCst);
                world.progress.fetch_add(1, Ordering::SeqCst);
            }
            // The server is away: how long is not this writer's affair.
            Err(_) => tokio::time::sleep(Duration::from_millis(2)).await,
        }
    }
}

/// Changes the schema and the storage version, and asks for a migration, again and again.
async fn change(client: Client, world: Arc<World>, round: u32, stop: CancellationToken) {
    let mut number = 0;
    while !stop.is_cancelled() {
        number += 1;
        let stored = if number % 2 == 0 { "v1" } else { "v2" };
        let change = definition(stored, round as usize * 1_000 + number);
        let patch = Patch::Merge(json!({"spec": change["spec"]}));
        let changed = client.dynamic(&definitions()).patch("", NAME, "", &patch).await;
        let migrated = migrate(&client, &format!("m{round}-{number}")).await;
        if changed.is_ok() && migrated.is_ok() {
            world.progress.fetch_add(1, Ordering::SeqCst);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn migrate(client: &Client, name: &str) -> Result<Value, client::Error> {
    let migration = json!({
        "apiVersion": "storagemigration.k8s.io/v1", "kind": "StorageVersionMigration", "metadata": {"name": name},
        "spec": {"resource": {"group": GROUP, "resource": "ships"}},
    });
    let migrations = Gvr::new("storagemigration.k8s.io", "v1", "storageversionmigrations");
    client.dynamic(&migrations).create("", &migration).await
}

/// Every ship is there in both versions, with a size that was sent last or acknowledged last.
async fn check(client: &Client, world: &World, seed: u64) {
    for version in ["v1", "v2"] {
        let list = eventually("the ships are served", async {
            loop {
                match client.dynamic(&ships(version)).list("default", &ListParams::default()).await {
                    Ok(list) => break list,
                    Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                }
            }
        })
        .await;
        assert_eq!((list.items.len(), list.undecodable.len()), (SHIPS, 0), "seed {seed}, {version}");
        for ship in &list.items {
            let name = ship["metadata"]["name"].as_str().expect("a name");
            let known = &world.ships[name[1..].parse::<usize>().expect("a number")];
            let (acknowledged, sent) = (known.acknowledged.load(Ordering::SeqCst), known.sent.load(Ordering::SeqCst));
            let size = ship["spec"]["size"].as_i64().expect("a size");
            assert!(
                (acknowledged..=sent).contains(&size),
                "seed {seed}: {name} is {size}, not {acknowledged}..={sent}"
            );
            assert_eq!(ship["spec"]["home"], "Piraeus", "seed {seed}: {ship}");
            assert_eq!(ship["apiVersion"], format!("{GROUP}/{version}"));
        }
    }
}

/// A last migration ends, and then one version is stored.
async fn finish(client: &Client, seed: u64) {
    let versions = &definition("v2", 0)["spec"]["versions"];
    let patch = Patch::Merge(json!({"spec": {"versions": versions}}));
    client.dynamic(&definitions()).patch("", NAME, "", &patch).await.expect("the last change");
    migrate(client, "last").await.expect("the last migration");
    eventually("only one version is stored", async {
        loop {
            let now = client.dynamic(&definitions()).get("", NAME).await.expect("the definition");
            if now["status"]["storedVersions"] == json!(["v2"]) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    println!("seed {seed}: migrated");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn soak_kills_during_changes_of_definitions_and_migrations() {
    let seed = std::env::var("TRIREME_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand::random);
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let arguments = ["--disable-agent", "--disable-scheduler"].map(str::to_owned).to_vec();
    let mut server = Server::start(ServerOptions { binary: env!("CARGO_BIN_EXE_trireme").into(), arguments }).await;
    let client = server.client();
    client.dynamic(&definitions()).create("", &definition("v1", 0)).await.expect("a definition");
    let world =
        Arc::new(World { ships: (0..SHIPS).map(|_| Known::default()).collect(), progress: AtomicUsize::new(0) });
    eventually("ships are made", async {
        for number in 0..SHIPS {
            let ship = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Ship",
                "metadata": {"name": format!("s{number}")}, "spec": {"size": 0}});
            while client.dynamic(&ships("v1")).create("default", &ship).await.is_err() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    })
    .await;
    for round in 0..rounds() {
        let stop = CancellationToken::new();
        let writer = tokio::spawn(write(server.client(), world.clone(), random.random(), stop.clone()));
        let changer = tokio::spawn(change(server.client(), world.clone(), round, stop.clone()));
        let wanted = world.progress.load(Ordering::SeqCst) + random.random_range(20..200);
        eventually("writes are acknowledged", async {
            while world.progress.load(Ordering::SeqCst) < wanted {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
        server.kill().await;
        server.spawn();
        server.ready().await;
        stop.cancel();
        writer.await.expect("a writer that does not panic");
        changer.await.expect("a changer that does not panic");
        check(&server.client(), &world, seed).await;
    }
    finish(&server.client(), seed).await;
    check(&server.client(), &world, seed).await;
    assert!(server.stop().await, "a clean stop:\n{}", server.log_text());
}
