//! What several controllers need: owners, selectors, pods, batches of writes. Nothing here knows a controller.

pub mod batch;
pub mod claim;
pub mod discovery;
pub mod eviction;
pub mod expiry;
pub mod hash;
pub mod history;
pub mod intstr;
pub mod meta;
pub mod pod_control;
pub mod pods;
pub mod protection;
pub mod resource_claims;
pub mod selector;
pub mod services;
pub mod slices;
pub mod storage;
pub mod template_hash;
pub mod tokens;
