//! The loops that turn desired state into objects.
//!
//! Every controller is a folder of one shape, here or in `workloads`, which `shape` checks: `mod.rs` says what it is ([`controller::Controller`]),
//! `reconcile.rs` observes, applies and reports, `plan.rs` decides, and `status.rs`, where there is one, says what is reported; both are pure. Controllers know
//! nothing of each other: they meet in the API. [`run`] starts those that the configuration names, each with an identity of its own, and keeps them until
//! it is stopped.

pub mod metrics;
mod registry;
#[cfg(test)]
mod shape;

mod attachdetach;
mod bootstrapsigner;
mod certificates;
mod clusterrole;
mod clustertrustbundlepublisher;
mod devicetainteviction;
mod endpoints;
mod endpointslice;
mod endpointslicemirroring;
mod ephemeralvolume;
mod garbage;
mod legacytokencleaner;
mod localpath;
mod namespace;
mod nodeipam;
mod nodelifecycle;
mod nodettl;
mod podcertificaterequestcleaner;
mod podgc;
mod resourceclaim;
mod resourcequota;
mod rootca;
mod serviceaccount;
mod serviceaccounttoken;
mod servicecidr;
pub mod serviceloadbalancer;
mod storageversion;
mod storageversionmigrator;
mod tainteviction;
mod tokencleaner;
mod validatingadmissionpolicy;
mod volumeattributesclassprotection;
mod volumebinder;
mod volumeexpand;
mod volumeprotection;

#[cfg(test)]
use controllerkit::testing;
use controllerkit::{common, config, context, controller, inputs};

pub use controllerkit::Error;
pub use controllerkit::config::{CertificateRequest, Config, LOCAL_PATH_ROOT, Network, Signer, TokenSigner};
pub use localpath::default_storage_class;
pub use registry::{enabled_accounts, enabled_names, is_well, run};
