//! PersistentVolumes.

pub mod columns;
#[cfg(test)]
mod tests;

use machinery::status::FieldError;
use machinery::{Value, names, value};
use serde_json::json;

use crate::checks::{At, Errors, Rules};
use crate::core::persistent_volume_claim as claim;
use crate::core::pod::volumes::require;
use crate::core::pod::{defaults, scheduling, volumes};
use crate::strategy::Strategy;
use crate::wording::internal;

/// The fields that say what a volume is made of.
const SOURCES: [(&str, &str, Rules); 22] = [
    ("hostPath", "hostPath", volumes::host_path),
    ("gcePersistentDisk", "persistentDisk", volumes::gce_disk),
    ("awsElasticBlockStore", "awsElasticBlockStore", volumes::aws_disk),
    ("glusterfs", "glusterfs", glusterfs),
    ("flocker", "flocker", volumes::flocker),
    ("nfs", "nfs", volumes::nfs),
    ("rbd", "rbd", volumes::rbd),
    ("quobyte", "quobyte", volumes::quobyte),
    ("cephfs", "cephfs", volumes::cephfs),
    ("iscsi", "iscsi", iscsi),
    ("cinder", "cinder", cinder),
    ("fc", "fc", volumes::fc),
    ("flexVolume", "flexVolume", volumes::flex),
    ("azureFile", "azureFile", azure_file),
    ("vsphereVolume", "vsphereVolume", |at, errors| require(at, &["volumePath"], errors)),
    ("photonPersistentDisk", "photonPersistentDisk", |at, errors| require(at, &["pdID"], errors)),
    ("portworxVolume", "portworxVolume", |at, errors| require(at, &["volumeID"], errors)),
    ("azureDisk", "azureDisk", volumes::azure_disk),
    ("scaleIO", "scaleIO", |at, errors| require(at, &["gateway", "system", "volumeName"], errors)),
    ("local", "local", local),
    ("storageos", "storageos", storage_os),
    ("csi", "csi", csi),
];

pub struct PersistentVolumes;

impl Strategy for PersistentVolumes {
    fn default(&self, volume: &mut Value) {
        value::set_default(volume, "spec.persistentVolumeReclaimPolicy", "Retain");
        value::set_default(volume, "spec.volumeMode", "Filesystem");
        value::set_default(volume, "status.phase", "Pending");
        if let Some(spec) = value::at_mut(volume, "spec") {
            for disk in ["iscsi", "rbd", "scaleIO", "azureDisk"] {
                defaults::default_disk(spec, disk);
            }
            if value::at(spec, "hostPath").is_some_and(Value::is_object) {
                value::set_default(spec, "hostPath.type", "");
            }
        }
        if let Some(capacity) = value::at_mut(volume, "spec.capacity") {
            defaults::round_up(capacity);
        }
    }

    fn prepare_for_create(&self, volume: &mut Value) {
        let now = value::at(volume, "metadata.creationTimestamp").cloned().unwrap_or_default();
        value::set(volume, "status", json!({"phase": "Pending", "lastPhaseTransitionTime": now}));
    }

    /// A phase has the time of its beginning, unless whoever writes it knows better.
    fn stamp_status(&self, new: &mut Value, old: &Value, now: &dyn Fn() -> String) {
        const SINCE: &str = "status.lastPhaseTransitionTime";
        let (since, before) = (value::text(new, SINCE), value::text(old, SINCE));
        if value::text(new, "status.phase") == value::text(old, "status.phase") {
            if since.is_empty() && !before.is_empty() {
                value::set(new, SINCE, before);
            }
        } else if since.is_empty() || since == before {
            value::set(new, SINCE, now());
        }
    }

