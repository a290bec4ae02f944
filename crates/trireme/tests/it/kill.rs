//! Killed with SIGKILL under load, again and again: nothing acknowledged is lost, and watchers miss, repeat and reorder
//! nothing. Short as a test, long as `make soak`; a failure names its seed, which `TRIREME_SEED` takes.

use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use testkit::build::config_map;
use testkit::{Etcd, Server, ServerOptions, eventually};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::load::{Histories, Sequence, read, revision_now, watch, write};

const WRITERS: u64 = 16;
const WATCHERS: usize = 20;
const KEYS: usize = 6;
const SENTINEL: &str = "sentinel";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn soak_kills_on_the_embedded_store() {
    run(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn soak_kills_on_etcd() {
    run(Some(Etcd::start().await)).await;
}

fn rounds() -> u32 {
    if std::env::var_os("TRIREME_SOAK").is_some() { 100 } else { 3 }
}

fn seed() -> u64 {
    let given = std::env::var("TRIREME_SEED").ok().and_then(|seed| seed.parse().ok());
    given.unwrap_or_else(rand::random)
}

async fn run(mut etcd: Option<Etcd>) {
    let seed = seed();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    // Controllers would write objects of their own into the sequence of events.
    let mut arguments: Vec<String> =
        ["--disable-agent", "--disable-controller-manager", "--disable-scheduler"].map(str::to_owned).to_vec();
    if let Some(etcd) = &etcd {
        arguments.extend(["--store".to_owned(), "etcd".to_owned(), "--etcd-servers".to_owned(), etcd.endpoint()]);
    }
    let mut server = Server::start(ServerOptions { binary: env!("CARGO_BIN_EXE_trireme").into(), arguments }).await;
    let histories = Histories::new();
    let sequence = Arc::new(Sequence::default());
    let start = revision_now(&server.client()).await;
    let mut watchers = JoinSet::new();
    for _ in 0..WATCHERS {
        watchers.spawn(watch(server.client(), Arc::clone(&sequence), start.clone(), SENTINEL));
    }
    for round in 0..rounds() {
        let keys: Arc<[String]> = (0..KEYS).map(|key| format!("r{round}-k{key}")).collect();
        let stop = CancellationToken::new();
        let mut writers = JoinSet::new();
        for _ in 0..WRITERS {
            let (client, seed) = (server.client(), random.random());
            writers.spawn(write(client, Arc::clone(&histories), Arc::clone(&keys), seed, stop.clone()));
        }
        let before = histories.acknowledged();
        progress(&server, &histories, before + random.random_range(50..400), seed).await;
        match &mut etcd {
            Some(etcd) if random.random_bool(0.5) => {
                etcd.kill().await;
                if random.random_bool(0.5) {
                    server.kill().await;
                    server.spawn();
                }
                etcd.start_again().await;
            }
            _ => {
                server.kill().await;
                server.spawn();
            }
        }
        server.ready().await;
        let after = histories.acknowledged();
        progress(&server, &histories, after + 50, seed).await;
        stop.cancel();
        while let Some(writer) = writers.join_next().await {
            writer.expect("a writer that does not panic");
        }
        let client = server.client();
        for key in keys.iter() {
            read(&client, &histories, key).await.expect("the server is up");
        }
        histories.check_linearizable(seed);
    }
    server.client().create(&config_map(SENTINEL, "v", "0")).await.expect("the server is up");
    let finish = async {
        while let Some(watcher) = watchers.join_next().await {
            watcher.expect("a watcher that agrees with the others");
        }
    };
    eventually("every watcher reaches the end", finish).await;
    sequence.check_complete(&histories, seed);
    println!("{} acknowledged writes, {} events, {WATCHERS} watchers", histories.acknowledged(), sequence.len());
    assert!(server.stop().await, "a clean stop:\n{}", server.log_text());
}

/// Waits until so many writes were acknowledged.
async fn progress(server: &Server, histories: &Histories, wanted: usize, seed: u64) {
    let reached = async {
        while histories.acknowledged() < wanted {
            // The load is the clock here: how long it takes is the server's affair.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    if tokio::time::timeout(Duration::from_secs(60), reached).await.is_err() {
        let (count, refusal) = (histories.acknowledged(), histories.last_failure());
        panic!("seed {seed}: writers are stuck at {count} of {wanted}; last failure: {refusal}\n{}", server.log_text());
    }
}
