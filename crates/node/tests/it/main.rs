//! The node on the real thing: our own containerd, our own images, a bridge of the test's own.
//!
//! Needs root, `containerd`, `runc`, `ctr` and the CNI plugins. Every test has its own directory, bridge and range, and
//! refuses the range first, so that no packet can leave the machine.

// A test fails by panicking, in its helpers too.
#![allow(clippy::unwrap_used)]

mod containerd;
mod rig;