    fn validate(&self, volume: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(volume);
        validate_spec(&root.at("spec"), root.text_at("metadata.name"), &mut errors);
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let (fresh, stale) = (At::root(new), At::root(old));
        let (spec, before) = (fresh.at("spec"), stale.at("spec"));
        validate_spec(&spec, fresh.text_at("metadata.name"), &mut errors);
        let made_of = |spec: &At<'_, '_>, added: bool| -> Vec<Value> {
            SOURCES
                .iter()
                .map(|(field, _, _)| {
                    let mut source = spec.at(field).value().clone();
                    if added && *field == "csi" {
                        value::remove(&mut source, "controllerExpandSecretRef");
                    }
                    source
                })
                .collect()
        };
        // The secret for growing a volume may come later.
        let added = before.has("csi")
            && !before.has("csi.controllerExpandSecretRef")
            && spec.has("csi.controllerExpandSecretRef");
        if made_of(&spec, added) != made_of(&before, added) {
            let mut now = spec.value().clone();
            if added {
                value::remove(&mut now, "csi.controllerExpandSecretRef");
            }
            let shown = internal::difference(before.value(), &now, "core.PersistentVolumeSource");
            let detail = format!("spec.persistentvolumesource is immutable after creation\n{shown}");
            errors.push(FieldError::forbidden("spec.persistentvolumesource", detail));
        }
        let (inner, outer) = (At::root(spec.value()), At::root(before.value()));
        errors.immutable(&inner.at("volumeMode"), &outer.at("volumeMode"));
        if before.has("nodeAffinity") {
            let detail = "field is immutable, except for updating from beta label to GA";
            errors.immutable_because(&inner.at("nodeAffinity"), &outer.at("nodeAffinity"), detail);
        }
        let class = spec.at("volumeAttributesClassName");
        if before.has("volumeAttributesClassName") && !class.is_set() {
            errors.forbidden(&class, "update from non-nil value to nil is forbidden");
        }
        errors.into_vec()
    }

