//! The group `internal.apiserver.k8s.io`.

pub mod storage_version;

use crate::kind::Kind;
use crate::strategy::PlainWithStatus;

/// The kinds of the group.
pub const KINDS: &[Kind] = &[Kind::new("storageversions", "StorageVersion")
    .strategy(&PlainWithStatus)
    .columns(&storage_version::columns::TABLE)];
