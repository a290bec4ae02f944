//! One write per turn: what a connection has to say is collected and goes out once everybody who had something to say
//! has said it.
//!
//! HTTP/2 flushes after every frame, and each flush is a TLS record, a system call and a wakeup of the other side. A
//! change that a thousand watchers see would cost a thousand of each. Here a flush only marks the bytes as due. The
//! connection's task then goes to the end of the run queue once: every stream that was ready before it gets its turn, and
//! all they wrote leaves in one piece. On an idle server the queue is empty and nothing waits.
//!
//! A connection of HTTP/1.1 has one stream, so there is nobody to wait for: what it wrote leaves at once. Otherwise the first of a thousand watchers with
//! a connection each would be served only after all others had been looked at.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BytesMut};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What may be collected. A client that does not read makes the connection wait from here on.
const CAPACITY: usize = 256 * 1024;

/// A stream whose writes are collected. Clones are the same stream.
pub struct Cork<S>(Arc<Mutex<Inner<S>>>);

struct Inner<S> {
    stream: S,
    /// Written, not yet sent. Given back when empty: most connections are idle.
    buffer: BytesMut,
    /// Whether the stream may hold back what it took. TLS takes whatever it is given and keeps what the socket has no room for.
    unflushed: bool,
    /// Whether somebody sees to the buffer. Without, writes go straight through.
    corked: bool,
    /// Whether others may have something to say on the same connection.
    shared: bool,
}

impl<S> Clone for Cork<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: AsyncWrite + Unpin> Cork<S> {
    /// Collects what is written to `stream`, for [`Cork::drive`] to send; if several streams share it, after all of them had their turn.
    pub fn new(stream: S, shared: bool) -> Self {
        Self(Arc::new(Mutex::new(Inner { stream, buffer: BytesMut::new(), unflushed: false, corked: true, shared })))
    }

