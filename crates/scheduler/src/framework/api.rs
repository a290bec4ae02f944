//! What the scheduler does to the API server, and nothing else: the border between deciding and doing.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};

use crate::model::pod::PodInfo;

/// Why the API did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApiFailure {
    /// The object is gone.
    #[error("{0}")]
    NotFound(String),
    /// The object has changed, or is another one of the same name.
    #[error("{0}")]
    Conflict(String),
    /// Anything else; worth another try later.
    #[error("{0}")]
    Other(String),
}

impl ApiFailure {
    /// Whether the object is gone.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound(_))
    }
}

/// The outcome of a request.
pub type Reply = BoxFuture<'static, Result<(), ApiFailure>>;

/// An event about a pod, as users see it in `kubectl describe`.
#[derive(Debug, Clone)]
pub struct PodEvent {
    /// The pod it is about.
    pub pod: Arc<PodInfo>,
    /// The pod that caused it, for evictions.
    pub related: Option<Arc<PodInfo>>,
    /// `Normal` or `Warning`.
    pub warning: bool,
    /// For machines: `Scheduled`, `FailedScheduling`, `Preempted`.
    pub reason: &'static str,
    /// What was being done: `Binding`, `Scheduling`, `Preempting`.
    pub action: &'static str,
    pub note: String,
}

/// The API server, as far as scheduling writes to it.
pub trait Api: Send + Sync {
    /// Creates `pods/binding`.
    fn bind(&self, pod: &PodInfo, node: &str) -> Reply;
    /// Applies a strategic merge patch to `pods/status`.
    fn patch_pod_status(&self, pod: &PodInfo, patch: serde_json::Value) -> Reply;
    /// Deletes a pod, of this very uid.
    fn delete_pod(&self, pod: &PodInfo) -> Reply;
    fn update_volume(&self, volume: PersistentVolume) -> Reply;
    fn update_claim(&self, claim: PersistentVolumeClaim) -> Reply;
    /// Waits until the claims of a namespace are bound completely.
    fn claims_bound(&self, namespace: &str, names: Vec<String>, limit: Duration) -> Reply;
    /// Records an event. Losing one is no failure.
    fn record(&self, event: PodEvent);
}
