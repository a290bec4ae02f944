//! Decisions against the specification, and real packets in network namespaces made for each test.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod agent;
mod attacks;
mod cluster;
mod definition;
mod flows;
#[path = "../../../proxy/tests/it/net.rs"]
#[allow(dead_code, reason = "the service proxy's tests use all of it")]
mod net;
mod oracle;
mod packets;
mod programs;
mod property;
mod sample;
mod tables;
mod tiers;
