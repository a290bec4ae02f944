//! What a write may not change stays as it was.

use machinery::{Value, value};

/// The new object has what the old one had at `path`, whatever the client said.
pub fn keep(new: &mut Value, old: &Value, path: &str) {
    match value::at(old, path) {
        // As nearly always: to compare costs a fraction of a copy.
        Some(kept) if value::at(new, path) == Some(kept) => {}
        Some(kept) => value::set(new, path, kept.clone()),
        None => {
            value::remove(new, path);
        }
    }
}

/// The metadata of an object of whose status alone a write may speak, in kinds that are strict about it.
pub fn keep_object_meta(new: &mut Value, old: &Value) {
    for field in ["deletionTimestamp", "selfLink", "labels", "annotations", "finalizers", "ownerReferences"] {
        keep(new, old, &format!("metadata.{field}"));
    }
}
