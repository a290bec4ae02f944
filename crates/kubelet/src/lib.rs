//! The kubelet: it makes the pods that are bound to this node run, and reports what became of them.

pub mod config;
pub mod pod;
pub mod probes;
pub mod status;
pub mod volumes;
