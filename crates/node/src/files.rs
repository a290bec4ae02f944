//! Being told that a file or a directory changed, instead of looking again and again.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use tokio::io::unix::AsyncFd;

/// What happened to the entries of a watched directory, or to a watched file itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The entry's name; empty for the watched path itself.
    pub name: String,
    /// Whether an entry of that name came to be: made, or moved there.
    pub appeared: bool,
}

/// A watch on one path.
#[derive(Debug)]
pub struct Watch {
    fd: AsyncFd<OwnedFd>,
}

impl Watch {
    /// Watches a file, or the entries of a directory.
    pub fn new(path: &Path) -> std::io::Result<Self> {
        let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let flags = WatchFlags::MODIFY
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF;
        inotify::add_watch(&fd, path, flags)?;
        // SAFETY: an OwnedFd owns its descriptor and keeps naming the same one until it is dropped.
        #[allow(unsafe_code)]
        let fd = unsafe { AsyncFd::register(fd) }?;
        Ok(Self { fd })
    }

    /// Waits until something happened, and says what. Events that the kernel had to drop are one event without a name.
    pub async fn changed(&mut self) -> std::io::Result<Vec<Event>> {
        loop {
            let mut guard = self.fd.readable().await?;
            let mut buffer = [MaybeUninit::uninit(); 4096];
            let mut reader = inotify::Reader::new(guard.get_inner(), &mut buffer);
            let mut events = Vec::new();
            loop {
                match reader.next() {
                    Ok(event) => {
                        let name = event.file_name().map(|name| name.to_string_lossy().into_owned());
                        let appeared = event.events().intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO);
                        events.push(Event { name: name.unwrap_or_default(), appeared });
                        if reader.is_buffer_empty() && events.len() >= 256 {
                            break;
                        }
                    }
                    Err(rustix::io::Errno::WOULDBLOCK) => {
                        guard.clear_ready();
                        break;
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            if !events.is_empty() {
                return Ok(events);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn a_directory_tells_of_its_entries() {
        let dir = tempfile::tempdir().unwrap();
        let mut watch = Watch::new(dir.path()).unwrap();
        assert!(tokio::time::timeout(Duration::from_millis(20), watch.changed()).await.is_err());
        std::fs::write(dir.path().join("a"), "x").unwrap();
        let events = watch.changed().await.unwrap();
        assert_eq!(events[0], Event { name: "a".into(), appeared: true });
        std::fs::rename(dir.path().join("a"), dir.path().join("b")).unwrap();
        let events = watch.changed().await.unwrap();
        assert!(events.contains(&Event { name: "b".into(), appeared: true }), "{events:?}");
        assert!(Watch::new(&dir.path().join("none")).is_err());
    }
}
