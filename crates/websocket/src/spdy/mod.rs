//! A small client of SPDY/3.1, the protocol in which runtimes serve exec, attach and port-forward, and API servers do where a proxy
//! lets no WebSocket pass.
//!
//! Only what those need: streams opened by the client, data both ways, the end of each. There is no flow control: the
//! servers in question have none either, and TCP's is enough on one machine. Headers of answers are not read, because
//! nothing in them matters, so their compression needs no undoing.

mod frame;
mod headers;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

pub use frame::StreamId;
use frame::{HEAD, Head, Kind};
use headers::Encoder;

/// Largest piece of data handed on, and sent in one frame.
const PIECE: usize = 32 << 10;
/// Largest control frame; what is beyond is no server we know.
const CONTROL: usize = 64 << 10;
/// How long a server may take to accept a stream.
const ACCEPT: Duration = Duration::from_secs(30);

/// Why a conversation ends early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The other side does not follow the protocol.
    #[error("spdy protocol error: {0}")]
    Protocol(&'static str),
    /// A stream was refused.
    #[error("the runtime refused the stream {0:?}")]
    Refused(String),
    /// No answer in time.
    #[error("the runtime did not accept the streams in time")]
    Silence,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Incoming {
    /// A stream was accepted.
    Accepted(StreamId),
    /// Content of a stream.
    Data(StreamId, Vec<u8>),
    /// Nothing more will come on a stream.
    End(StreamId),
    /// A stream is cut off.
    Cut(StreamId),
    /// A question, to be sent back as it is.
    Ping([u8; 4]),
    /// Nothing more will come at all.
    Over,
}

pub struct Reader<R> {
    io: R,
    /// Data of the frame being read: stream, bytes left, whether it is the last frame.
    rest: Option<(StreamId, usize, bool)>,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    /// On a connection after the upgrade.
    pub fn new(io: R) -> Self {
        Self { io, rest: None }
    }

    pub async fn next(&mut self) -> Result<Incoming, Error> {
        loop {
            if let Some((stream, left, fin)) = self.rest.take() {
                if left > 0 {
                    let mut data = vec![0; left.min(PIECE)];
                    let read = self.io.read(&mut data).await?;
                    if read == 0 {
                        return Err(Error::Io(std::io::ErrorKind::UnexpectedEof.into()));
                    }
                    data.truncate(read);
                    self.rest = Some((stream, left - read, fin));
                    return Ok(Incoming::Data(stream, data));
                }
                if fin {
                    return Ok(Incoming::End(stream));
                }
            }
            let mut head = [0; HEAD];
            match self.io.read_exact(&mut head).await {
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(Incoming::Over),
                Err(error) => return Err(error.into()),
            }
            match Head::parse(head).ok_or(Error::Protocol("not version 3"))? {
                Head::Data { stream, fin, length } => self.rest = Some((stream, length, fin)),
                Head::Control { length, .. } if length > CONTROL => {
                    return Err(Error::Protocol("a control frame is too long"));
                }
                Head::Control { kind, fin, length } => {
                    let mut body = vec![0; length];
                    self.io.read_exact(&mut body).await?;
                    let first = body.first_chunk::<4>().copied();
                    let number = || first.map(u32::from_be_bytes).ok_or(Error::Protocol("a frame is too short"));
                    match kind {
                        Kind::SynReply => {
                            let stream = number()?;
                            self.rest = fin.then_some((stream, 0, true));
                            return Ok(Incoming::Accepted(stream));
                        }
                        Kind::RstStream => return Ok(Incoming::Cut(number()?)),
                        Kind::Ping => return Ok(Incoming::Ping(number()?.to_be_bytes())),
                        Kind::GoAway => return Ok(Incoming::Over),
                        // A server has no reason to open streams.
                        Kind::SynStream | Kind::Other => {}
                    }
                }
            }
        }
    }
}

pub struct Writer<W> {
    io: W,
    headers: Encoder,
    next: StreamId,
}

impl<W: AsyncWrite + Unpin> Writer<W> {
    /// On a connection after the upgrade.
    pub fn new(io: W) -> Result<Self, Error> {
        Ok(Self { io, headers: Encoder::new()?, next: 1 })
    }

    /// The stream that will be opened next, for whoever has to know it before the answer can come.
    pub fn upcoming(&self) -> StreamId {
        self.next
    }

    pub async fn open(&mut self, headers: &[(&str, &str)]) -> Result<StreamId, Error> {
        let stream = self.next;
        self.next += 2;
        let block = self.headers.encode(headers)?;
        self.io.write_all(&frame::syn_stream(stream, &block)).await?;
        self.io.flush().await?;
        Ok(stream)
    }

    pub async fn data(&mut self, stream: StreamId, data: &[u8]) -> Result<(), Error> {
        for piece in data.chunks(PIECE) {
            let mut bytes = Vec::with_capacity(HEAD + piece.len());
            bytes.extend_from_slice(&frame::data(stream, false, piece.len()));
            bytes.extend_from_slice(piece);
            self.io.write_all(&bytes).await?;
        }
        Ok(self.io.flush().await?)
    }

    /// Says that nothing more will come on a stream.
    pub async fn end(&mut self, stream: StreamId) -> Result<(), Error> {
        self.io.write_all(&frame::data(stream, true, 0)).await?;
        Ok(self.io.flush().await?)
    }

    /// Says that nothing more is wanted of a stream.
    pub async fn cut(&mut self, stream: StreamId) -> Result<(), Error> {
        self.io.write_all(&frame::rst_stream(stream)).await?;
        Ok(self.io.flush().await?)
    }

    /// Sends a ping back.
    pub async fn ping(&mut self, id: [u8; 4]) -> Result<(), Error> {
        // Odd ones would be answers to our own, and we ask none.
        if id[3].is_multiple_of(2) {
            self.io.write_all(&frame::ping(id)).await?;
            self.io.flush().await?;
        }
        Ok(())
    }
}

/// Opens a stream of each type and waits until all are accepted: what is sent on one before that is lost.
pub async fn open_all<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    reader: &mut Reader<R>,
    writer: &mut Writer<W>,
    types: &[&str],
) -> Result<Vec<StreamId>, Error> {
    let mut streams = Vec::with_capacity(types.len());
    for kind in types {
        streams.push(writer.open(&[("streamtype", kind)]).await?);
    }
    let mut open = streams.clone();
    let accepted = async {
        while !open.is_empty() {
            match reader.next().await? {
                Incoming::Accepted(stream) => open.retain(|id| *id != stream),
                Incoming::Ping(id) => writer.ping(id).await?,
                Incoming::Cut(stream) | Incoming::End(stream) => {
                    let at = streams.iter().position(|id| *id == stream);
                    return Err(Error::Refused(at.map_or("unknown", |at| types[at]).to_owned()));
                }
                Incoming::Over => return Err(Error::Io(std::io::ErrorKind::UnexpectedEof.into())),
                Incoming::Data(..) => return Err(Error::Protocol("data on a stream that was not accepted")),
            }
        }
        Ok(())
    };
    tokio::time::timeout(ACCEPT, accepted).await.map_err(|_| Error::Silence)??;
    Ok(streams)
}

