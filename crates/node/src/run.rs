//! Running another program once: input in, output out, with a deadline and a limit on what is kept.
//!
//! Every short-lived child of Trireme (`nft`, `conntrack`, `ctr`, ...) goes through [`output`], so that a child that
//! hangs, floods its output or dies by a signal is an ordinary error with the program's own words in it.

use std::ffi::OsStr;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

/// Output beyond this many bytes is read and dropped: a child must neither block on a full pipe nor fill our memory.
const KEEP: usize = 64 << 20;

/// Why a program did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The program is not there, or may not be executed.
    #[error("start {program}: {source}")]
    Start {
        program: String,
        /// What the system said.
        source: std::io::Error,
    },
    #[error("talk to {program}: {source}")]
    Pipe {
        program: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// It did not end in time and was killed.
    #[error("{program} did not end within {limit:?}")]
    Deadline {
        program: String,
        /// How long it was given.
        limit: Duration,
    },
    /// It ended with something else than success.
    #[error("{program}: {status}: {stderr}")]
    Failed {
        program: String,
        /// Exit code or signal.
        status: ExitStatus,
        /// What it wrote to standard error, trimmed.
        stderr: String,
    },
}

/// Runs `program` with `args`, feeds it `input`, and returns what it wrote to standard output.
///
/// The child is killed when the deadline passes or the returned future is dropped.
pub async fn output<A: AsRef<OsStr>>(
    program: &str,
    args: &[A],
    input: &[u8],
    limit: Duration,
) -> Result<Vec<u8>, Error> {
    output_noting(program, args, input, limit, |_| {}).await
}

/// As [`output`]; `started` gets the child's process id before the child gets any input.
pub async fn output_noting<A: AsRef<OsStr>>(
    program: &str,
    args: &[A],
    input: &[u8],
    limit: Duration,
    started: impl FnOnce(u32),
) -> Result<Vec<u8>, Error> {
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|source| Error::Start { program: program.to_owned(), source })?;
    if let Some(process) = child.id() {
        started(process);
    }
    let stdin = child.stdin.take().expect("stdin was asked to be a pipe");
    let stdout = child.stdout.take().expect("stdout was asked to be a pipe");
    let stderr = child.stderr.take().expect("stderr was asked to be a pipe");
    let talk = async {
        // All three at once: a child may fill its output pipe before it has read its input.
        let (fed, out, err) = tokio::join!(feed(stdin, input), drain(stdout), drain(stderr));
        let (out, err) = (out?, err?);
        let status = child.wait().await?;
        // A child may end without reading all of its input; its status says whether that was a failure.
        if status.success() {
            fed?;
        }
        Ok::<_, std::io::Error>((status, out, err))
    };
    let (status, out, err) = tokio::time::timeout(limit, talk)
        .await
        .map_err(|_| Error::Deadline { program: program.to_owned(), limit })?
        .map_err(|source| Error::Pipe { program: program.to_owned(), source })?;
    if status.success() {
        return Ok(out);
    }
    let stderr = String::from_utf8_lossy(&err).trim().to_owned();
    Err(Error::Failed { program: program.to_owned(), status, stderr })
}

async fn feed(mut stdin: tokio::process::ChildStdin, input: &[u8]) -> std::io::Result<()> {
    match stdin.write_all(input).await {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

async fn drain(mut pipe: impl AsyncRead + Unpin) -> std::io::Result<Vec<u8>> {
    let mut kept = Vec::new();
    let mut buffer = vec![0; 16 << 10];
    loop {
        let n = pipe.read(&mut buffer).await?;
        if n == 0 {
            return Ok(kept);
        }
        let room = KEEP.saturating_sub(kept.len()).min(n);
        kept.extend_from_slice(&buffer[..room]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn input_larger_than_a_pipe_comes_back() {
        let input = vec![b'x'; 1 << 20];
        assert_eq!(output::<&str>("cat", &[], &input, SOON).await.unwrap(), input);
    }

    #[tokio::test]
    async fn failure_carries_the_programs_own_words() {
        let error = output("sh", &["-c", "echo no such rule >&2; exit 3"], b"", SOON).await.unwrap_err();
        assert_eq!(error.to_string(), "sh: exit status: 3: no such rule");
    }

    #[tokio::test]
    async fn unread_input_is_no_failure_of_a_program_that_succeeded() {
        output("true", &[] as &[&str], &vec![0; 1 << 20], SOON).await.unwrap();
    }

    #[tokio::test]
    async fn a_hanging_program_is_killed_at_its_deadline() {
        let error = output("sleep", &["60"], b"", Duration::from_millis(20)).await.unwrap_err();
        assert!(matches!(error, Error::Deadline { .. }), "{error}");
    }

    #[tokio::test]
    async fn a_missing_program_is_named() {
        let error = output("no-such-program", &[] as &[&str], b"", SOON).await.unwrap_err();
        assert!(error.to_string().starts_with("start no-such-program:"), "{error}");
    }
}
