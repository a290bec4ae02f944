//! The kubelet: it makes the pods that are bound to this node run, and reports what became of them.

mod backoff;
pub mod config;
mod hooks;
pub mod http_get;
pub mod images;
mod objects;
pub mod pod;
pub mod probes;
pub mod runtime;
mod shared;
pub mod status;
mod tokens;
pub mod volumes;
mod worker;
mod writer;
