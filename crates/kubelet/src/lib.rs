//! The kubelet: it makes the pods that are bound to this node run, and reports what became of them.
//!
//! ```text
//! API: pods of this node ─► pods ─► worker (one per pod) ─► node::cri ─► containers
//!                                     │  plan, status: pure             │
//! API: pod status ◄── writer ◄────────┘ ◄──── events ◄──────────────────┘
//! API: node, lease ◄── registration ◄── machine, runtime
//! ```
//! Decisions are pure functions: [`pod::plan`], [`status`], [`config`], [`volumes::payload`], [`admission`],
//! [`registration::status`], [`pressure::thresholds`], [`pressure::rank`]. What acts on them can be killed at any point: everything is read again from the API and the
//! runtime.
//!
//! Deliberately absent: system calls and other programs, which are in the crate `node`; any loop that looks for work.

pub mod admission;
mod allocations;
mod backoff;
mod certificates;
pub mod config;
pub mod configuration;
mod figures;
mod hooks;
pub mod http_get;
pub mod images;
mod objects;
pub mod pod;
mod pods;
pub mod pressure;
pub mod probes;
pub mod registration;
pub mod rotation;
mod run;
pub mod runtime;
pub mod server;
mod shared;
pub mod shutdown;
pub mod static_pods;
pub mod status;
mod tokens;
mod users;
pub mod volumes;
mod worker;
mod writer;

pub use run::{Config, Error, Network, Serving, run};

/// The Kubernetes version whose behaviour this kubelet has.
pub const VERSION: &str = "v1.37.0";
