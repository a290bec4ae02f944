//! VolumeAttachments.

pub mod columns;

use machinery::status::FieldError;
use machinery::{Value, names, value};
use serde_json::json;

use crate::checks::{At, Errors};
use crate::keep::keep_object_meta;
use crate::strategy::{Flags, Strategy};
use crate::wording::bytes::in_bytes;

pub struct VolumeAttachments;

impl Strategy for VolumeAttachments {
    fn flags(&self) -> Flags {
        Flags { status_resets_metadata: true, allows_unconditional_update: false, ..Flags::USUAL }
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
