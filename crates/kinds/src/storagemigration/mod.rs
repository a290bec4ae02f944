//! The group `storagemigration.k8s.io`.

pub mod storage_version_migration;

use crate::kind::{Deprecation, Kind};

/// The kinds of the group.
pub const KINDS: &[Kind] = &[Kind::new("storageversionmigrations", "StorageVersionMigration")
    .strategy(&storage_version_migration::Migrations)
    .columns(&storage_version_migration::columns::TABLE)
    .deprecated(&[Deprecation::new("v1beta1", 37)
        .until(40)
        .instead("storagemigration.k8s.io/v1 StorageVersionMigration")])];
