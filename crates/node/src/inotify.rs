//! Changes in a directory, announced by the kernel.
//!
//! A [`Watcher`] says that something happened, never what: the reader looks at the files again. So lost, merged or
//! doubled events make no difference.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::inotify::{CreateFlags, Reader, WatchFlags, add_watch, init};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Waits for changes in one directory.
#[derive(Debug)]
pub struct Watcher {
    fd: AsyncFd<OwnedFd>,
}

impl Watcher {
    /// Watches a directory: files written to, made, renamed or removed right in it.
    pub fn directory(path: &Path) -> std::io::Result<Self> {
        let fd = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let wanted = WatchFlags::MODIFY
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        add_watch(&fd, path, wanted)?;
        // SAFETY: an OwnedFd owns its descriptor and keeps naming the same one until it is dropped.
        #[allow(unsafe_code)]
        let fd = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?;
        Ok(Self { fd })
    }

    /// Waits until something changed since the watcher was made or last asked. Cancelling loses nothing.
    pub async fn changed(&mut self) -> std::io::Result<()> {
        loop {
            let mut ready = self.fd.readable().await?;
            match ready.try_io(|fd| drain(fd.get_ref().as_fd())) {
                Ok(drained) => return drained,
                Err(_nothing_there) => {}
            }
        }
    }
}

/// Takes all events off the queue; an error of its own when there was none.
fn drain(fd: std::os::fd::BorrowedFd<'_>) -> std::io::Result<()> {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut events = Reader::new(fd, &mut buffer);
    let mut any = false;
    loop {
        match events.next() {
            Ok(_) => any = true,
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) if any => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn every_kind_of_change_is_announced_and_silence_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a");
        let mut watcher = Watcher::directory(dir.path()).unwrap();
        assert!(futures::poll!(std::pin::pin!(watcher.changed())).is_pending());
        let steps: [&dyn Fn() -> std::io::Result<()>; 4] = [
            &|| std::fs::write(&file, "x"),
            &|| std::fs::write(&file, "xy"),
            &|| std::fs::rename(&file, dir.path().join("b")),
            &|| std::fs::remove_file(dir.path().join("b")),
        ];
        for step in steps {
            step().unwrap();
            tokio::time::timeout(Duration::from_secs(10), watcher.changed()).await.expect("an announcement").unwrap();
        }
        assert!(futures::poll!(std::pin::pin!(watcher.changed())).is_pending());
        assert!(Watcher::directory(&dir.path().join("absent")).is_err());
    }
}
