//! SPDY carried inside a WebSocket: how kubectl forwards ports through proxies that know only WebSockets.
//!
//! Messages are just pieces of a byte stream; what is in them is between the client and the runtime.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::Mutex;

use websocket::{Error, Incoming, Reader, Writer};

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

/// Carries bytes both ways until either side is done.
pub async fn run<C, R>(client: C, runtime: R) -> Result<(), Error>
where
    C: AsyncRead + AsyncWrite,
    R: AsyncRead + AsyncWrite,
{
    let (client_read, client_write) = tokio::io::split(client);
    let (mut runtime_read, mut runtime_write) = tokio::io::split(runtime);
    let (mut from_client, to_client) = (Reader::new(client_read), Arc::new(Mutex::new(Writer::new(client_write))));
    let upward = async {
        loop {
            match from_client.next().await? {
                Incoming::Close => return Ok(()),
                Incoming::Ping(data) => to_client.lock().await.pong(&data).await?,
                Incoming::Piece { data, .. } => {
                    runtime_write.write_all(&data).await?;
                    runtime_write.flush().await?;
                }
            }
        }
    };
    let downward = async {
        let mut piece = vec![0; PIECE];
        loop {
            match runtime_read.read(&mut piece).await? {
                0 => return Ok(to_client.lock().await.close().await?),
                size => to_client.lock().await.message(&piece[..size], &[]).await?,
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
    use websocket::client;

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
