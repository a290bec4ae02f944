//! What several controllers need: owners, selectors, pods, batches of writes. Nothing here knows a controller.

pub(crate) mod batch;
pub(crate) mod claim;
pub(crate) mod discovery;
pub(crate) mod eviction;
pub(crate) mod expiry;
pub(crate) mod hash;
pub(crate) mod history;
pub(crate) mod intstr;
pub(crate) mod meta;
pub(crate) mod pod_control;
pub(crate) mod pods;
pub(crate) mod protection;
pub(crate) mod resource_claims;
pub(crate) mod selector;
pub(crate) mod services;
pub(crate) mod slices;
pub(crate) mod storage;
pub(crate) mod template_hash;
pub(crate) mod tokens;
