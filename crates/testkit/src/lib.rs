//! What tests of whole clusters need.

pub mod linear;
