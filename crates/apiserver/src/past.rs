//! What is kept of the past, and which revision a moment was: for those who may `get` this path. What objects were is asked of their own paths.

use bytes::Bytes;
use gates::Exchange;
use gates::answer::bytes;
use http::{Method, StatusCode};
use machinery::rest::Response;
use machinery::status::ApiError;
use rest::Api;

pub(crate) async fn answer(api: &Api, exchange: &Exchange) -> Result<Response, ApiError> {
    if exchange.parts.method != Method::GET {
        return Err(ApiError::method_not_allowed());
    }
    let kept = api.kept(exchange.query().get("at")).await?;
    Ok(bytes(StatusCode::OK, "application/json", Bytes::from(kept.to_string())))
}
