//! storage.k8s.io: classes, attachments and what CSI drivers say about themselves.

use std::collections::HashSet;

use machinery::names;
use machinery::status::FieldError;
use machinery::{Value, value};
use serde_json::json;

use super::super::internal;
use super::super::strategy::{Strategy, wish};
use super::common::{At, Errors, IMMUTABLE};
use super::pod::volumes::csi_driver_name;
use super::policy::in_bytes;
use crate::rest::keep_object_meta;

/// StorageClasses.
pub struct StorageClasses;

impl Strategy for StorageClasses {
    fn default(&self, class: &mut Value) {
        value::set_default(class, "reclaimPolicy", "Delete");
        value::set_default(class, "volumeBindingMode", "Immediate");
    }

    fn validate(&self, class: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(class);
        provisioner(&root.at("provisioner"), &mut errors);
        parameters(&root.at("parameters"), &mut errors);
        let policy = root.at("reclaimPolicy");
        if !policy.text().is_empty() {
            errors.one_of(&policy, &["Delete", "Retain"]);
        }
        let mode = root.at("volumeBindingMode");
        if mode.is_set() {
            errors.one_of(&mode, &["Immediate", "WaitForFirstConsumer"]);
        } else {
            errors.required(&mode, "");
        }
        topologies(&root.at("allowedTopologies"), &mut errors);
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let (fresh, stale) = (At::root(new), At::root(old));
        for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
            errors.immutable_unshown(&fresh.at(field), &stale.at(field));
        }
        let mut all = self.validate(new);
        all.extend(errors.into_vec());
        all
    }
}

fn provisioner(at: &At<'_, '_>, errors: &mut Errors) {
    if errors.required_text(at) {
        let lower = at.text().to_lowercase();
        for problem in names::is_qualified_name(&lower) {
            errors.invalid_value(at, lower.as_str(), problem);
        }
    }
}

fn parameters(at: &At<'_, '_>, errors: &mut Errors) {
    const MOST: usize = 512;
    const MOST_BYTES: usize = 256 * 1024;
    if at.len() > MOST {
        errors.too_long(at, MOST);
    }
    let mut size = 0;
    for (key, parameter) in at.entries() {
        if key.is_empty() {
            errors.invalid_value(at, key, "field can not be empty.");
        }
        size += key.len() + parameter.text().len();
    }
    if size > MOST_BYTES {
        errors.too_long(at, MOST_BYTES);
    }
}

fn topologies(list: &At<'_, '_>, errors: &mut Errors) {
    for (index, term) in list.items().enumerate() {
        let expressions = term.at("matchLabelExpressions");
        let mut keys: HashSet<&str> = HashSet::new();
        for expression in expressions.items() {
            let values = expression.at("values");
            if values.is_empty() {
                errors.required(&values, "");
            }
            for (position, topology) in values.items().enumerate() {
                if values.items().take(position).any(|known| known.value() == topology.value()) {
                    errors.duplicate(&topology, topology.text());
                }
            }
            errors.label_name(&expression.at("key"));
            let key = expression.text_at("key");
            if keys.contains(&key) {
                errors.duplicate(&expression.at("key"), key);
            }
            keys.insert(key);
        }
        // Upstream compares with as many empty terms as there are terms, besides those before.
        let empty = if expressions.is_empty() { list.len() } else { 0 };
        let known = list.items().take(index).filter(|known| known.value() == term.value()).count();
        for _ in 0..empty + known {
            errors.duplicate(&expressions, "");
        }
    }
}

/// VolumeAttributesClasses.
pub struct VolumeAttributesClasses;

impl Strategy for VolumeAttributesClasses {
    fn validate(&self, class: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(class);
        provisioner(&root.at("driverName"), &mut errors);
        let given = root.at("parameters");
        parameters(&given, &mut errors);
        if given.is_empty() {
            errors.required(&given, "must contain at least one key/value pair");
        }
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let (fresh, stale) = (At::root(new), At::root(old));
        for field in ["driverName", "parameters"] {
            if fresh.at(field).value() != stale.at(field).value() {
                errors.forbidden(&fresh.at(field), format!("updates to {field} are forbidden."));
            }
        }
        errors.extend(self.validate(new));
        errors.into_vec()
    }
}

/// VolumeAttachments.
pub struct VolumeAttachments;

impl Strategy for VolumeAttachments {
    fn allows_unconditional_update(&self) -> bool {
        false
    }

    fn prepare_for_create(&self, attachment: &mut Value) {
        value::set(attachment, "status", json!({"attached": false}));
    }

