//! The scheduler: finds a node for every pod that has none.
//!
//! A reader starts at [`scheduler`], the state machine that turns observations into effects, then [`schedule`], one cycle
//! of it, [`framework`], what a plugin is, and [`plugins`]. [`cluster`] is the model that cycles look at, [`queue`] decides
//! which pod is next.
//!
//! Deliberately absent: locks in the scheduling path (one owner mutates the model between cycles), snapshots (the model
//! *is* one while a cycle runs), polling (deadlines and events drive everything) and any way to the API but [`api::Api`].

pub mod api;
pub mod classes;
pub mod cluster;
pub mod config;
pub mod effects;
mod equivalence;
pub mod extender;
pub mod framework;
mod http_extender;
pub mod inbox;
pub mod live;
pub mod metrics;
pub mod node;
pub mod objects;
#[cfg(test)]
mod oracle;
pub mod plugins;
pub mod pod;
pub mod preemption;
pub mod queue;
pub mod registry;
pub mod resources;
pub mod schedule;
pub mod scheduler;
pub mod selector;
mod source;
pub mod status;
pub mod testing;
pub mod topology;

pub use live::{Config, Error, run, run_with};
pub use scheduler::{Effect, Scheduler};
