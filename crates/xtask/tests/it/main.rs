//! Promises of ARCHITECTURE.md and CONTRIBUTING.md, kept by tests.

mod hops;
mod house;
mod lengths;
mod source;
