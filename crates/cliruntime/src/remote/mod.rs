//! Commands in containers: the streams of exec and attach, over a WebSocket, or over SPDY where no WebSocket gets through.
//!
//! What goes up and what comes down are two futures of one task: neither ever waits for the other, so a command that writes while
//! it reads cannot make both sides wait.

pub mod detach;
mod refusal;
pub mod terminal;
mod wire;

use std::io::Write;

use tokio::sync::mpsc;
use websocket::channels::{ERROR, RESIZE, STDERR, STDIN, STDOUT, Streams};

use crate::api::Api;
use crate::error::{Failure, Outcome};
use serde_json::Value;
pub use wire::{Dialed, Protocols, dial};
use wire::{FromServer, Receiving, Sending};

/// Longest outcome that is read.
const LONGEST_OUTCOME: usize = 1 << 20;

/// What is typed, until it ends.
pub type Input = mpsc::Receiver<Typed>;

pub enum Typed {
    Data(Vec<u8>),
    /// The user leaves, and the container goes on.
    Detach,
}

/// What a conversation reads and writes here.
pub struct Ends<'a> {
    pub input: Option<Input>,
    pub out: &'a mut dyn Write,
    /// Without it, errors come with the output, as in a terminal.
    pub err: Option<&'a mut dyn Write>,
    /// Sizes of the terminal, columns and rows; there is one only if there is a terminal.
    pub sizes: Option<mpsc::Receiver<(u16, u16)>>,
}

/// Runs a conversation with a container to its end. A command that fails is a failure with its exit code.
pub async fn converse(api: &Api, protocols: Protocols, path: &str, ends: Ends<'_>) -> Outcome {
    let streams =
        Streams { stdin: ends.input.is_some(), stdout: true, stderr: ends.err.is_some(), tty: ends.sizes.is_some() };
    let (sending, receiving) = wire::open(api, protocols, path, streams).await?;
    // Questions of the server that are to be sent back. One that does not fit is one too many: another will come.
    let (pongs, questions) = mpsc::channel(8);
    let up = upward(sending, ends.input, ends.sizes, questions);
    let down = downward(receiving, pongs, ends.out, ends.err);
    tokio::select! {
        outcome = down => judge(&outcome?),
        () = up => Ok(()),
    }
}

