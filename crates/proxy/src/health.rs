//! `healthCheckNodePort`: tells a load balancer whether this node has endpoints of a Service of local policy.
//!
//! One small HTTP server per Service that asks for it. A balancer that is told 503 stops sending connections here
//! before they would be dropped.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

use crate::model::ServiceName;

/// Load balancers ask a few at a time; whoever opens more waits.
const CONNECTIONS: usize = 64;

/// A port that could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("node {node} failed to start healthcheck {service:?} on port {port}: {source}")]
pub struct Error {
    node: String,
    /// The Service, for an event about it.
    pub service: String,
    port: u16,
    source: std::io::Error,
}

/// The servers of one node.
#[derive(Debug)]
pub struct HealthServers {
    node: String,
    addresses: Vec<IpAddr>,
    healthy: Arc<AtomicBool>,
    servers: HashMap<ServiceName, Server>,
}

#[derive(Debug)]
struct Server {
    port: u16,
    endpoints: Arc<AtomicUsize>,
    tasks: Vec<AbortHandle>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl HealthServers {
    /// No server yet; later ones listen on these addresses (on every address, if there are none) and report the
    /// proxy as healthy as long as `healthy` is set.
    pub fn new(node: &str, addresses: Vec<IpAddr>, healthy: Arc<AtomicBool>) -> Self {
        Self { node: node.to_owned(), addresses, healthy, servers: HashMap::new() }
    }

    /// Makes the server of a Service what it should be: on `port` with so many endpoints, or not there.
    pub async fn set(&mut self, service: &ServiceName, wanted: Option<(u16, usize)>) -> Result<(), Error> {
        let Some((port, endpoints)) = wanted else {
            self.servers.remove(service);
            return Ok(());
        };
        if let Some(server) = self.servers.get(service).filter(|server| server.port == port) {
            server.endpoints.store(endpoints, Ordering::Relaxed);
            return Ok(());
        }
        self.servers.remove(service);
        let count = Arc::new(AtomicUsize::new(endpoints));
        let mut server = Server { port, endpoints: count.clone(), tasks: Vec::new() };
        let any: &[IpAddr] = &[IpAddr::from([0; 16])];
        for ip in if self.addresses.is_empty() { any } else { &self.addresses } {
            let listener = TcpListener::bind(SocketAddr::new(*ip, port)).await.map_err(|source| Error {
                node: self.node.clone(),
                service: service.to_string(),
                port,
                source,
            })?;
            let answer = Answer { service: service.clone(), endpoints: count.clone(), healthy: self.healthy.clone() };
            server.tasks.push(tokio::spawn(serve(listener, answer)).abort_handle());
        }
        self.servers.insert(service.clone(), server);
        Ok(())
    }

    /// Ends the servers of Services that are not among these.
    pub fn keep(&mut self, services: impl Fn(&ServiceName) -> bool) {
        self.servers.retain(|name, _| services(name));
    }
}

#[derive(Clone)]
struct Answer {
    service: ServiceName,
    endpoints: Arc<AtomicUsize>,
    healthy: Arc<AtomicBool>,
}

impl Answer {
    fn response(&self) -> Response<Full<Bytes>> {
        let endpoints = self.endpoints.load(Ordering::Relaxed);
        let healthy = self.healthy.load(Ordering::Relaxed);
        let status = if endpoints > 0 && healthy { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        let body = format!(
            "{{\n\t\"service\": {{\n\t\t\"namespace\": \"{}\",\n\t\t\"name\": \"{}\"\n\t}},\n\t\"localEndpoints\": {endpoints},\n\
             \t\"serviceProxyHealthy\": {healthy}\n}}",
            self.service.namespace, self.service.name
        );
        Response::builder()
            .status(status)
            .header("Content-Type", "application/json")
            .header("X-Content-Type-Options", "nosniff")
            .header("X-Load-Balancing-Endpoint-Weight", endpoints)
            .body(Full::new(Bytes::from(body)))
            .expect("every header is a constant or a number")
    }
}

async fn serve(listener: TcpListener, answer: Answer) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(permit) = room.clone().acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            // Out of file descriptors, most likely: the next connection is no better before others end.
            Err(_) => {
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                continue;
            }
        };
        let answer = answer.clone();
        tokio::spawn(async move {
            let respond = service_fn(move |_: Request<Incoming>| {
                let response = answer.response();
                async move { Ok::<_, Infallible>(response) }
            });
            let io = TokioIo::new(stream);
            let connection = hyper::server::conn::http1::Builder::new().keep_alive(false).serve_connection(io, respond);
            // A client that does not ask in time gives up its place.
            let _ = tokio::time::timeout(std::time::Duration::from_secs(10), connection).await;
            drop(permit);
        });
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    async fn get(port: u16) -> String {
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: n\r\n\r\n").await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    }

    #[tokio::test]
    async fn a_node_with_endpoints_answers_ok_and_without_them_unavailable() {
        let healthy = Arc::new(AtomicBool::new(true));
        let mut servers = HealthServers::new("n1", vec![[127, 0, 0, 1].into()], healthy.clone());
        let name = ServiceName { namespace: "ns".into(), name: "web".into() };
        // Somebody may take the free port first; then the next one is tried.
        let port = loop {
            let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
            if servers.set(&name, Some((free, 2))).await.is_ok() {
                break free;
            }
        };
        let text = get(port).await;
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        assert!(text.contains("x-load-balancing-endpoint-weight: 2"), "{text}");
        assert!(text.ends_with("\"localEndpoints\": 2,\n\t\"serviceProxyHealthy\": true\n}"), "{text}");
        servers.set(&name, Some((port, 0))).await.unwrap();
        assert!(get(port).await.starts_with("HTTP/1.1 503"));
        servers.set(&name, Some((port, 1))).await.unwrap();
        healthy.store(false, Ordering::Relaxed);
        assert!(get(port).await.starts_with("HTTP/1.1 503"));

        let other = ServiceName { name: "other".into(), ..name.clone() };
        let taken = servers.set(&other, Some((port, 1))).await.unwrap_err();
        assert!(
            taken
                .to_string()
                .starts_with(&format!("node n1 failed to start healthcheck \"ns/other\" on port {port}: "))
        );
    }
}
