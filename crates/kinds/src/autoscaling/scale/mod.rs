//! Scales, which are subresources and never stored.

pub mod columns;
