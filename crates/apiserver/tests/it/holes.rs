//! One test per class of holes that Kubernetes or its like had in their gates: none of them opens here.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use machinery::rest::{Body, User};
use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::CertifiedKey;
use serde_json::{Value, json};
use testkit::build::{BuildPod as _, pod};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::server::Server;

pub fn typed<T: serde::de::DeserializeOwned>(tree: Value) -> T {
    serde_json::from_value(tree).expect("an object of that kind")
}

/// The administrator's connection, byte by byte.
pub async fn connect(server: &Server, protocol: &[u8]) -> TlsStream<TcpStream> {
    let config = pki::client_config(&server.keys.admin, &server.keys.authority_pem()).expect("TLS");
    let mut config = (*config).clone();
    config.alpn_protocols = vec![protocol.to_vec()];
    let address = server.address();
    let stream = TcpStream::connect(address.trim_start_matches("https://")).await.expect("a connection");
    let name = ServerName::try_from("127.0.0.1").expect("a name");
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.expect("TLS")
}

/// Shows a certificate and signs with the key of another one.
#[derive(Debug)]
struct Thief(Arc<CertifiedKey>);

impl ResolvesClientCert for Thief {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn a_certificate_is_nothing_without_its_key() {
    let server = Server::default().await;
    let admin = &server.keys.admin;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(admin.chain_pem.as_bytes()).collect();
    let chain = chain.expect("certificates");
    let request = b"GET /api/v1/secrets HTTP/1.1\r\nHost: kubernetes\r\nConnection: close\r\n\r\n";
    for (key, holds) in [(&admin.key_pem, true), (&server.keys.scheduler.key_pem, false)] {
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("a key");
        let key = ring::sign::any_supported_type(&key).expect("a key that signs");
        for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
            let shown = Thief(Arc::new(CertifiedKey::new(chain.clone(), key.clone())));
            let config = rustls::ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
                .with_protocol_versions(&[version])
                .expect("a version")
                .dangerous()
                .with_custom_certificate_verifier(pki::trusting(&server.keys.authority_pem()).expect("an authority"))
                .with_client_cert_resolver(Arc::new(shown));
            let exchange = async {
                let stream = TcpStream::connect(server.address().trim_start_matches("https://")).await?;
                let name = ServerName::try_from("127.0.0.1").expect("a name");
                let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
                stream.write_all(request).await?;
                let mut answer = String::new();
                stream.read_to_string(&mut answer).await?;
                Ok::<_, std::io::Error>(answer)
            };
            let answer = testkit::eventually("an end", exchange).await;
            let served = answer.as_ref().is_ok_and(|text| text.starts_with("HTTP/1.1 200"));
            assert_eq!((served, answer.is_err()), (holds, !holds), "{answer:?}");
        }
    }
    server.stop().await;
}

/// The head of an answer.
pub async fn head<S: tokio::io::AsyncRead + Unpin>(stream: &mut BufReader<S>) -> String {
    let mut head = String::new();
    loop {
        let mut line = String::new();
        let read = testkit::eventually("a line", stream.read_line(&mut line)).await.expect("text");
        head.push_str(&line);
        if read == 0 || line == "\r\n" {
            return head;
        }
    }
}

