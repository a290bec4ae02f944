//! Slices: as few changes as can be.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::json;

use super::{endpoints, plan};
use crate::common::slices::Plan;
use crate::testing::pod;

fn service() -> Service {
    serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "web", "namespace": "ns", "uid": "s"},
        "spec": {"clusterIP": "10.96.0.1", "ipFamilies": ["IPv4"], "selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]},
    }))
    .expect("a service")
}

fn pods(range: std::ops::Range<usize>) -> Vec<Arc<Pod>> {
    range
        .map(|number| {
            pod(&format!("p{number:04}"))
                .on("n1")
                .ready()
                .address(&format!("10.0.{}.{}", number / 250, number % 250))
                .build()
        })
        .collect()
}

/// Applies a plan as the API server would.
fn apply(mut slices: Vec<Arc<EndpointSlice>>, plan: Plan) -> Vec<Arc<EndpointSlice>> {
    slices.retain(|slice| !plan.delete.iter().any(|gone| gone.metadata.name == slice.metadata.name));
    for changed in plan.update {
        slices.retain(|slice| slice.metadata.name != changed.metadata.name);
        slices.push(Arc::new(changed));
    }
    for (number, mut created) in plan.create.into_iter().enumerate() {
        created.metadata.name = Some(format!("web-{}-{number}", slices.len()));
        slices.push(Arc::new(created));
    }
    slices
}

fn desired(pods: &[Arc<Pod>]) -> Vec<endpoints::Group> {
    endpoints::desired(&service(), pods, |_| Some("z1".to_owned()))
}

fn count(slices: &[Arc<EndpointSlice>]) -> usize {
    slices.iter().map(|slice| slice.endpoints.as_ref().map_or(0, Vec::len)).sum()
}

#[test]
fn slices_hold_a_hundred_and_an_empty_one_says_none() {
    let empty = apply(Vec::new(), plan::plan(&service(), &[], desired(&[])));
    assert_eq!((empty.len(), count(&empty)), (1, 0));
    let full = apply(empty, plan::plan(&service(), &[], desired(&pods(0..250))));
    assert_eq!(count(&full), 250);
    assert!(full.iter().all(|slice| slice.endpoints.as_ref().is_none_or(|endpoints| endpoints.len() <= 100)));
}

#[test]
fn one_more_pod_changes_one_slice() {
    let slices = apply(Vec::new(), plan::plan(&service(), &[], desired(&pods(0..150))));
    let unchanged = plan::plan(&service(), &slices, desired(&pods(0..150)));
    assert_eq!(unchanged, Plan::default());
    let more = plan::plan(&service(), &slices, desired(&pods(0..151)));
    assert_eq!((more.create.len(), more.update.len(), more.delete.len()), (0, 1, 0));
    let fewer = plan::plan(&service(), &slices, desired(&pods(1..150)));
    assert_eq!((fewer.create.len(), fewer.update.len(), fewer.delete.len()), (0, 1, 0));
}

#[test]
fn new_ports_take_the_old_slices_over() {
    let slices = apply(Vec::new(), plan::plan(&service(), &[], desired(&pods(0..3))));
    let mut changed = service();
    changed.spec.as_mut().and_then(|spec| spec.ports.as_mut()).expect("ports")[0].target_port =
        Some(k8s_openapi::apimachinery::pkg::util::intstr::IntOrString::Int(9090));
    let groups = endpoints::desired(&changed, &pods(0..3), |_| None);
    let plan = plan::plan(&changed, &slices, groups);
    assert_eq!((plan.create.len(), plan.update.len(), plan.delete.len()), (0, 1, 0));
}

#[test]
fn conditions_follow_readiness_and_deletion() {
    let address = |name: &str| pod(name).on("n1").address("10.0.0.1");
    for (pod, expected) in [
        (address("a").ready().build(), Some((true, true, false))),
        (address("a").phase("Running").build(), Some((false, false, false))),
        (address("a").ready().deleting().build(), Some((false, true, true))),
        (address("a").phase("Succeeded").build(), None),
    ] {
        let groups = desired(&[pod]);
        let found =
            groups.first().and_then(|group| group.endpoints.first()).and_then(|endpoint| endpoint.conditions.clone());
        let found = found
            .map(|found| (found.ready == Some(true), found.serving == Some(true), found.terminating == Some(true)));
        assert_eq!(found, expected);
    }
    let near = desired(&[address("a").ready().build()]);
    assert_eq!(near[0].endpoints[0].zone.as_deref(), Some("z1"));
}
