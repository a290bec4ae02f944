//! The kubelet on the real thing: a real API server, our own containerd, real containers.
//!
//! Needs root, `containerd`, `runc`, `ctr` and the CNI plugins. Every test has its own cluster, directory, bridge, range and
//! cgroup, and refuses the range first, so that no packet can leave the machine.

// A test fails by panicking, in its helpers too.
#![allow(clippy::unwrap_used)]

mod admission;
mod bad;
mod certificates;
mod contents;
mod hooks;
mod inside;
mod lifecycle;
mod own_kubectl;
mod pressure;
mod reach;
mod registry;
mod resize;
mod rig;
mod serving;
mod storage;
mod storage_bad;
mod storage_disks;
mod storage_growth;
mod storage_trouble;
mod volumes;
