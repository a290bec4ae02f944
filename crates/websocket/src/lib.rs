//! The streams of exec, attach and port-forward on the wire, for both sides: WebSocket (RFC 6455), SPDY/3.1, the one inside the other,
//! and the channels that Kubernetes has in them.
//!
//! Messages are handed on in pieces as they arrive, so no message is ever held as a whole. The kubelet serves them for exec,
//! attach and port-forward, the API server for logs and watches, and kubectl is their client.

pub mod channels;
mod frames;
pub mod spdy;
pub mod tunnel;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use http::header::{CONNECTION, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE};

#[doc(hidden)]
pub use frames::client;
pub use frames::{Incoming, Reader, Writer};

/// What the RFC appends to a key.
const MAGIC: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Why a conversation ends early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The other side does not follow the protocol.
    #[error("websocket protocol error: {0}")]
    Protocol(&'static str),
}

/// Whether a request wants to become a WebSocket.
pub fn is_wanted(headers: &HeaderMap) -> bool {
    let names = |header, word: &str| {
        headers
            .get_all(header)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .any(|value| value.split(',').any(|token| token.trim().eq_ignore_ascii_case(word)))
    };
    names(UPGRADE, "websocket") && names(CONNECTION, "upgrade")
}

/// The subprotocols a client offers, in its order.
pub fn offered(headers: &HeaderMap) -> Vec<&str> {
    let values = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).filter(|name| !name.is_empty()).collect()
}

/// The answer to the client's key; nothing when the handshake is not one.
pub fn accept(headers: &HeaderMap) -> Option<String> {
    headers.get(SEC_WEBSOCKET_VERSION).filter(|version| version.as_bytes() == b"13")?;
    let key = headers.get(SEC_WEBSOCKET_KEY)?.to_str().ok()?.trim();
    STANDARD.decode(key).ok().filter(|key| key.len() == 16)?;
    Some(answer_to(key))
}

/// What a server must answer to a key.
pub fn answer_to(key: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{MAGIC}").as_bytes());
    STANDARD.encode(digest)
}

/// A client's key for one handshake.
pub fn key() -> Result<String, Error> {
    Ok(STANDARD.encode(random::<16>()?))
}

/// Bytes that nobody can guess.
fn random<const SIZE: usize>() -> Result<[u8; SIZE], Error> {
    let random = ring::rand::generate::<[u8; SIZE]>(&ring::rand::SystemRandom::new());
    random.map(ring::rand::Random::expose).map_err(|_| Error::Protocol("no randomness"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_handshake_is_the_rfcs() {
        let headers = |pairs: &[(&'static str, &str)]| -> HeaderMap {
            pairs.iter().map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap())).collect()
        };
        let good = headers(&[
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "WebSocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("sec-websocket-protocol", "v5.channel.k8s.io, v4.channel.k8s.io"),
        ]);
        assert!(is_wanted(&good));
        assert_eq!(accept(&good).as_deref(), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
        assert_eq!(offered(&good), ["v5.channel.k8s.io", "v4.channel.k8s.io"]);
        assert!(!is_wanted(&headers(&[("connection", "Upgrade"), ("upgrade", "SPDY/3.1")])));
        assert_eq!(accept(&headers(&[("sec-websocket-version", "13"), ("sec-websocket-key", "short")])), None);
    }
}
