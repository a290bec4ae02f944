//! Asking other servers for names that are not the cluster's: remembered, asked once at a time, and in bounded time.
//!
//! A question that is already under way is not asked again; whoever asks it meanwhile gets the same answer. That is
//! also what makes a loop (an upstream that asks us back) harmless: the question that comes back waits for itself until
//! the deadline instead of going round. A loop that is certain is refused at once and reported.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hickory_proto::op::{Edns, Message, MessageType, Query, ResponseCode};
use informer::guard;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::watch;

use crate::answer::Reply;
use crate::cache::{Cache, Key};
use crate::message::PAYLOAD;
use crate::metrics::Metrics;
use crate::resolv::Upstreams;

/// Questions under way at the same time; further ones fail at once.
const UNDER_WAY: usize = 1000;
/// How long one server is waited for.
const PATIENCE: Duration = Duration::from_millis(1500);
/// When a question has failed, counted from when it was asked. Clients ask again after five seconds.
const DEADLINE: Duration = Duration::from_secs(4);

/// Why a server gave no answer.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("{0}")]
    Encode(#[from] hickory_proto::ProtoError),
    #[error("no answer in time")]
    Silence,
    #[error("the answer is not one to the question")]
    Nonsense,
}

type Waiting = watch::Receiver<Option<Reply>>;

/// Asks other servers. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Forwarder {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    upstreams: Upstreams,
    /// Our own addresses: a question from one of them, while a loopback server works on it, has come round.
    ourselves: Vec<IpAddr>,
    cache: Mutex<Cache>,
    under_way: Mutex<HashMap<Key, Waiting>>,
    metrics: Arc<Metrics>,
}

impl Forwarder {
    /// A forwarder that remembers nothing yet.
    pub fn new(upstreams: Upstreams, ourselves: Vec<IpAddr>, metrics: Arc<Metrics>) -> Self {
        let (cache, under_way) = (Mutex::default(), Mutex::default());
        Self { shared: Arc::new(Shared { upstreams, ourselves, cache, under_way, metrics }) }
    }

    /// The remembered answer, without asking anybody.
    pub fn remembered(&self, question: &Query, dnssec_ok: bool) -> Option<Reply> {
        let found = self.shared.cache.lock().get(&key(question, dnssec_ok), Instant::now());
        self.shared.metrics.cached(found.is_some());
        found
    }

    /// The answer, from memory or from another server; SERVFAIL if there is none in time.
    pub async fn resolve(&self, question: &Query, dnssec_ok: bool, from: Option<IpAddr>) -> Reply {
        if let Some(reply) = self.remembered(question, dnssec_ok) {
            return reply;
        }
        let key = key(question, dnssec_ok);
        let Some(mut waiting) = self.join(&key, question, from) else { return failure() };
        let answered = waiting.wait_for(Option::is_some).await;
        answered.ok().and_then(|reply| reply.clone()).unwrap_or_else(failure)
    }

    /// Waits with those who asked the same, or starts asking; nothing if it must not.
    fn join(&self, key: &Key, question: &Query, from: Option<IpAddr>) -> Option<Waiting> {
        let mut under_way = self.shared.under_way.lock();
        if let Some(waiting) = under_way.get(key) {
            if from.is_some_and(|from| self.is_loop(from)) {
                tracing::error!(name = %question.name, from = ?from, "forwarding loop: an upstream server asks us what we asked it");
                return None;
            }
            return Some(waiting.clone());
        }
        if under_way.len() >= UNDER_WAY {
            tracing::warn!("too many names are being asked for; refusing one");
            return None;
        }
        let (answer, waiting) = watch::channel(None);
        under_way.insert(key.clone(), waiting.clone());
        drop(under_way);
        // A task of its own: whoever asked first may go away while others wait.
        let (shared, key, question) = (self.shared.clone(), key.clone(), question.clone());
        tokio::spawn(async move {
            let ask = guard::caught("dns", &question.name, shared.ask_all(&question, key.2));
            let reply = tokio::time::timeout(DEADLINE, ask).await.ok().flatten().unwrap_or_else(failure);
            shared.cache.lock().put(key.clone(), &reply, Instant::now());
            shared.under_way.lock().remove(&key);
            // Nobody may be waiting any more.
            let _ = answer.send(Some(reply));
        });
        Some(waiting)
    }

