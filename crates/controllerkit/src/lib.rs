//! What a controller is made of: how a folder describes itself ([`controller::Controller`]), what it is started with ([`context::Context`]), why a turn
//! fails ([`Error`]), and what several need alike ([`common`]). Nothing here knows a controller.

pub mod common;
pub mod config;
pub mod context;
pub mod controller;
mod error;
pub mod inputs;
pub mod metrics;
#[cfg(feature = "testing")]
pub mod testing;

pub use config::Config;
pub use error::Error;
