//! From the specification to what is passed to the runtime: sandboxes, containers, their environment, files and rights.
//!
//! Everything here is pure. What it needs from elsewhere (objects the pod refers to, addresses, the node's size) is in
//! [`NodeFacts`] and [`References`], gathered by the worker beforehand.

pub mod container;
pub mod dns;
pub mod env;
pub mod fields;
pub mod hosts;
pub mod sandbox;
pub mod security;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use k8s_openapi::api::certificates::v1::ClusterTrustBundle;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};

/// What a handler of the runtime can do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Abilities {
    /// Mounts that are read-only all the way down.
    pub recursive_read_only: bool,
    /// Pods with users of their own.
    pub user_namespaces: bool,
}

/// What is true of this node, for all its pods.
#[derive(Debug, Clone, Default)]
pub struct NodeFacts {
    pub node_name: String,
    /// Its addresses, the main one first.
    pub host_ips: Vec<String>,
    /// Its processor time in thousandths, for pods without a limit that ask for it.
    pub cpu_milli: i64,
    /// Its memory in bytes.
    pub memory: i64,
    /// Its disk in bytes.
    pub ephemeral_storage: i64,
    /// Where cluster names are answered.
    pub cluster_dns: Vec<String>,
    pub cluster_domain: String,
    /// The text of the node's resolver configuration.
    pub resolv_conf: String,
    /// Where seccomp profiles of the node are.
    pub seccomp_dir: PathBuf,
    /// Where logs go: a folder per pod.
    pub log_dir: PathBuf,
    /// What the runtime's handlers can do, by name; the default one has none.
    pub handlers: BTreeMap<String, Abilities>,
}

/// The objects a pod refers to, as far as they exist.
#[derive(Debug, Clone, Default)]
pub struct References {
    /// By name, in the pod's namespace.
    pub config_maps: HashMap<String, Arc<ConfigMap>>,
    /// By name, in the pod's namespace.
    pub secrets: HashMap<String, Arc<Secret>>,
    /// All there are, for pods that choose among them; none while they are not known.
    pub trust_bundles: Option<Vec<Arc<ClusterTrustBundle>>>,
    /// All of the pod's namespace, and `default/kubernetes`.
    pub services: Vec<Arc<Service>>,
}

/// Why a container's configuration cannot be made. The words reach users.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// An object the pod refers to is missing.
    #[error("{kind} {name:?} not found")]
    NotFound {
        /// `configmap` or `secret`.
        kind: &'static str,
        name: String,
    },
    /// An object has no such key.
    #[error("couldn't find key {key} in {kind} {namespace}/{name}")]
    NoKey {
        /// `ConfigMap` or `Secret`.
        kind: &'static str,
        namespace: String,
        name: String,
        key: String,
    },
    /// Anything else, in its own words.
    #[error("{0}")]
    Other(String),
}

/// The folder of a pod's logs: `<namespace>_<name>_<uid>`.
pub fn log_folder(facts: &NodeFacts, pod: &k8s_openapi::api::core::v1::Pod) -> PathBuf {
    use crate::pod::spec;
    facts.log_dir.join(format!("{}_{}_{}", spec::namespace(pod), spec::name(pod), spec::uid(pod)))
}
