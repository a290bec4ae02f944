//! A wire between two machines that can be listened to: what goes over it is passed on, and kept.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

#[derive(Default)]
struct Heard {
    connections: usize,
    bytes: Vec<u8>,
}

/// Whoever connects to its address is connected to another.
pub struct Relay {
    pub address: SocketAddr,
    heard: Arc<Mutex<Heard>>,
    task: tokio::task::JoinHandle<()>,
}

impl Relay {
    pub async fn to(own: SocketAddr, other: SocketAddr) -> Self {
        let listener = TcpListener::bind(own).await.expect("an address");
        let address = listener.local_addr().expect("an address");
        let heard = Arc::<Mutex<Heard>>::default();
        let of_task = Arc::clone(&heard);
        let task = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                of_task.lock().connections += 1;
                let heard = Arc::clone(&of_task);
                tokio::spawn(async move {
                    let Ok(far) = TcpStream::connect(other).await else { return };
                    let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
                    tokio::join!(pass(near_in, far_out, &heard), pass(far_in, near_out, &heard));
                });
            }
        });
        Self { address, heard, task }
    }

    pub fn connections(&self) -> usize {
        self.heard.lock().connections
    }

    /// How many bytes went over it, in both directions.
    pub fn heard(&self) -> usize {
        self.heard.lock().bytes.len()
    }

    /// Whether this went over the wire in clear.
    pub fn has(&self, text: &str) -> bool {
        let heard = self.heard.lock();
        !text.is_empty() && heard.bytes.windows(text.len()).any(|window| window == text.as_bytes())
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, heard: &Mutex<Heard>) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        heard.lock().bytes.extend_from_slice(&buffer[..count]);
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
    let _ = to.shutdown().await;
}
