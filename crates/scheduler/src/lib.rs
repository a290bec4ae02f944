//! The scheduler: finds a node for every pod that has none.
//!
//! A reader starts at [`scheduling`], the state machine that turns observations into effects, then [`scheduling::cycle`], one
//! cycle of it, [`framework`], what a plugin is, and [`plugins`]. [`model`] is the cluster as cycles see it, [`queue`] decides
//! which pod is next, [`config`] makes profiles of plugins, and [`live`] connects all of it to an API.
//!
//! Deliberately absent: locks in the scheduling path (one owner mutates the model between cycles), snapshots (the model
//! *is* one while a cycle runs), polling (deadlines and events drive everything) and any way to the API but
//! [`framework::api::Api`].

pub mod config;
pub mod framework;
pub mod live;
pub mod metrics;
pub mod model;
#[cfg(test)]
mod oracle;
pub mod plugins;
pub mod queue;
pub mod scheduling;
pub mod testing;

pub use live::{Config, Error, run, run_with};
pub use scheduling::{Effect, Scheduler};
