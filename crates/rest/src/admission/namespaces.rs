//! NamespaceExists and NamespaceAutoProvision: what happens to a write in a namespace that is not there. The first refuses
//! it, the second makes the namespace.

use std::sync::Arc;

use machinery::gvk::GroupResource;
use machinery::object::Object;
use machinery::status::ApiError;
use serde_json::json;

use super::{Operation, Request};
use crate::verbs::Api;
use crate::verbs::author::Target;

/// A namespace, which may just have been made, by another server even.
pub async fn find(api: &Api, name: &str) -> Result<Arc<Object>, ApiError> {
    let missing = || ApiError::not_found(&GroupResource::new("", "namespaces"), name);
    let namespaces = api.registry.stored("", "namespaces").ok_or_else(missing)?;
    match namespaces.cache.get(name) {
        Some(known) => Ok(known),
        None => api.read(namespaces, name).await?.ok_or_else(missing),
    }
}

pub async fn must_exist(api: &Api, request: &Request<'_>) -> Result<(), ApiError> {
    let written = matches!(request.operation, Operation::Create | Operation::Update | Operation::Delete);
    if !written || !request.resource.storage.namespaced || request.info.namespace.is_empty() {
        return Ok(());
    }
    find(api, &request.info.namespace).await.map(|_| ())
}

pub async fn provide(api: &Api, request: &Request<'_>) -> Result<(), ApiError> {
    let name = &request.info.namespace;
    let made = request.operation == Operation::Create && !request.dry_run;
    if !made || !request.resource.storage.namespaced || name.is_empty() || find(api, name).await.is_ok() {
        return Ok(());
    }
    let Some(namespaces) = api.registry.stored("", "namespaces") else { return Ok(()) };
    let mut namespace = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": name, "uid": common::new_uuid().to_string(), "creationTimestamp": api.now()},
    });
    namespaces.strategy.default(&mut namespace);
    namespaces.strategy.prepare_for_create(&mut namespace);
    let errors = namespaces.strategy.validate(&namespace);
    if !errors.is_empty() {
        let error = ApiError::invalid("", "Namespace", name, &errors);
        return Err(request.forbid_unnamed(&error.message));
    }
    // Somebody else may be faster, which is as good.
    let inserted = api.insert(Target::own(namespaces, name), &namespace, false).await;
    inserted.map(|_| ()).map_err(|error| request.forbid_unnamed(&error.message))
}
