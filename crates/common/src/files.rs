//! Notifications that a file or a directory changed, instead of looking again and again.

use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;

/// What happened to the entries of a watched directory, or to a watched file itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The entry's name; empty for the watched path itself, and where the kernel had to drop events.
    pub name: String,
    /// Whether an entry of that name came to be: made, or moved there.
    pub appeared: bool,
}

/// A watch on one path.
#[derive(Debug)]
pub struct Watch(Receiver);

impl Watch {
    /// Watches a file, or the entries of a directory.
    pub fn new(path: &Path) -> std::io::Result<Self> {
        let flags = WatchFlags::MODIFY
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF;
        Self::with(path, flags)
    }

    /// Watches for files of a directory that are there as a whole: a file that somebody still writes says nothing.
    pub fn for_whole_files(directory: &Path) -> std::io::Result<Self> {
        Self::with(directory, WatchFlags::CLOSE_WRITE | WatchFlags::MOVED_TO | WatchFlags::CREATE)
    }

    fn with(path: &Path, flags: WatchFlags) -> std::io::Result<Self> {
        let changes = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        inotify::add_watch(&changes, path, flags)?;
        // Events are read as a pipe is: it is ready when there are some.
        Ok(Self(Receiver::from_owned_fd_unchecked(changes)?))
    }

    /// Waits until something happened, and says what. Events that the kernel had to drop are one event without a name.
    pub async fn changed(&mut self) -> std::io::Result<Vec<Event>> {
        // The kernel hands out whole events only, and the longest has 16 bytes and a name of 256.
        let mut buffer = [0; 4096];
        let read = self.0.read(&mut buffer).await?;
        Ok(events(&buffer[..read]))
    }
}

/// Events as the kernel writes them: a watch, what happened, a cookie, how long the name is, and the name, with zeros behind it.
fn events(mut bytes: &[u8]) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<16>() {
        let word = |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let Some((name, rest)) = rest.split_at_checked(word(12) as usize) else { break };
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        let appeared = word(4) & (WatchFlags::CREATE | WatchFlags::MOVED_TO).bits() != 0;
        events.push(Event { name: String::from_utf8_lossy(name).into_owned(), appeared });
        bytes = rest;
    }
    events
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_directory_tells_of_its_entries() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = |name: &str| dir.path().join(name);
        let mut watch = Watch::new(dir.path()).expect("a watch");
        assert!(tokio::time::timeout(Duration::from_millis(20), watch.changed()).await.is_err());
        std::fs::write(path("a"), "x").expect("a file");
        let events = watch.changed().await.expect("events");
        assert_eq!(events[0], Event { name: "a".into(), appeared: true });
        std::fs::rename(path("a"), path("b")).expect("moved");
        let events = watch.changed().await.expect("events");
        assert!(events.contains(&Event { name: "b".into(), appeared: true }), "{events:?}");
        assert!(Watch::new(&path("none")).is_err());
    }

    #[tokio::test]
    async fn more_events_than_fit_into_a_read_come_one_after_the_other() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut watch = Watch::new(dir.path()).expect("a watch");
        let names: Vec<String> = (0..300).map(|n| format!("{n:0100}")).collect();
        for name in &names {
            std::fs::write(dir.path().join(name), "").expect("a file");
        }
        let mut seen = Vec::new();
        while seen.last() != names.last() {
            let events = watch.changed().await.expect("events");
            seen.extend(events.into_iter().filter(|event| event.appeared).map(|event| event.name));
        }
        assert_eq!(seen, names);
    }
}
