//! Clients that misbehave below HTTP's meaning: too slow, too much, too many. They lose their connection; nobody else
//! notices.

use std::time::Duration;

use client::Client;
use futures::FutureExt as _;
use rustls::pki_types::ServerName;
use testkit::{Cluster, eventually};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// An HTTP/1.1 connection as the administrator.
async fn connect(cluster: &Cluster) -> TlsStream<TcpStream> {
    let keys = cluster.keys();
    let config = pki::client_config(&keys.admin, &keys.authority_pem()).expect("our own certificates");
    let tcp = TcpStream::connect(cluster.address()).await.expect("the server listens");
    let name = ServerName::try_from("localhost").expect("a name");
    TlsConnector::from(config).connect(name, tcp).await.expect("a TLS session")
}

/// Reads until the server closes the connection; what it said before.
async fn until_closed(mut stream: impl tokio::io::AsyncRead + Unpin) -> String {
    let mut said = Vec::new();
    // A reset is as good an end as an orderly one.
    let _ = eventually("the server closes the connection", stream.read_to_end(&mut said)).await;
    String::from_utf8_lossy(&said).into_owned()
}

async fn still_well(cluster: &Cluster) {
    assert_eq!(cluster.client().raw("/readyz").await.expect("an answer"), "ok");
}

#[tokio::test]
async fn who_is_too_slow_is_cut_off() {
    let cluster = Cluster::start().await;
    let silent = TcpStream::connect(cluster.address()).await.expect("the server listens");
    let mut dribbling = connect(&cluster).await;
    dribbling.write_all(b"GET /readyz HTTP/1.1\r\nHost: x\r\nX-A: ").await.expect("sent");
    let (nothing, refusal) = tokio::join!(until_closed(silent), until_closed(dribbling));
    assert_eq!(nothing, "");
    assert!(refusal.is_empty() || refusal.starts_with("HTTP/1.1 4"), "{refusal}");
    still_well(&cluster).await;
    cluster.stop().await;
}

#[tokio::test]
async fn headers_without_end_are_refused() {
    let cluster = Cluster::start().await;
    let mut stream = connect(&cluster).await;
    stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: x\r\n").await.expect("sent");
    let line = format!("X-Filler: {}\r\n", "x".repeat(8000));
    for _ in 0..256 {
        // The server may close in the middle of it.
        if stream.write_all(line.as_bytes()).await.is_err() {
            break;
        }
    }
    let refusal = until_closed(stream).await;
    assert!(refusal.is_empty() || refusal.starts_with("HTTP/1.1 4"), "{refusal}");
    still_well(&cluster).await;
    cluster.stop().await;
}

#[tokio::test]
async fn nonsense_instead_of_http_is_refused() {
    let cluster = Cluster::start().await;
    let mut stream = connect(&cluster).await;
    stream.write_all(b"\x00\x01\x02 nonsense\r\n\r\n").await.expect("sent");
    let refusal = until_closed(stream).await;
    assert!(refusal.is_empty() || refusal.starts_with("HTTP/1.1 4"), "{refusal}");
    let mut plain = TcpStream::connect(cluster.address()).await.expect("the server listens");
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").await.expect("sent");
    until_closed(plain).await;
    still_well(&cluster).await;
    cluster.stop().await;
}

#[tokio::test]
async fn streams_that_are_reset_at_once_hurt_only_their_connection() {
    let cluster = Cluster::start().await;
    let attacker = cluster.client();
    attacker.raw("/readyz").await.expect("a connection");
    for _ in 0..5_000 {
        begin_and_drop(&attacker).await;
    }
    still_well(&cluster).await;
    cluster.stop().await;
}

/// Sends a request's headers and resets its stream.
async fn begin_and_drop(client: &Client) {
    let request = client.raw("/api/v1/pods?watch=true");
    tokio::pin!(request);
    // Polled so often that the headers leave, never so long that an answer comes.
    for _ in 0..2 {
        if (&mut request).now_or_never().is_some() {
            return;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn an_endless_body_is_cut_at_the_limit() {
    let cluster = Cluster::start().await;
    let mut stream = connect(&cluster).await;
    let head = "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n\
                Transfer-Encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await.expect("sent");
    let (mut reader, mut writer) = tokio::io::split(stream);
    let chunk = format!("{:x}\r\n{}\r\n", 64 * 1024, " ".repeat(64 * 1024));
    let flood = async {
        // 64 MiB would be far beyond the limit of 3; the server must not take it all.
        for sent in 0..1024 {
            if writer.write_all(chunk.as_bytes()).await.is_err() {
                return sent;
            }
        }
        1024
    };
    let answer = async {
        let mut said = [0; 64];
        let size = tokio::time::timeout(Duration::from_secs(20), reader.read(&mut said)).await;
        let size = size.expect("an answer before the body's end").unwrap_or(0);
        String::from_utf8_lossy(&said[..size]).into_owned()
    };
    tokio::select! {
        said = answer => assert!(said.is_empty() || said.starts_with("HTTP/1.1 413"), "{said}"),
        sent = flood => assert!(sent < 1024, "the server took 64 MiB"),
    }
    still_well(&cluster).await;
    cluster.stop().await;
}
