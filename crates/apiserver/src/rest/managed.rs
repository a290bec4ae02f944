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

/// What a write through a subresource cannot own, since the strategy puts it back: upstream's reset fields.
fn filter(call: &Call<'_>) -> Filter {
    let storage = call.resource.storage;
    match (call.info.subresource.as_str(), &*storage.kind) {
        ("", "CertificateSigningRequest") => Filter::exclude(["spec", "status"]),
        ("" | "finalize", _) if storage.subresource("status").is_some() => Filter::exclude(["status"]),
        ("status", "CertificateSigningRequest") => Filter::exclude(["spec", "status.conditions"]),
        ("status", "Deployment") => Filter::exclude(["spec", "metadata.labels"]),
        ("status", "Pod") => Filter::exclude(["spec", "metadata.deletionTimestamp", "metadata.ownerReferences"]),
        ("status", kind) if RESETS_METADATA.contains(&kind) => Filter::exclude(["spec", "metadata"]),
        ("status", _) => Filter::exclude(["spec"]),
        ("approval", _) => Filter::exclude(["spec", "status.certificate"]),
        ("ephemeralcontainers", _) => Filter::include(&["spec.ephemeralContainers"]),
        ("resize", _) => Filter::include(&[
            "spec.containers.*.resources",
            "spec.containers.*.resizePolicy",
            "spec.initContainers.*.resources",
            "spec.initContainers.*.resizePolicy",
        ]),
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
