//! The user's terminal while it belongs to a container: raw, and put back afterwards whatever happens.

use std::os::fd::AsFd as _;

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::error::{Failure, Outcome};

/// Standard input in raw mode, until this is dropped.
pub struct Raw {
    before: Termios,
}

impl Raw {
    pub fn begin() -> Outcome<Self> {
        let failed = |error: rustix::io::Errno| Failure::Message(error.to_string());
        let stdin = std::io::stdin();
        let before = tcgetattr(stdin.as_fd()).map_err(failed)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(stdin.as_fd(), OptionalActions::Now, &raw).map_err(failed)?;
        Ok(Self { before })
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // There is nobody left to tell if this fails.
        let _ = tcsetattr(std::io::stdin().as_fd(), OptionalActions::Now, &self.before);
    }
}

/// The size of the terminal, columns and rows.
pub fn size() -> Option<(u16, u16)> {
    let size = tcgetwinsize(std::io::stdout().as_fd()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col, size.ws_row))
}

/// These sizes, then the terminal's own each time that it changes.
pub fn sizes(first: Vec<(u16, u16)>) -> Outcome<mpsc::Receiver<(u16, u16)>> {
    let (sender, receiver) = mpsc::channel(4);
    let mut changes = signal(SignalKind::window_change())?;
    tokio::spawn(async move {
        for size in first {
            if sender.send(size).await.is_err() {
                return;
            }
        }
        while changes.recv().await.is_some() {
            if let Some(size) = size()
                && sender.send(size).await.is_err()
            {
                return;
            }
        }
    });
    Ok(receiver)
}

/// Waits for a signal that ends the program.
pub async fn interrupted() -> Outcome {
    let mut signals = Vec::new();
    for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup(), SignalKind::quit()] {
        signals.push(signal(kind)?);
    }
    let waiting = signals.iter_mut().map(|signal| Box::pin(signal.recv()));
    futures::future::select_all(waiting).await;
    Ok(())
}
