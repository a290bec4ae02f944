//! Frames: what a message is cut into. A client's are masked, a server's are not.

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::{Error, random};

/// Largest piece handed on.
const PIECE: usize = 32 << 10;
/// Largest payload of a control frame.
const CONTROL: u64 = 125;

const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

#[derive(Debug, PartialEq, Eq)]
pub enum Incoming {
    /// A piece of a message.
    Piece {
        /// Set on a message's first piece.
        begins: bool,
        /// Set on its last.
        ends: bool,
        /// Its bytes, perhaps none.
        data: Vec<u8>,
    },
    /// A question to be answered with the same bytes.
    Ping(Vec<u8>),
    /// The other side is done.
    Close,
}

pub struct Reader<R> {
    io: R,
    /// Whether a client is at the other end, whose frames must be masked.
    of_client: bool,
    /// Within a message of several frames.
    inside: bool,
    /// What is left of the frame being read.
    rest: Option<Rest>,
}

struct Rest {
    left: u64,
    last: bool,
    mask: [u8; 4],
    /// How many bytes of the frame were unmasked already.
    at: usize,
    begins: bool,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    /// What a client sends, after the handshake.
    pub fn new(io: R) -> Self {
        Self { io, of_client: true, inside: false, rest: None }
    }

    /// What a server sends.
    pub fn of_server(io: R) -> Self {
        Self { of_client: false, ..Self::new(io) }
    }

    pub async fn next(&mut self) -> Result<Incoming, Error> {
        loop {
            if let Some(rest) = self.rest.take() {
                return self.piece(rest).await;
            }
            let mut head = [0; 2];
            match self.io.read_exact(&mut head).await {
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(Incoming::Close),
                Err(error) => return Err(error.into()),
            }
            let (last, opcode) = (head[0] & 0x80 != 0, head[0] & 0x0f);
            if head[0] & 0x70 != 0 {
                return Err(Error::Protocol("reserved bits are set"));
            }
            match (self.of_client, head[1] & 0x80 != 0) {
                (true, false) => return Err(Error::Protocol("a client's frame is not masked")),
                (false, true) => return Err(Error::Protocol("a server's frame is masked")),
                _ => {}
            }
            let length = match head[1] & 0x7f {
                126 => u64::from(self.io.read_u16().await?),
                127 => self.io.read_u64().await?,
                short => u64::from(short),
            };
            let mut mask = [0; 4];
            if self.of_client {
                self.io.read_exact(&mut mask).await?;
            }
            match opcode {
                CONTINUATION | TEXT | BINARY => {
                    if (opcode == CONTINUATION) != self.inside {
                        return Err(Error::Protocol("a message begins within another or goes on without beginning"));
                    }
                    self.inside = !last;
                    self.rest = Some(Rest { left: length, last, mask, at: 0, begins: opcode != CONTINUATION });
                }
                CLOSE | PING | PONG => {
                    if length > CONTROL || !last {
                        return Err(Error::Protocol("a control frame is too long"));
                    }
                    let mut data = vec![0; usize::from(head[1] & 0x7f)];
                    self.io.read_exact(&mut data).await?;
                    unmask(&mut data, mask, 0);
                    match opcode {
                        CLOSE => return Ok(Incoming::Close),
                        PING => return Ok(Incoming::Ping(data)),
                        _ => {}
                    }
                }
                _ => return Err(Error::Protocol("unknown kind of frame")),
            }
        }
    }

    async fn piece(&mut self, mut rest: Rest) -> Result<Incoming, Error> {
        let size = rest.left.min(PIECE as u64) as usize;
        let mut data = vec![0; size];
        // Whatever has arrived is handed on at once: a keystroke must not wait for a paste to end.
        let read = if size == 0 { 0 } else { self.io.read(&mut data).await? };
        if size > 0 && read == 0 {
            return Err(Error::Io(std::io::ErrorKind::UnexpectedEof.into()));
        }
        data.truncate(read);
        unmask(&mut data, rest.mask, rest.at);
        rest.at += read;
        rest.left -= read as u64;
        let begins = std::mem::take(&mut rest.begins);
        let ends = rest.left == 0 && rest.last;
        if rest.left > 0 {
            self.rest = Some(rest);
        }
        Ok(Incoming::Piece { begins, ends, data })
    }
}

