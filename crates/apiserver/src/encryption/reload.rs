//! Follows the file: woken by the file system, never by a timer.

use std::path::Path;
use std::sync::{Arc, Weak};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;
use tokio::task::JoinHandle;

use super::{Encryption, Error};

/// Starts the task that takes in the file whenever it changes. The directory is watched, not the file: editors and
/// mounted volumes put a new file in the place of the old one.
pub fn follow(encryption: &Arc<Encryption>) -> Result<JoinHandle<()>, Error> {
    let path = &encryption.settings.path;
    let failed = |why: String| Error::Read { path: path.display().to_string(), why };
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let changes =
        inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).map_err(|error| failed(error.to_string()))?;
    let of_interest = WatchFlags::CLOSE_WRITE | WatchFlags::MOVED_TO | WatchFlags::CREATE;
    inotify::add_watch(&changes, directory, of_interest).map_err(|error| failed(error.to_string()))?;
    // Events are read as a pipe is: it is ready when there are some.
    let mut changes = Receiver::from_owned_fd_unchecked(changes).map_err(|error| failed(error.to_string()))?;
    let encryption: Weak<Encryption> = Arc::downgrade(encryption);
    Ok(tokio::spawn(async move {
        let mut buffer = [0; 4096];
        // What changed does not matter: the file is compared with what is in force.
        while changes.read(&mut buffer).await.is_ok() {
            let Some(encryption) = encryption.upgrade() else { return };
            encryption.reload().await;
        }
    }))
}
