//! Streams that hold something until they end: what is owed at the end of a watch is in the `Drop` of what it holds.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures::stream::{BoxStream, Stream, StreamExt as _};

/// A stream and what it holds.
struct Held<T, H> {
    stream: BoxStream<'static, T>,
    held: Option<H>,
}

/// The stream, which lets go of `held` when it ends or is dropped.
pub fn held<T: 'static, H: Send + Unpin + 'static>(stream: BoxStream<'static, T>, held: H) -> BoxStream<'static, T> {
    Held { stream, held: Some(held) }.boxed()
}

impl<T, H: Unpin> Stream for Held<T, H> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let next = self.stream.as_mut().poll_next(context);
        if matches!(next, Poll::Ready(None)) {
            self.held = None;
        }
        next
    }
}
