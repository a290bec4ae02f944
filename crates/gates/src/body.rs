//! Bodies of requests, which are read only behind the gates.

use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use machinery::rest::{Body, Pieces};
use machinery::status::ApiError;
use threads::heavy;

/// The largest body that is read.
pub const MAX_BODY: usize = 3 * 1024 * 1024;

/// A body's media type, without parameters.
pub fn media_type(headers: &HeaderMap) -> &str {
    let text = headers.get(CONTENT_TYPE).and_then(|header| header.to_str().ok()).unwrap_or_default();
    text.split(';').next().unwrap_or_default().trim()
}

/// Reads what is still on the wire. A large body makes the request a heavy one: all that is done with it takes long.
pub async fn read_bytes(body: Body) -> Result<Bytes, ApiError> {
    let bytes = match body {
        Body::Empty => Bytes::new(),
        Body::Bytes(bytes) if bytes.len() > MAX_BODY => return Err(ApiError::too_large(MAX_BODY)),
        Body::Bytes(bytes) => bytes,
        Body::Value(value) => Bytes::from(value.to_string()),
        Body::Incoming(pieces) => whole(pieces).await?,
    };
    heavy::weigh(bytes.len()).await;
    Ok(bytes)
}

/// What comes, if it is not too long. Most bodies come in one piece, which is not copied.
async fn whole(mut pieces: Pieces) -> Result<Bytes, ApiError> {
    let (mut first, mut all) = (Bytes::new(), BytesMut::new());
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|error| ApiError::bad_request(format!("the body could not be read: {error}")))?;
        if first.len() + all.len() + piece.len() > MAX_BODY {
            return Err(ApiError::too_large(MAX_BODY));
        }
        if first.is_empty() && all.is_empty() {
            first = piece;
        } else {
            all.extend_from_slice(&std::mem::take(&mut first));
            all.extend_from_slice(&piece);
        }
    }
    Ok(if all.is_empty() { first } else { all.freeze() })
}