    fn validate(&self, attachment: &Value) -> Vec<FieldError> {
        const ONE: &str = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
        let mut errors = Errors::new();
        let root = At::root(attachment);
        let spec = root.at("spec");
        let source = spec.at("source");
        let volume = source.at("persistentVolumeName");
        match (source.has("inlineVolumeSpec"), volume.is_set()) {
            (false, false) => errors.required(&source, ONE),
            (true, true) => errors.forbidden(&source, ONE),
            (false, true) if volume.text().is_empty() => {
                errors.required(&volume, "must specify non empty persistentVolumeName")
            }
            _ => {}
        }
        let node = spec.at("nodeName");
        errors.problems(&node, names::name_is_dns_subdomain(node.text(), false));
        attachment_status(&root.at("status"), &mut errors);
        if volume.is_set() {
            errors.problems(&volume, names::name_is_dns_subdomain(volume.text(), false));
        }
        // Upstream says last what the schema alone can say.
        attacher(&spec.at("attacher"), &mut errors);
        errors.into_vec()
    }

    fn prepare_for_status_update(&self, new: &mut Value, old: &Value) {
        keep_object_meta(new, old);
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        errors.extend(self.validate(new));
        let (new, old) = (At::root(new), At::root(old));
        errors.immutable_unshown(&new.at("spec"), &old.at("spec"));
        errors.into_vec()
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        self.validate_update(new, old)
    }
}

/// The driver that attaches, in the words of the schema.
fn attacher(at: &At<'_, '_>, errors: &mut Errors) {
    const MOST: usize = 63;
    if !errors.required_text(at) {
        return;
    }
    for problem in names::is_dns1123_subdomain_caseless(at.text()) {
        errors.invalid(at, in_bytes(&problem));
    }
    if at.text().len() > MOST {
        let mut error = FieldError::too_long(at.to_string(), MOST);
        error.detail = format!("may not be more than {MOST} characters");
        errors.push(error);
    }
}

fn attachment_status(status: &At<'_, '_>, errors: &mut Errors) {
    const MOST_METADATA: usize = 256 * 1024;
    const MOST_MESSAGE: usize = 1024;
    let metadata = status.at("attachmentMetadata");
    let size: usize = metadata.entries().map(|(key, entry)| key.len() + entry.text().len()).sum();
    if size > MOST_METADATA {
        errors.too_long(&metadata, MOST_METADATA);
    }
    for field in ["attachError", "detachError"] {
        let error = status.at(field);
        if error.text_at("message").len() > MOST_MESSAGE {
            errors.too_long(&error.at("message"), MOST_MESSAGE);
        }
        errors.in_range_if_set(&error.at("errorCode"), 0, i64::from(i32::MAX));
    }
}

/// CSINodes.
pub struct CsiNodes;

impl Strategy for CsiNodes {
    /// The health of volumes is behind a gate that is off.
    fn prepare_for_status_update(&self, new: &mut Value, old: &Value) {
        keep_object_meta(new, old);
        value::remove(new, "status.storageHealth");
    }

    fn allows_unconditional_update(&self) -> bool {
        false
    }

    fn validate(&self, node: &Value) -> Vec<FieldError> {
        const MOST_ID: usize = 256;
        let mut errors = Errors::new();
        let root = At::root(node);
        let mut seen: HashSet<&str> = HashSet::new();
        for driver in root.at("spec.drivers").items() {
            let name = driver.at("name");
            csi_driver_name(&name, &mut errors);
            let id = driver.at("nodeID");
            errors.required_text(&id);
            if id.text().len() > MOST_ID {
                errors.invalid(&id, format!("must be {MOST_ID} characters or less"));
            }
            errors.not_negative(&driver.at("allocatable.count"));
            if seen.contains(&name.text()) {
                errors.duplicate(&name, name.text());
            }
            seen.insert(name.text());
            let keys = driver.at("topologyKeys");
            for (index, key) in keys.items().enumerate() {
                if key.text().is_empty() {
                    errors.required(&driver, "");
                }
                if keys.items().take(index).any(|known| known.value() == key.value()) {
                    errors.duplicate(&driver, key.text());
                }
                for problem in names::is_qualified_name(key.text()) {
                    errors.invalid_value(&driver, key.text(), problem);
                }
            }
        }
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        errors.extend(self.validate(new));
        let without_count = |driver: &Value| {
            let mut driver = driver.clone();
            value::remove(&mut driver, "allocatable");
            driver
        };
        let list = value::list(new, "spec.drivers");
        for before in value::list(old, "spec.drivers") {
            let same = list.iter().find(|driver| driver["name"] == before["name"]);
            if let Some(driver) = same.filter(|driver| without_count(driver) != without_count(before)) {
                let driver = without_count(driver);
                let shown = internal::compact(&driver, "storage.CSINodeDriver");
                let mut error = FieldError::invalid("spec.drivers", driver, IMMUTABLE);
                error.shown = Some(shown);
                errors.push(error);
            }
        }
        errors.into_vec()
    }
}

