//! NamespaceLifecycle: nothing is made in a namespace that is not there or is going, and the first namespaces stay.

use machinery::Value;
use machinery::gvk::GroupResource;
use machinery::status::{ApiError, Cause};

use super::{Operation, Request};
use crate::verbs::Api;

/// The namespaces that cannot be deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// A create needs a namespace that takes new content.
pub async fn admit(api: &Api, request: &Request<'_>, new: &Value) -> Result<(), ApiError> {
    if request.operation != Operation::Create || !request.resource.storage.namespaced {
        return Ok(());
    }
    // Access reviews say nothing about what is in a namespace.
    let name = &request.info.namespace;
    let Some(namespaces) = api.registry.stored("", "namespaces") else { return Ok(()) };
    let namespace = match namespaces.cache.get(name) {
        Some(namespace) => namespace,
        // It may just have been made, by another server even.
        None => match api.read(namespaces, name).await? {
            Some(namespace) => namespace,
            None => return Err(ApiError::not_found(&GroupResource::new("", "namespaces"), name)),
        },
    };
    if namespace.meta().deleting {
        let object = machinery::value::text(new, "metadata.name");
        let why = format!("unable to create new content in namespace {name} because it is being terminated");
        let mut error = ApiError::forbidden(&request.resource.name, object, &why);
        error.details.get_or_insert_default().causes = vec![Cause {
            reason: "NamespaceTerminating".to_owned(),
            message: format!("namespace {name} is being terminated"),
            field: "metadata.namespace".to_owned(),
        }];
        return Err(error);
    }
    Ok(())
}

/// The first namespaces cannot be deleted.
pub fn validate(_: &Api, request: &Request<'_>) -> Result<(), ApiError> {
    let immortal = request.operation == Operation::Delete
        && request.is_for("", "namespaces")
        && IMMORTAL.contains(&request.info.name.as_str());
    if immortal {
        return Err(ApiError::forbidden(
            &request.resource.name,
            &request.info.name,
            "this namespace may not be deleted",
        ));
    }
    Ok(())
}
