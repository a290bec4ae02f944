//! Real namespaces, removed however a test ends.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::process::Command;
use std::time::Duration;

use devnet::{Layout, Loss, Machine, Program};

/// A cluster whose machines go with it.
struct Made(Layout);

impl Drop for Made {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["link", "del", &self.0.link]).output();
        let _ = Command::new("ip").args(["netns", "del", &self.0.switch]).output();
        for machine in &self.0.machines {
            let _ = Command::new("ip").args(["netns", "del", &machine.namespace]).output();
        }
        let _ = Command::new("nft").args(["delete", "table", "ip", &table(&self.0)]).output();
    }
}

/// A table of the host's packet filter that goes with the cluster.
fn table(layout: &Layout) -> String {
    format!("devnet-test-{}", layout.name)
}

/// Whether one machine reaches an address: a port nobody listens on is refused by whoever has the address.
fn reaches(from: &Machine, to: &str) -> bool {
    let connect = format!("exec 3<>/dev/tcp/{to}/9");
    let probe = ["netns", "exec", &from.namespace, "timeout", "1", "bash", "-c", &connect];
    String::from_utf8_lossy(&Command::new("ip").args(probe).output().unwrap().stderr).contains("refused")
}

/// Datagrams that came to a machine for ports nobody listens on.
fn come_in(at: &Machine) -> u64 {
    let read = Command::new("ip").args(["netns", "exec", &at.namespace, "cat", "/proc/net/snmp"]).output().unwrap();
    let text = String::from_utf8(read.stdout).unwrap();
    let mut lines = text.lines().filter(|line| line.starts_with("Udp: ")).map(str::split_whitespace);
    let (names, mut numbers) = (lines.next().unwrap(), lines.next().unwrap());
    numbers.nth(names.into_iter().position(|name| name == "NoPorts").unwrap()).unwrap().parse().unwrap()
}

/// Whether a machine hears what another one sends, whatever it could answer.
async fn hears(at: &Machine, from: &Machine) -> bool {
    let (before, send) = (come_in(at), format!("echo > /dev/udp/{}/9", at.address));
    // Who may not send is told so, and has not been heard.
    let _ = Command::new("ip").args(["netns", "exec", &from.namespace, "bash", "-c", &send]).output().unwrap();
    let heard = async {
        while come_in(at) == before {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(1), heard).await.is_ok()
}

#[tokio::test]
async fn a_machine_is_cut_off_one_way() {
    let name = format!("o{}", std::process::id() % 100_000);
    let range = format!("198.18.{}.0/24", (std::process::id() + 50) % 250);
    let made = Made(Layout::new(&name, 2, range.parse().unwrap(), false).unwrap());
    devnet::make(&made.0).await.unwrap();
    let [first, second] = &made.0.machines[..] else { panic!("two machines") };
    for (loss, hearing, heard) in [
        (Loss::Nothing, true, true),
        (Loss::Incoming, false, true),
        (Loss::Outgoing, true, false),
        (Loss::Nothing, true, true),
    ] {
        devnet::lose(first, loss).await.unwrap();
        assert_eq!((hears(first, second).await, hears(second, first).await), (hearing, heard), "{loss:?}");
    }
    devnet::remove(&name).await.unwrap();
}

#[tokio::test]
async fn machines_come_are_cut_off_come_back_and_go() {
    let name = format!("t{}", std::process::id() % 100_000);
    let range = format!("198.18.{}.0/24", std::process::id() % 250);
    let layout = Layout::new(&name, 3, range.parse().unwrap(), false).unwrap();
    let made = Made(layout.clone());
    devnet::make(&layout).await.unwrap();
    let [first, second, third] = &layout.machines[..] else { panic!("three machines") };
    assert!(reaches(first, &second.address.to_string()));
    assert!(reaches(first, &layout.host().to_string()));
    // A documentation address: without a route nothing is sent.
    assert!(!reaches(first, "203.0.113.1"));

    devnet::connect(second, false).await.unwrap();
    assert!(!reaches(first, &second.address.to_string()));
    assert!(reaches(first, &third.address.to_string()));
    let connected = |seen: Vec<devnet::Seen>| seen.iter().map(|s| s.connected).collect::<Vec<_>>();
    assert_eq!(connected(devnet::list(&name).await.unwrap()), [true, false, true]);
    devnet::connect(second, true).await.unwrap();
    assert!(reaches(first, &second.address.to_string()));

    // Made again: the old ones go first.
    devnet::make(&layout).await.unwrap();
    assert_eq!(devnet::list(&name).await.unwrap().len(), 3);
    devnet::remove(&name).await.unwrap();
    assert!(devnet::list(&name).await.unwrap().is_empty());
    devnet::remove(&name).await.unwrap();
    drop(made);
}

/// Docker makes the host drop all that it forwards, and with `br_netfilter` what its bridges pass on counts as such.
#[tokio::test]
async fn what_the_host_forwards_or_not_is_nothing_to_the_machines() {
    let name = format!("f{}", std::process::id() % 100_000);
    let range = format!("198.18.{}.0/24", (std::process::id() + 100) % 250);
    let made = Made(Layout::new(&name, 2, range.parse().unwrap(), false).unwrap());
    let table = table(&made.0);
    let rules = format!(
        "table ip {table} {{ chain forward {{ type filter hook forward priority 0; ip saddr {range} ip daddr {range} drop; }}; }}"
    );
    assert!(Command::new("nft").arg(rules).status().unwrap().success());
    devnet::make(&made.0).await.unwrap();
    let [first, second] = &made.0.machines[..] else { panic!("two machines") };
    assert!(reaches(first, &second.address.to_string()));
    assert!(reaches(second, &made.0.host().to_string()));
    devnet::remove(&name).await.unwrap();
}

#[tokio::test]
async fn programs_run_inside_outlive_their_starter_and_are_found_again() {
    let name = format!("p{}", std::process::id() % 100_000);
    let range = format!("198.19.{}.0/24", std::process::id() % 250);
    let made = Made(Layout::new(&name, 1, range.parse().unwrap(), false).unwrap());
    devnet::make(&made.0).await.unwrap();
    let machine = &made.0.machines[0];
    let directory = tempfile::tempdir().unwrap();
    let program = Program {
        path: "sh".into(),
        arguments: vec!["-c".into(), "ip -o -4 addr show eth0; exec sleep 600".into()],
        directory: devnet::directory(directory.path(), machine),
    };
    program.start(machine).await.unwrap();
    let pid = program.running().unwrap().pid();
    program.start(machine).await.unwrap();
    assert_eq!(program.running().unwrap().pid(), pid);
    let inside = async {
        while !std::fs::read_to_string(program.log()).unwrap().contains(&machine.address.to_string()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), inside).await.expect("its own address in its log");
    // Started again at the very moment of its end, there is another one.
    for _ in 0..20 {
        let pid = program.running().unwrap().pid();
        program.running().unwrap().signal(rustix::process::Signal::KILL).unwrap();
        program.start(machine).await.unwrap();
        assert_ne!(program.running().unwrap().pid(), pid);
    }
    program.stop(machine).await.unwrap();
    assert!(program.running().is_none());
    program.stop(machine).await.unwrap();
    devnet::remove(&name).await.unwrap();
}
