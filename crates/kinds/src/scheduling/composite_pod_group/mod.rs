//! CompositePodGroups.

pub mod columns;
