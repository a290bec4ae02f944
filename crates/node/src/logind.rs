//! The machine's shutdown, announced by systemd-logind, and held up until pods have ended.
//!
//! Both are done with systemd's own programs: `systemd-inhibit` holds the lock for as long as its child lives, `busctl
//! monitor` prints the announcement. Where there is no systemd there is nobody to announce anything.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::run;

/// Where the longest delay is set that logind grants.
const DROP_IN: &str = "/etc/systemd/logind.conf.d/99-kubelet.conf";
const LIMIT: Duration = Duration::from_secs(30);

/// Why the shutdown cannot be held up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// One of systemd's programs does not run.
    #[error("start {program}: {source}")]
    Start {
        program: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// logind's settings cannot be changed.
    #[error("write {path}: {source}", path = path.display())]
    Settings {
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// logind does not take its new settings.
    #[error(transparent)]
    Reload(#[from] run::Error),
    /// The stream of announcements ended.
    #[error("busctl monitor ended")]
    Ended,
}

/// Whether systemd runs this machine.
pub fn present() -> bool {
    Path::new("/run/systemd/system").is_dir()
}

/// A lock that makes a shutdown wait. Dropping it lets the shutdown go on.
#[derive(Debug)]
pub struct Inhibitor {
    _child: Child,
}

#[derive(Debug)]
pub struct Announcements {
    lines: tokio::io::Lines<BufReader<tokio::process::ChildStdout>>,
    _child: Child,
}

/// Lets logind wait this long, if it would not already.
pub async fn allow_delay(delay: Duration) -> Result<(), Error> {
    let now = run::output(
        "busctl",
        &[
            "get-property",
            "org.freedesktop.login1",
            "/org/freedesktop/login1",
            "org.freedesktop.login1.Manager",
            "InhibitDelayMaxUSec",
        ],
        b"",
        LIMIT,
    )
    .await?;
    if granted(&String::from_utf8_lossy(&now)) >= delay {
        return Ok(());
    }
    let path = PathBuf::from(DROP_IN);
    let text = format!("# Kubelet logind override\n[Login]\nInhibitDelayMaxSec={}\n", delay.as_secs());
    let written = path.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| std::fs::write(&path, text));
    written.map_err(|source| Error::Settings { path, source })?;
    run::output("systemctl", &["kill", "--signal=HUP", "systemd-logind.service"], b"", LIMIT).await?;
    Ok(())
}

/// The delay in what `busctl get-property` prints: `t 5000000`.
fn granted(output: &str) -> Duration {
    let micros = output.split_whitespace().nth(1).and_then(|number| number.parse().ok()).unwrap_or(0);
    Duration::from_micros(micros)
}

pub fn inhibit() -> Result<Inhibitor, Error> {
    let child = Command::new("systemd-inhibit")
        .args(["--what=shutdown", "--mode=delay", "--who=kubelet"])
        .args(["--why=Kubelet needs time to handle node shutdown", "sleep", "infinity"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|source| Error::Start { program: "systemd-inhibit", source })?;
    Ok(Inhibitor { _child: child })
}

impl Announcements {
    /// Listens from now on.
    pub fn listen() -> Result<Self, Error> {
        Self::of(Command::new("busctl").args([
            "--system",
            "--json=short",
            "--match=type='signal',interface='org.freedesktop.login1.Manager',member='PrepareForShutdown'",
            "monitor",
        ]))
    }

    fn of(command: &mut Command) -> Result<Self, Error> {
        let start = |source| Error::Start { program: "busctl", source };
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(start)?;
        let output = child.stdout.take().ok_or_else(|| start(std::io::Error::other("no output")))?;
        Ok(Self { lines: BufReader::new(output).lines(), _child: child })
    }

    /// Waits for the next: true when a shutdown begins, false when it was called off.
    pub async fn next(&mut self) -> Result<bool, Error> {
        loop {
            match self.lines.next_line().await {
                Ok(Some(line)) => {
                    if let Some(begins) = announcement(&line) {
                        return Ok(begins);
                    }
                }
                _ => return Err(Error::Ended),
            }
        }
    }
}

/// What a line of the monitor says, if it is the announcement.
fn announcement(line: &str) -> Option<bool> {
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    if message.get("member")?.as_str()? != "PrepareForShutdown" {
        return None;
    }
    message.pointer("/payload/data/0")?.as_bool()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_read_from_the_bus() {
        assert_eq!(granted("t 5000000\n"), Duration::from_secs(5));
        assert_eq!(granted(""), Duration::ZERO);
    }

    #[tokio::test]
    async fn announcements_are_read_from_the_monitors_lines() {
        let script = r#"echo noise
            echo '{"type":"signal","member":"Other","payload":{"type":"b","data":[true]}}'
            echo '{"type":"signal","member":"PrepareForShutdown","payload":{"type":"b","data":[true]}}'
            echo '{"type":"signal","member":"PrepareForShutdown","payload":{"type":"b","data":[false]}}'"#;
        let mut announcements = Announcements::of(Command::new("sh").args(["-c", script])).unwrap();
        assert!(announcements.next().await.unwrap());
        assert!(!announcements.next().await.unwrap());
        assert!(matches!(announcements.next().await, Err(Error::Ended)));
    }
}
