//! StorageVersions.

pub mod columns;
