//! Servers that join: they show a token that is made for just that, and are told all that makes a server one of this cluster's.
//!
//! The answer is secret. It is given over TLS only, to nobody but the user of such a token, and not even to an administrator: whoever may do everything in
//! the API may do so until that is taken back, and whoever has the keys may for ever. It is no object, so that no audit policy writes it down.

use bytes::Bytes;
use futures::future::BoxFuture;
use gates::answer::bytes;
use gates::body::read_bytes;
use gates::{Exchange, Stop};
use http::{Method, StatusCode};
use machinery::rest::{Body, Peer, Response};
use machinery::status::{ApiError, Reason};
use rules::names::{SERVER_BOOTSTRAPPERS, SERVERS_PATH};
use serde_json::Value;

/// What tokens' users are called before their id.
const USER: &str = "system:bootstrap:";

pub trait Joining: Send + Sync {
    /// Admits a server that showed the token with this id, and says what it needs.
    fn admit<'a>(&'a self, token: &'a str, request: Value) -> BoxFuture<'a, Result<Value, ApiError>>;
}

pub(crate) async fn answer(joining: Option<&dyn Joining>, exchange: &Exchange, body: Body) -> Result<Response, Stop> {
    if exchange.parts.method != Method::POST {
        return Err(ApiError::method_not_allowed().into());
    }
    let Some(token) = token(exchange) else {
        let user = &exchange.user.name;
        let message = format!(
            "{user:?} cannot join a server: the cluster's keys are given to tokens of `trireme token create --server` alone"
        );
        return Err(ApiError::new(Reason::Forbidden, message).into());
    };
    let joining =
        joining.ok_or_else(|| ApiError::bad_request("this server's store is its own: no other can join it"))?;
    let request = serde_json::from_slice(&read_bytes(body).await?)
        .map_err(|error| ApiError::bad_request(format!("the request to {SERVERS_PATH} cannot be read: {error}")))?;
    let answer = joining.admit(token, request).await?;
    Ok(bytes(StatusCode::CREATED, "application/json", Bytes::from(answer.to_string())))
}

/// The id of the token that whoever asks has shown, if it is one for servers and came over the network.
fn token(exchange: &Exchange) -> Option<&str> {
    let remote = matches!(exchange.peer, Peer::Remote { .. });
    let grouped = exchange.user.groups.iter().any(|group| group == SERVER_BOOTSTRAPPERS);
    exchange.user.name.strip_prefix(USER).filter(|_| remote && grouped)
}
