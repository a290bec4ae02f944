//! Between what is stored and what a version shows; the two differ for custom resources alone.

use std::sync::Arc;

use machinery::Value;
use machinery::object::{Draft, Object};
use machinery::status::ApiError;

use super::Api;
use super::commit::draft;
use crate::registry::Resource;

impl Api {
    /// A stored object as the resource's version has it.
    pub(super) async fn show(&self, resource: &Resource, object: Arc<Object>) -> Result<Arc<Object>, ApiError> {
        if resource.form.is_none() {
            return Ok(object);
        }
        let (meta, revision) = (object.identity().clone(), object.revision());
        let shown = self.show_all(resource, vec![object]).await;
        let mut shown = shown.map_err(|error| match error.reason {
            // What a webhook would not convert is told as what cannot be read from the store.
            None => undecodable(resource, &resource.key(&meta.namespace, &meta.name), revision, &error.message),
            Some(_) => error,
        })?;
        shown.pop().ok_or_else(|| ApiError::internal("an object was lost on its way"))
    }

    /// Stored objects as the resource's version has them, in their order.
    pub(super) async fn show_all(
        &self,
        resource: &Resource,
        objects: Vec<Arc<Object>>,
    ) -> Result<Vec<Arc<Object>>, ApiError> {
        match &resource.form {
            Some(form) => form.show_all(objects, resource.cache.len()).await,
            None => Ok(objects),
        }
    }

    /// What of an object is written to the store.
    pub(super) async fn draft(&self, resource: &Resource, value: &Value) -> Result<Draft, ApiError> {
        match &resource.form {
            Some(form) => draft(resource, &*form.stored(value).await?),
            None => draft(resource, value),
        }
    }

    /// An object as its writer sees it, once it is written.
    pub(super) fn written(
        &self,
        resource: &Resource,
        value: &Value,
        draft: &Draft,
        revision: u64,
    ) -> Result<Arc<Object>, ApiError> {
        match &resource.form {
            Some(form) => form.written(value, draft, revision),
            None => Ok(Arc::new(draft.at_revision(revision))),
        }
    }
}

/// What upstream says of a stored object that it cannot bring into a version.
fn undecodable(resource: &Resource, key: &str, revision: u64, why: &str) -> ApiError {
    let place = format!("{}{key}", resource.prefix.trim_start_matches("/registry"));
    ApiError::internal(format!(
        "StorageError: corrupt object, Code: 7, Key: {place}, ResourceVersion: 0, AdditionalErrorMsg: object not decodable revision={revision}: {why}"
    ))
}
