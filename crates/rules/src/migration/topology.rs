//! Where a volume can be reached, in the words of its driver.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume};

/// What a driver calls zones and regions.
#[derive(Debug)]
pub(super) struct Keys {
    pub(super) zone: &'static str,
    pub(super) region: Option<&'static str>,
}

const STABLE: (&str, &str) = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region");
const BETA: (&str, &str) = ("failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region");
/// Between several zones in a label.
pub(super) const BETWEEN: &str = "__";

fn terms(volume: &mut PersistentVolume) -> &mut Vec<NodeSelectorTerm> {
    let spec = volume.spec.get_or_insert_default();
    &mut spec.node_affinity.get_or_insert_default().required.get_or_insert_default().node_selector_terms
}

fn expressions(volume: &PersistentVolume) -> impl Iterator<Item = &NodeSelectorRequirement> {
    let required = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref()?.required.as_ref());
    let terms = required.into_iter().flat_map(|selector| &selector.node_selector_terms);
    terms.flat_map(|term| term.match_expressions.iter().flatten())
}

/// The labels for zone and region that a volume uses: in its affinity before its own labels.
fn labels(volume: &PersistentVolume) -> (&'static str, &'static str) {
    let in_affinity = |key: &str| expressions(volume).any(|one| one.key == key);
    let own = volume.metadata.labels.as_ref();
    let labelled = |key: &str| own.is_some_and(|all| all.contains_key(key));
    [STABLE, BETA]
        .into_iter()
        .find(|(zone, _)| in_affinity(zone))
        .or_else(|| [STABLE, BETA].into_iter().find(|(zone, _)| labelled(zone)))
        .unwrap_or(STABLE)
}

fn rename(volume: &mut PersistentVolume, from: &str, to: &str) {
    if expressions(volume).next().is_none() {
        return;
    }
    let all = terms(volume).iter_mut().flat_map(|term| term.match_expressions.iter_mut().flatten());
    all.filter(|one| one.key == from).for_each(|one| to.clone_into(&mut one.key));
}

fn has_values(volume: &PersistentVolume, key: &str) -> bool {
    expressions(volume).any(|one| one.key == key && one.values.iter().flatten().next().is_some())
}

fn add(volume: &mut PersistentVolume, key: &str, values: &[&str]) {
    let mut values: Vec<String> =
        values.iter().map(|value| value.trim()).filter(|value| !value.is_empty()).map(str::to_owned).collect();
    values.sort();
    values.dedup();
    if values.is_empty() {
        return;
    }
    let terms = terms(volume);
    if terms.is_empty() {
        terms.push(NodeSelectorTerm::default());
    }
    for term in terms {
        term.match_expressions.get_or_insert_default().push(NodeSelectorRequirement {
            key: key.to_owned(),
            operator: "In".to_owned(),
            values: Some(values.clone()),
        });
    }
}

pub(super) fn translate(volume: &mut PersistentVolume, keys: &Keys) {
    let (zone, region) = labels(volume);
    let own: BTreeMap<String, String> = volume.metadata.labels.clone().unwrap_or_default();
    if has_values(volume, zone) {
        rename(volume, zone, keys.zone);
    } else if let Some(label) = own.get(zone) {
        // A driver that knows regions has one zone in a label.
        let zones: Vec<&str> = if keys.region.is_some() { vec![label] } else { label.split(BETWEEN).collect() };
        add(volume, keys.zone, &zones);
    }
    match keys.region {
        Some(key) if has_values(volume, region) => rename(volume, region, key),
        Some(key) => {
            if let Some(label) = own.get(region) {
                add(volume, key, &[label]);
            }
        }
        // Nodes of today do not have the label of old.
        None if region == BETA.1 && has_values(volume, region) => rename(volume, region, STABLE.1),
        None => {}
    }
}
