//! IPAddresses.

pub mod columns;

use machinery::names::ip;
use machinery::object::Field;
use machinery::status::FieldError;
use machinery::{Value, names};

use crate::checks::rare_names::typed_reference;
use crate::checks::{At, Errors};
use crate::strategy::{NameRule, Strategy};

pub struct IpAddresses;

impl Strategy for IpAddresses {
    /// An address is judged as one.
    fn name_rule(&self) -> NameRule {
        NameRule::Own
    }

    fn fields(&self) -> &'static [Field] {
        const {
            &[
                Field::text("spec.parentRef.group"),
                Field::text("spec.parentRef.resource"),
                Field::text("spec.parentRef.namespace"),
                Field::text("spec.parentRef.name"),
            ]
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(object);
        let name = root.at("metadata.name");
        // That there is none is said of every object.
        if !name.text().is_empty() {
            errors.extend(ip::is_valid_ip("metadata.name", name.text()));
        }
        let parent = root.at("spec.parentRef");
        if !parent.is_set() {
            errors.required(&parent, "");
            return errors.into_vec();
        }
        let group = parent.at("group");
        if !group.text().is_empty() {
            errors.problems(&group, names::is_dns1123_subdomain(group.text()));
        }
        typed_reference(&parent, "resource", &mut errors);
        let namespace = parent.at("namespace");
        if !namespace.text().is_empty() {
            errors.problems(&namespace, names::is_path_segment_name(namespace.text()));
        }
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let (new, old) = (At::root(new), At::root(old));
        let parent = new.at("spec.parentRef");
        if !parent.is_set() {
            errors.required(&parent, "");
        } else {
            for field in ["resource", "name"] {
                errors.required_text(&parent.at(field));
            }
        }
        errors.immutable_unshown(&parent, &old.at("spec.parentRef"));
        errors.into_vec()
    }
}
