//! `healthCheckNodePort`: tells a load balancer whether this node has endpoints of a Service of local policy.
//!
//! One small HTTP server per Service that asks for it. A balancer that gets 503 stops sending connections here
//! before they would be dropped.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::TcpListener;
use tokio::task::AbortHandle;

use crate::http;
use crate::model::ServiceName;
use crate::state::State;

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
    state: Arc<State>,
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
    /// No server yet; later ones listen on every address.
    pub fn new(node: &str, state: Arc<State>) -> Self {
        Self { node: node.to_owned(), addresses: Vec::new(), state, servers: HashMap::new() }
    }

    /// Later servers listen on these addresses, on every address if there are none. Those that listen elsewhere end.
    pub fn listen_on(&mut self, addresses: Vec<IpAddr>) {
        if self.addresses != addresses {
            self.servers.clear();
            self.addresses = addresses;
        }
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
            let (service, count, state) = (service.clone(), count.clone(), self.state.clone());
            let respond = move |_: &str| answer(&service, count.load(Ordering::Relaxed), state.is_healthy());
            server.tasks.push(tokio::spawn(http::serve(listener, respond)).abort_handle());
        }
        self.servers.insert(service.clone(), server);
        Ok(())
    }

    /// Ends the servers of Services that are not among these.
    pub fn keep(&mut self, services: impl Fn(&ServiceName) -> bool) {
        self.servers.retain(|name, _| services(name));
    }
}

fn answer(service: &ServiceName, endpoints: usize, healthy: bool) -> http::Answer {
    let weight = [("X-Load-Balancing-Endpoint-Weight", endpoints.to_string())];
    let body = format!(
        "{{\n\t\"service\": {{\n\t\t\"namespace\": \"{}\",\n\t\t\"name\": \"{}\"\n\t}},\n\t\"localEndpoints\": {endpoints},\n\
         \t\"serviceProxyHealthy\": {healthy}\n}}",
        service.namespace, service.name
    );
    http::json(endpoints > 0 && healthy, &weight, body)
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
        let state = Arc::new(State::default());
        state.written(true, std::time::Duration::ZERO);
        let mut servers = HealthServers::new("n1", state.clone());
        servers.listen_on(vec![[127, 0, 0, 1].into()]);
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
        state.queued_at(k8s_openapi::jiff::Timestamp::UNIX_EPOCH);
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
