//! The rules in a real kernel, in network namespaces made for each test: no packet leaves them.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod agent;
mod apply;
mod net;
mod policy;
mod reach;
mod rules;
mod scale;
mod sctp;
mod slices;
mod traffic;
