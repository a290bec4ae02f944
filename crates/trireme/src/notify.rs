//! What systemd is told: that the process is ready, that it is alive, and that it stops. Elsewhere nobody listens, and nothing is said.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Says one thing, if somebody listens.
pub fn say(state: &str) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let address = match socket.to_string_lossy().strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&socket),
    };
    let sent = address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address));
    if let Err(error) = sent {
        tracing::debug!("systemd was not told {state}: {error}");
    }
}

/// How often the process has to say that it is alive, if it has to at all.
pub fn watchdog() -> Option<Duration> {
    let microseconds: u64 = std::env::var("WATCHDOG_USEC").ok()?.parse().ok()?;
    (microseconds > 0).then(|| Duration::from_micros(microseconds) / 2)
}

/// Says that the process is ready, and from then on that it is alive. A process whose tasks do not get their turn says nothing, and is started anew.
pub fn ready() {
    say("READY=1");
    if let Some(interval) = watchdog() {
        tokio::spawn(async move {
            loop {
                say("WATCHDOG=1");
                tokio::time::sleep(interval).await;
            }
        });
    }
}
