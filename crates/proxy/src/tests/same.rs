//! Whatever the order of updates, the table is the one built from scratch, and every transaction on the way is one the
//! kernel takes.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use proptest::prelude::*;
use serde_json::json;

use super::kernel::Kernel;
use crate::model::ServiceName;
use crate::render;
use crate::rules::{Changed, Rules};
use crate::testing::node;

/// What a Service may turn into. Small ranges, so that Services collide.
#[derive(Debug, Clone)]
struct Shape {
    created: i64,
    node_port: Option<u16>,
    external_ip: Option<u8>,
    affinity: Option<u32>,
    local: (bool, bool),
    sources: bool,
    dual: bool,
    endpoints: Vec<(u8, u8)>,
}

fn shape() -> impl Strategy<Value = Shape> {
    (
        0..3_i64,
        proptest::option::of(30_000..30_003_u16),
        proptest::option::of(1..3_u8),
        proptest::option::of(prop_oneof![Just(60_u32), Just(600)]),
        any::<(bool, bool)>(),
        any::<bool>(),
        any::<bool>(),
        proptest::collection::vec((1..6_u8, 0..4_u8), 0..5),
    )
        .prop_map(|(created, node_port, external_ip, affinity, local, sources, dual, endpoints)| Shape {
            created,
            node_port,
            external_ip,
            affinity,
            local,
            sources,
            dual,
            endpoints,
        })
}

fn objects(index: u8, shape: &Shape) -> (Service, Vec<EndpointSlice>) {
    let ips: Vec<String> = [format!("10.96.0.{}", index + 1)]
        .into_iter()
        .chain(shape.dual.then(|| format!("fd00::{}", index + 1)))
        .collect();
    let policy = |local: bool| if local { "Local" } else { "Cluster" };
    let service = json!({
        "metadata": {"namespace": "ns", "name": format!("s{index}"),
                     "creationTimestamp": format!("2026-01-01T00:00:0{}Z", shape.created)},
        "spec": {
            "type": "LoadBalancer", "clusterIP": ips[0], "clusterIPs": ips,
            "ports": [{"name": "web", "port": 80, "nodePort": shape.node_port}],
            "externalIPs": shape.external_ip.map(|ip| vec![format!("192.0.2.{ip}")]),
            "sessionAffinity": if shape.affinity.is_some() { "ClientIP" } else { "None" },
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": shape.affinity}},
            "internalTrafficPolicy": policy(shape.local.0), "externalTrafficPolicy": policy(shape.local.1),
            "loadBalancerSourceRanges": shape.sources.then(|| vec!["203.0.113.0/24"]),
        },
        "status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.1"}]}},
    });
    let slice = |prefix: &str, kind: &str| {
        let endpoints = shape.endpoints.iter().map(|(ip, state)| {
            let (ready, terminating) =
                [(true, false), (true, false), (false, true), (false, false)][usize::from(*state)];
            json!({"addresses": [format!("{prefix}{ip}")], "nodeName": if *state == 0 { "here" } else { "there" },
                   "conditions": {"ready": ready, "serving": ready || terminating, "terminating": terminating}})
        });
        serde_json::from_value(json!({
            "metadata": {"namespace": "ns", "name": format!("s{index}-{kind}"),
                         "labels": {"kubernetes.io/service-name": format!("s{index}")}},
            "addressType": kind, "endpoints": endpoints.collect::<Vec<_>>(),
            "ports": [{"name": "web", "port": 8080, "protocol": "TCP"}],
        }))
        .unwrap()
    };
    (serde_json::from_value(service).unwrap(), vec![slice("10.1.0.", "IPv4"), slice("fd01::", "IPv6")])
}

fn changed(index: u8, now: Option<&(Service, Vec<EndpointSlice>)>) -> Changed<'_> {
    Changed {
        name: ServiceName { namespace: "ns".into(), name: format!("s{index}") },
        service: now.map(|(service, _)| service),
        slices: now.iter().flat_map(|(_, slices)| slices).collect(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn updates_end_where_a_rebuild_does(
        steps in proptest::collection::vec(proptest::collection::btree_map(0..4_u8, proptest::option::of(shape()), 1..4), 1..8),
    ) {
        let node = node("here").build();
        let mut rules = Rules::new(node.clone());
        let mut kernel = Kernel::default();
        let mut cluster = BTreeMap::new();
        for step in &steps {
            for (index, shape) in step {
                match shape {
                    Some(shape) => drop(cluster.insert(*index, objects(*index, shape))),
                    None => drop(cluster.remove(index)),
                }
            }
            let batch: Vec<Changed<'_>> = step.keys().map(|index| changed(*index, cluster.get(index))).collect();
            let transaction = rules.update(&batch);
            kernel.apply(&transaction.prepare());
            kernel.apply(&transaction.update());
            kernel.apply(&transaction.last_script());
            kernel.apply(&transaction.sweep());

            let services = cluster.values().map(|(service, _)| service);
            let slices = cluster.values().flat_map(|(_, slices)| slices);
            let rebuilt = Rules::build(services, slices, node.clone());
            let mut fresh = Kernel::default();
            for table in rebuilt.tables() {
                fresh.apply(&render::prepare(table.family(), &table.all()));
                fresh.apply(&render::update(table.family(), &table.all()));
            }
            prop_assert_eq!(&kernel, &fresh);
            // Nothing new, nothing to do.
            prop_assert_eq!(rules.update(&batch), crate::rules::Transaction::default());
        }
    }
}
