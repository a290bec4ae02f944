//! Who owns which field: every write records its author in `managedFields`, and apply goes by that record.

use facts::Type;
use http::header::USER_AGENT;
use machinery::apply::{Applied, FieldManager, Filter, Versions};
use machinery::status::ApiError;
use machinery::{Value, objectmeta, value};

use super::options::WriteOptions;
use super::{Api, Call};
use crate::convert;

/// The other served versions of a resource, for records that were made in them.
struct Others<'a> {
    call: &'a Call<'a>,
}

impl Versions for Others<'_> {
    fn convert(&self, object: &Value, api_version: &str) -> Option<(Value, &Type)> {
        let from = self.call.served.facts;
        let version = api_version.rsplit('/').next()?;
        let to = facts::resource(&from.group, version, &from.plural).filter(|to| to.api_version() == api_version)?;
        Some((convert::between(from, to, object.clone()), to.ty?.def()))
    }
}

impl Api {
    /// Records a create, update or patch in the new object. Both trees are in storage form.
    pub(super) fn record(&self, call: &Call<'_>, old: Option<&Value>, new: &mut Value, options: &WriteOptions) {
        let facts = call.served.facts;
        let (Some(ty), storage) = (facts.ty, call.resource.storage) else { return };
        let manager = manager(call, options);
        let (filter, versions, api_version) = (filter(call), Others { call }, facts.api_version());
        let keeper = keeper(call, ty.def(), &filter, &versions, &api_version);
        let now = self.now();
        if std::ptr::eq(facts, storage) {
            let empty;
            let old = match old {
                Some(old) => old,
                None => {
                    empty = keeper.empty();
                    &empty
                }
            };
            keeper.update(old, new, &manager, &now);
            return;
        }
        // The record is kept in the words of the version that was written.
        let old = old.map_or_else(|| keeper.empty(), |old| convert::between(storage, facts, old.clone()));
        let mut versioned = convert::between(storage, facts, new.clone());
        keeper.update(&old, &mut versioned, &manager, &now);
        match value::remove(&mut versioned, "metadata.managedFields") {
            Some(fields) => value::set(new, "metadata.managedFields", fields),
            None => {
                value::remove(new, "metadata.managedFields");
            }
        }
    }

    /// Merges an applied configuration into the live object (none: it is to be created). All in the version asked for.
    pub(super) fn apply(
        &self,
        call: &Call<'_>,
        live: Option<&Value>,
        patch: &Value,
        options: &WriteOptions,
        force: bool,
    ) -> Result<Applied, ApiError> {
        let facts = call.served.facts;
        let ty = facts.ty.ok_or_else(ApiError::no_such_path)?;
        let (filter, versions, api_version) = (filter(call), Others { call }, facts.api_version());
        let keeper = keeper(call, ty.def(), &filter, &versions, &api_version);
        let empty;
        let live = match live {
            Some(live) => live,
            None => {
                empty = keeper.empty();
                &empty
            }
        };
        Ok(keeper.apply(live, patch, &options.field_manager, force, &self.now())?)
    }
}

fn keeper<'a>(
    call: &'a Call<'_>,
    of: &'a Type,
    filter: &'a Filter,
    versions: &'a dyn Versions,
    api_version: &'a str,
) -> FieldManager<'a> {
    FieldManager {
        of,
        kind: &call.served.facts.kind,
        api_version,
        subresource: &call.info.subresource,
        filter,
        versions,
    }
}

fn filter(call: &Call<'_>) -> Filter {
    let storage = call.resource.storage;
    reset_fields(&storage.kind, storage.subresource("status").is_some(), &call.info.subresource)
}

/// What a write through a subresource cannot own, since the strategy puts it back: upstream's reset fields. Upstream has some for
/// `ephemeralcontainers` and `resize` too, but nothing there asks for them.
fn reset_fields(kind: &str, has_status: bool, subresource: &str) -> Filter {
    match (subresource, kind) {
        ("", "CertificateSigningRequest") => Filter::exclude(["spec", "status"]),
        ("" | "finalize", _) if has_status => Filter::exclude(["status"]),
        ("status", "CertificateSigningRequest") => Filter::exclude(["spec", "status.conditions"]),
        ("status", "Deployment") => Filter::exclude(["spec", "metadata.labels"]),
        ("status", "Pod") => Filter::exclude(["spec", "metadata.deletionTimestamp", "metadata.ownerReferences"]),
        ("status", kind) if RESETS_METADATA.contains(&kind) => Filter::exclude(["spec", "metadata"]),
        ("status", _) => Filter::exclude(["spec"]),
        ("approval", _) => Filter::exclude(["spec", "status.certificate"]),
        _ => Filter::All,
    }
}