/// A kubelet that does not switch protocols and keeps its connections open for more. It tells the head of every request.
async fn stubborn_kubelet(server: &Server) -> (u16, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let pair = server.keys.node_server("n1", &["127.0.0.1".to_owned()]).expect("a certificate");
    let acceptor = TlsAcceptor::from(pki::server_config(&pair, &server.keys.authority_pem()).expect("TLS"));
    let (sender, heads) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, sender) = (acceptor.clone(), sender.clone());
            tokio::spawn(async move {
                let mut stream = BufReader::new(acceptor.accept(stream).await.expect("TLS"));
                loop {
                    let head = head(&mut stream).await;
                    if head.is_empty() || sender.send(head).is_err() {
                        return;
                    }
                    let answer = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\nno";
                    if stream.get_mut().write_all(answer).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    (port, heads)
}

#[tokio::test]
async fn a_connection_is_not_a_tunnel_after_a_refused_upgrade() {
    let server = Server::default().await;
    let (port, mut heads) = stubborn_kubelet(&server).await;
    server.admin().create(&typed::<Node>(json!({"metadata": {"name": "n1"}}))).await.expect("a node");
    let status = json!({"metadata": {"name": "n1"}, "status": {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}], "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}});
    server.admin().update_status(&typed::<Node>(status)).await.expect("its address");
    server.admin().create(&pod("web").on("n1")).await.expect("a pod");
    let smuggled = "GET /runningpods/ HTTP/1.1\r\nhost: x\r\n\r\nGET /api/v1/secrets HTTP/1.1\r\nhost: x\r\n\r\n";
    for (protocol, method) in [("websocket", "GET"), ("SPDY/3.1", "POST")] {
        // Once in one piece with the upgrade, before anybody could refuse it, and once after the refusal.
        for at_once in [true, false] {
            let mut stream = BufReader::new(connect(&server, b"http/1.1").await);
            let upgrade = format!(
                "{method} /api/v1/namespaces/default/pods/web/exec?command=sh&container=main HTTP/1.1\r\nhost: x\r\n\
                 connection: Upgrade\r\nupgrade: {protocol}\r\ncontent-length: 0\r\n\r\n"
            );
            let first = if at_once { format!("{upgrade}{smuggled}") } else { upgrade };
            stream.get_mut().write_all(first.as_bytes()).await.expect("written");
            let answer = head(&mut stream).await;
            assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
            assert!(answer.to_lowercase().contains("connection: close"), "{answer}");
            if !at_once {
                // The connection may be gone already, which is as good as unread.
                let _ = stream.get_mut().write_all(smuggled.as_bytes()).await;
            }
            let mut rest = Vec::new();
            // A connection that is reset has ended too.
            let _ = testkit::eventually("the end of the connection", stream.read_to_end(&mut rest)).await;
            let rest = String::from_utf8_lossy(&rest);
            assert!(!rest.contains("HTTP/1.1") && !rest.contains("SecretList"), "nothing more is answered: {rest}");
            let seen = testkit::eventually("the upgrade", heads.recv()).await.expect("a request");
            assert!(seen.starts_with(&format!("{method} /exec/default/web/main?")), "{seen}");
        }
    }
    // Whatever reached the kubelet was told before its answer came; so there is nothing else.
    assert!(heads.try_recv().is_err(), "something was smuggled to the kubelet");
    server.admin().raw("/version").await.expect("the server goes on");
    server.stop().await;
}

#[tokio::test]
async fn an_upgrade_by_get_needs_create() {
    let server = Server::default().await;
    server.admin().create(&pod("web").on("n1")).await.expect("a pod");
    let grant = |verbs: Value| {
        json!({"metadata": {"name": "r", "namespace": "default"}, "rules": [
        {"apiGroups": [""], "resources": ["pods/exec", "pods/attach", "pods/portforward"], "verbs": verbs}]})
    };
    server.admin().create(&typed::<Role>(grant(json!(["get"])))).await.expect("a role");
    let binding = json!({"metadata": {"name": "r", "namespace": "default"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [{"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}]});
    server.admin().create(&typed::<RoleBinding>(binding)).await.expect("a binding");
    let jane = server.as_user(User::new("jane", []));
    let code = async |method: &str, subresource: &str| {
        let request = http::Request::builder()
            .method(method)
            .uri(format!("/api/v1/namespaces/default/pods/web/{subresource}?command=sh&container=main"))
            .header("connection", "Upgrade")
            .header("upgrade", "websocket")
            .body(Body::Empty)
            .expect("a request");
        jane.request(request).await.map_or_else(|error| error.code().unwrap_or(0), |answer| answer.status().as_u16())
    };
    for subresource in ["exec", "attach", "portforward"] {
        assert_eq!(code("GET", subresource).await, 403, "{subresource} by WebSocket");
        assert_eq!(code("POST", subresource).await, 403, "{subresource} by SPDY");
    }
    server.admin().update(&typed::<Role>(grant(json!(["get", "create"])))).await.expect("the role");
    for subresource in ["exec", "attach", "portforward"] {
        for method in ["GET", "POST"] {
            // Past the gates; there is no such node.
            assert_eq!(code(method, subresource).await, 404, "{method} {subresource}");
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn nobody_makes_the_server_call_what_they_name() {
    let server = Server::default().await;
    let victim = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    victim.set_nonblocking(true).expect("a setting");
    let port = victim.local_addr().expect("an address").port();
    // A pod that claims to be at the server's own loopback, and a slice that names it without any pod.
    server.admin().create(&pod("liar").on("n1")).await.expect("a pod");
    let status = json!({"metadata": {"name": "liar", "namespace": "default"},
        "status": {"phase": "Running", "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}});
    server.admin().update_status(&typed::<Pod>(status)).await.expect("its status");
    let service = json!({"metadata": {"name": "lure", "namespace": "default"}, "spec": {"ports": [{"port": 80}]}});
    server.admin().create(&typed::<Service>(service)).await.expect("a service");
    let slice = json!({"metadata": {"name": "lure", "namespace": "default", "labels": {"kubernetes.io/service-name": "lure"}},
        "addressType": "IPv4", "ports": [{"name": "", "port": port}],
        "endpoints": [{"addresses": ["10.1.2.3"], "conditions": {"ready": true}},
            {"addresses": ["10.1.2.3"], "targetRef": {"kind": "Pod", "namespace": "default", "name": "liar"}}]});
    server.admin().create(&typed::<EndpointSlice>(slice)).await.expect("a slice");
    let ask = async |path: String| {
        let request = http::Request::get(path).body(Body::Empty).expect("a request");
        let answer = server.admin().request(request).await;
        answer.map_or_else(|error| error.code().unwrap_or(0), |answer| answer.status().as_u16())
    };
    assert_eq!(ask(format!("/api/v1/namespaces/default/pods/liar:{port}/proxy/")).await, 400);
    assert_eq!(ask("/api/v1/namespaces/default/services/lure/proxy/".to_owned()).await, 503);
    // Whoever connected would be waiting to be accepted.
    assert!(victim.accept().is_err(), "the server called its own loopback");
    server.stop().await;
}

#[tokio::test]
async fn streams_that_are_opened_and_reset_end_the_connection() {
    let server = Server::default().await;
    let (mut reader, mut writer) = tokio::io::split(connect(&server, b"h2").await);
    let mut frames = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    frames.extend([0, 0, 0, 4, 0, 0, 0, 0, 0]);
    // GET https /, all of it from the static table, and an authority; then the stream is taken back.
    let headers = [0x82, 0x87, 0x84, 0x41, 0x01, b'x'];
    for stream in (1..40_001_u32).step_by(2) {
        frames.extend([0, 0, headers.len() as u8, 1, 0x05]);
        frames.extend(stream.to_be_bytes());
        frames.extend(headers);
        frames.extend([0, 0, 4, 3, 0]);
        frames.extend(stream.to_be_bytes());
        frames.extend([0, 0, 0, 8]);
    }
    let writing = tokio::spawn(async move { writer.write_all(&frames).await });
    let refused = async {
        loop {
            let mut frame = [0; 9];
            // The end of the connection is as good as a frame that says so.
            if reader.read_exact(&mut frame).await.is_err() {
                return true;
            }
            let length = usize::from(frame[0]) << 16 | usize::from(frame[1]) << 8 | usize::from(frame[2]);
            let mut payload = vec![0; length];
            if reader.read_exact(&mut payload).await.is_err() {
                return true;
            }
            if frame[3] == 7 {
                // GOAWAY, and not because all went well.
                return payload[4..8] != [0; 4];
            }
        }
    };
    assert!(testkit::eventually("the server has enough", refused).await);
    // It may or may not have been able to write everything.
    let _ = writing.await;
    server.kubectl().run(&["get", "--raw", "/readyz"]).await;
    server.stop().await;
}
