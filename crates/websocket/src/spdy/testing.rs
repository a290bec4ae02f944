//! What a server of SPDY sees and says, for tests of its clients.
#![allow(clippy::unwrap_used, reason = "only tests use this")]

use flate2::{Decompress, FlushDecompress};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use super::frame::{self, HEAD, Head, Kind, SYN_REPLY, StreamId, control};
use super::headers::dictionary;

/// A server's acceptance of a stream.
pub fn syn_reply(stream: StreamId) -> Vec<u8> {
    control(SYN_REPLY, 0, &[&stream.to_be_bytes(), b"headers nobody reads"])
}

/// A window update, as some servers send.
pub fn window_update(stream: StreamId) -> Vec<u8> {
    control(9, 0, &[&stream.to_be_bytes(), &1u32.to_be_bytes()])
}

/// Reads the header blocks of one direction.
pub struct Decoder {
    zlib: Decompress,
}

impl Default for Decoder {
    fn default() -> Self {
        Self { zlib: Decompress::new(true) }
    }
}

impl Decoder {
    pub fn decode(&mut self, block: &[u8]) -> Vec<(String, String)> {
        let mut plain = Vec::with_capacity(64 << 10);
        let start = self.zlib.total_in();
        if let Err(error) = self.zlib.decompress_vec(block, &mut plain, FlushDecompress::Sync) {
            assert_eq!(error.needs_dictionary(), Some(0xe3c6_a7c2));
            self.zlib.set_dictionary(&dictionary()).unwrap();
            let used = usize::try_from(self.zlib.total_in() - start).unwrap();
            self.zlib.decompress_vec(&block[used..], &mut plain, FlushDecompress::Sync).unwrap();
        }
        let mut bytes = plain.as_slice();
        let mut number = || {
            let (head, rest) = bytes.split_at(4);
            let number = u32::from_be_bytes(head.try_into().unwrap()) as usize;
            bytes = rest;
            number
        };
        let count = number();
        let mut headers = Vec::new();
        let mut texts = plain[4..].iter().copied();
        for _ in 0..count {
            let mut text = || {
                let length: Vec<u8> = texts.by_ref().take(4).collect();
                let length = u32::from_be_bytes(length.try_into().unwrap()) as usize;
                String::from_utf8(texts.by_ref().take(length).collect()).unwrap()
            };
            headers.push((text(), text()));
        }
        headers
    }
}

/// What a server of the runtime sees and says, for tests.
pub struct Server {
    pub io: DuplexStream,
    decoder: Decoder,
}

impl Server {
    pub fn new(io: DuplexStream) -> Self {
        Self { io, decoder: Decoder::default() }
    }

    /// Takes the next stream; says its id and type.
    pub async fn accept(&mut self) -> (StreamId, String) {
        let mut head = [0; HEAD];
        self.io.read_exact(&mut head).await.unwrap();
        let Some(Head::Control { kind: Kind::SynStream, length, .. }) = Head::parse(head) else {
            panic!("no new stream: {head:?}")
        };
        let mut body = vec![0; length];
        self.io.read_exact(&mut body).await.unwrap();
        let stream = u32::from_be_bytes(body[..4].try_into().unwrap());
        let headers = self.decoder.decode(&body[10..]);
        self.io.write_all(&syn_reply(stream)).await.unwrap();
        (stream, headers[0].1.clone())
    }

    /// The next data: stream, content, whether it ends.
    pub async fn data(&mut self) -> (StreamId, Vec<u8>, bool) {
        let mut head = [0; HEAD];
        self.io.read_exact(&mut head).await.unwrap();
        let Some(Head::Data { stream, fin, length }) = Head::parse(head) else { panic!("no data: {head:?}") };
        let mut body = vec![0; length];
        self.io.read_exact(&mut body).await.unwrap();
        (stream, body, fin)
    }

    pub async fn send(&mut self, stream: StreamId, content: &[u8], fin: bool) {
        self.io.write_all(&frame::data(stream, fin, content.len())).await.unwrap();
        self.io.write_all(content).await.unwrap();
    }
}
