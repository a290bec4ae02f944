//! Frames of SPDY/3.1: eight bytes of head, then as many as the head says.

/// A stream within a connection. A client's own are odd.
pub type StreamId = u32;

/// The sender will send nothing more on the stream.
pub const FIN: u8 = 1;
/// Bytes of a frame's head.
pub const HEAD: usize = 8;

const VERSION: u16 = 3;
const SYN_STREAM: u16 = 1;
pub(super) const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;

/// What a frame's head says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Head {
    /// Content of a stream.
    Data {
        stream: StreamId,
        /// Whether it is the last.
        fin: bool,
        length: usize,
    },
    /// Something about the connection or its streams.
    Control {
        kind: Kind,
        /// Whether it ends a stream.
        fin: bool,
        length: usize,
    },
}

/// What a control frame is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    SynStream,
    /// A stream was taken.
    SynReply,
    /// A stream is cut off.
    RstStream,
    /// A question to be sent back as it is.
    Ping,
    GoAway,
    /// Settings, windows, more headers: nothing that matters here.
    Other,
}

impl Head {
    /// Reads a head; nothing when it is of another version.
    pub fn parse(bytes: [u8; HEAD]) -> Option<Self> {
        let first = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let fin = bytes[4] & FIN != 0;
        let length = usize::try_from(u32::from_be_bytes([0, bytes[5], bytes[6], bytes[7]])).ok()?;
        if first & 0x8000_0000 == 0 {
            return Some(Self::Data { stream: first, fin, length });
        }
        if (first >> 16) as u16 & 0x7fff != VERSION {
            return None;
        }
        let kind = match first as u16 {
            SYN_STREAM => Kind::SynStream,
            SYN_REPLY => Kind::SynReply,
            RST_STREAM => Kind::RstStream,
            PING => Kind::Ping,
            GOAWAY => Kind::GoAway,
            _ => Kind::Other,
        };
        Some(Self::Control { kind, fin, length })
    }
}

pub(super) fn control(kind: u16, flags: u8, body: &[&[u8]]) -> Vec<u8> {
    let length: usize = body.iter().map(|part| part.len()).sum();
    let mut bytes = Vec::with_capacity(HEAD + length);
    bytes.extend_from_slice(&(0x8000 | VERSION).to_be_bytes());
    bytes.extend_from_slice(&kind.to_be_bytes());
    bytes.extend_from_slice(&(u32::from(flags) << 24 | length as u32).to_be_bytes());
    body.iter().for_each(|part| bytes.extend_from_slice(part));
    bytes
}

/// Opens a stream with these headers.
pub fn syn_stream(stream: StreamId, block: &[u8]) -> Vec<u8> {
    // No parent, no priority, no credential.
    control(SYN_STREAM, 0, &[&stream.to_be_bytes(), &[0; 6], block])
}

/// Cuts a stream off: its sender wants nothing more of it.
pub fn rst_stream(stream: StreamId) -> Vec<u8> {
    // 5: cancelled.
    control(RST_STREAM, 0, &[&stream.to_be_bytes(), &5u32.to_be_bytes()])
}

/// Sends a ping back.
pub fn ping(id: [u8; 4]) -> Vec<u8> {
    control(PING, 0, &[&id])
}

/// The head of a data frame.
pub fn data(stream: StreamId, fin: bool, length: usize) -> [u8; HEAD] {
    debug_assert!(length < 1 << 24, "the length has three bytes");
    let mut bytes = [0; HEAD];
    bytes[..4].copy_from_slice(&stream.to_be_bytes());
    bytes[4..].copy_from_slice(&(length as u32).to_be_bytes());
    bytes[4] = if fin { FIN } else { 0 };
    bytes
}

#[cfg(test)]
mod tests {
    use super::super::testing::{syn_reply, window_update};
    use super::*;

    #[test]
    fn heads_are_read_as_they_are_written() {
        let head = |bytes: &[u8]| Head::parse(bytes[..HEAD].try_into().unwrap());
        assert_eq!(head(&data(7, true, 70_000)), Some(Head::Data { stream: 7, fin: true, length: 70_000 }));
        assert_eq!(head(&data(5, false, 0)), Some(Head::Data { stream: 5, fin: false, length: 0 }));
        let table = [
            (syn_stream(1, b"block"), Kind::SynStream, 15),
            (syn_reply(1), Kind::SynReply, 24),
            (rst_stream(3), Kind::RstStream, 8),
            (ping([0, 0, 0, 2]), Kind::Ping, 4),
            (control(GOAWAY, 0, &[&[0; 8]]), Kind::GoAway, 8),
            (window_update(1), Kind::Other, 8),
        ];
        for (bytes, kind, length) in table {
            assert_eq!(head(&bytes), Some(Head::Control { kind, fin: false, length }));
            assert_eq!(bytes.len(), HEAD + length);
        }
        assert_eq!(head(&[0x80, 2, 0, 1, 0, 0, 0, 0]), None);
    }

    #[test]
    fn opening_a_stream_looks_as_the_specification_draws_it() {
        let bytes = syn_stream(5, b"xy");
        assert_eq!(bytes, [0x80, 3, 0, 1, 0, 0, 0, 12, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, b'x', b'y']);
    }
}
