//! Verdicts as they happen, whichever engine gives them.

use std::time::Duration;

use netpol::Kind;
use netpol::flow::{Reader, Verdict, Verdicts};
use netpol::model::Direction;
use rules::protocol::Protocol;
use serde_json::json;

use crate::cluster::{Cluster, bridged, on_both_engines};

on_both_engines!(whoever_follows_sees_connections_that_are_allowed_and_packets_that_are_not);

fn whoever_follows_sees_connections_that_are_allowed_and_packets_that_are_not(kind: Kind) {
    let net = bridged(3);
    let mut cluster = Cluster::new(&net, 3, kind);
    let from_b = json!([{"from": [{"podSelector": {"matchLabels": {"app": "b"}}}], "ports": [{"port": 80}]}]);
    cluster.allow("in", json!({"podSelector": {"matchLabels": {"app": "a"}}, "ingress": from_b}));
    // Before anybody follows: nothing of it is shown.
    assert!(!cluster.reaches("pod2", "10.1.0.2:80"));
    let (say, heard) = std::sync::mpsc::channel();
    let (opened, is_open) = std::sync::mpsc::channel();
    let follower = net.spawn_inside("node", move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut verdicts = Verdicts::open(Reader::Follower).await.unwrap();
            opened.send(()).unwrap();
            loop {
                for verdict in verdicts.next().await.unwrap() {
                    if say.send(verdict).is_err() {
                        return;
                    }
                }
            }
        });
    });
    is_open.recv().unwrap();
    let expect = |from: &str, to: &str, allowed: bool, port: u16| {
        let ip = |text: &str| text.parse().unwrap();
        let want = Verdict {
            direction: Direction::Ingress,
            allowed,
            from: ip(from),
            to: ip(to),
            port: Some((Protocol::Tcp, port)),
        };
        let next = heard.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!(next, want);
    };
    assert!(cluster.reaches("pod1", "10.1.0.2:80"));
    expect("10.1.0.3", "10.1.0.2", true, 80);
    assert!(cluster.reaches("pod1", "[fd01::2]:80"));
    expect("fd01::3", "fd01::2", true, 80);
    assert!(!cluster.reaches("pod2", "10.1.0.2:81"));
    expect("10.1.0.4", "10.1.0.2", false, 81);
    assert!(!cluster.reaches("pod2", "[fd01::2]:81"));
    expect("fd01::4", "fd01::2", false, 81);
    // Pods that no policy is about are nobody's business.
    assert!(cluster.reaches("pod0", "10.1.0.4:80"));
    assert!(cluster.reaches("pod1", "10.1.0.2:80"));
    expect("10.1.0.3", "10.1.0.2", true, 80);
    drop(heard);
    assert!(cluster.reaches("pod1", "10.1.0.2:80"));
    follower.join().unwrap();
}
