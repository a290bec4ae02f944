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

    /// The process a pid file names, if it still runs: the same process, not another with its number. One that was killed does not run,
    /// even if it is not gone yet.
    pub fn from_pid_file(path: &Path) -> Option<Self> {
        Self::named(path).filter(|process| !is_ending(process.pid))
    }

    /// Waits, though not for ever, until a process that was killed is gone, with all that it held: ports, locks, memory. Nobody waits for
    /// one that runs.
    pub async fn until_gone(path: &Path, limit: Duration) -> std::io::Result<()> {
        match Self::named(path).filter(|process| is_ending(process.pid)) {
            Some(process) => {
                tokio::time::timeout(limit, process.ended()).await.map_err(|_| std::io::ErrorKind::TimedOut)?
            }
            None => Ok(()),
        }
    }

    /// The process a pid file names, in whatever state.
    fn named(path: &Path) -> Option<Self> {
        let text = std::fs::read_to_string(path).ok()?;
        let (pid, started) = text.trim().split_once(' ')?;
        let pid = pid.parse().ok()?;
        // Opened before its start time is read: what the descriptor names cannot change afterwards.
        let process = Self::open(pid).ok()?;
        (start_time(pid)?.to_string() == started).then_some(process)
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

/// Whether a process will never run again: it was killed and does not know yet, is on its way out, or has ended and waits for its parent
/// to ask about it.
fn is_ending(pid: u32) -> bool {
    // Signals first: one that is taken from here is seen on its way out there.
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    was_killed(&status) || is_exiting(&stat)
}

/// Whether the signal that cannot be ignored waits for a process, by what the kernel says in `status`.
fn was_killed(status: &str) -> bool {
    const KILLED: u64 = 1 << (libc::SIGKILL - 1);
    let pending = |line: &str| {
        let signals = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"))?;
        u64::from_str_radix(signals.trim(), 16).ok()
    };
    status.lines().filter_map(pending).any(|signals| signals & KILLED != 0)
}

/// Whether a process is on its way out or a zombie, by what the kernel says in `stat`: field 3 is the state, field 9 the flags, field 52 what it will have
/// ended of. The last one is known from the moment of a kill on; a thread that has taken the signal and is interrupted before it gets to its end has neither
/// the signal nor the flag.
fn is_exiting(stat: &str) -> bool {
    const PF_EXITING: u64 = 0x4;
    const SIGNAL: u64 = 0x7f;
    let mut fields = stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace()).into_iter().flatten();
    let state = fields.next();
    let mut number =
        |skipped: usize| fields.nth(skipped).and_then(|field| field.parse::<u64>().ok()).unwrap_or_default();
    let (flags, end) = (number(5), number(42));
    matches!(state, Some("Z" | "X")) || flags & PF_EXITING != 0 || end & SIGNAL == libc::SIGKILL as u64
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

/// How long to wait before a program that ended by itself is started again: not at all after the first time, then doubling from 100 ms up to 10 s.
pub(crate) fn backoff(failures: u32) -> Duration {
    match failures {
        0 | 1 => Duration::ZERO,
        n => Duration::from_millis(100 << (n - 2).min(7)).min(Duration::from_secs(10)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::process::Command;

    #[test]
    fn backoff_grows_to_its_limit() {
        let millis: Vec<u128> = (0..12).map(|n| backoff(n).as_millis()).collect();
        assert_eq!(millis, [0, 0, 100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000, 10_000]);
    }

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

    /// Whoever starts a program again right after it was killed must not take the dying process for a running one.
    #[tokio::test]
    async fn a_killed_process_does_not_run_from_that_moment_on() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        for _ in 0..50 {
            let mut child = spawn_detached(Command::new("sleep").arg("60")).unwrap();
            let process = Process::open(child.id().unwrap()).unwrap();
            process.write_pid_file(&file).unwrap();
            assert!(Process::from_pid_file(&file).is_some());
            process.signal(Signal::KILL).unwrap();
            assert!(Process::from_pid_file(&file).is_none(), "taken for running");
            Process::until_gone(&file, Duration::from_secs(10)).await.unwrap();
            assert!(child.try_wait().unwrap().is_some(), "gone for good");
        }
        // Nobody waits for one that runs, nor for none at all.
        Process::open(std::process::id()).unwrap().write_pid_file(&file).unwrap();
        Process::until_gone(&file, Duration::from_secs(3600)).await.unwrap();
        Process::until_gone(&dir.path().join("none"), Duration::from_secs(3600)).await.unwrap();
    }

    #[test]
    fn the_kernel_says_who_is_on_the_way_out() {
        let status = |thread: &str, all: &str| format!("Name:\ta\nSigQ:\t0/1\nSigPnd:\t{thread}\nShdPnd:\t{all}\n");
        let none = "0000000000000000";
        assert!(
            !was_killed(&status(none, none)) && !was_killed(&status("0000000000004000", none)),
            "only asked to end"
        );
        assert!(was_killed(&status("0000000000000100", none)) && was_killed(&status(none, "0000000000004100")));
        let stat = |state: &str, flags: u64, end: u64| {
            format!("7 (a) b) {state} 1 7 7 0 -1 {flags} {} {end}", ["0"; 42].join(" "))
        };
        for (state, flags, end, exits) in [
            ("S", 0x0040_0000, 0, false),
            ("R", 0x0040_0004, 0, true),
            ("Z", 0, 0, true),
            ("R", 0x0040_0000, 9, true),
            // Stopped: it may go on.
            ("T", 0x0040_0000, 19, false),
        ] {
            assert_eq!(is_exiting(&stat(state, flags, end)), exits, "{state} {flags:x} {end}");
        }
        assert!(!is_exiting("7 (a) S 1 7 7 0 -1 0 0 0"), "a kernel that says less");
    }

    #[tokio::test]
    async fn another_process_with_the_same_number_is_not_taken_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        std::fs::write(&file, format!("{} 1\n", std::process::id())).unwrap();
        assert!(Process::from_pid_file(&file).is_none());
    }
}
