//! What the API server passes on: to those who speak TLS, to those who serve pages, and as messages of a WebSocket.

use std::process::Stdio;
use std::sync::Arc;

use http::Method;
use k8s_openapi::api::core::v1::Node;
use serde_json::json;
use testkit::build::{BuildPod as _, config_map, pod};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio_rustls::TlsAcceptor;

use crate::holes::{connect, head, typed};
use crate::server::Server;

/// A node of this machine, with its kubelet at a port.
async fn with_node(server: &Server, kubelet: u16) {
    server.admin().create(&typed::<Node>(json!({"metadata": {"name": "n1"}}))).await.expect("a node");
    let status = json!({"metadata": {"name": "n1"}, "status": {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}], "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet}}}});
    server.admin().update_status(&typed::<Node>(status)).await.expect("its address");
}

fn openssl(directory: &std::path::Path, arguments: &str) {
    let mut command = std::process::Command::new("openssl");
    let made = command.current_dir(directory).args(arguments.split_whitespace()).output().expect("openssl");
    assert!(made.status.success(), "{arguments}: {}", String::from_utf8_lossy(&made.stderr));
}

/// Answers every request with what `answer` makes of its head.
async fn serve(tls: Option<TlsAcceptor>, answer: impl Fn(&str) -> String + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let answer = Arc::new(answer);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (tls, answer) = (tls.clone(), answer.clone());
            tokio::spawn(async move {
                let (mut told, mut shown) = (String::new(), 0);
                let mut stream: Box<dyn connection::Stream> = match tls {
                    None => Box::new(stream),
                    Some(tls) => {
                        let stream = tls.accept(stream).await.expect("TLS");
                        shown = stream.get_ref().1.peer_certificates().map_or(0, <[_]>::len);
                        Box::new(stream)
                    }
                };
                let mut reader = BufReader::new(&mut stream);
                told.push_str(&head(&mut reader).await);
                told.push_str(&format!("certificates: {shown}\r\n"));
                let _ = stream.write_all(answer(&told).as_bytes()).await;
                let _ = stream.shutdown().await;
            });
        }
    });
    port
}

mod connection {
    //! A connection, plain or not.

    pub trait Stream: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin {}

    impl<T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin> Stream for T {}
}