/// CSIDrivers.
pub struct CsiDrivers;

impl Strategy for CsiDrivers {
    fn allows_unconditional_update(&self) -> bool {
        false
    }

    /// Counted from the first change on, though not begun with 1.
    fn wish_changed(&self, new: &Value, old: &Value) -> bool {
        wish(new).ne(wish(old))
    }

    fn default(&self, driver: &mut Value) {
        for (field, filling) in [
            ("attachRequired", json!(true)),
            ("podInfoOnMount", json!(false)),
            ("storageCapacity", json!(false)),
            ("fsGroupPolicy", json!("ReadWriteOnceWithFSType")),
            ("requiresRepublish", json!(false)),
            ("seLinuxMount", json!(false)),
            ("preventPodSchedulingIfMissing", json!(false)),
        ] {
            value::set_default(driver, &format!("spec.{field}"), filling);
        }
        if value::list(driver, "spec.volumeLifecycleModes").is_empty() {
            value::set(driver, "spec.volumeLifecycleModes", json!(["Persistent"]));
        }
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        let asked = |driver: &Value| value::list(driver, "spec.tokenRequests").to_vec();
        let changed = old.is_none_or(|old| asked(old) != asked(new));
        let open = !asked(new).is_empty() && value::at(new, "spec.serviceAccountTokenInSecrets").is_none();
        let warning = "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes";
        if changed && open { vec![warning.to_owned()] } else { Vec::new() }
    }

    fn validate(&self, driver: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(driver);
        let spec = root.at("spec");
        errors.one_of_if_set(&spec.at("fsGroupPolicy"), &["File", "None", "ReadWriteOnceWithFSType"]);
        let requests = spec.at("tokenRequests");
        let mut seen: HashSet<&str> = HashSet::new();
        for request in requests.items() {
            let audience = request.at("audience");
            if seen.contains(&audience.text()) {
                errors.duplicate(&audience, audience.text());
            } else {
                seen.insert(audience.text());
            }
            let expiration = request.at("expirationSeconds");
            if expiration.int().is_some_and(|seconds| seconds < 600) {
                errors.invalid(&expiration, "may not specify a duration less than 10 minutes");
            }
            if expiration.int().is_some_and(|seconds| seconds > 1 << 32) {
                errors.invalid(&expiration, "may not specify a duration larger than 2^32 seconds");
            }
        }
        let modes = spec.at("volumeLifecycleModes");
        for mode in modes.items() {
            if !matches!(mode.text(), "Ephemeral" | "Persistent") {
                errors.push(FieldError::not_supported(modes.to_string(), mode.text(), ["Persistent", "Ephemeral"]));
            }
        }
        let period = spec.at("nodeAllocatableUpdatePeriodSeconds");
        if period.int().is_some_and(|seconds| seconds < 10) {
            errors.invalid(&period, "must be greater than or equal to 10 seconds");
        }
        let secrets = spec.at("serviceAccountTokenInSecrets");
        if secrets.is_set() && requests.is_empty() {
            errors.invalid(&secrets, "serviceAccountTokenInSecrets is set but no tokenRequests are specified");
        }
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        errors.extend(self.validate(new));
        let (new, old) = (At::root(new), At::root(old));
        let (spec, before) = (new.at("spec"), old.at("spec"));
        errors.immutable(&spec.named("attachedRequired", "attachRequired"), &before.at("attachRequired"));
        errors.immutable(&spec.at("volumeLifecycleModes"), &before.at("volumeLifecycleModes"));
        errors.into_vec()
    }
}

/// CSIStorageCapacities.
pub struct CsiStorageCapacities;

impl Strategy for CsiStorageCapacities {
    fn allows_unconditional_update(&self) -> bool {
        false
    }

    fn validate(&self, capacity: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(capacity);
        errors.label_selector(&root.at("nodeTopology"));
        let class = root.at("storageClassName");
        errors.problems(&class, names::name_is_dns_subdomain(class.text(), false));
        errors.quantity_not_negative(&root.at("capacity"));
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        errors.extend(self.validate(new));
        let (new, old) = (At::root(new), At::root(old));
        for field in ["nodeTopology", "storageClassName"] {
            errors.immutable(&new.at(field), &old.at(field));
        }
        errors.into_vec()
    }
}