/// Sends what is typed. It ends when the user detaches, never because there is nothing left to send.
async fn upward(
    mut sending: Sending,
    mut input: Option<Input>,
    mut sizes: Option<mpsc::Receiver<(u16, u16)>>,
    mut questions: mpsc::Receiver<Vec<u8>>,
) {
    loop {
        let sent = tokio::select! {
            piece = next(&mut input) => match piece {
                Some(Typed::Data(piece)) => sending.data(STDIN, &piece).await,
                Some(Typed::Detach) => return,
                None => {
                    input = None;
                    sending.end(STDIN).await
                }
            },
            Some((width, height)) = next(&mut sizes) => {
                sending.data(RESIZE, format!("{{\"Width\":{width},\"Height\":{height}}}").as_bytes()).await
            }
            Some(question) = questions.recv() => sending.answer(&question).await,
        };
        // A command that has ended takes no more input; what it said is still on the way.
        if sent.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// The next of a channel; nothing ever comes of one that is not there.
async fn next<T>(channel: &mut Option<mpsc::Receiver<T>>) -> Option<T> {
    match channel {
        Some(channel) => channel.recv().await,
        None => std::future::pending().await,
    }
}

/// Writes what comes, and gives the outcome.
async fn downward(
    mut receiving: Receiving,
    pongs: mpsc::Sender<Vec<u8>>,
    out: &mut dyn Write,
    mut err: Option<&mut dyn Write>,
) -> Outcome<Vec<u8>> {
    let mut outcome = Vec::new();
    loop {
        match receiving.next().await.map_err(Failure::Message)? {
            FromServer::Data(STDOUT, data) => {
                out.write_all(&data)?;
                out.flush()?;
            }
            FromServer::Data(STDERR, data) => match &mut err {
                Some(err) => {
                    err.write_all(&data)?;
                    err.flush()?;
                }
                // In a terminal there is one output for both.
                None => out.write_all(&data)?,
            },
            FromServer::Data(ERROR, data) => {
                let room = LONGEST_OUTCOME.saturating_sub(outcome.len());
                outcome.extend_from_slice(&data[..data.len().min(room)]);
            }
            FromServer::Data(..) => {}
            FromServer::Question(question) => {
                let _ = pongs.try_send(question);
            }
            FromServer::Over => return Ok(outcome),
        }
    }
}

/// What the last word of the server means.
fn judge(outcome: &[u8]) -> Outcome {
    if outcome.is_empty() {
        return Ok(());
    }
    let odd = |words: String| Err(Failure::Message(format!("error stream protocol error: {words}")));
    let status: Value = match serde_json::from_slice(outcome) {
        Ok(status) => status,
        Err(error) => return odd(format!("{error} in {:?}", String::from_utf8_lossy(outcome))),
    };
    let text = |name: &str| status.get(name).and_then(Value::as_str).unwrap_or_default();
    match (text("status"), text("reason")) {
        ("Success", _) => Ok(()),
        ("Failure", "NonZeroExitCode") => {
            let Some(details) = status.get("details") else { return odd("details must be set".to_owned()) };
            let causes = details.get("causes").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            let Some(cause) = causes.iter().find(|cause| cause["reason"] == "ExitCode") else {
                return odd("no ExitCode cause given".to_owned());
            };
            let message = cause["message"].as_str().unwrap_or_default();
            match message.parse::<u8>() {
                Ok(code) => {
                    Err(Failure::WithCode(format!("command terminated with exit code {code}"), i32::from(code)))
                }
                Err(_) => odd(format!("invalid exit code value {message:?}")),
            }
        }
        ("Failure", _) => Err(Failure::Message(text("message").to_owned())),
        _ => odd("unknown error".to_owned()),
    }
}

/// Reads in a thread of its own, because a terminal cannot be asked whether something was typed.
pub fn typed(mut from: Box<dyn std::io::Read + Send>, mut keys: Option<detach::Keys>) -> Input {
    let (sender, receiver) = mpsc::channel(16);
    std::thread::spawn(move || {
        let mut piece = vec![0; 32 << 10];
        loop {
            match from.read(&mut piece) {
                Ok(0) | Err(_) => return,
                Ok(read) => {
                    let (data, detached) = match &mut keys {
                        Some(keys) => keys.pass(&piece[..read]),
                        None => (piece[..read].to_vec(), false),
                    };
                    let sent = sender.blocking_send(Typed::Data(data));
                    if detached {
                        let _ = sender.blocking_send(Typed::Detach);
                    }
                    if detached || sent.is_err() {
                        return;
                    }
                }
            }
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_judged_as_upstream_judges_them() {
        for (status, expected) in [
            ("", None),
            (r#"{"metadata":{},"status":"Success"}"#, None),
            (
                r#"{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}"#,
                Some(("command terminated with exit code 3", 3)),
            ),
            (
                r#"{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"x"}]}}"#,
                Some(("error: error stream protocol error: invalid exit code value \"x\"", 1)),
            ),
            (
                r#"{"status":"Failure","reason":"NonZeroExitCode"}"#,
                Some(("error: error stream protocol error: details must be set", 1)),
            ),
            (r#"{"status":"Failure","reason":"InternalError","message":"no"}"#, Some(("error: no", 1))),
            (r#"{"status":"Odd"}"#, Some(("error: error stream protocol error: unknown error", 1))),
        ] {
            let judged = judge(status.as_bytes()).err().map(|failure| (failure.render(), failure.code()));
            assert_eq!(judged, expected.map(|(text, code)| (text.to_owned(), code)), "{status}");
        }
    }
}
