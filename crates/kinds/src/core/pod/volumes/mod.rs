//! The volumes of a pod: each of one type, and each type in order.

pub mod iscsi;
pub mod projected;

use std::collections::{HashMap, HashSet};

use machinery::{Value, names, value};

use crate::checks::{At, Errors, Rules, is_absolute};
use crate::core::persistent_volume_claim as claim;
use crate::core::pod::container::env::{field_ref, resource_field_ref};
use crate::core::pod::container::pull_policy;
use crate::core::pod::volumes::iscsi::iscsi;
use crate::core::pod::volumes::projected::projected;

const FILE_MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";
const TOO_MANY: &str = "may not specify more than 1 volume type";

/// The volumes that are in order, by name: what mounts may refer to.
pub type Volumes<'v> = HashMap<&'v str, &'v Value>;

/// A volume type: its field, what it is called when it is one too many, what it is called in its own errors, and its rules.
type Source = (&'static str, &'static str, &'static str, Rules);

/// In the order in which upstream looks for them. Some are called by other names than their fields.
const SOURCES: [Source; 30] = [
    ("emptyDir", "emptyDir", "emptyDir", empty_dir),
    ("hostPath", "hostPath", "hostPath", host_path),
    ("gitRepo", "gitRepo", "gitRepo", git_repo),
    ("gcePersistentDisk", "gcePersistentDisk", "persistentDisk", gce_disk),
    ("awsElasticBlockStore", "awsElasticBlockStore", "awsElasticBlockStore", aws_disk),
    ("secret", "secret", "secret", secret),
    ("nfs", "nfs", "nfs", nfs),
    ("iscsi", "iscsi", "iscsi", iscsi),
    ("glusterfs", "glusterfs", "glusterfs", |at, errors| require(at, &["endpoints", "path"], errors)),
    ("flocker", "flocker", "flocker", flocker),
    ("persistentVolumeClaim", "persistentVolumeClaim", "persistentVolumeClaim", |at, errors| {
        require(at, &["claimName"], errors)
    }),
    ("rbd", "rbd", "rbd", rbd),
    ("cinder", "cinder", "cinder", cinder),
    ("cephfs", "cephFS", "cephfs", cephfs),
    ("quobyte", "quobyte", "quobyte", quobyte),
    ("downwardAPI", "downwarAPI", "downwardAPI", downward_api),
    ("fc", "fc", "fc", fc),
    ("flexVolume", "flexVolume", "flexVolume", flex),
    ("configMap", "configMap", "configMap", config_map),
    ("azureFile", "azureFile", "azureFile", |at, errors| require(at, &["secretName", "shareName"], errors)),
    ("vsphereVolume", "vsphereVolume", "vsphereVolume", |at, errors| require(at, &["volumePath"], errors)),
    ("photonPersistentDisk", "photonPersistentDisk", "photonPersistentDisk", |at, errors| {
        require(at, &["pdID"], errors)
    }),
    ("portworxVolume", "portworxVolume", "portworxVolume", |at, errors| require(at, &["volumeID"], errors)),
    ("azureDisk", "azureDisk", "azureDisk", azure_disk),
    ("storageos", "storageos", "storageos", storage_os),
    ("projected", "projected", "projected", projected),
    ("scaleIO", "scaleIO", "scaleIO", |at, errors| require(at, &["gateway", "system", "volumeName"], errors)),
    ("csi", "csi", "csi", csi),
    ("ephemeral", "ephemeral", "ephemeral", ephemeral),
    ("image", "image", "image", image),
];

/// Checks the volumes, and gives those that are in order. `pod` is the name of the pod, where there is one.
pub fn validate<'v>(list: &At<'_, 'v>, pod: &str, errors: &mut Errors) -> Volumes<'v> {
    let mut volumes: Volumes<'v> = HashMap::with_capacity(list.len());
    let made: HashSet<String> = list
        .items()
        .filter(|volume| volume.has("ephemeral") && !pod.is_empty())
        .map(|volume| format!("{pod}-{}", volume.text_at("name")))
        .collect();
    for volume in list.items() {
        let before = errors.len();
        source(&volume, pod, errors);
        let name = volume.at("name");
        if errors.required_text(&name) {
            errors.problems(&name, names::is_dns1123_label(name.text()));
        }
        if volumes.contains_key(name.text()) {
            errors.duplicate(&name, name.text());
        }
        if errors.len() == before {
            volumes.insert(name.text(), volume.value());
        }
        let claim = volume.at("persistentVolumeClaim.claimName");
        if made.contains(claim.text()) {
            errors.invalid_text(&claim, "must not reference a PVC that gets created for an ephemeral volume");
        }
    }
    volumes
}

fn source(volume: &At<'_, '_>, pod: &str, errors: &mut Errors) {
    let mut found = 0;
    for (field, spare, shown, rules) in SOURCES {
        if !volume.has(field) {
            continue;
        }
        if found > 0 {
            errors.forbidden(&volume.named(spare, field), TOO_MANY);
        } else {
            rules(&volume.named(shown, field), errors);
            if field == "ephemeral" {
                claim_name(volume, pod, errors);
            }
        }
        found += 1;
        let portal = volume.text_at("iscsi.targetPortal");
        if field == "iscsi" && volume.has("iscsi.initiatorName") && volume.text_at("name").len() + 1 + portal.len() > 64
        {
            let detail = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.";
            errors.invalid_text(&volume.at("name"), detail);
        }
    }
    if found == 0 {
        errors.required(volume, "must specify a volume type");
    }
}

/// The claim that is made for an ephemeral volume needs a name, too.
fn claim_name(volume: &At<'_, '_>, pod: &str, errors: &mut Errors) {
    let name = volume.at("name");
    if pod.is_empty() || name.text().is_empty() {
        return;
    }
    let claim = format!("{pod}-{}", name.text());
    for problem in names::name_is_dns_subdomain(&claim, false) {
        errors.invalid_text(&name, format!("PVC name {claim:?}: {problem}"));
    }
}

/// Fields that must not be empty.
pub fn require(at: &At<'_, '_>, fields: &[&str], errors: &mut Errors) {
    for field in fields {
        let field = at.at(field);
        if field.is_empty() {
            errors.required(&field, "");
        }
    }
}

fn empty_dir(at: &At<'_, '_>, errors: &mut Errors) {
    if at.at("sizeLimit").quantity().is_some_and(|limit| limit.signum() < 0) {
        errors.forbidden(&at.at("sizeLimit"), "SizeLimit field must be a valid resource quantity");
    }
    let mode = at.at("mode");
    if mode.int().is_some_and(|mode| !(0..=0o1777).contains(&mode)) {
        errors.invalid(&mode, "must be a number between 0 and 01777 (octal), both inclusive");
    }
}

/// A path and a type on the node.
pub fn host_path(at: &At<'_, '_>, errors: &mut Errors) {
    const TYPES: [&str; 8] =
        ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
    errors.required_text(&at.at("path"));
    no_backsteps(&at.at("path"), errors);
    errors.one_of_if_set(&at.at("type"), &TYPES);
}

fn git_repo(at: &At<'_, '_>, errors: &mut Errors) {
    errors.required_text(&at.at("repository"));
    descending(&at.at("directory"), errors);
}

/// A disk of Google's cloud.
pub fn gce_disk(at: &At<'_, '_>, errors: &mut Errors) {
    errors.required_text(&at.at("pdName"));
    partition(&at.at("partition"), errors);
}

/// A disk of Amazon's cloud.
pub fn aws_disk(at: &At<'_, '_>, errors: &mut Errors) {
    errors.required_text(&at.at("volumeID"));
    partition(&at.at("partition"), errors);
}

fn partition(at: &At<'_, '_>, errors: &mut Errors) {
    if at.int().is_some_and(|partition| !(0..=255).contains(&partition)) {
        errors.invalid(at, "must be between 1 and 255, inclusive");
    }
}

pub fn file_mode(at: &At<'_, '_>, errors: &mut Errors) {
    if at.int().is_some_and(|mode| !(0..=0o777).contains(&mode)) {
        errors.invalid(at, FILE_MODE);
    }
}

fn secret(at: &At<'_, '_>, errors: &mut Errors) {
    errors.required_text(&at.at("secretName"));
    items(at, errors);
}

fn config_map(at: &At<'_, '_>, errors: &mut Errors) {
    errors.required_text(&at.at("name"));
    items(at, errors);
}

fn items(at: &At<'_, '_>, errors: &mut Errors) {
    file_mode(&at.at("defaultMode"), errors);
    errors.user_id_if_set(&at.at("defaultUser"));
    for item in at.at("items").items() {
        key_to_path(&item, errors);
    }
}

pub fn key_to_path(at: &At<'_, '_>, errors: &mut Errors) {
    errors.required_text(&at.at("key"));
    errors.required_text(&at.at("path"));
    not_reserved(&at.at("path"), errors);
    file_mode(&at.at("mode"), errors);
    errors.user_id_if_set(&at.at("user"));
}

/// A share of a file server.
pub fn nfs(at: &At<'_, '_>, errors: &mut Errors) {
    require(at, &["server", "path"], errors);
    if !is_absolute(at.text_at("path")) {
        errors.invalid_text(&at.at("path"), "must be an absolute path");
    }
}

/// A dataset of Flocker.
pub fn flocker(at: &At<'_, '_>, errors: &mut Errors) {
    match (at.text_at("datasetName"), at.text_at("datasetUUID")) {
        ("", "") => errors.required(at, "one of datasetName and datasetUUID is required"),
        ("", _) | (_, "") => {}
        _ => errors.invalid_value(at, "resource", "datasetName and datasetUUID can not be specified simultaneously"),
    }
    if at.text_at("datasetName").contains('/') {
        errors.invalid(&at.at("datasetName"), "must not contain '/'");
    }
}

/// An image of Ceph.
pub fn rbd(at: &At<'_, '_>, errors: &mut Errors) {
    require(at, &["monitors", "image"], errors);
}

/// A file system of Ceph.
pub fn cephfs(at: &At<'_, '_>, errors: &mut Errors) {
    require(at, &["monitors"], errors);
}

fn cinder(at: &At<'_, '_>, errors: &mut Errors) {
    require(at, &["volumeID"], errors);
    if at.has("secretRef") {
        require(at, &["secretRef.name"], errors);
    }
}

/// A volume of Quobyte.
pub fn quobyte(at: &At<'_, '_>, errors: &mut Errors) {
    const PAIRS: &str = "must be a host:port pair or multiple pairs separated by commas";
    let registry = at.at("registry");
    if registry.text().is_empty() {
        errors.required(&registry, PAIRS);
    } else if at.text_at("tenant").len() >= 65 {
        errors.required(&at.at("tenant"), "must be a UUID and may not exceed a length of 64 characters");
    } else {
        let is_pair =
            |pair: &&str| pair.rsplit_once(':').is_some_and(|(host, _)| !host.contains(':') || host.ends_with(']'));
        for _ in registry.text().split(',').filter(|pair| !is_pair(pair)) {
            errors.invalid(&registry, PAIRS);
        }
    }
    require(at, &["volume"], errors);
}

fn downward_api(at: &At<'_, '_>, errors: &mut Errors) {
    file_mode(&at.at("defaultMode"), errors);
    errors.user_id_if_set(&at.at("defaultUser"));
    for file in value::list(at.value(), "items") {
        downward_file(at, file, errors);
    }
}

/// Upstream speaks of every file as if it stood where the whole volume stands.
pub fn downward_file(shown: &At<'_, '_>, file: &Value, errors: &mut Errors) {
    const FIELDS: [&str; 5] =
        ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
    let path = shown.to_string();
    let at = At::part(&path, file);
    errors.required_text(&at.at("path"));
    not_reserved(&at.at("path"), errors);
    match (at.has("fieldRef"), at.has("resourceFieldRef")) {
        (false, false) => errors.required(&at, "one of fieldRef and resourceFieldRef is required"),
        (false, true) => resource_field_ref(&at.at("resourceFieldRef"), true, errors),
        (true, both) => {
            field_ref(&at.at("fieldRef"), &FIELDS, errors);
            if both {
                errors.invalid_value(
                    &at,
                    "resource",
                    "fieldRef and resourceFieldRef can not be specified simultaneously",
                );
            }
        }
    }
    file_mode(&at.at("mode"), errors);
    errors.user_id_if_set(&at.at("user"));
}

/// A Fibre Channel volume.
pub fn fc(at: &At<'_, '_>, errors: &mut Errors) {
    let (targets, ids) = (at.at("targetWWNs"), at.at("wwids"));
    match (targets.is_empty(), ids.is_empty()) {
        (true, true) => errors.required(&targets, "must specify either targetWWNs or wwids, but not both"),
        (false, false) => errors.invalid(&targets, "targetWWNs and wwids can not be specified simultaneously"),
        _ => {}
    }
    if targets.is_empty() {
        return;
    }
    let lun = at.at("lun");
    match lun.int() {
        None => errors.required(&lun, "lun is required if targetWWNs is specified"),
        Some(number) if !(0..=255).contains(&number) => errors.invalid(&lun, "must be between 0 and 255, inclusive"),
        Some(_) => {}
    }
}

/// A volume of a driver outside of the tree.
pub fn flex(at: &At<'_, '_>, errors: &mut Errors) {
    errors.required_text(&at.at("driver"));
    for (key, entry) in at.at("options").entries() {
        let domain = key.split_once('/').map_or(key, |(domain, _)| domain);
        let domain = format!(".{}", domain.to_lowercase());
        if domain.ends_with(".kubernetes.io") || domain.ends_with(".k8s.io") {
            errors.invalid_value(&entry, key, "kubernetes.io and k8s.io namespaces are reserved");
        }
    }
}

/// A disk of Microsoft's cloud.
pub fn azure_disk(at: &At<'_, '_>, errors: &mut Errors) {
    require(at, &["diskName", "diskURI"], errors);
    errors.one_of_if_set(&at.at("cachingMode"), &["None", "ReadOnly", "ReadWrite"]);
    errors.one_of_if_set(&at.at("kind"), &["Dedicated", "Managed", "Shared"]);
    let uri = at.at("diskURI");
    match at.text_at("kind") {
        "" => {}
        "Managed" if !uri.text().starts_with("/subscriptions/") => errors.not_supported(
            &uri,
            &["/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"],
        ),
        "Managed" => {}
        _ if !uri.text().starts_with("https://") => {
            errors.not_supported(
                &uri,
                &["https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"],
            );
        }
        _ => {}
    }
}

/// A volume of StorageOS.
pub fn storage_os(at: &At<'_, '_>, errors: &mut Errors) {
    if errors.required_text(&at.at("volumeName")) {
        errors.problems(&at.at("volumeName"), names::is_dns1123_label(at.text_at("volumeName")));
    }
    let namespace = at.at("volumeNamespace");
    if !namespace.text().is_empty() {
        errors.problems(&namespace, names::is_dns1123_label(namespace.text()));
    }
    if at.has("secretRef") {
        require(at, &["secretRef.name"], errors);
    }
}

fn csi(at: &At<'_, '_>, errors: &mut Errors) {
    csi_driver_name(&at.at("driver"), errors);
    if at.has("nodePublishSecretRef") {
        let name = at.at("nodePublishSecretRef.name");
        if errors.required_text(&name) {
            errors.problems(
                &at.named("name", "nodePublishSecretRef.name"),
                names::name_is_dns_subdomain(name.text(), false),
            );
        }
    }
}

/// The name of a CSI driver.
pub fn csi_driver_name(at: &At<'_, '_>, errors: &mut Errors) {
    if !errors.required_text(at) {
        return;
    }
    if at.text().len() > 63 {
        errors.too_long(at, 63);
    }
    errors.problems(at, names::is_dns1123_subdomain(&at.text().to_lowercase()));
}

/// The metadata of what is made from a template: only what its user may say.
pub fn template_metadata(metadata: &At<'_, '_>, errors: &mut Errors) {
    errors.annotations(&metadata.at("annotations"));
    errors.labels(&metadata.at("labels"));
    // In the order of upstream's struct, and under its names.
    for (field, shown) in [
        ("name", "name"),
        ("generateName", "generateName"),
        ("namespace", "namespace"),
        ("selfLink", "selfLink"),
        ("uid", "uID"),
        ("resourceVersion", "resourceVersion"),
        ("generation", "generation"),
        ("creationTimestamp", "creationTimestamp"),
        ("deletionTimestamp", "deletionTimestamp"),
        ("deletionGracePeriodSeconds", "deletionGracePeriodSeconds"),
        ("ownerReferences", "ownerReferences"),
        ("finalizers", "finalizers"),
        ("managedFields", "managedFields"),
    ] {
        if metadata.at(field).is_set() {
            errors.forbidden(&metadata.named(shown, field), "cannot be set");
        }
    }
}

fn ephemeral(at: &At<'_, '_>, errors: &mut Errors) {
    let template = at.at("volumeClaimTemplate");
    if !template.is_set() {
        return errors.required(&template, "");
    }
    template_metadata(&template.at("metadata"), errors);
    claim::validate_spec(&template.at("spec"), true, errors);
}

fn image(at: &At<'_, '_>, errors: &mut Errors) {
    errors.required_text(&at.at("reference"));
    pull_policy(&at.at("pullPolicy"), errors);
}

/// A path that goes down from where it starts.
pub fn descending(at: &At<'_, '_>, errors: &mut Errors) {
    if is_absolute(at.text()) {
        errors.invalid_text(at, "must be a relative path");
    }
    no_backsteps(at, errors);
}

/// A path without a step back.
pub fn no_backsteps(at: &At<'_, '_>, errors: &mut Errors) {
    if at.text().split('/').any(|step| step == "..") {
        errors.invalid_text(at, "must not contain '..'");
    }
}

pub fn not_reserved(at: &At<'_, '_>, errors: &mut Errors) {
    descending(at, errors);
    if at.text().starts_with("..") && !at.text().starts_with("../") {
        errors.invalid_text(at, "must not start with '..'");
    }
}
