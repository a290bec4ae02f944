//! What Kubernetes objects are and how they are read, compared, patched and answered. Pure: no tokio, no I/O, no clock.
//!
//! A reader starts at [`object`] (the shared, encoded form of one object) and [`rest`] (a request and its answer, whatever
//! transport carried them). Everything else is a leaf: [`status`] is the one error type, [`selector`], [`quantity`],
//! [`duration`], [`names`], [`objectmeta`], [`patch`], [`apply`], [`accept`], [`query`], [`codec`] and [`schema`] know one subject each. What
//! Kubernetes means by objects is in crate `rules`.

pub mod accept;
pub mod apply;
pub mod codec;
pub mod diff;
pub mod duration;
pub mod gvk;
pub mod names;
pub mod object;
pub mod objectmeta;
pub mod patch;
pub mod quantity;
pub mod query;
pub mod rest;
pub mod schema;
pub mod selector;
pub mod status;
#[cfg(test)]
mod testing;
pub mod time;
pub mod value;

pub use object::Object;
pub use serde_json::Value;
pub use status::ApiError;
