//! Why a turn of a controller failed. Every failure is retried; the message goes to the log and, where upstream says so, into conditions and events.

use informer::Key;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API refused, or could not be reached.
    #[error(transparent)]
    Api(#[from] client::Error),
    /// An owner that was about to adopt was replaced by another of its name.
    #[error("original {kind} {key} is gone")]
    OwnerGone { kind: &'static str, key: Key },
    /// An owner that was about to adopt is being deleted.
    #[error("{kind} {key} has just been deleted")]
    OwnerDeleting { kind: &'static str, key: Key },
    /// An object cannot be handled as it is, for a reason that only a change to it can cure.
    #[error("{key}: {reason}")]
    Unusable {
        key: Key,
        /// What is wrong with it.
        reason: String,
    },
    /// Something else has to happen first.
    #[error("{0}")]
    Waiting(String),
    /// The configuration names a controller that does not exist.
    #[error("{0:?} is not in the list of known controllers")]
    UnknownController(String),
}
