//! Evictions.

pub mod columns;