    fn is_loop(&self, from: IpAddr) -> bool {
        let upstreams = &self.shared.upstreams;
        let by_loopback = || self.shared.ourselves.contains(&from) && upstreams.contains([127, 0, 0, 53].into());
        upstreams.contains(from) || by_loopback()
    }
}

impl Shared {
    /// Asks one server after the other, beginning with any; a second round for datagrams that got lost.
    async fn ask_all(&self, question: &Query, dnssec_ok: bool) -> Reply {
        let servers = self.upstreams.of(&question.name.to_lowercase());
        if servers.is_empty() {
            return failure();
        }
        let first: usize = rand::random_range(0..servers.len());
        let mut last = None;
        for server in servers.iter().cycle().skip(first).take(servers.len() * 2) {
            self.metrics.forwarded();
            match ask(*server, question, dnssec_ok).await {
                Ok(reply) if reply.code != ResponseCode::ServFail => return reply,
                Ok(reply) => last = Some(reply),
                Err(error) => tracing::debug!(%server, name = %question.name, %error, "no answer"),
            }
        }
        last.unwrap_or_else(failure)
    }
}

fn key(question: &Query, dnssec_ok: bool) -> Key {
    (question.name.to_lowercase(), question.query_type, dnssec_ok)
}

fn failure() -> Reply {
    Reply { code: ResponseCode::ServFail, ..Reply::default() }
}

/// Asks one server, by a datagram first and by a stream if the answer does not fit.
async fn ask(server: SocketAddr, question: &Query, dnssec_ok: bool) -> Result<Reply, Error> {
    let mut message = Message::query();
    message.metadata.id = rand::random();
    message.metadata.recursion_desired = true;
    message.queries.push(question.clone());
    let mut edns = Edns::new();
    edns.set_max_payload(PAYLOAD);
    edns.set_dnssec_ok(dnssec_ok);
    message.edns = Some(edns);
    let bytes = message.to_vec()?;
    let patiently = |exchange| tokio::time::timeout(PATIENCE, exchange);
    let answer = patiently(by_datagram(server, &bytes, &message)).await.map_err(|_| Error::Silence)??;
    if !answer.metadata.truncation {
        return Ok(reply(answer));
    }
    let whole = tokio::time::timeout(PATIENCE, by_stream(server, &bytes, &message)).await;
    Ok(reply(whole.map_err(|_| Error::Silence)??))
}

/// A socket of its own for each question: its port, which the kernel chooses at random, has to be guessed to forge an
/// answer. What does not fit the question is not an answer, and waiting goes on.
async fn by_datagram(server: SocketAddr, bytes: &[u8], asked: &Message) -> Result<Message, Error> {
    let any: IpAddr = if server.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    socket.send(bytes).await?;
    let mut buffer = [0; 4096];
    loop {
        let length = socket.recv(&mut buffer).await?;
        if let Ok(answer) = Message::from_vec(&buffer[..length])
            && answers(&answer, asked)
        {
            return Ok(answer);
        }
    }
}

async fn by_stream(server: SocketAddr, bytes: &[u8], asked: &Message) -> Result<Message, Error> {
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(bytes.len()).map_err(|_| Error::Nonsense)?;
    stream.write_all(&[&length.to_be_bytes()[..], bytes].concat()).await?;
    let mut buffer = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut buffer).await?;
    let answer = Message::from_vec(&buffer).map_err(|_| Error::Nonsense)?;
    if answers(&answer, asked) { Ok(answer) } else { Err(Error::Nonsense) }
}

fn answers(answer: &Message, asked: &Message) -> bool {
    let same =
        |a: &Query, b: &Query| a.query_type == b.query_type && a.query_class == b.query_class && a.name == b.name;
    answer.metadata.message_type == MessageType::Response
        && answer.metadata.id == asked.metadata.id
        && matches!((&answer.queries[..], &asked.queries[..]), ([a], [b]) if same(a, b))
}

fn reply(answer: Message) -> Reply {
    Reply {
        code: answer.metadata.response_code,
        answers: answer.answers,
        authorities: answer.authorities,
        additionals: answer.additionals,
        chase: None,
    }
}
