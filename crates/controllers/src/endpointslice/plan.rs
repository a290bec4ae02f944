//! Which slices to create, change and delete, so that together they hold the desired endpoints.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::endpoints::{Group, families};
use crate::common::meta::{MetaExt, controller_reference};
use crate::common::services::{HEADLESS_LABEL, is_headless};
use crate::common::slices::{MANAGED_BY_LABEL, Plan, SERVICE_LABEL, identity};

/// The value of the label by which slices are this controller's.
pub(super) const MANAGER: &str = "endpointslice-controller.k8s.io";

/// The most endpoints in a slice.
const MOST: usize = 100;

/// How many slices would be enough for these endpoints; one of each family there is at least.
pub(super) fn enough(desired: &[Group]) -> usize {
    desired.iter().map(|group| group.endpoints.len().div_ceil(MOST).max(1)).sum()
}

/// The fewest changes. Every family keeps one slice even without endpoints: that says that there are none, not that nobody looked yet.
pub(super) fn plan(service: &Service, existing: &[Arc<EndpointSlice>], mut desired: Vec<Group>) -> Plan {
    let Some(spec) = &service.spec else { return Plan::default() };
    for family in families(spec) {
        if !desired.iter().any(|group| group.family == family) {
            desired.push(Group { family, ports: Vec::new(), endpoints: Vec::new() });
        }
    }
    let labels = labels(service);
    let mut plan = Plan::default();
    let mut left: Vec<Arc<EndpointSlice>> =
        existing.iter().filter(|slice| !slice.metadata.is_deleting()).cloned().collect();
    for group in desired {
        let (own, others): (Vec<_>, Vec<_>) = left.into_iter().partition(|slice| belongs(slice, &group));
        left = others;
        fill(service, &labels, own, group, &mut plan);
    }
    // A slice that would go takes the content of one that would come, where the family is the same: one change instead of two.
    for stale in left {
        match plan.create.iter().position(|new| new.address_type == stale.address_type) {
            Some(at) => {
                let new = plan.create.remove(at);
                plan.update.push(EndpointSlice { metadata: merged(&stale.metadata, new.metadata.labels), ..new });
            }
            None => plan.delete.push(stale),
        }
    }
    plan
}

fn belongs(slice: &EndpointSlice, group: &Group) -> bool {
    slice.address_type == group.family && same_ports(slice.ports.as_deref().unwrap_or_default(), &group.ports)
}

/// In any order; what is absent is what the API server would put there.
fn same_ports(a: &[EndpointPort], b: &[EndpointPort]) -> bool {
    let sorted = |ports: &[EndpointPort]| {
        let mut ports: Vec<_> = ports
            .iter()
            .map(|port| {
                let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
                (port.name.clone().unwrap_or_default(), port.port, protocol, port.app_protocol.clone())
            })
            .collect();
        ports.sort();
        ports
    };
    sorted(a) == sorted(b)
}

fn fill(
    service: &Service,
    labels: &BTreeMap<String, String>,
    slices: Vec<Arc<EndpointSlice>>,
    group: Group,
    plan: &mut Plan,
) {
    let mut missing: BTreeMap<String, Endpoint> =
        group.endpoints.into_iter().map(|endpoint| (identity(&endpoint), endpoint)).collect();
    let nothing = missing.is_empty();
    // First every slice keeps what is still wanted, brought up to date.
    let mut kept: Vec<(Arc<EndpointSlice>, Vec<Endpoint>, bool)> = Vec::new();
    for slice in slices {
        let old = slice.endpoints.clone().unwrap_or_default();
        let new: Vec<Endpoint> = old.iter().filter_map(|endpoint| missing.remove(&identity(endpoint))).collect();
        let changed = new != old || !has_labels(&slice, labels, service);
        kept.push((slice, new, changed));
    }
    // Then what is missing goes where something changes anyway, then where there is room.
    let mut missing: Vec<Endpoint> = missing.into_values().collect();
    for only_changed in [true, false] {
        for (_, endpoints, changed) in kept.iter_mut().filter(|(_, _, changed)| *changed == only_changed) {
            if missing.is_empty() {
                break;
            }
            let room = MOST.saturating_sub(endpoints.len()).min(missing.len());
            endpoints.extend(missing.drain(..room));
            *changed |= room > 0;
        }
    }
    // Empty slices go, but the last one of a family without endpoints stays.
    let mut placeholder = nothing;
    for (slice, endpoints, changed) in kept {
        if endpoints.is_empty() && !std::mem::take(&mut placeholder) {
            plan.delete.push(slice);
        } else if changed {
            let metadata = merged(&slice.metadata, Some(labels.clone()));
            let content = EndpointSlice::clone(&slice);
            plan.update.push(EndpointSlice { metadata, endpoints: Some(endpoints), ..content });
        }
    }
    let mut chunks: Vec<Vec<Endpoint>> = missing.chunks(MOST).map(<[Endpoint]>::to_vec).collect();
    if placeholder {
        chunks.push(Vec::new());
    }
    plan.create.extend(chunks.into_iter().map(|endpoints| EndpointSlice {
        metadata: ObjectMeta {
            generate_name: Some(prefix(service.metadata.name())),
            namespace: service.metadata.namespace.clone(),
            labels: Some(labels.clone()),
            owner_references: Some(vec![controller_reference(service)]),
            ..ObjectMeta::default()
        },
        address_type: group.family.clone(),
        endpoints: Some(endpoints),
        ports: Some(group.ports.clone()),
    }));
}

fn prefix(name: &str) -> String {
    let prefix = format!("{name}-");
    if prefix.len() > 253 { name.to_owned() } else { prefix }
}

/// The Service's own labels, and those by which a slice is found.
fn labels(service: &Service) -> BTreeMap<String, String> {
    let reserved = [SERVICE_LABEL, MANAGED_BY_LABEL, HEADLESS_LABEL];
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    labels.retain(|key, _| !reserved.contains(&key.as_str()));
    if service.spec.as_ref().is_some_and(is_headless) {
        labels.insert(HEADLESS_LABEL.to_owned(), String::new());
    }
    labels.insert(SERVICE_LABEL.to_owned(), service.metadata.name().to_owned());
    labels.insert(MANAGED_BY_LABEL.to_owned(), MANAGER.to_owned());
    labels
}

fn has_labels(slice: &EndpointSlice, labels: &BTreeMap<String, String>, service: &Service) -> bool {
    let owned = slice.metadata.owner_references.iter().flatten().any(|owner| owner.uid == service.metadata.uid());
    owned && slice.metadata.labels.as_ref() == Some(labels)
}

fn merged(meta: &ObjectMeta, labels: Option<BTreeMap<String, String>>) -> ObjectMeta {
    ObjectMeta { labels, ..meta.clone() }
}