/// The first bytes of a frame: what it is, and how long.
fn head(bytes: &mut Vec<u8>, first: u8, masked: bool, length: usize) {
    let mask = if masked { 0x80 } else { 0 };
    bytes.push(first);
    match length {
        0..=125 => bytes.push(mask | length as u8),
        126..=0xffff => {
            bytes.push(mask | 126);
            bytes.extend_from_slice(&(length as u16).to_be_bytes());
        }
        _ => {
            bytes.push(mask | 127);
            bytes.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
}

fn unmask(data: &mut [u8], mask: [u8; 4], at: usize) {
    for (position, byte) in data.iter_mut().enumerate() {
        *byte ^= mask[(at + position) % 4];
    }
}

pub struct Writer<W> {
    io: W,
    /// Whether a server is at the other end: what it gets is masked.
    masks: bool,
}

impl<W: AsyncWrite + Unpin> Writer<W> {
    /// To a client, after the handshake.
    pub fn new(io: W) -> Self {
        Self { io, masks: false }
    }

    /// To a server.
    pub fn to_server(io: W) -> Self {
        Self { io, masks: true }
    }

    /// Sends a whole message made of two parts, of which either may be empty.
    pub async fn message(&mut self, first: &[u8], second: &[u8]) -> std::io::Result<()> {
        self.frame(BINARY, first, second).await
    }

    /// Sends a whole message of text.
    pub async fn text(&mut self, text: &[u8]) -> std::io::Result<()> {
        self.frame(TEXT, text, &[]).await
    }

    pub async fn pong(&mut self, data: &[u8]) -> std::io::Result<()> {
        self.frame(PONG, data, &[]).await
    }

    /// Says that nothing more will come, and hangs up.
    pub async fn close(&mut self) -> std::io::Result<()> {
        // 1000: all went as it should.
        self.frame(CLOSE, &1000u16.to_be_bytes(), &[]).await?;
        self.io.shutdown().await
    }

    async fn frame(&mut self, opcode: u8, first: &[u8], second: &[u8]) -> std::io::Result<()> {
        let length = first.len() + second.len();
        let mut bytes = Vec::with_capacity(length + 14);
        head(&mut bytes, 0x80 | opcode, self.masks, length);
        let mask = if self.masks { random::<4>().map_err(std::io::Error::other)? } else { [0; 4] };
        if self.masks {
            bytes.extend_from_slice(&mask);
        }
        let start = bytes.len();
        bytes.extend_from_slice(first);
        bytes.extend_from_slice(second);
        if self.masks {
            unmask(&mut bytes[start..], mask, 0);
        }
        self.io.write_all(&bytes).await?;
        self.io.flush().await
    }
}

#[doc(hidden)]
pub mod client {
    //! A client's frames, for tests of those who serve.

    use super::unmask;

    pub fn frame(last: bool, opcode: u8, data: &[u8]) -> Vec<u8> {
        let mask = [1, 2, 3, 4];
        let mut bytes = Vec::new();
        super::head(&mut bytes, if last { 0x80 | opcode } else { opcode }, true, data.len());
        bytes.extend_from_slice(&mask);
        let start = bytes.len();
        bytes.extend_from_slice(data);
        unmask(&mut bytes[start..], mask, 0);
        bytes
    }

    pub fn message(data: &[u8]) -> Vec<u8> {
        frame(true, super::BINARY, data)
    }

    /// Takes the frames of a server apart: kind and payload.
    pub fn parse(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
        let mut frames = Vec::new();
        while bytes.len() >= 2 {
            let (opcode, short) = (bytes[0] & 0x0f, bytes[1]);
            let (size, start) = match short {
                126 => (usize::from(u16::from_be_bytes([bytes[2], bytes[3]])), 4),
                127 => (u64::from_be_bytes(bytes[2..10].try_into().expect("eight bytes")) as usize, 10),
                size => (usize::from(size), 2),
            };
            frames.push((opcode, bytes[start..start + size].to_vec()));
            bytes = &bytes[start + size..];
        }
        frames
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(bytes: &[u8]) -> Result<Vec<Incoming>, Error> {
        let mut reader = Reader::new(bytes);
        let mut all = Vec::new();
        loop {
            match reader.next().await? {
                Incoming::Close => return Ok(all),
                incoming => all.push(incoming),
            }
        }
    }

    fn piece(begins: bool, ends: bool, data: &[u8]) -> Incoming {
        Incoming::Piece { begins, ends, data: data.to_vec() }
    }

    #[tokio::test]
    async fn messages_come_in_pieces_with_pings_between() {
        let mut bytes = client::message(b"\x00hello");
        bytes.extend(client::frame(false, BINARY, b"\x00one"));
        bytes.extend(client::frame(true, PING, b"?"));
        bytes.extend(client::frame(true, PONG, b"!"));
        bytes.extend(client::frame(false, CONTINUATION, b"two"));
        bytes.extend(client::frame(true, CONTINUATION, b""));
        bytes.extend(client::frame(true, TEXT, b""));
        bytes.extend(client::frame(true, CLOSE, &1000u16.to_be_bytes()));
        let expect = [
            piece(true, true, b"\x00hello"),
            piece(true, false, b"\x00one"),
            Incoming::Ping(b"?".to_vec()),
            piece(false, false, b"two"),
            piece(false, true, b""),
            piece(true, true, b""),
        ];
        assert_eq!(read(&bytes).await.unwrap(), expect);
    }

    #[tokio::test]
    async fn long_messages_are_cut_and_unmasked_right() {
        for size in [125, 126, 0xffff, 0x10000, 100_001] {
            let data: Vec<u8> = (0..size).map(|n| (n % 251) as u8).collect();
            let mut all = Vec::new();
            for incoming in read(&client::message(&data)).await.unwrap() {
                let Incoming::Piece { data, .. } = incoming else { panic!("a piece") };
                assert!(data.len() <= PIECE);
                all.extend(data);
            }
            assert_eq!(all, data);
            let mut written = Vec::new();
            Writer::new(&mut written).message(&data[..1], &data[1..]).await.unwrap();
            assert_eq!(client::parse(&written), [(BINARY, data)]);
        }
    }

    #[tokio::test]
    async fn a_clients_frames_reach_a_server_and_a_servers_a_client() {
        let data: Vec<u8> = (0..70_000).map(|n| (n % 251) as u8).collect();
        let mut written = Vec::new();
        Writer::to_server(&mut written).message(&data[..1], &data[1..]).await.unwrap();
        let all: Vec<u8> = (read(&written).await.unwrap().into_iter())
            .flat_map(|incoming| if let Incoming::Piece { data, .. } = incoming { data } else { Vec::new() })
            .collect();
        assert_eq!(all, data);
        let mut written = Vec::new();
        Writer::new(&mut written).message(b"x", b"y").await.unwrap();
        let mut reader = Reader::of_server(&written[..]);
        assert_eq!(reader.next().await.unwrap(), piece(true, true, b"xy"));
        assert_eq!(reader.next().await.unwrap(), Incoming::Close);
        assert!(matches!(Reader::of_server(&client::message(b"x")[..]).next().await, Err(Error::Protocol(_))));
    }

    #[tokio::test]
    async fn what_breaks_the_rules_is_refused() {
        let unmasked = [0x82, 1, b'x'];
        let reserved = client::frame(true, BINARY | 0x40, b"");
        let stray = client::frame(true, CONTINUATION, b"x");
        let long_ping = client::frame(true, PING, &[0; 126]);
        let mut torn = client::frame(false, BINARY, b"x");
        torn.extend(client::frame(true, BINARY, b"y"));
        for bytes in [&unmasked[..], &reserved, &stray, &long_ping, &torn, &client::frame(true, 5, b"")] {
            assert!(matches!(read(bytes).await, Err(Error::Protocol(_))), "{bytes:?}");
        }
        let whole = client::message(b"hello");
        assert!(matches!(read(&whole[..8]).await, Err(Error::Io(_))));
    }
}
