//! EvictionRequests.

pub mod columns;
