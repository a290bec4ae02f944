//! Promises of ARCHITECTURE.md and CONTRIBUTING.md, kept by tests.

mod hops;
mod house;
mod lengths;
mod licences;
mod source;
