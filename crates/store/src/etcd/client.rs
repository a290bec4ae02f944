//! Calls to an etcd cluster: one connection per member for calls and one for watches, the next member when one fails.
//! The members may become others while the client is in use; connections to those that stay are kept.
//!
//! A call that changes something is sent once more only if it certainly never left: otherwise nobody could tell whether
//! it took place twice. Reads go round all members. Nothing waits longer than [`CALL`], and nothing waits that long for a member
//! that is gone while another one answers: when an answer is late, all are asked who can answer ([`survey`](super::survey)).

use std::error::Error as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use parking_lot::RwLock;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::MetadataValue;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, ConnectError, Status, Streaming};
use tonic_prost::ProstCodec;

use super::Options;
use super::keys::Keys;
use super::proto::{ResponseHeader, WatchCreateRequest, WatchRequest, WatchResponse};
use super::survey::{Found, OTHERS, Surveys};
use crate::{Error, Revision};

/// The longest a call takes, whatever it meets.
pub(super) const CALL: Duration = Duration::from_secs(5);
/// An answer that takes longer is late: a disk may be slow, or the member gone.
pub(super) const LATE: Duration = Duration::from_millis(500);
const CONNECT: Duration = Duration::from_secs(2);
/// Found out after so long (plus [`ALIVE`]) that the other end is gone, while something is under way.
const PING: Duration = Duration::from_secs(10);
const ALIVE: Duration = Duration::from_secs(5);
/// Windows that a burst of events does not fill, of a stream and of all streams of a connection.
const STREAM_WINDOW: u32 = 2 << 20;
const WINDOW: u32 = 16 << 20;
/// The largest answer taken. Ranges are asked for in pages, so only values that are large themselves come near it.
const ANSWER: usize = 256 << 20;

/// Whether a call may be repeated without knowing what became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    Freely,
    /// It may have changed something.
    IfUnsent,
}

/// The members of one cluster.
#[derive(Debug)]
pub(super) struct Client {
    members: RwLock<Arc<[Member]>>,
    tls: RwLock<Option<ClientTlsConfig>>,
    /// The member that worked last.
    preferred: AtomicUsize,
    surveys: Surveys,
    /// The newest revision and the latest leader's term that any answer told of.
    newest: watch::Sender<Revision>,
    term: AtomicU64,
    pub(super) keys: Keys,
}

#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) endpoint: String,
    pub(super) calls: Channel,
    /// Apart, so that events under way hold up no call.
    watches: Channel,
}

impl Client {
    /// Connects to nothing yet. Needs a tokio runtime around it.
    pub(super) fn new(options: &Options) -> Result<Self, Error> {
        if options.endpoints.is_empty() {
            return Err(Error::Unavailable("no etcd endpoint was given".into()));
        }
        let tls = tls(options)?;
        let members = options.endpoints.iter().map(|endpoint| member(endpoint, tls.as_ref()));
        let members = RwLock::new(members.collect::<Result<_, _>>()?);
        let keys = Keys::below(&options.prefix);
        Ok(Self {
            members,
            tls: RwLock::new(tls),
            preferred: AtomicUsize::new(0),
            surveys: Surveys::default(),
            newest: watch::Sender::new(0),
            term: AtomicU64::new(0),
            keys,
        })
    }

    /// Takes in what an answer says of the store.
    pub(super) fn saw(&self, header: Option<&ResponseHeader>) {
        let Some(header) = header else { return };
        self.term.fetch_max(header.raft_term, Ordering::Relaxed);
        let revision = header.revision.max(0) as Revision;
        self.newest.send_if_modified(|newest| {
            let is_newer = revision > *newest;
            *newest = revision.max(*newest);
            is_newer
        });
    }

    /// How far the store is known to have come.
    pub(super) fn newest(&self) -> watch::Receiver<Revision> {
        self.newest.subscribe()
    }

