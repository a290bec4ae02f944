//! The client that neither side knows: the `kube` crate.
//!
//! Requests go over [`CONNECTIONS`] connections of HTTP/2, [`IN_FLIGHT`] at a time. The crate itself speaks HTTP/1.1, a connection for each
//! request in flight, so these connections are handed to it; what is above them, paths, parameters, JSON, errors, is its own. Watches are
//! opened as the crate does it by itself: each has a connection.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::{Api, ListParams, PostParams};
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::task::JoinSet;

use crate::Failure;
use crate::load::Run;

/// Requests at a time.
pub const IN_FLIGHT: usize = 64;
const CONNECTIONS: usize = 4;
/// What may be on its way to us for one answer, and for a connection: a list must not wait for leave to go on.
const WINDOW: u32 = 16 << 20;
/// How long something may take to come about.
const PATIENCE: Duration = Duration::from_secs(300);

/// Connections to one side.
pub struct Outside {
    clients: Vec<kube::Client>,
    /// As the crate makes it: a connection for each request in flight.
    watcher: kube::Client,
}

impl Outside {
    pub async fn connect(kubeconfig: &Path) -> Result<Self, Failure> {
        let config =
            kube::Config::from_custom_kubeconfig(Kubeconfig::read_from(kubeconfig)?, &KubeConfigOptions::default())
                .await?;
        let mut clients = Vec::with_capacity(CONNECTIONS);
        for _ in 0..CONNECTIONS {
            let connection = Connection::open(&config).await?;
            clients.push(ClientBuilder::new(connection, "default").with_layer(&config.base_uri_layer()).build());
        }
        Ok(Self { clients, watcher: kube::Client::try_from(config)? })
    }

    pub fn client(&self) -> kube::Client {
        self.clients[0].clone()
    }

    /// Makes a namespace and waits until a controller has made its account: from then on pods can be made.
    pub async fn space(&self, name: &str) -> Result<(), Failure> {
        let namespace: Namespace = serde_json::from_value(serde_json::json!({"metadata": {"name": name}}))?;
        Api::all(self.client()).create(&PostParams::default(), &namespace).await?;
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client(), name);
        let often = Duration::from_millis(50);
        eventually("the namespace has its account", often, async || Ok(accounts.get_opt("default").await?.is_some()))
            .await
    }

    /// Sends requests 0 to `count`, [`IN_FLIGHT`] at a time.
    pub async fn load<F, R>(&self, count: usize, one: F) -> Result<Run, Failure>
    where
        F: Fn(kube::Client, usize) -> R + Clone + Send + 'static,
        R: Future<Output = Result<(), kube::Error>> + Send,
    {
        let next = Arc::new(AtomicUsize::new(0));
        let mut workers = JoinSet::new();
        let begun = Instant::now();
        for worker in 0..IN_FLIGHT {
            let client = self.clients[worker % CONNECTIONS].clone();
            let (next, one) = (Arc::clone(&next), one.clone());
            workers.spawn(async move {
                let mut latencies = Vec::with_capacity(count / IN_FLIGHT + 1);
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return Ok::<_, kube::Error>(latencies);
                    }
                    let sent = Instant::now();
                    one(client.clone(), number).await?;
                    latencies.push(sent.elapsed());
                }
            });
        }
        let mut latencies = Vec::with_capacity(count);
        while let Some(worker) = workers.join_next().await {
            latencies.extend(worker??);
        }
        let took = begun.elapsed();
        latencies.sort_unstable();
        Ok(Run { took, latencies })
    }

    /// Reads an answer to its end without looking at it; how many bytes that was.
    pub async fn read(&self, path: &str) -> Result<usize, Failure> {
        let mut body = answer(&self.client(), path, "application/json").await?;
        let mut size = 0;
        while let Some(frame) = body.frame().await {
            size += frame?.data_ref().map_or(0, bytes::Bytes::len);
        }
        Ok(size)
    }

    /// Opens a watch, on a connection of its own.
    pub async fn watch(&self, path: &str, accept: &'static str) -> Result<Lines, Failure> {
        Ok(Lines { body: answer(&self.watcher, path, accept).await?, begun: Vec::new() })
    }

    /// The store's revision: how many writes there were.
    pub async fn revision(&self) -> Result<f64, Failure> {
        let namespaces: Api<Namespace> = Api::all(self.client());
        let list = namespaces.list(&ListParams::default().limit(1)).await?;
        Ok(list.metadata.resource_version.unwrap_or_default().parse()?)
    }
}

async fn answer(client: &kube::Client, path: &str, accept: &'static str) -> Result<Body, Failure> {
    let request = Request::get(path).header("accept", accept).body(Body::empty())?;
    let response = client.send(request).await?;
    if !response.status().is_success() {
        return Err(format!("{path} was answered {}", response.status()).into());
    }
    Ok(response.into_body())
}

/// Waits until something is so, asking every so often.
pub async fn eventually(
    what: &str,
    every: Duration,
    so: impl AsyncFn() -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let waiting = async {
        while !so().await? {
            tokio::time::sleep(every).await;
        }
        Ok(())
    };
    tokio::time::timeout(PATIENCE, waiting).await.map_err(|_| format!("in vain: {what}"))?
}

/// The events of a watch, as lines.
pub struct Lines {
    body: Body,
    /// The beginning of a line whose end has not come.
    begun: Vec<u8>,
}

impl Lines {
    /// What came with the next piece: whole lines are given to `each`. An error at the end.
    pub async fn next(&mut self, mut each: impl FnMut(&[u8])) -> Result<(), Failure> {
        let frame = self.body.frame().await.ok_or("the watch ended")??;
        let Some(data) = frame.data_ref() else { return Ok(()) };
        for part in data.split_inclusive(|byte| *byte == b'\n') {
            if self.begun.is_empty() && part.ends_with(b"\n") {
                each(part);
                continue;
            }
            self.begun.extend_from_slice(part);
            if part.ends_with(b"\n") {
                each(&self.begun);
                self.begun.clear();
            }
        }
        Ok(())
    }
}

/// One connection of HTTP/2, which clones share.
#[derive(Clone)]
struct Connection(http2::SendRequest<Body>);

impl Connection {
    async fn open(config: &kube::Config) -> Result<Self, Failure> {
        let mut tls = config.rustls_client_config()?;
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let host = config.cluster_url.host().ok_or("a server without a name")?.to_owned();
        let port = config.cluster_url.port_u16().unwrap_or(443);
        let socket = tokio::net::TcpStream::connect((host.as_str(), port)).await?;
        socket.set_nodelay(true)?;
        let name = rustls_pki_types::ServerName::try_from(host)?;
        let stream = tokio_rustls::TlsConnector::from(Arc::new(tls)).connect(name, socket).await?;
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .handshake(TokioIo::new(stream))
            .await?;
        tokio::spawn(connection);
        Ok(Self(sender))
    }
}

impl tower_service::Service<Request<Body>> for Connection {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}