#[cfg(test)]
mod tests {
    use super::frame::rst_stream;
    use super::testing::{Server, window_update};
    use super::*;

    #[tokio::test]
    async fn streams_are_opened_used_and_ended() {
        let (near, far) = tokio::io::duplex(1 << 20);
        let (read, write) = tokio::io::split(near);
        let (mut reader, mut writer) = (Reader::new(read), Writer::new(write).unwrap());
        let mut server = Server::new(far);
        let served = tokio::spawn(async move {
            assert_eq!(server.accept().await, (1, "error".into()));
            assert_eq!(server.accept().await, (3, "stdin".into()));
            server
        });
        let streams = open_all(&mut reader, &mut writer, &["error", "stdin"]).await.unwrap();
        assert_eq!(streams, [1, 3]);
        let mut server = served.await.unwrap();
        writer.data(3, &vec![7; PIECE + 5]).await.unwrap();
        writer.end(3).await.unwrap();
        assert_eq!(server.data().await, (3, vec![7; PIECE], false));
        assert_eq!(server.data().await, (3, vec![7; 5], false));
        assert_eq!(server.data().await, (3, vec![], true));
        server.io.write_all(&window_update(1)).await.unwrap();
        server.io.write_all(&frame::ping([0, 0, 0, 2])).await.unwrap();
        server.send(1, b"done", true).await;
        assert_eq!(reader.next().await.unwrap(), Incoming::Ping([0, 0, 0, 2]));
        assert_eq!(reader.next().await.unwrap(), Incoming::Data(1, b"done".to_vec()));
        assert_eq!(reader.next().await.unwrap(), Incoming::End(1));
        drop(server);
        assert_eq!(reader.next().await.unwrap(), Incoming::Over);
    }

    #[tokio::test]
    async fn refusals_and_nonsense_are_errors() {
        let (near, mut far) = tokio::io::duplex(1 << 20);
        let (read, write) = tokio::io::split(near);
        let (mut reader, mut writer) = (Reader::new(read), Writer::new(write).unwrap());
        far.write_all(&rst_stream(1)).await.unwrap();
        let refused = open_all(&mut reader, &mut writer, &["stdin"]).await;
        assert!(matches!(refused, Err(Error::Refused(kind)) if kind == "stdin"));
        assert!(matches!(Reader::new(&b"HTTP/1.1"[..]).next().await, Ok(Incoming::Over) | Err(_)));
        let long = [0x80, 3, 0, 4, 0, 0xff, 0xff, 0xff];
        assert!(matches!(Reader::new(&long[..]).next().await, Err(Error::Protocol(_))));
    }
}
