//! The order of the output: what others need comes first.

use crate::Error;
use crate::id::{Gvk, Id};
use crate::kustomization::SortOptions;
use crate::resource::Resource;
use crate::resources::Resources;

const FIRST: [&str; 22] = [
    "Namespace",
    "ResourceQuota",
    "StorageClass",
    "CustomResourceDefinition",
    "ServiceAccount",
    "PodSecurityPolicy",
    "Role",
    "ClusterRole",
    "RoleBinding",
    "ClusterRoleBinding",
    "ConfigMap",
    "Secret",
    "Endpoints",
    "Service",
    "LimitRange",
    "PriorityClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Deployment",
    "StatefulSet",
    "CronJob",
    "PodDisruptionBudget",
];
const LAST: [&str; 2] = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];

/// The place of a kind: before the others, among them, or behind them.
fn place(kind: &str, first: &[String], last: &[String]) -> i64 {
    let at = |list: &[String]| list.iter().rposition(|known| known == kind);
    match (at(last), at(first)) {
        (Some(at), _) => 1 + at as i64,
        (None, Some(at)) => at as i64 - first.len() as i64,
        (None, None) => 0,
    }
}

fn owned(list: &[&str]) -> Vec<String> {
    list.iter().map(|kind| (*kind).to_owned()).collect()
}

/// What kinds are sorted by.
pub fn key(gvk: &Gvk) -> (i64, String) {
    (place(&gvk.kind, &owned(&FIRST), &owned(&LAST)), gvk.sort_key())
}

/// Sorts as the kustomization says, or in the legacy order.
pub fn sort(resources: &mut Resources, options: Option<&SortOptions>, keep: bool) -> Result<(), Error> {
    let (mut first, mut last) = (owned(&FIRST), owned(&LAST));
    match options {
        None if keep => return Ok(()),
        None => {}
        Some(options) => match (&*options.order, &options.legacy_sort_options) {
            ("fifo", None) => return Ok(()),
            ("fifo", Some(_)) => {
                return Err(Error::new(
                    "the field 'sortOptions.legacySortOptions' is set but the selected sort order is 'fifo', not 'legacy'",
                ));
            }
            ("legacy", legacy) => {
                if let Some(legacy) = legacy {
                    (first, last) = (legacy.order_first.clone(), legacy.order_last.clone());
                }
            }
            _ => return Err(Error::new("the field 'sortOptions.order' must be one of [fifo, legacy]")),
        },
    }
    let mut all = resources.take();
    all.sort_by_cached_key(|resource: &Resource| {
        let id = resource.id();
        (place(&id.gvk.kind, &first, &last), group_key(&id), name_key(&id))
    });
    resources.append_all(all)
}

/// Kinds by group, version and kind; namespaces of the core group come before those of others.
fn group_key(id: &Id) -> (bool, String) {
    (id.gvk.kind == "Namespace" && !id.gvk.group.is_empty(), id.gvk.sort_key())
}

fn name_key(id: &Id) -> String {
    let or = |text: &str, absent: &str| if text.is_empty() { absent.to_owned() } else { text.to_owned() };
    format!("{}|{}|{}", id.gvk, or(&id.namespace, "~X"), or(&id.name, "~N"))
}
