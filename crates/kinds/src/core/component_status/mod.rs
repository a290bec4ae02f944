//! ComponentStatuses.

pub mod columns;
