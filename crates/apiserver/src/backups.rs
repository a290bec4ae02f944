//! Backups on request. Whoever opened the store makes them; an operator asks for them here, through every gate, so that only those may
//! who may `post` to this path.

use bytes::Bytes;
use futures::future::BoxFuture;
use gates::Exchange;
use gates::answer::bytes;
use http::{Method, StatusCode};
use machinery::rest::Response;
use machinery::status::ApiError;
use serde_json::Value;

/// Where they are asked for.
pub const PATH: &str = "/trireme/backups";

/// Makes backups of the store while it goes on.
pub trait Backups: Send + Sync {
    /// Makes one, and says what it is. The error is for an operator to read.
    fn create(&self) -> BoxFuture<'_, Result<Value, String>>;
}

pub(crate) async fn answer(backups: Option<&dyn Backups>, exchange: &Exchange) -> Result<Response, ApiError> {
    if exchange.parts.method != Method::POST {
        return Err(ApiError::method_not_allowed());
    }
    let elsewhere = || ApiError::bad_request("the store is not this server's own, as an etcd: back it up where it is");
    let backups = backups.ok_or_else(elsewhere)?;
    let made = backups.create().await.map_err(ApiError::internal)?;
    Ok(bytes(StatusCode::CREATED, "application/json", Bytes::from(made.to_string())))
}