    /// Speaks to these members from now on. Without any, everything stays as it is.
    pub(super) fn set_endpoints(&self, endpoints: &[String]) -> Result<(), Error> {
        let known = self.members.read().clone();
        if endpoints.is_empty() || known.iter().map(|member| &member.endpoint).eq(endpoints) {
            return Ok(());
        }
        let tls = self.tls.read().clone();
        let one = |endpoint: &String| match known.iter().find(|member| member.endpoint == *endpoint) {
            Some(member) => Ok(member.clone()),
            None => member(endpoint, tls.as_ref()),
        };
        let members: Arc<[Member]> = endpoints.iter().map(one).collect::<Result<_, Error>>()?;
        let used = known.get(self.preferred.load(Ordering::Relaxed)).map(|member| &member.endpoint);
        let preferred = members.iter().position(|member| Some(&member.endpoint) == used).unwrap_or_default();
        *self.members.write() = members;
        self.preferred.store(preferred, Ordering::Relaxed);
        Ok(())
    }

    /// Reads the certificates again; later calls and watches use new connections.
    pub(super) fn reload(&self, options: &Options) -> Result<(), Error> {
        let tls = tls(options)?;
        let known = self.members.read().clone();
        let members = known.iter().map(|known| member(&known.endpoint, tls.as_ref()));
        let members: Arc<[Member]> = members.collect::<Result<_, _>>()?;
        *self.tls.write() = tls;
        *self.members.write() = members;
        Ok(())
    }

