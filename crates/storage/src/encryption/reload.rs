//! Follows the file.

use std::sync::{Arc, Weak};

use common::reload::Changes;
use tokio::task::JoinHandle;

use super::{Encryption, Error};

/// Starts the task that takes in the file whenever it changes.
pub fn follow(encryption: &Arc<Encryption>) -> Result<JoinHandle<()>, Error> {
    let path = &encryption.settings.path;
    let mut changes =
        Changes::of(path).map_err(|error| Error::Read { path: path.display().to_string(), why: error.to_string() })?;
    let encryption: Weak<Encryption> = Arc::downgrade(encryption);
    Ok(tokio::spawn(async move {
        while changes.next().await {
            let Some(encryption) = encryption.upgrade() else { return };
            encryption.reload().await;
        }
    }))
}
