//! Bodies of requests, which are read only behind the gates.

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use machinery::rest::Body;
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
        Body::Incoming(read) => read(MAX_BODY).await?,
    };
    heavy::weigh(bytes.len()).await;
    Ok(bytes)
}
