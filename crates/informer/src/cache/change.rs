//! What handlers are told.

use std::sync::Arc;

/// What became of an object.
#[derive(Debug)]
pub enum Change<K> {
    /// It came to be, or was there when the handler subscribed.
    Added(Arc<K>),
    /// It changed. Both have the same uid.
    Modified {
        /// As the handler knew it.
        old: Arc<K>,
        new: Arc<K>,
    },
    /// It went; this is the last state known, which may be older than the last it had.
    Deleted(Arc<K>),
}

impl<K> Change<K> {
    /// The state before, unless it was added.
    pub fn before(&self) -> Option<&Arc<K>> {
        match self {
            Self::Added(_) => None,
            Self::Modified { old, .. } | Self::Deleted(old) => Some(old),
        }
    }

    /// The state now, unless it was deleted.
    pub fn after(&self) -> Option<&Arc<K>> {
        match self {
            Self::Added(new) | Self::Modified { new, .. } => Some(new),
            Self::Deleted(_) => None,
        }
    }

    /// The latest state known.
    pub fn object(&self) -> &Arc<K> {
        match self {
            Self::Added(object) | Self::Modified { new: object, .. } | Self::Deleted(object) => object,
        }
    }
}

impl<K> Clone for Change<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Added(object) => Self::Added(object.clone()),
            Self::Modified { old, new } => Self::Modified { old: old.clone(), new: new.clone() },
            Self::Deleted(object) => Self::Deleted(object.clone()),
        }
    }
}
