//! The store's integration tests: the contract on both engines, and what is the embedded engine's own.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod contract;
mod crash;
mod embedded;
mod etcd;
mod etcd_crash;
mod faults;
mod fences;
mod moving;
mod past;
mod support;
