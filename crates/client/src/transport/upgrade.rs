//! Connections that leave HTTP: each is opened for one conversation, because what is spoken on it afterwards is nobody else's.

use bytes::Bytes;
use http::{HeaderMap, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tower_service::Service as _;

use super::tls::Connector;
use crate::error::Error;

/// Longest refusal that is read.
const LONGEST_REFUSAL: usize = 1 << 20;

/// A connection after HTTP.
pub type Connection = TokioIo<hyper::upgrade::Upgraded>;

/// What the server answered to the wish for another protocol.
pub enum Upgrade {
    /// It switched: its headers, and the connection.
    Switched(HeaderMap, Box<Connection>),
    Refused(http::Response<Bytes>),
}

pub(super) async fn exchange(
    mut connector: Connector,
    server: Uri,
    head: http::request::Parts,
) -> Result<Upgrade, Error> {
    let stream = connector.call(server).await.map_err(Error::Transport)?;
    let (mut sender, connection) = http1::handshake(stream).await.map_err(Error::transport)?;
    tokio::spawn(async move {
        // How it ended is seen by whoever speaks on it.
        let _ = connection.with_upgrades().await;
    });
    let request = http::Request::from_parts(head, Empty::<Bytes>::new());
    let mut response = sender.send_request(request).await.map_err(Error::transport)?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        let (head, body) = response.into_parts();
        let body = Limited::new(body, LONGEST_REFUSAL).collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        return Ok(Upgrade::Refused(http::Response::from_parts(head, body)));
    }
    let upgraded = hyper::upgrade::on(&mut response).await.map_err(Error::transport)?;
    Ok(Upgrade::Switched(response.headers().clone(), Box::new(TokioIo::new(upgraded))))
}
