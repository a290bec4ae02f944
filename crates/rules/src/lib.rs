//! What Kubernetes *means*, written once: rules that the API server enforces, controllers and scheduler act on, and the kubelet checks
//! again. Pure: no tokio, no I/O, no clock.
//!
//! Two parts that answer one question differently are a bug that nobody sees until they meet: a pod that the scheduler places and the
//! kubelet refuses, a quota whose `status.used` is not what was charged. So a rule that two crates need has its home here. Rules of the
//! API server are about trees ([`machinery::Value`]), those of the other parts about `k8s-openapi`'s types; where both need one, there
//! are two doors into the same room.

pub mod cron;
pub mod env_file;
pub mod expansion;
pub mod flow_control;
pub mod migration;
pub mod names;
pub mod network_disks;
pub mod network_policies;
pub mod owners;
pub mod pod_resources;
pub mod pod_spec;
pub mod pods;
pub mod protocol;
pub mod qos;
pub mod quota;
pub mod rbac;
pub mod restarts;
pub mod selectors;
pub mod services;
pub mod tolerations;
pub mod upstream;
pub mod zpages;