    fn warnings(&self, volume: &Value, _old: Option<&Value>) -> Vec<String> {
        let mut warnings = Vec::new();
        let root = At::root(volume);
        let spec = root.at("spec");
        if value::at(volume, "metadata.annotations")
            .is_some_and(|annotations| annotations.get("volume.beta.kubernetes.io/storage-class").is_some())
        {
            warnings.push("metadata.annotations[volume.beta.kubernetes.io/storage-class]: deprecated since v1.8; use \"storageClassName\" attribute instead".to_owned());
        }
        if spec.text_at("persistentVolumeReclaimPolicy") == "Recycle" {
            warnings.push("spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.".to_owned());
        }
        for (field, message) in [
            ("photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
            ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
            ("storageos", "deprecated in v1.22, non-functional in v1.25+"),
            ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
            ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
            ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
        ] {
            if spec.has(field) {
                warnings.push(format!("{}: {message}", spec.at(field)));
            }
        }
        warnings
    }
}

fn validate_spec(spec: &At<'_, '_>, name: &str, errors: &mut Errors) {
    let modes = spec.at("accessModes");
    if modes.is_empty() {
        errors.required(&modes, "");
    }
    claim::access_modes(&modes, errors);
    let capacity = spec.at("capacity");
    if capacity.is_empty() {
        errors.required(&capacity, "");
    }
    if !capacity.key("storage").is_set() || capacity.len() > 1 {
        errors.push(FieldError::not_supported(capacity.to_string(), capacity.value().clone(), ["storage"]));
    }
    for (_, amount) in capacity.entries() {
        claim::valid_amount(&amount, errors);
        claim::positive_amount(&amount, errors);
    }
    let policy = spec.at("persistentVolumeReclaimPolicy");
    if !policy.text().is_empty() {
        errors.one_of(&policy, &["Delete", "Recycle", "Retain"]);
    }
    let affinity = spec.at("nodeAffinity");
    if affinity.is_set() {
        let required = affinity.at("required");
        if required.is_set() {
            scheduling::node_selector(&required, errors);
        } else {
            errors.required(&required, "must specify required node constraints");
        }
    }
    sources(spec, name, errors);
    if spec.text_at("hostPath.path").split('/').all(|step| matches!(step, "" | "."))
        && spec.has("hostPath")
        && policy.text() == "Recycle"
    {
        errors.forbidden(&policy, "may not be 'recycle' for a hostPath mount of '/'");
    }
    let class = spec.at("storageClassName");
    if !class.text().is_empty() {
        errors.problems(&class, names::name_is_dns_subdomain(class.text(), false));
    }
    errors.one_of_if_set(&spec.at("volumeMode"), &["Block", "Filesystem"]);
    let attributes = spec.at("volumeAttributesClassName");
    if attributes.is_set() {
        if attributes.text().is_empty() {
            errors.required(&attributes, "an empty string is disallowed");
        } else {
            errors.problems(&attributes, names::name_is_dns_subdomain(attributes.text(), false));
        }
        if !spec.has("csi") {
            errors.required(&spec.at("csi"), "has to be specified when using volumeAttributesClassName");
        }
    }
}

fn sources(spec: &At<'_, '_>, name: &str, errors: &mut Errors) {
    let mut found = 0;
    for (field, shown, rules) in SOURCES {
        if !spec.has(field) {
            continue;
        }
        found += 1;
        // A flexible volume is the one that upstream does not count against others.
        if found > 1 && field != "flexVolume" {
            let place = if field == "cephfs" { spec.named("cephFS", field) } else { spec.at(field) };
            errors.forbidden(&place, "may not specify more than 1 volume type");
            continue;
        }
        rules(&spec.named(shown, field), errors);
        if field == "local" && !spec.has("nodeAffinity") {
            errors.required(&spec.at("nodeAffinity"), "Local volume requires node affinity");
        }
        let portal = spec.text_at("iscsi.targetPortal");
        if field == "iscsi" && spec.has("iscsi.initiatorName") && name.len() + 1 + portal.len() > 64 {
            let iscsi = spec.at("iscsi");
            let detail = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.";
            errors.invalid_value(&iscsi.named("targetportal", "targetPortal"), portal, detail);
        }
    }
    if found == 0 {
        errors.required(spec, "must specify a volume type");
    }
}

fn glusterfs(at: &At<'_, '_>, errors: &mut Errors) {
    require(at, &["endpoints", "path"], errors);
    let namespace = at.at("endpointsNamespace");
    if namespace.is_set() {
        if namespace.text().is_empty() {
            errors.invalid_text(&namespace, "if the endpointnamespace is set, it must be a valid namespace name");
        } else {
            errors.problems(&namespace, names::name_is_dns_label(namespace.text(), false));
        }
    }
}

fn iscsi(at: &At<'_, '_>, errors: &mut Errors) {
    require(at, &["targetPortal"], errors);
    volumes::iscsi::iscsi_names(at, "must be valid format", errors);
    if at.has("secretRef") {
        require(at, &["secretRef.name"], errors);
    }
}

fn cinder(at: &At<'_, '_>, errors: &mut Errors) {
    require(at, &["volumeID"], errors);
    if at.has("secretRef") {
        require(at, &["secretRef.name", "secretRef.namespace"], errors);
    }
}

fn azure_file(at: &At<'_, '_>, errors: &mut Errors) {
    require(at, &["secretName", "shareName"], errors);
    if at.has("secretNamespace") {
        require(at, &["secretNamespace"], errors);
    }
}

fn local(at: &At<'_, '_>, errors: &mut Errors) {
    require(at, &["path"], errors);
    volumes::no_backsteps(&at.at("path"), errors);
}

fn storage_os(at: &At<'_, '_>, errors: &mut Errors) {
    volumes::storage_os(at, errors);
    if at.has("secretRef") {
        require(at, &["secretRef.namespace"], errors);
    }
}

fn csi(at: &At<'_, '_>, errors: &mut Errors) {
    volumes::csi_driver_name(&at.at("driver"), errors);
    require(at, &["volumeHandle"], errors);
    for field in
        ["controllerPublishSecretRef", "controllerExpandSecretRef", "nodePublishSecretRef", "nodeExpandSecretRef"]
    {
        let secret = at.at(field);
        if !secret.is_set() {
            continue;
        }
        if errors.required_text(&secret.at("name")) {
            errors.problems(&secret.at("name"), names::is_dns1123_subdomain(secret.text_at("name")));
        }
        if errors.required_text(&secret.at("namespace")) {
            errors.problems(&secret.at("namespace"), names::is_dns1123_label(secret.text_at("namespace")));
        }
    }
}
