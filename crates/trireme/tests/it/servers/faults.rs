//! Three servers and two nodes under load while servers, members of etcd and agents are killed, frozen, cut off both ways and one way, and left without room on
//! their disks: nothing acknowledged is lost, every key's history is explainable one operation after the other, watchers miss, repeat and reorder nothing, nor
//! list again, and pods go on running and answering. Short as a test, 200 faults as `make soak`, which also says how long writers had to wait at most; a failure
//! names its seed, which `TRIREME_SEED` takes; `TRIREME_FAULTS` says how many faults instead, for a long run in pieces.
//!
//! Clocks are not set wrong: all machines here share the one of the kernel (time namespaces have no wall clock of their own), and a library that lies to programs
//! lies to none that ask the kernel themselves, as etcd does.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use client::Client;
use devnet::Loss;
use k8s_openapi::api::core::v1::ConfigMap;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use testkit::build::config_map;
use testkit::eventually;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::machines::{BINARY, Host, Machines, signal};
use super::nodes::Node;
use crate::load::{Histories, Sequence, read, revision_now, watch, write};

const WRITERS: u64 = 6;
const WATCHERS: usize = 6;
const KEYS: usize = 4;
const SENTINEL: &str = "sentinel";
/// Pods name their nodes. Controllers run: they let nodes in, and say where Services lead.
const QUIET: [&str; 1] = ["--disable-scheduler"];
/// The most that writers may have to wait when a minority is lost, on a machine that does nothing else.
const PAUSE: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The machine is gone, and comes back.
    Lost,
    /// The server is killed; its etcd goes on.
    Server,
    /// The member of etcd is killed; the server starts it again.
    Member,
    /// Both stand still for a while, and wake up without having noticed.
    Frozen,
    /// The machine is cut off from the others.
    CutOff,
    /// It hears nobody, and is heard.
    Deaf,
    /// Nobody hears it, and it hears all.
    Mute,
    /// There is no room for what etcd writes.
    FullDisk,
    /// An agent is killed; its pods go on.
    Agent,
    /// An agent stands still for a while.
    FrozenAgent,
    /// A node is cut off from the servers, and hears nobody or is heard by nobody.
    CutOffNode,
    DeafNode,
}

const FAULTS: [Fault; 12] = [
    Fault::Lost,
    Fault::Server,
    Fault::Member,
    Fault::Frozen,
    Fault::CutOff,
    Fault::Deaf,
    Fault::Mute,
    Fault::FullDisk,
    Fault::Agent,
    Fault::FrozenAgent,
    Fault::CutOffNode,
    Fault::DeafNode,
];

/// More than two elections of etcd take.
const LASTS: Duration = Duration::from_secs(3);

/// What a member of etcd has room for: two files of its log, each 64 MiB from the beginning, and its objects.
const ROOM: &str = "256m";

/// A program that starts the server with a small file system for its member of etcd, which stays when the server is killed.
fn with_small_disk(directory: &Path) -> PathBuf {
    let path = directory.join("small");
    let script = format!(
        "#!/bin/sh\nset -e\nmkdir -p \"$3/etcd\"\n\
         mountpoint -q \"$3/etcd\" || mount -t tmpfs -o size={ROOM},mode=0700 tmpfs \"$3/etcd\"\nexec {BINARY} \"$@\"\n"
    );
    std::fs::write(&path, script).expect("a script");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("it can be run");
    path
}

fn soak() -> bool {
    std::env::var_os("TRIREME_SOAK").is_some()
}

/// Each kind once, 200 as `make soak`, or as many as `TRIREME_FAULTS` says.
fn faults() -> usize {
    let given = std::env::var("TRIREME_FAULTS").ok().and_then(|faults| faults.parse().ok());
    given.unwrap_or(if soak() { 200 } else { FAULTS.len() })
}

fn seed() -> u64 {
    let given = std::env::var("TRIREME_SEED").ok().and_then(|seed| seed.parse().ok());
    given.unwrap_or_else(rand::random)
}

