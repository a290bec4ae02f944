//! Storage: the default class of claims, protection of what is in use, and growth only where the class allows it.

use std::sync::Arc;

use machinery::object::Object;
use machinery::quantity::Quantity;
use machinery::status::ApiError;
use machinery::{Value, value};
use serde_json::json;
use storage::cache::Filter;

use super::{Operation, Request};
use crate::verbs::Api;

const DEFAULT_CLASS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    value::at(object, "metadata.annotations")?.get(key)?.as_str()
}

/// The newest object that one of the annotations makes the default; of two as new, the first by name.
pub fn newest_default(objects: &[Arc<Object>], annotations: &[&str]) -> Option<String> {
    let trees = objects.iter().map(|object| object.to_value());
    let marked = trees.filter(|tree| annotations.iter().any(|key| annotation(tree, key) == Some("true")));
    let age = |tree: &Value| {
        (value::text(tree, "metadata.creationTimestamp").to_owned(), value::text(tree, "metadata.name").to_owned())
    };
    let newest = marked.map(|tree| age(&tree)).max_by(|(at, name), (other, next)| at.cmp(other).then(next.cmp(name)));
    newest.map(|(_, name)| name)
}

/// DefaultStorageClass: a claim that names none gets the default class.
pub fn set_default_class(api: &Api, request: &Request<'_>, claim: &mut Value) {
    if request.operation != Operation::Create || !request.is_for("", "persistentvolumeclaims") {
        return;
    }
    let chosen = value::at(claim, "spec.storageClassName").is_some_and(|class| !class.is_null());
    if chosen || annotation(claim, BETA_CLASS).is_some() {
        return;
    }
    let Some(classes) = api.registry.stored("storage.k8s.io", "storageclasses") else { return };
    let (all, _) = classes.cache.list(&Filter::everything(), None, 0);
    if let Some(name) = newest_default(&all, &DEFAULT_CLASS) {
        value::set(claim, "spec.storageClassName", name);
    }
}

/// StorageObjectInUseProtection: claims and volumes go only when nobody uses them.
pub fn protect(request: &Request<'_>, new: &mut Value) {
    if request.operation != Operation::Create {
        return;
    }
    let finalizer = if request.is_for("", "persistentvolumeclaims") {
        "kubernetes.io/pvc-protection"
    } else if request.is_for("", "persistentvolumes") {
        "kubernetes.io/pv-protection"
    } else if request.is_for("storage.k8s.io", "volumeattributesclasses") {
        "kubernetes.io/vac-protection"
    } else {
        return;
    };
    let mut finalizers = value::list(new, "metadata.finalizers").to_vec();
    if !finalizers.iter().any(|present| present == finalizer) {
        finalizers.push(json!(finalizer));
        value::set(new, "metadata.finalizers", finalizers);
    }
}

pub fn validate_resize(
    api: &Api,
    request: &Request<'_>,
    new: Option<&Value>,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    let (Some(new), Some(old)) = (new, old) else { return Ok(()) };
    if request.operation != Operation::Update || !request.is_for("", "persistentvolumeclaims") {
        return Ok(());
    }
    let size = |claim: &Value| {
        value::text(claim, "spec.resources.requests.storage").parse::<Quantity>().unwrap_or(Quantity::ZERO)
    };
    if size(new) <= size(old) {
        return Ok(());
    }
    if value::text(old, "status.phase") != "Bound" {
        return Err(request.forbid(new, "Only bound persistent volume claims can be expanded"));
    }
    let class = |claim: &Value| match annotation(claim, BETA_CLASS) {
        Some(class) => class.to_owned(),
        None => value::text(claim, "spec.storageClassName").to_owned(),
    };
    let name = class(new);
    let found = api.registry.stored("storage.k8s.io", "storageclasses").and_then(|classes| classes.cache.get(&name));
    let grows = found.is_some_and(|class| value::flag(&class.to_value(), "allowVolumeExpansion"));
    if name.is_empty() || name != class(old) || !grows {
        let why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize";
        return Err(request.forbid(new, why));
    }
    Ok(())
}
