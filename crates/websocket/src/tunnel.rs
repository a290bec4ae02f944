//! SPDY carried inside a WebSocket: how kubectl forwards ports through proxies that know only WebSockets.
//!
//! Messages are just pieces of a byte stream; what is in them is between the client and the runtime.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::Mutex;

use crate::{Error, Incoming, Reader, Writer};

/// What a subprotocol begins with when it means a tunnel.
const PREFIX: &str = "SPDY/3.1+";
const PIECE: usize = 32 << 10;

/// The protocols a client wants inside the tunnel; empty when it wants no tunnel.
pub fn inside<'a>(offered: &[&'a str]) -> Vec<&'a str> {
    offered.iter().filter(|name| name.ends_with(".k8s.io")).filter_map(|name| name.strip_prefix(PREFIX)).collect()
}

/// The subprotocol that stands for this protocol inside the tunnel.
pub fn outside(protocol: &str) -> String {
    format!("{PREFIX}{protocol}")
}

/// Carries bytes both ways between a client's messages and a plain connection, until either side is done.
pub async fn run<C, P>(client: C, plain: P) -> Result<(), Error>
where
    C: AsyncRead + AsyncWrite,
    P: AsyncRead + AsyncWrite,
{
    let (read, write) = tokio::io::split(client);
    carry(Reader::new(read), Writer::new(write), plain).await
}

/// The same at the other end, where a server sends the messages.
pub async fn run_at_client<S, P>(server: S, plain: P) -> Result<(), Error>
where
    S: AsyncRead + AsyncWrite,
    P: AsyncRead + AsyncWrite,
{
    let (read, write) = tokio::io::split(server);
    carry(Reader::of_server(read), Writer::to_server(write), plain).await
}

async fn carry<R, W, P>(mut from_peer: Reader<R>, to_peer: Writer<W>, plain: P) -> Result<(), Error>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
    P: AsyncRead + AsyncWrite,
{
    let (mut plain_read, mut plain_write) = tokio::io::split(plain);
    let to_peer = Arc::new(Mutex::new(to_peer));
    let upward = async {
        loop {
            match from_peer.next().await? {
                Incoming::Close => return Ok(()),
                Incoming::Ping(data) => to_peer.lock().await.pong(&data).await?,
                Incoming::Piece { data, .. } => {
                    plain_write.write_all(&data).await?;
                    plain_write.flush().await?;
                }
            }
        }
    };
    let downward = async {
        let mut piece = vec![0; PIECE];
        loop {
            match plain_read.read(&mut piece).await? {
                0 => return Ok(to_peer.lock().await.close().await?),
                size => to_peer.lock().await.message(&piece[..size], &[]).await?,
            }
        }
    };
    tokio::select! {
        ended = upward => ended,
        ended = downward => ended,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client;

    #[test]
    fn tunnels_are_known_by_their_name() {
        assert_eq!(inside(&["SPDY/3.1+portforward.k8s.io", "v5.channel.k8s.io"]), ["portforward.k8s.io"]);
        assert_eq!(inside(&["v4.channel.k8s.io", "SPDY/3.1+other"]), [] as [&str; 0]);
        assert_eq!(outside("portforward.k8s.io"), "SPDY/3.1+portforward.k8s.io");
    }

    #[tokio::test]
    async fn bytes_pass_unchanged_both_ways() {
        let (mut client, near) = tokio::io::duplex(1 << 20);
        let (far, mut runtime) = tokio::io::duplex(1 << 20);
        let task = tokio::spawn(run(near, far));
        client.write_all(&client::frame(false, 2, b"ab")).await.unwrap();
        client.write_all(&client::frame(true, 9, b"?")).await.unwrap();
        client.write_all(&client::frame(true, 0, b"cd")).await.unwrap();
        let mut got = [0; 4];
        runtime.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"abcd");
        runtime.write_all(b"efgh").await.unwrap();
        drop(runtime);
        task.await.unwrap().unwrap();
        let mut bytes = Vec::new();
        client.read_to_end(&mut bytes).await.unwrap();
        let expect = [(10, b"?".to_vec()), (2, b"efgh".to_vec()), (8, 1000u16.to_be_bytes().to_vec())];
        assert_eq!(client::parse(&bytes), expect);
    }
}
