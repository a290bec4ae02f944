//! Answers: those of any component, and bytes as they come.

use bytes::Bytes;
use futures::{Stream, TryStreamExt as _};
use http::StatusCode;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;

pub use serving::{Answer, figures, full, json, page, scraped, text};

/// A text that comes bit by bit.
pub fn stream(pieces: impl Stream<Item = Result<Bytes, std::io::Error>> + Send + 'static) -> Answer {
    let body = StreamBody::new(pieces.map_ok(Frame::data)).boxed_unsync();
    serving::typed(StatusCode::OK, "text/plain", body)
}
