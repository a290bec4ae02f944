//! All three servers are stopped and started again, one after the other, under load: no request of a client that tries again only what never left
//! fails, and no watcher that goes on at another server has to list again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use client::Client;
use k8s_openapi::api::core::v1::ConfigMap;
use testkit::build::config_map;
use testkit::eventually;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::machines::Machines;
use super::step;
use crate::load::{Histories, Sequence, revision_now, watch};

const WRITERS: usize = 6;
const WATCHERS: usize = 3;
const SENTINEL: &str = "sentinel";
const QUIET: [&str; 2] = ["--disable-controller-manager", "--disable-scheduler"];

/// Writes a key of its own until it is told to stop; a failure is one of the test.
///
/// A write whose leader of etcd stops under it is sent again where that is safe: where the key was there before. Nobody can know that of a create, so
/// keys are made beforehand.
async fn write(client: Client, name: String, done: Arc<AtomicUsize>, stop: CancellationToken) {
    let mut number = 0;
    while !stop.is_cancelled() {
        let mut map =
            client.get::<ConfigMap>("default", &name).await.unwrap_or_else(|error| panic!("{name}: {error:?}"));
        assert_eq!(
            map.data.as_ref().map(|data| data["v"].clone()),
            Some(number.to_string()),
            "{name}: what was written last"
        );
        number += 1;
        map.data.get_or_insert_default().insert("v".to_owned(), number.to_string());
        client.update(&map).await.unwrap_or_else(|error| panic!("{name}={number}: {error:?}"));
        done.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_fails_no_request_and_lists_nothing_again() {
    let machines = Machines::make('r', 3).await;
    let one = machines.server(1, &[&["--cluster-init"][..], &QUIET].concat()).await;
    let two = machines.join(2, &one, &QUIET).await;
    let three = machines.join(3, &one, &QUIET).await;
    let mut hosts = [one, two, three];
    let servers: Vec<String> = (1..=3).map(|number| machines.url(number)[8..].to_owned()).collect();
    let balanced = |number: usize| {
        let client = hosts[number % 3].client();
        client.set_servers(&servers);
        client
    };
    let last = balanced(0);
    let sequence = Arc::new(Sequence::default());
    let start = revision_now(&last).await;
    let mut watchers = JoinSet::new();
    for number in 0..WATCHERS {
        watchers.spawn(watch(balanced(number), Arc::clone(&sequence), start.clone(), SENTINEL));
    }
    let (done, stop) = (Arc::new(AtomicUsize::new(0)), CancellationToken::new());
    let mut writers = JoinSet::new();
    for number in 0..WRITERS {
        let (client, name) = (balanced(number), format!("k{number}"));
        client.create(&config_map(&name, "v", "0")).await.expect("created");
        writers.spawn(write(client, name, Arc::clone(&done), stop.clone()));
    }
    let progress = async |done: &AtomicUsize| {
        let wanted = done.load(Ordering::Relaxed) + 60;
        eventually("writers go on", async {
            while done.load(Ordering::Relaxed) < wanted {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    };
    for (number, host) in hosts.iter_mut().enumerate() {
        step(&format!("server {} is restarted", number + 1));
        progress(&done).await;
        assert!(host.server.stop().await, "{}", host.server.log_text());
        progress(&done).await;
        host.start_again_with(&QUIET).await;
        host.lists(&[1, 2, 3].map(|number| machines.address(number))).await;
    }
    progress(&done).await;
    stop.cancel();
    while let Some(writer) = writers.join_next().await {
        writer.expect("no request failed");
    }
    last.create(&config_map(SENTINEL, "v", "0")).await.expect("created");
    let finish = async {
        while let Some(watcher) = watchers.join_next().await {
            watcher.expect("a watcher that agrees with the others");
        }
    };
    eventually("every watcher reaches the end", finish).await;
    let done = done.load(Ordering::Relaxed);
    assert_eq!(sequence.len(), WRITERS + done, "every write was seen once");
    // None of the watchers was told to list again.
    sequence.check_complete(&Histories::new(), 0);
    println!("{done} writes, none failed");
}