    /// Runs a connection that writes to a clone of this, and sends what it wrote.
    pub async fn drive<T, E: From<io::Error>>(
        &self,
        mut connection: Pin<&mut impl Future<Output = Result<T, E>>>,
    ) -> Result<T, E> {
        let mut waited = false;
        std::future::poll_fn(|context| {
            let polled = connection.as_mut().poll(context);
            let mut inner = self.0.lock();
            if polled.is_ready() {
                // The stream may live on in an upgraded connection, which nobody drives.
                inner.corked = false;
            } else if inner.shared && !inner.buffer.is_empty() && !std::mem::replace(&mut waited, true) {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            waited = false;
            match inner.poll_send(context) {
                Poll::Ready(Err(error)) if polled.is_pending() => Poll::Ready(Err(error.into())),
                _ => polled,
            }
        })
        .await
    }
}

impl<S: AsyncWrite + Unpin> Inner<S> {
    /// Hands everything collected to the stream, and waits until it has left that too.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.buffer.has_remaining() {
            self.unflushed = true;
            match ready!(Pin::new(&mut self.stream).poll_write(context, &self.buffer))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                sent => self.buffer.advance(sent),
            }
        }
        if self.unflushed {
            self.buffer = BytesMut::new();
            ready!(Pin::new(&mut self.stream).poll_flush(context))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Waits until something can be written: to the buffer, or past it.
    fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.corked && self.buffer.len() < CAPACITY { Poll::Ready(Ok(())) } else { self.poll_send(context) }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Cork<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut inner = self.0.lock();
        ready!(inner.poll_room(context))?;
        if !inner.corked {
            return Pin::new(&mut inner.stream).poll_write(context, bytes);
        }
        inner.buffer.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut inner = self.0.lock();
        ready!(inner.poll_room(context))?;
        if !inner.corked {
            return Pin::new(&mut inner.stream).poll_write_vectored(context, pieces);
        }
        let before = inner.buffer.len();
        for piece in pieces {
            inner.buffer.extend_from_slice(piece);
        }
        Poll::Ready(Ok(inner.buffer.len() - before))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut inner = self.0.lock();
        if inner.corked {
            return Poll::Ready(Ok(()));
        }
        ready!(inner.poll_send(context))?;
        Pin::new(&mut inner.stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut inner = self.0.lock();
        ready!(inner.poll_send(context))?;
        Pin::new(&mut inner.stream).poll_shutdown(context)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Cork<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut inner = self.0.lock();
        if !inner.corked {
            // An upgraded connection may listen before it speaks: what is left of the answer must not wait for that.
            let _ = inner.poll_send(context)?;
        }
        Pin::new(&mut inner.stream).poll_read(context, buffer)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// Counts what reaches the other side, and in how many writes.
    #[derive(Default, Clone)]
    struct Sink(Arc<Mutex<Vec<usize>>>);

    impl AsyncWrite for Sink {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            self.0.lock().push(bytes.len());
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn frames_flushed_one_by_one_leave_in_one_write() {
        let sink = Sink::default();
        let cork = Cork::new(sink.clone(), true);
        let mut writer = cork.clone();
        let mut connection = pin!(async move {
            for _ in 0..10 {
                writer.write_all(b"frame").await?;
                writer.flush().await?;
            }
            // As a connection does that waits for its streams: it is polled again only when woken.
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
            io::Result::Ok(())
        });
        cork.drive(connection.as_mut()).await.expect("a sink takes everything");
        assert_eq!(*sink.0.lock(), [50]);
    }

    #[tokio::test]
    async fn who_has_a_connection_alone_waits_for_nobody() {
        let (sink, polls) = (Sink::default(), Arc::new(Mutex::new(0)));
        for (shared, turns) in [(true, 2), (false, 1)] {
            let cork = Cork::new(sink.clone(), shared);
            let (mut writer, counted) = (cork.clone(), Arc::clone(&polls));
            let mut connection = pin!(async move {
                writer.write_all(b"event").await?;
                writer.flush().await?;
                std::future::pending::<io::Result<()>>().await
            });
            let mut driven = pin!(cork.drive(connection.as_mut()));
            *polls.lock() = 0;
            sink.0.lock().clear();
            while sink.0.lock().is_empty() {
                *counted.lock() += 1;
                assert!(futures::poll!(driven.as_mut()).is_pending());
            }
            assert_eq!((*polls.lock(), &*sink.0.lock()), (turns, &vec![5]), "shared: {shared}");
        }
    }

    /// Takes everything and sends it when it is flushed, for which it has to wait once: TLS over a socket that is full.
    #[derive(Default, Clone)]
    struct Full(Arc<Mutex<(Vec<u8>, bool)>>, Sink);

    impl AsyncWrite for Full {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            self.0.lock().0.extend_from_slice(bytes);
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            let held = {
                let mut state = self.0.lock();
                if !std::mem::replace(&mut state.1, true) {
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                std::mem::take(&mut state.0)
            };
            ready!(Pin::new(&mut self.1).poll_write(context, &held))?;
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.poll_flush(context)
        }
    }

    #[tokio::test]
    async fn what_the_stream_had_no_room_for_is_sent_when_it_has() {
        for shared in [true, false] {
            let full = Full::default();
            let cork = Cork::new(full.clone(), shared);
            let mut writer = cork.clone();
            let mut connection = pin!(async move {
                writer.write_all(b"a long list").await?;
                writer.flush().await?;
                // The other side waits for the rest of its answer and says nothing.
                std::future::pending::<io::Result<()>>().await
            });
            let mut driven = pin!(cork.drive(connection.as_mut()));
            for _turn in 0..4 {
                assert!(futures::poll!(driven.as_mut()).is_pending());
            }
            assert_eq!(*full.1.0.lock(), [11], "shared: {shared}");
        }
    }

    #[tokio::test]
    async fn a_reader_that_does_not_read_stops_the_writer() {
        let (near, mut far) = tokio::io::duplex(1024);
        let cork = Cork::new(near, true);
        let mut writer = cork.clone();
        let total = 4 * CAPACITY;
        let written = Arc::new(Mutex::new(0));
        let count = Arc::clone(&written);
        let driven = tokio::spawn(async move {
            let mut connection = pin!(async move {
                while *count.lock() < total {
                    writer.write_all(&[7; 1024]).await?;
                    *count.lock() += 1024;
                }
                writer.shutdown().await
            });
            cork.drive(connection.as_mut()).await
        });
        let mut first = [0];
        far.read_exact(&mut first).await.expect("something comes");
        assert!(*written.lock() <= CAPACITY + 4096, "{} bytes were taken", *written.lock());
        let mut rest = Vec::new();
        far.read_to_end(&mut rest).await.expect("the rest comes");
        assert_eq!(rest.len() + 1, total);
        driven.await.expect("no panic").expect("no error");
    }

    #[tokio::test]
    async fn what_is_left_when_the_connection_ends_is_sent_and_later_writes_go_through() {
        let sink = Sink::default();
        let cork = Cork::new(sink.clone(), true);
        let mut writer = cork.clone();
        let mut connection = pin!(async move {
            writer.write_all(b"101").await?;
            io::Result::Ok(writer)
        });
        let mut upgraded = cork.drive(connection.as_mut()).await.expect("a sink takes everything");
        upgraded.write_all(b"data").await.expect("a sink takes everything");
        assert_eq!(*sink.0.lock(), [3, 4]);
    }
}
