//! The kubelet: it makes the pods that are bound to this node run, and reports what became of them.
//!
//! ```text
//! API: pods of this node ─► pods ─► worker (one per pod) ─► node::cri ─► containers
//!                                     │  plan, status: pure             │
//! API: pod status ◄── writer ◄────────┘ ◄──── events ◄──────────────────┘
//! API: node, lease ◄── registration ◄── machine, runtime
//! ```
//! Decisions are pure functions: `pod::plan`, `status`, `cri_config`, `volumes::payload`, `admission`,
//! `registration::status`, `pressure::thresholds`, `pressure::rank`. What acts on them can be killed at any point: everything is read again from the API and the
//! runtime.
//!
//! Deliberately absent: system calls and other programs, which are in the crate `node`; any loop that looks for work.

mod admission;
pub mod configuration;
mod cri_config;
mod figures;
mod images;
mod pod;
mod pods;
pub mod pressure;
mod probes;
pub mod registration;
mod run;
mod shared;
mod static_pods;
mod status;
mod storage;
mod upkeep;
mod volumes;
mod worker;

pub use configuration::{Config, Serving};
pub use run::{Error, run};
pub use worker::network::PodNetwork;
