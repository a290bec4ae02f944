//! The slices that Endpoints stand for.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{EndpointAddress, Endpoints, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use crate::common::meta::{MetaExt, controller_reference};
use crate::common::slices::{MANAGED_BY_LABEL, Plan, SERVICE_LABEL};

pub(super) const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";
const SKIP_LABEL: &str = "endpointslice.kubernetes.io/skip-mirror";
const LEADER_ANNOTATION: &str = "control-plane.alpha.kubernetes.io/leader";
const TRIGGER_ANNOTATION: &str = "endpoints.kubernetes.io/last-change-trigger-time";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The most addresses of a subset that are mirrored.
const MOST: usize = 1000;

/// Services with a selector get their slices elsewhere.
pub(super) fn is_selectorless(service: &Service) -> bool {
    let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    selector.is_none_or(BTreeMap::is_empty) && !service.metadata.is_deleting()
}

/// Endpoints that a person or a program wrote, and that they want mirrored.
pub(super) fn is_mirrored(endpoints: &Endpoints) -> bool {
    let meta = &endpoints.metadata;
    meta.label(SKIP_LABEL) != Some("true")
        && meta.annotation(LEADER_ANNOTATION).is_none()
        && meta.label("endpoints.kubernetes.io/managed-by").is_none()
}

/// One slice per subset and family.
pub(super) fn slices(endpoints: &Endpoints) -> Vec<EndpointSlice> {
    let mut labels = endpoints.metadata.labels.clone().unwrap_or_default();
    labels.insert(SERVICE_LABEL.to_owned(), endpoints.metadata.name().to_owned());
    labels.insert(MANAGED_BY_LABEL.to_owned(), MANAGER.to_owned());
    let mut annotations = endpoints.metadata.annotations.clone().unwrap_or_default();
    annotations.retain(|key, _| key != TRIGGER_ANNOTATION && key != LAST_APPLIED);
    let owner = OwnerReference { ..controller_reference(endpoints) };
    let mut slices = Vec::new();
    for subset in endpoints.subsets.iter().flatten() {
        for family in ["IPv4", "IPv6"] {
            let of_family = |address: &&EndpointAddress| address.ip.contains(':') == (family == "IPv6");
            let ready = subset.addresses.iter().flatten().filter(of_family).map(|address| endpoint(address, true));
            let unready =
                subset.not_ready_addresses.iter().flatten().filter(of_family).map(|address| endpoint(address, false));
            let all: Vec<Endpoint> = ready.chain(unready).take(MOST).collect();
            if all.is_empty() {
                continue;
            }
            let ports = subset.ports.iter().flatten().map(|port| EndpointPort {
                name: Some(port.name.clone().unwrap_or_default()),
                port: Some(port.port),
                protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
                app_protocol: port.app_protocol.clone(),
            });
            slices.push(EndpointSlice {
                metadata: ObjectMeta {
                    generate_name: Some(format!("{}-", endpoints.metadata.name())),
                    namespace: endpoints.metadata.namespace.clone(),
                    labels: Some(labels.clone()),
                    annotations: (!annotations.is_empty()).then(|| annotations.clone()),
                    owner_references: Some(vec![owner.clone()]),
                    ..ObjectMeta::default()
                },
                address_type: family.to_owned(),
                endpoints: Some(all),
                ports: Some(ports.collect()),
            });
        }
    }
    slices
}

fn endpoint(address: &EndpointAddress, ready: bool) -> Endpoint {
    Endpoint {
        addresses: vec![address.ip.clone()],
        conditions: Some(EndpointConditions { ready: Some(ready), ..EndpointConditions::default() }),
        hostname: address.hostname.clone(),
        node_name: address.node_name.clone(),
        target_ref: address.target_ref.clone(),
        ..Endpoint::default()
    }
}

/// Existing slices take the wanted contents over, those with the same ports first.
pub(super) fn plan(existing: &[Arc<EndpointSlice>], wanted: Vec<EndpointSlice>) -> Plan {
    let mut left: Vec<Arc<EndpointSlice>> =
        existing.iter().filter(|slice| !slice.metadata.is_deleting()).cloned().collect();
    let mut plan = Plan::default();
    for slice in wanted {
        let same_family = |known: &Arc<EndpointSlice>| known.address_type == slice.address_type;
        let same = left.iter().position(|known| same_family(known) && known.ports == slice.ports);
        let Some(at) = same.or_else(|| left.iter().position(same_family)) else {
            plan.create.push(slice);
            continue;
        };
        let known = left.remove(at);
        let metadata = ObjectMeta {
            labels: slice.metadata.labels.clone(),
            annotations: slice.metadata.annotations.clone(),
            ..known.metadata.clone()
        };
        let changed = EndpointSlice { metadata, ..slice };
        if changed != *known {
            plan.update.push(changed);
        }
    }
    plan.delete = left;
    plan
}