/// A certificate signed by itself, for another name, that calls itself an authority; and one of the first version of
/// certificates, without any names, with a key that this build cannot check.
#[tokio::test]
async fn whoever_speaks_tls_is_reached_whatever_they_show() {
    let server = Server::default().await;
    with_node(&server, 10250).await;
    let directory = tempfile::tempdir().expect("a directory");
    openssl(
        directory.path(),
        "req -x509 -newkey rsa:2048 -nodes -subj /O=Example -days 2 -keyout own.key -out own.crt \
         -addext subjectAltName=DNS:example.com,IP:192.0.2.1 -addext keyUsage=critical,digitalSignature,keyCertSign",
    );
    let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).expect("a file");
    let pair = pki::Pair { chain_pem: read("own.crt"), key_pem: read("own.key") };
    // It would ask for a certificate of the cluster's, if it were shown one.
    let tls = pki::server_config(&pair, &server.keys.authority_pem()).expect("TLS");
    let mut tls = (*tls).clone();
    tls.alpn_protocols.clear();
    let port = serve(Some(TlsAcceptor::from(Arc::new(tls))), |head| {
        format!("HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\r\n{head}", head.len())
    })
    .await;
    let answer = server.get(&format!("/api/v1/nodes/https:n1:{port}/proxy/some/path")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(answer.text().starts_with("GET /some/path HTTP/1.1\r\n"), "{}", answer.text());
    assert!(answer.text().contains("certificates: 0\r\n"), "nobody but kubelets is shown ours: {}", answer.text());

    openssl(directory.path(), "ecparam -name secp521r1 -genkey -noout -out odd.key");
    openssl(directory.path(), "req -new -key odd.key -subj /O=Example -out odd.csr");
    openssl(directory.path(), "x509 -req -in odd.csr -signkey odd.key -days 2 -out odd.crt");
    let mut odd = Command::new("openssl")
        .current_dir(directory.path())
        .args("s_server -accept 127.0.0.1:0 -cert odd.crt -key odd.key -www".split_whitespace())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("openssl");
    let mut lines = BufReader::new(odd.stdout.take().expect("its output")).lines();
    let port = loop {
        let line = testkit::eventually("the port", lines.next_line()).await.expect("text").expect("a line");
        if let Some(address) = line.strip_prefix("ACCEPT ") {
            break address.rsplit(':').next().expect("a port").to_owned();
        }
    };
    let answer = server.get(&format!("/api/v1/nodes/https:n1:{port}/proxy/")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    // Who does not speak TLS is told so in upstream's words.
    let answer = server.get("/api/v1/nodes/https:n1:1/proxy/").await;
    assert_eq!(answer.status, 503);
    assert_eq!(answer.message(), "error trying to reach service: dial tcp 127.0.0.1:1: connect: connection refused");
    server.stop().await;
}

#[tokio::test]
async fn pages_that_come_through_lead_back() {
    let server = Server::default().await;
    with_node(&server, 10250).await;
    let port = serve(None, |head| {
        let path = head.split(' ').nth(1).unwrap_or_default();
        let (status, kind, body) = match path.split('?').next().unwrap_or_default() {
            "/page" => ("200 OK", "content-type: text/html; charset=utf-8", "<a href=\"/rewriteme\">test</a>"),
            "/plain" => ("200 OK", "content-type: text/plain", "<a href=\"/rewriteme\">test</a>"),
            "/away" => ("302 Found", "location: /here/", "<a href=\"/x\">"),
            _ => ("200 OK", "access-control-allow-origin: *", head),
        };
        format!("HTTP/1.1 {status}\r\n{kind}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
    })
    .await;
    let at = format!("/api/v1/nodes/n1:{port}/proxy");
    assert_eq!(server.get(&format!("{at}/page")).await.text(), format!("<a href=\"{at}/rewriteme\">test</a>"));
    assert_eq!(server.get(&format!("{at}/plain")).await.text(), "<a href=\"/rewriteme\">test</a>");
    let away = server.get(&format!("{at}/away")).await;
    assert_eq!(away.status, 302);
    assert_eq!(away.headers["location"], format!("{at}/here/"));
    // A path without even a slash would lead relative links astray.
    for method in [Method::GET, Method::HEAD] {
        let moved = server.send(method, &format!("{at}?method=GET"), &[], "").await;
        assert_eq!(moved.status, 301);
        assert_eq!(moved.headers["location"], format!("{at}/?method=GET"));
    }
    for method in [Method::DELETE, Method::OPTIONS, Method::PATCH, Method::POST, Method::PUT] {
        let answer = server.send(method.clone(), &format!("{at}?method={method}"), &[], "").await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert!(answer.text().starts_with(&format!("{method} /?method={method} HTTP/1.1\r\n")), "{}", answer.text());
        assert!(!answer.headers.contains_key("access-control-allow-origin"));
    }
    let told = server.send(Method::GET, &format!("{at}/some/"), &[("x-forwarded-for", "192.0.2.7")], "").await.text();
    assert!(told.contains(&format!("x-forwarded-uri: {at}/some/\r\n")), "{told}");
    assert!(told.contains("x-forwarded-for: 192.0.2.7, 127.0.0.1\r\n"), "{told}");
    let host = server.address();
    assert!(told.contains(&format!("host: {}\r\n", host.trim_start_matches("https://"))), "{told}");
    server.stop().await;
}

const HANDSHAKE: &str = "host: x\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
    sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// Opens a WebSocket: the head of the answer, and the connection.
async fn open(
    server: &Server,
    path: &str,
    more: &str,
) -> (String, BufReader<tokio_rustls::client::TlsStream<tokio::net::TcpStream>>) {
    let mut stream = BufReader::new(connect(server, b"http/1.1").await);
    let request = format!("GET {path} HTTP/1.1\r\n{HANDSHAKE}{more}\r\n");
    stream.get_mut().write_all(request.as_bytes()).await.expect("written");
    (head(&mut stream).await, stream)
}

/// Everything up to the end of the connection, taken apart.
async fn frames(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> Vec<(u8, String)> {
    let mut bytes = Vec::new();
    // A connection that is reset has ended too.
    let _ = testkit::eventually("the end", stream.read_to_end(&mut bytes)).await;
    let text = |(kind, data): (u8, Vec<u8>)| (kind, String::from_utf8_lossy(&data).into_owned());
    websocket::client::parse(&bytes).into_iter().map(text).collect()
}

const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;

#[tokio::test]
async fn logs_come_as_messages_to_those_who_want_them_so() {
    let server = Server::default().await;
    let pair = server.keys.node_server("n1", &["127.0.0.1".to_owned()]).expect("a certificate");
    let tls = TlsAcceptor::from(pki::server_config(&pair, &server.keys.authority_pem()).expect("TLS"));
    let port = serve(Some(tls), |head| {
        let upgrade = head.to_ascii_lowercase().contains("websocket") || head.to_ascii_lowercase().contains("upgrade");
        let text = if upgrade { "the kubelet was asked for a WebSocket" } else { "container is alive\n" };
        let status = if head.contains("/missing") { "404 Not Found" } else { "200 OK" };
        format!("HTTP/1.1 {status}\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\r\n{text}", text.len())
    })
    .await;
    with_node(&server, port).await;
    server.admin().create(&pod("web").on("n1")).await.expect("a pod");
    let at = "/api/v1/namespaces/default/pods/web/log?container=main";
    let closed = (CLOSE, "\u{3}\u{fffd}".to_owned());
    for (offer, accepted, kind, begin, line) in [
        ("sec-websocket-protocol: binary.k8s.io\r\n", "binary.k8s.io", BINARY, "", "container is alive\n"),
        (
            "sec-websocket-protocol: x, base64.binary.k8s.io\r\n",
            "base64.binary.k8s.io",
            TEXT,
            "",
            "Y29udGFpbmVyIGlzIGFsaXZlCg==",
        ),
        ("", "", BINARY, "", "container is alive\n"),
    ] {
        let (head, mut stream) = open(&server, at, offer).await;
        let head = head.to_lowercase();
        assert!(head.starts_with("http/1.1 101"), "{head}");
        assert!(head.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=\r\n"), "{head}");
        assert_eq!(head.contains(&format!("sec-websocket-protocol: {accepted}\r\n")), !accepted.is_empty(), "{head}");
        let expect = [(kind, begin.to_owned()), (kind, line.to_owned()), closed.clone()];
        assert_eq!(frames(&mut stream).await, expect, "{offer}");
    }
    let (head, _) = open(&server, at, "sec-websocket-protocol: v4.channel.k8s.io\r\n").await;
    assert!(head.starts_with("HTTP/1.1 403"), "{head}");
    // Without a wish for messages nothing is different.
    assert_eq!(server.get(at).await.text(), "container is alive\n");
    // A refusal is told as always.
    let (head, _) = open(&server, "/api/v1/namespaces/default/pods/gone/log", "").await;
    assert!(head.starts_with("HTTP/1.1 404"), "{head}");
    server.stop().await;
}

#[tokio::test]
async fn watches_come_as_messages_to_those_who_want_them_so() {
    let server = Server::default().await;
    server.admin().create(&config_map("first", "a", "1")).await.expect("a config map");
    let at = "/api/v1/namespaces/default/configmaps?watch=true&timeoutSeconds=1&fieldSelector=metadata.name%3Dfirst";
    let origin = "origin: https://example.com\r\n";
    let (head, mut stream) = open(&server, at, origin).await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    let told = frames(&mut stream).await;
    let [(TEXT, event), (CLOSE, _)] = &told[..] else { panic!("one event and the end: {told:?}") };
    assert!(event.starts_with(r#"{"type":"ADDED","object":{"#) && event.ends_with("}\n"), "{event}");
    let (head, mut stream) =
        open(&server, at, &format!("{origin}accept: application/vnd.kubernetes.protobuf;stream=watch\r\n")).await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    let told = frames(&mut stream).await;
    let [(BINARY, event), (CLOSE, _)] = &told[..] else { panic!("one event and the end: {told:?}") };
    // The event's own first field, and not how long the event is.
    assert!(event.starts_with("\n\u{5}ADDED"), "{event:?}");

    // A client that says goodbye is let go at once, and one that asks whether anybody is there is answered.
    let long = "/api/v1/namespaces/default/configmaps?watch=true&timeoutSeconds=300&fieldSelector=metadata.name%3Dnone";
    let (head, mut stream) = open(&server, long, origin).await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    let mut said = websocket::client::frame(true, 9, b"there?");
    said.extend(websocket::client::message(b"nobody reads this"));
    stream.get_mut().write_all(&said).await.expect("written");
    let mut pong = [0; 8];
    testkit::eventually("the pong", stream.read_exact(&mut pong)).await.expect("a frame");
    assert_eq!(&pong, b"\x8a\x06there?");
    stream.get_mut().write_all(&websocket::client::frame(true, CLOSE, &1000u16.to_be_bytes())).await.expect("written");
    assert_eq!(frames(&mut stream).await.len(), 1, "the server's own goodbye");

    let (head, _) = open(&server, at, "").await;
    assert!(head.starts_with("HTTP/1.1 403"), "a page says which it is: {head}");
    let (head, _) = open(&server, at, &format!("{origin}sec-websocket-protocol: a, b\r\n")).await;
    assert!(head.starts_with("HTTP/1.1 400"), "{head}");
    let (head, _) = open(&server, "/api/v1/configmaps?watch=true&resourceVersion=x", origin).await;
    assert!(head.starts_with("HTTP/1.1 400"), "{head}");
    server.stop().await;
}
