//! One pod on this node: what its specification says, what the runtime has of it, and what follows from both.
//!
//! [`spec`] reads the specification, [`state`] is the runtime's side, [`plan`] decides the next step. All of it is pure;
//! the worker in [`crate::worker`] acts.

pub mod allocation;
pub mod plan;
pub mod resources;
pub mod spec;
pub mod state;
