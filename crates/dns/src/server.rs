//! The sockets: datagrams answered in place, streams one task each, other names asked for on the side.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hickory_proto::op::{Query, ResponseCode};
use informer::guard;
use parking_lot::RwLock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;

use crate::answer::{Answer, Reply, answer, not_ready};
use crate::forward::Forwarder;
use crate::message::{Request, Transport, rotate};
use crate::metrics::Metrics;
use crate::zone::Zone;

/// Datagrams waiting for another server's answer; further ones are refused.
const WAITING: usize = 4096;
/// Streams open at a time.
const STREAMS: usize = 256;
/// A stream without a question for so long is closed.
const IDLE: Duration = Duration::from_secs(10);
/// Datagrams taken in one go before others get their turn.
const BURST: usize = 64;

/// Everything needed to answer.
#[derive(Debug)]
pub struct Server {
    pub zone: Arc<RwLock<Zone>>,
    /// Whether the zone is complete.
    pub ready: AtomicBool,
    /// For all other names.
    pub forwarder: Forwarder,
    pub metrics: Arc<Metrics>,
}

/// How a request goes on.
enum Next {
    Reply(Vec<u8>),
    /// Others have to be asked, and what is known already.
    Ask(Box<(Request, Option<Reply>)>),
    Nothing,
}

impl Server {
    /// Answers what can be answered from memory.
    fn begin(&self, bytes: &[u8], transport: Transport) -> Next {
        self.metrics.request(transport == Transport::Tcp);
        let request = match Request::parse(bytes) {
            Ok(request) => request,
            Err(refusal) => return refusal.map_or(Next::Nothing, Next::Reply),
        };
        let answer = answer(&self.zone.read(), &request.question);
        match answer {
            Answer::Ours(_) if !self.ready.load(Ordering::Relaxed) => {
                Next::Reply(self.reply(&request, not_ready(), false, transport))
            }
            Answer::Ours(reply) if reply.chase.is_some() => Next::Ask(Box::new((request, Some(reply)))),
            Answer::Ours(reply) => Next::Reply(self.reply(&request, reply, true, transport)),
            Answer::Elsewhere => match self.forwarder.remembered(&request.question, request.dnssec_ok()) {
                Some(reply) => Next::Reply(self.reply(&request, reply, false, transport)),
                None => Next::Ask(Box::new((request, None))),
            },
        }
    }

    /// Asks others for the rest.
    async fn finish(&self, request: Request, known: Option<Reply>, transport: Transport, from: IpAddr) -> Vec<u8> {
        let dnssec_ok = request.dnssec_ok();
        let Some(mut reply) = known else {
            let reply = self.forwarder.resolve(&request.question, dnssec_ok, Some(from)).await;
            return self.reply(&request, reply, false, transport);
        };
        if let Some(target) = reply.chase.take() {
            let question = Query::query(target, request.question.query_type);
            let rest = self.forwarder.resolve(&question, dnssec_ok, None).await;
            reply.code = rest.code;
            reply.answers.extend(rest.answers);
        }
        self.reply(&request, reply, true, transport)
    }

    fn reply(&self, request: &Request, mut reply: Reply, authoritative: bool, transport: Transport) -> Vec<u8> {
        self.metrics.response(reply.code);
        if reply.answers.len() > 1 {
            let by = rand::random_range(0..reply.answers.len());
            rotate(&mut reply.answers, by);
        }
        request.reply(reply, authoritative, transport)
    }

    /// Answers datagrams for ever.
    pub async fn datagrams(self: Arc<Self>, socket: UdpSocket) -> std::io::Result<()> {
        let socket = Arc::new(socket);
        let waiting = Arc::new(Semaphore::new(WAITING));
        let mut buffer = vec![0; usize::from(u16::MAX)];
        loop {
            socket.readable().await?;
            for _ in 0..BURST {
                let (length, peer) = match socket.try_recv_from(&mut buffer) {
                    Ok(received) => received,
                    Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => break,
                    // The network's word about an answer sent earlier to somebody who is gone.
                    Err(_) => continue,
                };
                // One question that we cannot cope with must not keep others from being answered.
                let _ = guard::caught_call("dns", &peer, || self.datagram(&buffer[..length], peer, &socket, &waiting));
            }
            tokio::task::yield_now().await;
        }
    }

    fn datagram(self: &Arc<Self>, bytes: &[u8], peer: SocketAddr, socket: &Arc<UdpSocket>, waiting: &Arc<Semaphore>) {
        let (request, known) = match self.begin(bytes, Transport::Udp) {
            Next::Nothing => return,
            // A full socket loses the answer, as the network may; the client asks again.
            Next::Reply(reply) => return drop(socket.try_send_to(&reply, peer)),
            Next::Ask(asked) => *asked,
        };
        let Ok(permit) = waiting.clone().try_acquire_owned() else {
            let refused = Reply { code: ResponseCode::ServFail, ..Reply::default() };
            let _ = socket.try_send_to(&self.reply(&request, refused, false, Transport::Udp), peer);
            return;
        };
        let (server, socket) = (self.clone(), socket.clone());
        tokio::spawn(async move {
            let finish = server.finish(request, known, Transport::Udp, peer.ip());
            if let Some(reply) = guard::caught("dns", &peer, finish).await {
                let _ = socket.send_to(&reply, peer).await;
            }
            drop(permit);
        });
    }

    /// Accepts streams for ever.
    pub async fn streams(self: Arc<Self>, listener: TcpListener) -> std::io::Result<()> {
        let room = Arc::new(Semaphore::new(STREAMS));
        loop {
            let permit = room.clone().acquire_owned().await.map_err(std::io::Error::other)?;
            let (stream, peer) = match listener.accept().await {
                Ok(accepted) => accepted,
                // Out of file descriptors, most likely: others have to end first.
                Err(_) => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let server = self.clone();
            tokio::spawn(async move {
                // Whatever ends a stream is the client's affair.
                let _ = guard::caught("dns", &peer, server.stream(stream, peer.ip())).await;
                drop(permit);
            });
        }
    }

    async fn stream(&self, mut stream: TcpStream, peer: IpAddr) -> std::io::Result<()> {
        loop {
            let read = async {
                let mut bytes = vec![0; usize::from(stream.read_u16().await?)];
                stream.read_exact(&mut bytes).await?;
                Ok::<_, std::io::Error>(bytes)
            };
            let bytes = tokio::time::timeout(IDLE, read).await??;
            let reply = match self.begin(&bytes, Transport::Tcp) {
                Next::Nothing => return Ok(()),
                Next::Reply(reply) => reply,
                Next::Ask(asked) => self.finish(asked.0, asked.1, Transport::Tcp, peer).await,
            };
            let length = u16::try_from(reply.len()).map_err(std::io::Error::other)?;
            let framed = [&length.to_be_bytes()[..], &reply].concat();
            tokio::time::timeout(IDLE, stream.write_all(&framed)).await??;
        }
    }
}
