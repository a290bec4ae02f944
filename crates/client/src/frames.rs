//! Cuts a watch's byte stream into frames, one JSON document per line, holding no more than one frame.

use bytes::{Buf, Bytes, BytesMut};

use crate::error::Error;

/// The longest frame. Objects are at most a few MiB, so more than this is no API server.
pub(crate) const MAX_FRAME: usize = 16 << 20;

/// What is left over between two chunks.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    buffer: BytesMut,
    /// How much of `buffer` was searched for a line end already.
    searched: usize,
}

impl Frames {
    /// Takes the next chunk.
    pub(crate) fn push(&mut self, chunk: &Bytes) {
        self.buffer.extend_from_slice(chunk);
    }

    /// The next whole frame, without its line end; empty lines are no frames.
    pub(crate) fn next(&mut self) -> Result<Option<Bytes>, Error> {
        while let Some(found) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') {
            let frame = self.buffer.split_to(self.searched + found).freeze();
            self.buffer.advance(1);
            self.searched = 0;
            if !frame.iter().all(u8::is_ascii_whitespace) {
                return Ok(Some(frame));
            }
        }
        self.searched = self.buffer.len();
        if self.searched > MAX_FRAME {
            return Err(Error::TooLarge { limit: MAX_FRAME });
        }
        Ok(None)
    }

    /// What the stream ended with: a last frame without its line end, if any.
    pub(crate) fn rest(&mut self) -> Option<Bytes> {
        self.searched = 0;
        let rest = self.buffer.split().freeze();
        (!rest.iter().all(u8::is_ascii_whitespace)).then_some(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_out_whole_however_they_were_cut() {
        let text = "{\"a\":1}\n\n{\"b\":\"x y\"}\r\n{\"c\":3}";
        for size in 1..=text.len() {
            let mut frames = Frames::default();
            let mut out = Vec::new();
            for chunk in text.as_bytes().chunks(size) {
                frames.push(&Bytes::copy_from_slice(chunk));
                while let Some(frame) = frames.next().expect("small frames") {
                    out.push(String::from_utf8(frame.to_vec()).expect("text").trim().to_owned());
                }
            }
            assert_eq!(out, ["{\"a\":1}", "{\"b\":\"x y\"}"], "chunks of {size}");
            assert_eq!(frames.rest().as_deref(), Some(&b"{\"c\":3}"[..]));
            assert_eq!(frames.rest(), None);
        }
    }

    #[test]
    fn an_endless_frame_is_refused() {
        let mut frames = Frames::default();
        let chunk = Bytes::from(vec![b'x'; 1 << 20]);
        let refused = (0..40).find_map(|_| {
            frames.push(&chunk);
            frames.next().err()
        });
        assert!(matches!(refused, Some(Error::TooLarge { .. })));
    }
}