/// The kinds whose status cannot be written together with metadata.
pub(super) const RESETS_METADATA: &[&str] = &[
    "APIService",
    "CSINode",
    "CompositePodGroup",
    "CustomResourceDefinition",
    "DeviceTaintRule",
    "Eviction",
    "EvictionRequest",
    "FlowSchema",
    "PodCertificateRequest",
    "PodGroup",
    "PriorityLevelConfiguration",
    "ResourceClaim",
    "ResourcePoolStatusRequest",
    "ServiceCIDR",
    "StorageVersion",
    "StorageVersionMigration",
    "ValidatingAdmissionPolicy",
    "VolumeAttachment",
];

/// The manager that the request names, or else the program that sent it.
pub(super) fn manager<'a>(call: &'a Call<'_>, options: &'a WriteOptions) -> std::borrow::Cow<'a, str> {
    let agent = call.headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
    objectmeta::field_manager(&options.field_manager, agent)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use machinery::apply::{Element, Set};

    use super::*;

    /// What a write owns of an object that has something everywhere.
    fn owned(filter: &Filter) -> Vec<&'static str> {
        const PATHS: [&str; 9] = [
            "spec.a",
            "status.a",
            "status.conditions",
            "status.certificate",
            "metadata.labels",
            "metadata.annotations",
            "metadata.finalizers",
            "metadata.ownerReferences",
            "metadata.deletionTimestamp",
        ];
        let steps = |path: &str| path.split('.').map(|step| Element::field(step.to_owned())).collect::<Vec<_>>();
        let mut all = Set::default();
        PATHS.iter().for_each(|path| all.insert(&steps(path)));
        let left = filter.apply(all);
        PATHS.into_iter().filter(|path| left.has(&steps(path))).collect()
    }

    #[test]
    fn every_kind_with_a_status_resets_what_upstreams_strategy_resets() {
        let metadata = [
            "metadata.labels",
            "metadata.annotations",
            "metadata.finalizers",
            "metadata.ownerReferences",
            "metadata.deletionTimestamp",
        ];
        let status = ["status.a", "status.conditions", "status.certificate"];
        // The kinds whose status strategy leaves metadata to be written along.
        let along = BTreeSet::from([
            "CronJob",
            "DaemonSet",
            "HorizontalPodAutoscaler",
            "Ingress",
            "Job",
            "Namespace",
            "Node",
            "PersistentVolume",
            "PersistentVolumeClaim",
            "PodDisruptionBudget",
            "ReplicaSet",
            "ReplicationController",
            "ResourceQuota",
            "Service",
            "StatefulSet",
        ]);
        let mut seen = BTreeSet::new();
        for resource in facts::resources().filter(|resource| resource.subresource("status").is_some()) {
            let kind = &*resource.kind;
            seen.insert(kind);
            let through = |subresource| owned(&reset_fields(kind, true, subresource));
            let (main, written) = (through(""), through("status"));
            match kind {
                "CertificateSigningRequest" => {
                    assert_eq!(main, metadata);
                    assert_eq!(written, [&["status.a", "status.certificate"][..], &metadata].concat());
                    assert_eq!(through("approval"), [&["status.a", "status.conditions"][..], &metadata].concat());
                    continue;
                }
                "Deployment" => assert_eq!(written, [&status[..], &metadata[1..]].concat()),
                "Pod" => assert_eq!(written, [&status[..], &metadata[..3]].concat()),
                kind if along.contains(kind) => assert_eq!(written, [&status[..], &metadata].concat(), "{kind}"),
                kind => assert_eq!(written, status, "{kind}"),
            }
            assert_eq!(main, [&["spec.a"][..], &metadata].concat(), "{kind}");
        }
        assert!(along.is_subset(&seen), "kinds that are not served: {:?}", along.difference(&seen));
        assert_eq!(owned(&reset_fields("Pod", true, "resize")).len(), 9, "nobody asks upstream's strategy");
        assert_eq!(owned(&reset_fields("Namespace", true, "finalize")), [&["spec.a"][..], &metadata].concat());
        assert_eq!(owned(&reset_fields("ConfigMap", false, "")).len(), 9, "what has no status resets nothing");
    }
}
