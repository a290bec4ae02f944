//! Many connections over one: each is a stream of SPDY, with another for what goes wrong.
//!
//! SPDY runs inside a WebSocket where the server lets it, else by itself. One task reads and hands on what comes; every
//! connection has a task of its own. Streams have no windows of their own here, as upstream's have none: a connection that is
//! not read from makes the others wait.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::Mutex as Lock;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, mpsc, oneshot};
use websocket::spdy::{self, Incoming, StreamId};
use websocket::tunnel;

use super::ports::Port;
use crate::api::Api;
use crate::error::{Failure, Outcome};
use crate::remote::{Dialed, Protocols, dial};

const PROTOCOL: &str = "portforward.k8s.io";
const PIECE: usize = 32 << 10;
/// Pieces that wait for a connection to take them.
const WAITING: usize = 32;
/// Bytes on their way into the tunnel.
const TUNNEL: usize = 256 << 10;
/// Longest message about what went wrong.
const LONGEST_ERROR: usize = 64 << 10;

/// What there is to be told.
#[derive(Debug)]
pub enum News {
    Begun {
        local: u16,
    },
    Failed {
        local: u16,
        remote: u16,
        why: String,
    },
    /// The connection to the server is gone.
    Lost,
}

trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

type Boxed = Box<dyn Io>;

/// Somebody who waits for what comes on a stream.
struct Waiting {
    accepted: Option<oneshot::Sender<()>>,
    data: mpsc::Sender<Vec<u8>>,
}

#[derive(Clone)]
pub struct Connection {
    writer: Arc<Mutex<spdy::Writer<WriteHalf<Boxed>>>>,
    streams: Arc<Lock<HashMap<StreamId, Waiting>>>,
    requests: Arc<std::sync::atomic::AtomicU64>,
    news: mpsc::Sender<News>,
}

/// A stream that was opened, and what comes on it.
struct Stream {
    id: StreamId,
    data: mpsc::Receiver<Vec<u8>>,
}

impl Connection {
    pub async fn open(api: &Api, protocols: Protocols, path: &str) -> Outcome<(Self, mpsc::Receiver<News>)> {
        let io: Boxed = match dial(api, protocols, path, &tunnel::outside(PROTOCOL), PROTOCOL).await? {
            Dialed::Spdy(connection) => connection,
            Dialed::WebSocket(connection) => {
                let (near, far) = tokio::io::duplex(TUNNEL);
                tokio::spawn(tunnel::run_at_client(*connection, far));
                Box::new(near)
            }
        };
        Self::over(io).map_err(|error| Failure::Message(error.to_string()))
    }

    fn over(io: Boxed) -> Result<(Self, mpsc::Receiver<News>), spdy::Error> {
        let (read, write) = tokio::io::split(io);
        let (news, receiver) = mpsc::channel(64);
        let made = Self {
            writer: Arc::new(Mutex::new(spdy::Writer::new(write)?)),
            streams: Arc::default(),
            requests: Arc::default(),
            news,
        };
        tokio::spawn(made.clone().read(spdy::Reader::new(read)));
        Ok((made, receiver))
    }

    /// Hands on what comes, until nothing more will.
    async fn read(self, mut reader: spdy::Reader<ReadHalf<Boxed>>) {
        loop {
            match reader.next().await {
                Ok(Incoming::Data(stream, data)) => {
                    let waiting = self.locked().get(&stream).map(|waiting| waiting.data.clone());
                    if let Some(waiting) = waiting {
                        // Whoever no longer listens has cut the stream.
                        let _ = waiting.send(data).await;
                    }
                }
                Ok(Incoming::Accepted(stream)) => {
                    let accepted = self.locked().get_mut(&stream).and_then(|waiting| waiting.accepted.take());
                    if let Some(accepted) = accepted {
                        let _ = accepted.send(());
                    }
                }
                Ok(Incoming::End(stream) | Incoming::Cut(stream)) => {
                    self.locked().remove(&stream);
                }
                Ok(Incoming::Ping(id)) => {
                    let writer = self.writer.clone();
                    tokio::spawn(async move { writer.lock().await.ping(id).await });
                }
                Ok(Incoming::Over) | Err(_) => break,
            }
        }
        self.locked().clear();
        let _ = self.news.send(News::Lost).await;
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, HashMap<StreamId, Waiting>> {
        self.streams.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    async fn stream(&self, kind: &str, port: u16, request: u64) -> Result<Stream, String> {
        let (sender, data) = mpsc::channel(WAITING);
        let (accepted, is_accepted) = oneshot::channel();
        let (port, request) = (port.to_string(), request.to_string());
        let headers = [("streamtype", kind), ("port", port.as_str()), ("requestid", request.as_str())];
        let id = {
            let mut writer = self.writer.lock().await;
            // Known before it is opened: the answer may come at once.
            let id = writer.upcoming();
            self.locked().insert(id, Waiting { accepted: Some(accepted), data: sender });
            writer.open(&headers).await.map_err(|error| error.to_string())?
        };
        is_accepted.await.map_err(|_| "the stream was refused".to_owned())?;
        Ok(Stream { id, data })
    }

    /// Takes connections at a port for as long as there are any.
    pub async fn serve(self, listener: TcpListener, port: Port) {
        while let Ok((socket, _)) = listener.accept().await {
            let connection = self.clone();
            tokio::spawn(async move {
                if let Err(why) = connection.carry(socket, port).await {
                    let failed = News::Failed { local: port.local, remote: port.remote, why };
                    let _ = connection.news.send(failed).await;
                    let _ = connection.news.send(News::Lost).await;
                }
            });
        }
    }

    async fn carry(&self, socket: TcpStream, port: Port) -> Result<(), String> {
        let _ = self.news.send(News::Begun { local: port.local }).await;
        let _ = socket.set_nodelay(true);
        let request = self.requests.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let mut errors = self.stream("error", port.remote, request).await?;
        let ended = self.writer.lock().await.end(errors.id).await;
        ended.map_err(|error| error.to_string())?;
        let mut stream = self.stream("data", port.remote, request).await?;
        let (mut from, mut to) = socket.into_split();
        let down = async {
            while let Some(data) = stream.data.recv().await {
                if to.write_all(&data).await.is_err() {
                    return;
                }
            }
        };
        let up = async {
            let mut piece = vec![0; PIECE];
            loop {
                match from.read(&mut piece).await {
                    Ok(0) => {
                        let _ = self.writer.lock().await.end(stream.id).await;
                        return std::future::pending().await;
                    }
                    Ok(read) => {
                        if self.writer.lock().await.data(stream.id, &piece[..read]).await.is_err() {
                            return;
                        }
                    }
                    Err(_) => return,
                }
            }
        };
        tokio::select! {
            () = down => {}
            () = up => {}
        }
        // What is still unsent is of no use to anybody.
        self.locked().remove(&stream.id);
        let _ = self.writer.lock().await.cut(stream.id).await;
        let mut why = Vec::new();
        while let Some(data) = errors.data.recv().await {
            let room = LONGEST_ERROR.saturating_sub(why.len());
            why.extend_from_slice(&data[..data.len().min(room)]);
        }
        if why.is_empty() { Ok(()) } else { Err(String::from_utf8_lossy(&why).into_owned()) }
    }
}
