//! Subsets: addresses with the same ports together.

use k8s_openapi::api::core::v1::Service;
use serde_json::json;

use super::plan::plan;
use crate::testing::pod;

fn service() -> Service {
    serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "ns"},
        "spec": {"clusterIP": "10.96.0.1", "selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]},
    }))
    .expect("a service")
}

#[test]
fn ready_and_unready_addresses_stand_apart_and_nothing_is_written_twice() {
    let pods = [
        pod("b").address("10.0.0.2").ready().build(),
        pod("a").address("10.0.0.1").ready().build(),
        pod("c").address("10.0.0.3").phase("Running").build(),
        pod("d").address("10.0.0.4").ready().deleting().build(),
        pod("e").address("10.0.0.5").phase("Failed").build(),
    ];
    let wanted = plan(&service(), None, &pods).expect("something to write");
    let subsets = wanted.subsets.clone().expect("subsets");
    let ips = |addresses: &Option<Vec<k8s_openapi::api::core::v1::EndpointAddress>>| -> Vec<String> {
        addresses.iter().flatten().map(|address| address.ip.clone()).collect()
    };
    assert_eq!(ips(&subsets[0].addresses), ["10.0.0.1", "10.0.0.2"]);
    assert_eq!(ips(&subsets[0].not_ready_addresses), ["10.0.0.3"]);
    assert_eq!(subsets[0].ports.as_ref().map(|ports| ports[0].port), Some(8080));
    assert!(plan(&service(), Some(&wanted), &pods).is_none());
}

#[test]
fn more_than_a_thousand_addresses_are_cut_and_marked() {
    let pods: Vec<_> = (0..1200)
        .map(|number| {
            pod(&format!("p{number}")).address(&format!("10.{}.{}.1", number / 250, number % 250)).ready().build()
        })
        .collect();
    let wanted = plan(&service(), None, &pods).expect("something to write");
    let count: usize =
        wanted.subsets.iter().flatten().map(|subset| subset.addresses.as_ref().map_or(0, Vec::len)).sum();
    assert_eq!(count, 1000);
    assert_eq!(wanted.metadata.annotations.expect("a mark")["endpoints.kubernetes.io/over-capacity"], "truncated");
}