/// Counts, from a thread of its own, for how long nobody could run: that is no fault of the servers'.
fn watch_machine(histories: &Arc<Histories>) {
    const TURN: Duration = Duration::from_millis(10);
    let histories: Weak<Histories> = Arc::downgrade(histories);
    std::thread::spawn(move || {
        while let Some(histories) = histories.upgrade() {
            let begun = Instant::now();
            std::thread::sleep(TURN);
            let stalled = begun.elapsed().saturating_sub(2 * TURN).as_nanos();
            histories.stalled.fetch_add(u64::try_from(stalled).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
    });
}

/// All that can be struck.
struct Field {
    nodes: [Node; 2],
    hosts: [Host; 3],
    /// Last: what runs on them ends before they do.
    machines: Machines,
}

impl Field {
    async fn make(home: &Path) -> Self {
        let machines = Machines::make('f', 5).await;
        let binary = with_small_disk(home);
        let one = machines.server_as(binary.clone(), 1, &[&["--cluster-init"][..], &QUIET].concat()).await;
        let nodes = [Node::join(&machines, 4, &one, home).await, Node::join(&machines, 5, &one, home).await];
        let two = machines.join_as(binary.clone(), 2, &one, &QUIET).await;
        let three = machines.join_as(binary, 3, &one, &QUIET).await;
        let client = one.client();
        // What controllers write by themselves is no part of the sequence of events.
        testkit::object::<ConfigMap>(&client, "default", "kube-root-ca.crt", "the authority", |map| map.is_some())
            .await;
        for node in &nodes {
            node.deploy(&client).await;
        }
        for node in &nodes {
            node.answers(5).await;
        }
        Self { nodes, hosts: [one, two, three], machines }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn soak_faults_of_three_servers_and_two_nodes() {
    let seed = seed();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let directory = tempfile::tempdir().expect("a directory");
    let mut field = Field::make(directory.path()).await;
    let servers: Vec<String> = (1..=3).map(|number| field.machines.url(number)[8..].to_owned()).collect();
    let clients: Vec<Client> = field.hosts.iter().map(Host::client).collect();
    clients.iter().for_each(|client| client.set_servers(&servers));
    let before = [field.nodes[0].containers(&clients[0]).await, field.nodes[1].containers(&clients[0]).await];
    let asked_before = [0, 1].map(|number| field.nodes[number].asked().len());

    let (histories, sequence) = (Histories::new(), Arc::new(Sequence::default()));
    watch_machine(&histories);
    let start = revision_now(&clients[0]).await;
    let mut watchers = JoinSet::new();
    for number in 0..WATCHERS {
        let client = balanced(&field.hosts[number % 3], &servers);
        watchers.spawn(watch(client, Arc::clone(&sequence), start.clone(), SENTINEL));
    }
    for round in 0..faults() {
        let keys: Arc<[String]> = (0..KEYS).map(|key| format!("r{round}-k{key}")).collect();
        let stop = CancellationToken::new();
        let mut writers = JoinSet::new();
        for number in 0..WRITERS {
            let client = balanced(&field.hosts[number as usize % 3], &servers);
            writers.spawn(write(client, Arc::clone(&histories), Arc::clone(&keys), random.random(), stop.clone()));
        }
        progress(&histories, 30, seed).await;
        // Each kind once in a short run, any of them in a long one.
        let any = FAULTS[random.random_range(0..FAULTS.len())];
        let fault = FAULTS.get(round).copied().unwrap_or(any);
        strike_and_judge(round, fault, &mut field, &mut random, &histories, seed).await;
        stop.cancel();
        while let Some(writer) = writers.join_next().await {
            writer.expect("a writer that does not panic");
        }
        for key in keys.iter() {
            eventually("a last look", async { while read(&clients[0], &histories, key).await.is_none() {} }).await;
        }
        histories.check_linearizable(seed);
    }
    eventually("the end is written", async {
        while let Err(error) = clients[0].create(&config_map(SENTINEL, "v", "0")).await {
            if error.is_already_exists() {
                return;
            }
        }
    })
    .await;
    let finish = async {
        while let Some(watcher) = watchers.join_next().await {
            watcher.expect("a watcher that agrees with the others");
        }
    };
    eventually("every watcher reaches the end", finish).await;
    sequence.check_complete(&histories, seed);
    println!("{} acknowledged writes, {} events, {WATCHERS} watchers", histories.acknowledged(), sequence.len());
    for ((node, before), asked_before) in field.nodes.iter().zip(before).zip(asked_before) {
        undisturbed(node, &clients[0], &before, asked_before, seed).await;
    }
}

/// Its pods have run all the time, and answered every question; and the agent works.
async fn undisturbed(node: &Node, client: &Client, before: &[(String, String, i32)], asked_before: usize, seed: u64) {
    node.answers(1).await;
    let asked = node.asked().split_off(asked_before);
    let unanswered: Vec<f64> = asked.iter().filter(|(_, answered)| !answered).map(|(time, _)| *time).collect();
    assert!(
        unanswered.is_empty(),
        "seed {seed}: unanswered on {} at {unanswered:?}:\n{}",
        node.machine.name,
        node.log()
    );
    let pause = asked.windows(2).map(|pair| pair[1].0 - pair[0].0).fold(0.0, f64::max);
    println!("{}: {} questions answered, at most {pause:.1} s between two", node.machine.name, asked.len());
    node.works(client).await;
    assert_eq!(node.containers(client).await, before, "seed {seed}: pods of {} run on", node.machine.name);
}

/// Makes a fault and mends it, and looks at how long writers had to wait.
async fn strike_and_judge(
    round: usize,
    fault: Fault,
    field: &mut Field,
    random: &mut StdRng,
    histories: &Histories,
    seed: u64,
) {
    let begun = Instant::now();
    histories.longest_pause();
    match fault {
        Fault::Agent | Fault::FrozenAgent | Fault::CutOffNode | Fault::DeafNode => {
            let node = &field.nodes[random.random_range(0..2)];
            println!("fault {round}: {fault:?} of {}", node.machine.name);
            strike_node(fault, node, histories, seed).await;
        }
        _ => {
            let victim = random.random_range(0..3);
            println!("fault {round}: {fault:?} of server {}", victim + 1);
            strike(fault, &mut field.hosts[victim], &field.machines, victim + 1, histories, seed).await;
        }
    }
    progress(histories, 30, seed).await;
    let pause = histories.longest_pause();
    println!("  over after {:?}, at most {pause:?} without a write", begun.elapsed());
    assert!(!soak() || pause <= PAUSE, "seed {seed}: {fault:?} kept everybody from writing for {pause:?}");
}

async fn strike_node(fault: Fault, node: &Node, histories: &Histories, seed: u64) {
    match fault {
        Fault::Agent => {
            node.signal("-KILL").await;
            lasts(histories, seed).await;
            node.start().await;
        }
        Fault::FrozenAgent => {
            node.signal("-STOP").await;
            lasts(histories, seed).await;
            node.signal("-CONT").await;
        }
        Fault::CutOffNode => {
            devnet::connect(&node.machine, false).await.expect("cut off");
            lasts(histories, seed).await;
            devnet::connect(&node.machine, true).await.expect("joined again");
        }
        _ => {
            devnet::lose(&node.machine, Loss::Incoming).await.expect("cut off one way");
            lasts(histories, seed).await;
            devnet::lose(&node.machine, Loss::Nothing).await.expect("joined again");
        }
    }
}

/// A client of this server that knows the others.
fn balanced(host: &Host, servers: &[String]) -> Client {
    let client = host.client();
    client.set_servers(servers);
    client
}

/// Makes a fault, waits until writers are past it, and mends it.
async fn strike(fault: Fault, host: &mut Host, machines: &Machines, number: usize, histories: &Histories, seed: u64) {
    match fault {
        Fault::Lost => {
            host.lose().await;
            progress(histories, 20, seed).await;
            host.start_again_with(&QUIET).await;
        }
        Fault::Server => {
            host.server.kill().await;
            progress(histories, 20, seed).await;
            host.start_again_with(&QUIET).await;
        }
        Fault::Member => {
            let id = host.etcd().expect("its etcd runs");
            signal(&id, "-KILL").await;
            progress(histories, 20, seed).await;
            eventually("etcd is started again", async {
                while host.etcd().is_none_or(|other| other == id) {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            })
            .await;
        }
        Fault::Frozen => {
            let ids = [host.server.id().expect("it runs").to_string(), host.etcd().expect("its etcd runs")];
            for id in &ids {
                signal(id, "-STOP").await;
            }
            lasts(histories, seed).await;
            for id in &ids {
                signal(id, "-CONT").await;
            }
        }
        Fault::CutOff => {
            devnet::connect(machines.machine(number), false).await.expect("cut off");
            lasts(histories, seed).await;
            devnet::connect(machines.machine(number), true).await.expect("joined again");
        }
        Fault::Deaf | Fault::Mute => {
            let loss = if fault == Fault::Deaf { Loss::Incoming } else { Loss::Outgoing };
            devnet::lose(machines.machine(number), loss).await.expect("cut off one way");
            lasts(histories, seed).await;
            devnet::lose(machines.machine(number), Loss::Nothing).await.expect("joined again");
        }
        Fault::FullDisk => {
            let (filler, id) = (host.etcd_dir().join("filler"), host.etcd());
            // It ends with an error, for want of room.
            let mut file = std::fs::File::create(&filler).expect("a file");
            let copied = std::io::copy(&mut std::io::Read::take(std::io::repeat(0), 1 << 30), &mut file);
            assert!(copied.is_err(), "the file system is larger than it should be");
            lasts(histories, seed).await;
            println!("  etcd {}", if host.etcd() == id { "goes on" } else { "has ended" });
            std::fs::remove_file(&filler).expect("it goes");
            eventually("etcd runs", async {
                while host.etcd().is_none() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            })
            .await;
        }
        Fault::Agent | Fault::FrozenAgent | Fault::CutOffNode | Fault::DeafNode => {
            unreachable!("these are faults of nodes")
        }
    }
}

/// Lets a fault last, long enough for members of etcd to miss each other, while writers go on.
async fn lasts(histories: &Histories, seed: u64) {
    tokio::join!(progress(histories, 20, seed), tokio::time::sleep(LASTS));
}

/// Waits until so many more writes were acknowledged.
async fn progress(histories: &Histories, more: usize, seed: u64) {
    let wanted = histories.acknowledged() + more;
    let reached = async {
        while histories.acknowledged() < wanted {
            // The load is the clock here: how long it takes is the servers' affair.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    if tokio::time::timeout(Duration::from_secs(120), reached).await.is_err() {
        panic!("seed {seed}: writers are stuck; last failure: {}", histories.last_failure());
    }
}
