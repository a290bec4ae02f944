//! Real packets between namespaces agree with the specification, on a sample of generated policies.

use std::net::SocketAddr;

use netpol::model::Policy;
use netpol::{Input, Kind};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use rules::protocol::Protocol;
use serde_json::json;

use crate::cluster::{Cluster, bridged, on_both_engines, pod};
use crate::oracle::World;
use crate::property;

on_both_engines!(packets_agree_with_the_specification);

fn packets_agree_with_the_specification(kind: Kind) {
    let seed = property::seed();
    let mut random = StdRng::seed_from_u64(seed);
    let net = bridged(4);
    for _ in 0..4 {
        let (mut world, mut cluster) = (World::default(), Cluster::new(&net, 0, kind));
        for number in 0..4_u8 {
            let labels = property::labels(&mut random);
            let ports = json!([{"name": "web", "containerPort": 80}]);
            let (host, uid) = (number + 2, format!("uid{number}"));
            let made = json!({
                "metadata": {"namespace": "default", "name": format!("pod{number}"), "labels": labels},
                "spec": {"nodeName": "node", "containers": [{"name": "c", "ports": ports}]},
                "status": {"podIPs": [{"ip": format!("10.1.0.{host}")}, {"ip": format!("fd01::{host:x}")}]},
            });
            world.pods.insert(uid, serde_json::from_value(made).unwrap());
            cluster.update([pod(number, labels, ports)]);
        }
        world.namespaces.insert("default".into(), [("app".to_owned(), "x".to_owned())].into());
        cluster.update([Input::Namespace("default".into(), world.namespaces.get("default").cloned())]);
        for number in 0..3 {
            let mut made = property::policy(&mut random, &format!("np{number}"));
            made.metadata.namespace = Some("default".into());
            let read = Policy::of(&made).unwrap();
            world.policies.insert(format!("np{number}"), made);
            cluster.update([Input::Policy(read.name.clone(), Some(read))]);
        }
        for number in 0..random.random_range(0..3) {
            let (name, spec) = (format!("cnp{number}"), property::cluster_policy(&mut random));
            let read = property::read_cluster_policy(&name, &spec);
            world.cluster.insert(name.clone(), spec);
            cluster.update([Input::ClusterPolicy(name, Some(read))]);
        }
        for _ in 0..12 {
            let (from, to) = (random.random_range(0..4_u8), random.random_range(0..4_u8));
            let port = 80 + random.random_range(0..2_u16);
            let (source, target) = match random.random_bool(0.5) {
                true => (format!("10.1.0.{}:1", from + 2), format!("10.1.0.{}:{port}", to + 2)),
                false => (format!("[fd01::{:x}]:1", from + 2), format!("[fd01::{:x}]:{port}", to + 2)),
            };
            let ip = |text: &str| text.parse::<SocketAddr>().unwrap().ip();
            let want = world.judge("node", ip(&source), ip(&target), Some((Protocol::Tcp, port)));
            assert_eq!(
                cluster.reaches(&format!("pod{from}"), &target),
                want,
                "TRIREME_SEED={seed} pod{from} to {target}"
            );
        }
    }
}
