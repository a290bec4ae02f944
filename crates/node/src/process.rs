//! Processes that are not (or no longer) our children: known again after a restart, awaited and signalled without races.
//!
//! A process id alone is reused by the kernel; with the time the process started it names one process for ever. A
//! [`Process`] holds a pidfd, so a signal can never reach a stranger that got the same number.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::io::unix::AsyncFd;

#[derive(Debug)]
pub struct Process {
    pid: u32,
    fd: AsyncFd<OwnedFd>,
}

impl Process {
    /// The process with this id, if there is one.
    pub fn open(pid: u32) -> std::io::Result<Self> {
        let id = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(std::io::ErrorKind::InvalidInput)?;
        // Non-blocking is what the reactor asks of its descriptors; PIDFD_NONBLOCK is only a flag for waitid.
        let fd = pidfd_open(id, PidfdFlags::NONBLOCK)?;
        // SAFETY: an OwnedFd owns its descriptor and keeps naming the same one until it is dropped.
        #[allow(unsafe_code)]
        let fd = unsafe { AsyncFd::register(fd) }?;
        Ok(Self { pid, fd })
    }

    /// The process a pid file names, if it still runs: the same process, not another with its number.
    pub fn from_pid_file(path: &Path) -> Option<Self> {
        let text = std::fs::read_to_string(path).ok()?;
        let (pid, started) = text.trim().split_once(' ')?;
        let pid = pid.parse().ok()?;
        // Opened before its start time is read: what the descriptor names cannot change afterwards.
        let process = Self::open(pid).ok()?;
        (!is_zombie(pid) && start_time(pid)?.to_string() == started).then_some(process)
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Writes a pid file by which [`Process::from_pid_file`] finds it again.
    pub fn write_pid_file(&self, path: &Path) -> std::io::Result<()> {
        let started = start_time(self.pid).ok_or(std::io::ErrorKind::NotFound)?;
        crate::private::write(path, format!("{} {started}\n", self.pid))
    }

    /// Waits until it has ended.
    pub async fn ended(&self) -> std::io::Result<()> {
        self.fd.readable().await.map(drop)
    }

    /// Sends a signal; no error when it has ended already.
    pub fn signal(&self, signal: Signal) -> std::io::Result<()> {
        match pidfd_send_signal(self.fd.as_fd(), signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Asks it to end, kills it when `grace` has passed, and waits for its end.
    pub async fn stop(&self, grace: Duration) -> std::io::Result<()> {
        self.signal(Signal::TERM)?;
        if tokio::time::timeout(grace, self.ended()).await.is_err() {
            self.signal(Signal::KILL)?;
            self.ended().await?;
        }
        Ok(())
    }
}

/// Whether a process has ended and only waits for its parent to ask about it.
fn is_zombie(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().next());
    matches!(state, Some("Z" | "X"))
}

/// When a process started, in clock ticks since boot: field 22 of its stat line.
fn start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in parentheses and may itself hold blanks and parentheses.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// Whether this process holds a capability, by its number.
pub fn has_capability(number: u32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .is_some_and(|set| set >> number & 1 == 1)
}

/// Flags to open a file whose name somebody else controls: a link is refused, a pipe does not make us wait.
pub const NO_FOLLOW: i32 = libc::O_NOFOLLOW | libc::O_NONBLOCK;

/// The capability to lower an OOM score and to raise limits.
pub const CAP_SYS_RESOURCE: u32 = 24;

/// Starts `command` in a session of its own, so that it outlives us and no terminal signal reaches it.
#[allow(unsafe_code)]
pub fn spawn_detached(command: &mut tokio::process::Command) -> std::io::Result<tokio::process::Child> {
    // SAFETY: between fork and exec only setsid runs, which is async-signal-safe and touches no memory of ours.
    unsafe {
        command.pre_exec(|| rustix::process::setsid().map(drop).map_err(Into::into));
    }
    command.spawn()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::process::Command;

    #[tokio::test]
    async fn a_process_is_found_again_by_its_pid_file_until_it_ends() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        let mut child = spawn_detached(Command::new("sleep").arg("60")).unwrap();
        let process = Process::open(child.id().unwrap()).unwrap();
        process.write_pid_file(&file).unwrap();
        let found = Process::from_pid_file(&file).unwrap();
        assert_eq!(found.pid(), process.pid());
        found.stop(Duration::from_secs(5)).await.unwrap();
        assert!(Process::from_pid_file(&file).is_none(), "ended, though nobody asked about it yet");
        child.wait().await.unwrap();
        assert!(Process::from_pid_file(&file).is_none());
    }

    #[tokio::test]
    async fn another_process_with_the_same_number_is_not_taken_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        std::fs::write(&file, format!("{} 1\n", std::process::id())).unwrap();
        assert!(Process::from_pid_file(&file).is_none());
    }
}
