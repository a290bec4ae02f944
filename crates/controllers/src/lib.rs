//! The loops that turn desired state into objects.
//!
//! Every controller is a folder of one shape, which `shape` checks: `mod.rs` says what it is ([`controller::Controller`]), `reconcile.rs` observes, applies
//! and reports, `plan.rs` decides, and `status.rs`, where there is one, says what is reported; both are pure. Controllers know nothing of each
//! other: they meet in the API. [`run`] starts those that the configuration names, each with an identity of its own, and keeps them until it is stopped.

mod attachdetach;
mod common;
mod config;
mod context;
mod controller;
mod error;
pub mod metrics;
mod registry;
#[cfg(test)]
mod shape;
#[cfg(test)]
mod testing;

mod bootstrapsigner;
mod certificates;
mod clusterrole;
mod clustertrustbundlepublisher;
mod cronjob;
mod daemonset;
mod deployment;
mod devicetainteviction;
mod disruption;
mod endpoints;
mod endpointslice;
mod endpointslicemirroring;
mod ephemeralvolume;
mod garbage;
mod horizontalpodautoscaler;
mod job;
mod legacytokencleaner;
mod localpath;
mod namespace;
mod nodeipam;
mod nodelifecycle;
mod nodettl;
mod podcertificaterequestcleaner;
mod podgc;
mod replicaset;
mod resourceclaim;
mod resourcequota;
mod rootca;
mod serviceaccount;
mod serviceaccounttoken;
mod servicecidr;
pub mod serviceloadbalancer;
mod statefulset;
mod storageversion;
mod storageversionmigrator;
mod tainteviction;
mod tokencleaner;
mod ttlafterfinished;
mod validatingadmissionpolicy;
mod volumeattributesclassprotection;
mod volumebinder;
mod volumeexpand;
mod volumeprotection;

pub use config::{CertificateRequest, Config, Network, Signer, TokenSigner};
pub use error::Error;
pub use localpath::{Directories, default_storage_class};
pub use registry::{enabled_names, is_well, run};
