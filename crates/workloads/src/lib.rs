//! The controllers of workloads: what people run, and what keeps it running, grows it and lets it go.
//!
//! Folders of the shape that all controllers have. The registry of `controllers` names them, and runs them beside the others.

pub mod cronjob;
pub mod daemonset;
pub mod deployment;
pub mod disruption;
pub mod horizontalpodautoscaler;
pub mod job;
pub mod metrics;
pub mod replicaset;
pub mod statefulset;
pub mod ttlafterfinished;

#[cfg(test)]
use controllerkit::testing;
use controllerkit::{Error, common, context, controller, inputs};