    /// One request, one answer.
    pub(super) async fn call<Q, A>(&self, path: &'static str, request: Q, repeat: Repeat) -> Result<A, Status>
    where
        Q: prost::Message + Clone + 'static,
        A: prost::Message + Default + 'static,
    {
        let all = self.round(repeat, |member| {
            let request = request.clone();
            async move {
                let mut grpc = Grpc::new(member.calls).max_decoding_message_size(ANSWER);
                grpc.ready().await.map_err(|e| Status::from_error(e.into()))?;
                let codec = ProstCodec::<Q, A>::default();
                grpc.unary(tonic::Request::new(request), PathAndQuery::from_static(path), codec).await
            }
        });
        let answered = tokio::time::timeout(CALL, all).await;
        answered.unwrap_or_else(|_| Err(late(CALL))).map(tonic::Response::into_inner)
    }

    /// One request, many answers; from the preferred member alone, and without a limit of time but that of each answer.
    pub(super) async fn stream<Q, A>(&self, path: &'static str, request: Q) -> Result<Streaming<A>, Status>
    where
        Q: prost::Message + Clone + 'static,
        A: prost::Message + Default + 'static,
    {
        let all = self.round(Repeat::Freely, |member| {
            let request = request.clone();
            async move {
                let mut grpc = Grpc::new(member.calls).max_decoding_message_size(ANSWER);
                grpc.ready().await.map_err(|e| Status::from_error(e.into()))?;
                let codec = ProstCodec::<Q, A>::default();
                let path = PathAndQuery::from_static(path);
                Ok(grpc.server_streaming(tonic::Request::new(request), path, codec).await?.into_inner())
            }
        });
        tokio::time::timeout(CALL, all).await.unwrap_or_else(|_| Err(late(CALL)))
    }

    /// One request to the preferred member, which may take as long as it takes.
    pub(super) async fn patiently<Q, A>(&self, path: &'static str, request: Q, limit: Duration) -> Result<A, Status>
    where
        Q: prost::Message + Clone + 'static,
        A: prost::Message + Default + 'static,
    {
        let members = self.members.read().clone();
        let chosen = self.preferred.load(Ordering::Relaxed) % members.len();
        let one = async {
            let mut grpc = Grpc::new(members[chosen].calls.clone());
            grpc.ready().await.map_err(|e| Status::from_error(e.into()))?;
            let codec = ProstCodec::<Q, A>::default();
            grpc.unary(tonic::Request::new(request), PathAndQuery::from_static(path), codec).await
        };
        let answered = tokio::time::timeout(limit, one).await;
        answered.unwrap_or_else(|_| Err(late(limit))).map(tonic::Response::into_inner)
    }

    /// Opens a watch; answers once etcd has confirmed it.
    pub(super) async fn watch(&self, create: WatchCreateRequest) -> Result<Watching, Status> {
        let all = self.round(Repeat::Freely, |member| {
            let create = WatchRequest { create: Some(create.clone()), progress: None };
            async move {
                let mut grpc = Grpc::new(member.watches).max_decoding_message_size(ANSWER);
                grpc.ready().await.map_err(|e| Status::from_error(e.into()))?;
                // The requests end with whoever reads the answers: their end is the watch's.
                let (requests, sent) = mpsc::channel(1);
                let mut request = tonic::Request::new(futures::stream::iter([create]).chain(until_dropped(sent)));
                // A member that is cut off from the others ends the watch instead of being silent.
                request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
                let path = PathAndQuery::from_static("/etcdserverpb.Watch/Watch");
                let codec = ProstCodec::<WatchRequest, WatchResponse>::default();
                let mut answers = grpc.streaming(request, path, codec).await?.into_inner();
                match answers.message().await? {
                    Some(first) if first.created && !first.canceled => Ok(Watching { answers, requests }),
                    Some(first) => Err(Status::unavailable(format!("watch refused: {}", first.cancel_reason))),
                    None => Err(Status::unavailable("watch ended before it began")),
                }
            }
        });
        tokio::time::timeout(CALL, all).await.unwrap_or_else(|_| Err(late(CALL)))
    }

    /// Tries members in turn, from the preferred one on, for as long as another could do better.
    async fn round<T, F>(&self, repeat: Repeat, attempt: impl Fn(Member) -> F) -> Result<T, Status>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let members = self.members.read().clone();
        let mut chosen = self.preferred.load(Ordering::Relaxed) % members.len();
        let mut tried = 0;
        loop {
            tried += 1;
            let answer = self.attempt(&members, chosen, repeat, attempt(members[chosen].clone())).await;
            let (status, better) = match answer {
                Ok(answer) => {
                    self.preferred.store(chosen, Ordering::Relaxed);
                    return Ok(answer);
                }
                Err(missed) => missed,
            };
            let may_repeat = match repeat {
                Repeat::Freely => transient(&status),
                Repeat::IfUnsent => unsent(&status),
            };
            if transient(&status) {
                chosen = better.unwrap_or((chosen + 1) % members.len());
                self.preferred.store(chosen, Ordering::Relaxed);
            }
            if !may_repeat || tried >= members.len() {
                return Err(status);
            }
        }
    }

    /// One attempt at one member, which is given up when it is known to lead nowhere; then also who is to be asked next, where that is known.
    async fn attempt<T>(
        &self,
        members: &Arc<[Member]>,
        chosen: usize,
        repeat: Repeat,
        attempt: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, (Status, Option<usize>)> {
        if members.len() == 1 {
            return attempt.await.map_err(|status| (status, None));
        }
        let term = self.term.load(Ordering::Relaxed);
        let place = |found: &Found| members.iter().position(|member| found.first() == Some(member.endpoint.as_str()));
        let mut attempt = std::pin::pin!(attempt);
        let hopeless = async {
            let mut missed = 0;
            loop {
                tokio::time::sleep(LATE).await;
                let found = self.surveys.join(members).await;
                let Some(first) = place(&found) else { continue };
                self.term.fetch_max(found.term, Ordering::Relaxed);
                missed = if found.answered(&members[chosen].endpoint) { 0 } else { missed + 1 };
                // A write cannot be taken elsewhere, so one that is only slow gets more time.
                let enough = if repeat == Repeat::Freely { 1 } else { 2 };
                if missed >= enough {
                    return first;
                }
                // A write went to a leader that is none any more, and is done or lost, or waited for the new one and is done soon.
                if repeat == Repeat::IfUnsent && term != 0 && found.term > term {
                    let since = found.since.unwrap_or_else(Instant::now);
                    tokio::time::sleep_until(since + OTHERS).await;
                    return if missed == 0 { chosen } else { first };
                }
            }
        };
        let answer = tokio::select! {
            biased;
            answer = &mut attempt => answer,
            next = hopeless => {
                return Err((Status::deadline_exceeded("etcd: the member that was asked does not answer"), Some(next)));
            }
        };
        match answer {
            // It answers, and cannot help: another may be no better off, as while a leader is chosen.
            Err(status) if repeat == Repeat::Freely && transient(&status) && !unsent(&status) => {
                let found = self.surveys.join(members).await;
                Err((status, place(&found)))
            }
            other => other.map_err(|status| (status, None)),
        }
    }
}

/// An open watch: what comes, and what it is asked.
#[derive(Debug)]
pub(super) struct Watching {
    pub(super) answers: Streaming<WatchResponse>,
    pub(super) requests: mpsc::Sender<WatchRequest>,
}

fn until_dropped(requests: mpsc::Receiver<WatchRequest>) -> impl Stream<Item = WatchRequest> + Send {
    futures::stream::unfold(requests, |mut requests| async { Some((requests.recv().await?, requests)) })
}

/// Could another member, or the same one later, do better?
pub(super) fn transient(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown | Code::Internal
    )
}

/// Did the request certainly never leave this machine?
fn unsent(status: &Status) -> bool {
    let mut source = status.source();
    while let Some(error) = source {
        if error.is::<ConnectError>() {
            return true;
        }
        source = error.source();
    }
    false
}

fn late(limit: Duration) -> Status {
    Status::deadline_exceeded(format!("no answer from etcd within {limit:?}"))
}

fn member(endpoint: &str, tls: Option<&ClientTlsConfig>) -> Result<Member, Error> {
    let wrong = |e: tonic::transport::Error| Error::Unavailable(format!("etcd endpoint {endpoint}: {}", chain(&e)));
    let uri = match (endpoint.contains("://"), tls) {
        (true, _) => endpoint.to_owned(),
        (false, Some(_)) => format!("https://{endpoint}"),
        (false, None) => format!("http://{endpoint}"),
    };
    let secure = uri.starts_with("https://");
    let mut endpoint_config = Endpoint::from_shared(uri)
        .map_err(wrong)?
        .connect_timeout(CONNECT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(PING)
        .keep_alive_timeout(ALIVE)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(WINDOW);
    if secure {
        endpoint_config = endpoint_config.tls_config(tls.cloned().unwrap_or_default()).map_err(wrong)?;
    }
    let (calls, watches) = (endpoint_config.connect_lazy(), endpoint_config.connect_lazy());
    Ok(Member { endpoint: endpoint.to_owned(), calls, watches })
}

fn tls(options: &Options) -> Result<Option<ClientTlsConfig>, Error> {
    let read = |path: &std::path::PathBuf| {
        std::fs::read(path).map_err(|e| Error::Unavailable(format!("{}: {e}", path.display())))
    };
    let mut config = None;
    if let Some(path) = &options.ca_file {
        config = Some(ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(path)?)));
    }
    match (&options.cert_file, &options.key_file) {
        (Some(cert), Some(key)) => {
            let identity = Identity::from_pem(read(cert)?, read(key)?);
            Ok(Some(config.unwrap_or_default().identity(identity)))
        }
        (None, None) => Ok(config),
        _ => Err(Error::Unavailable("an etcd client certificate and its key are given together or not at all".into())),
    }
}

/// The error with its causes: the outermost one alone says little.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// What a failed call means to the caller, for statuses that mean the same whatever the call.
pub(super) fn error(status: &Status) -> Error {
    let message = status.message();
    if message.contains("request is too large") || message.contains("message larger than max") {
        return Error::TooLarge;
    }
    let cause = status.source().map(|source| format!(" ({})", chain(source))).unwrap_or_default();
    Error::Unavailable(format!("etcd: {message}{cause}"))
}

/// etcd's answer to a revision it has no history of any more.
pub(super) fn is_compacted(status: &Status) -> bool {
    status.code() == Code::OutOfRange && status.message().contains("has been compacted")
}

/// etcd's answer to a revision that is still to come.
pub(super) fn is_future(status: &Status) -> bool {
    status.code() == Code::OutOfRange && status.message().contains("future revision")
}
