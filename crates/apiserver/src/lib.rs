//! apiserver.

pub mod discovery;
pub mod openapi;
