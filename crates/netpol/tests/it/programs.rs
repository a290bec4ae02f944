//! The programs themselves, asked by the kernel about single packets: for generated policies they answer what the specification says.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use netpol::ebpf::Trial;
use netpol::{Compiler, Engine, Kind};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use rules::protocol::Protocol;
use serde_json::json;

use crate::cluster::{Cluster, bridged, kernel_runs_programs};
use crate::oracle::World;
use crate::property::{self, NODE, change, packet};

/// Headers of IPv6 that stand between the packet's own and its ports.
const OPTIONS: u8 = 60;
const FRAGMENT: u8 = 44;

/// What is sent: the first bytes of a packet to a port, or of an echo request.
fn bytes(random: &mut StdRng, from: IpAddr, to: IpAddr, port: Option<(Protocol, u16)>) -> Vec<u8> {
    let (protocol, payload) = match port {
        Some((protocol, port)) => (protocol.number(), [&[0x30, 0x39][..], &port.to_be_bytes(), &[0; 16]].concat()),
        None => (if from.is_ipv4() { 1 } else { 58 }, [&[if from.is_ipv4() { 8 } else { 128 }][..], &[0; 19]].concat()),
    };
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            // Options are words of zeros.
            let words = random.random_range(5..9_u8);
            let length = usize::from(words) * 4;
            let mut header = vec![0; length];
            header[0] = 0x40 | words;
            header[2..4].copy_from_slice(&u16::try_from(length + payload.len()).unwrap().to_be_bytes());
            (header[8], header[9]) = (64, protocol);
            header[12..16].copy_from_slice(&from.octets());
            header[16..20].copy_from_slice(&to.octets());
            [header, payload].concat()
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            // Up to three headers of any length between the two, and a fragment that is the whole of a packet.
            let between: Vec<(u8, usize)> = (0..random.random_range(0..4))
                .map(|_| if random.random_bool(0.2) { (FRAGMENT, 1) } else { (OPTIONS, random.random_range(1..4)) })
                .collect();
            let kinds: Vec<u8> = between.iter().map(|(kind, _)| *kind).chain([protocol]).collect();
            let mut middle = Vec::new();
            for ((kind, words), next) in between.iter().zip(&kinds[1..]) {
                let length = if *kind == FRAGMENT { 0 } else { u8::try_from(words - 1).unwrap() };
                middle.extend([*next, length]);
                middle.extend(vec![0; words * 8 - 2]);
            }
            let mut header = vec![0; 40];
            header[0] = 0x60;
            header[4..6].copy_from_slice(&u16::try_from(middle.len() + payload.len()).unwrap().to_be_bytes());
            (header[6], header[7]) = (kinds[0], 64);
            header[8..24].copy_from_slice(&from.octets());
            header[24..40].copy_from_slice(&to.octets());
            [header, middle, payload].concat()
        }
        _ => unreachable!("both ends are of one family"),
    }
}

#[test]
fn the_kernel_answers_what_the_specification_says_for_100_000_packets() {
    if !kernel_runs_programs() {
        return;
    }
    let seed = property::seed();
    let mut random = StdRng::seed_from_u64(seed);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (mut allowed, mut denied) = (0, 0);
    for _ in 0..20 {
        let (mut world, mut compiler) = (World::default(), Compiler::new(NODE));
        let trial = Trial::new().unwrap();
        let all: Vec<_> = (0..60).map(|_| change(&mut random, &mut world)).collect();
        runtime.block_on(trial.change(&compiler.update(all))).unwrap();
        for _ in 0..50 {
            runtime.block_on(trial.change(&compiler.update([change(&mut random, &mut world)]))).unwrap();
            for _ in 0..100 {
                let (from, to, port) = packet(&mut random);
                let want = world.judge(NODE, from, to, port);
                let said = trial.passes(&bytes(&mut random, from, to, port)).unwrap();
                assert_eq!(said, want, "TRIREME_SEED={seed} {from} {to} {port:?}");
                *if want { &mut allowed } else { &mut denied } += 1;
            }
        }
    }
    assert!(allowed + denied >= 100_000 && allowed > 10_000 && denied > 10_000, "{allowed} {denied}");
}

/// Waits until the first pod answers the second: the kernel takes programs off their hooks a moment after nobody holds them.
fn until_reached(cluster: &Cluster<'_>, why: &str) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !cluster.reaches("pod1", "10.1.0.2:80") {
        assert!(Instant::now() < deadline, "programs that were let go still judge: {why}");
    }
}

#[test]
fn what_is_pinned_outlives_who_made_it_and_goes_with_its_namespace() {
    if !kernel_runs_programs() {
        return;
    }
    let net = bridged(2);
    let mut cluster = Cluster::new(&net, 2, Kind::Ebpf);
    cluster.allow("deny", json!({"podSelector": {"matchLabels": {"app": "a"}}}));
    // The engine goes, and with it every file that it had open.
    cluster.engine = Engine::Nftables;
    assert!(!cluster.reaches("pod1", "10.1.0.2:80"));
    node::bpf::release(std::path::Path::new(&format!("/run/netns/{}", net.name("node")))).unwrap();
    until_reached(&cluster, "nobody judges");
}

#[test]
fn a_generation_takes_over_from_the_one_before_and_from_the_other_engine() {
    if !kernel_runs_programs() {
        return;
    }
    let net = bridged(2);
    let mut cluster = Cluster::new(&net, 2, Kind::Nftables);
    cluster.allow("deny", json!({"podSelector": {"matchLabels": {"app": "a"}}}));
    for kind in [Kind::Ebpf, Kind::Ebpf, Kind::Nftables, Kind::Ebpf] {
        cluster.engine = crate::cluster::on_node(&net, async { Engine::open(kind).unwrap() });
        cluster.rewrite();
        assert!(!cluster.reaches("pod1", "10.1.0.2:80"), "{kind:?}");
        // Nothing of those before judges any more.
        cluster.forget("deny");
        until_reached(&cluster, &format!("{kind:?}"));
        cluster.allow("deny", json!({"podSelector": {"matchLabels": {"app": "a"}}}));
        for _ in 0..3 {
            cluster.rewrite();
        }
    }
}

#[test]
fn the_engine_for_a_machine_is_the_one_that_took_less_time() {
    if !kernel_runs_programs() {
        return;
    }
    let begun = Instant::now();
    let measured = netpol::probe::measure().unwrap();
    println!("{measured:?} after {:?}", begun.elapsed());
    assert!(measured.nftables > Duration::ZERO && measured.ebpf > Duration::ZERO);
    let quicker = if measured.ebpf < measured.nftables { Kind::Ebpf } else { Kind::Nftables };
    assert_eq!(measured.best(), quicker);
}
