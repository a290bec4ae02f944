//! Answers that come as WebSocket messages, to clients that ask for them so: a log and a watch, which are streams of bytes
//! to everybody else.
//!
//! Who answers the request decides ([`of_log`], [`of_watch`]) and gives the answer a [`Switch`]; the listener, which knows how
//! answers become bytes, sends them through it. The client has nothing to say: what it sends is read and forgotten.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use http::header::{
    CONNECTION, HeaderMap, HeaderValue, ORIGIN, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION,
    UPGRADE,
};
use http::{Method, StatusCode};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use machinery::rest::{Payload, Response};
use websocket::{Incoming, Reader, Writer};

/// The subprotocols of a log: its bytes as they are, or as base64 for those who can receive only text.
const BINARY: &str = "binary.k8s.io";
const BASE64: &str = "base64.binary.k8s.io";

/// What a message holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Binary,
    Base64,
    /// What the listener says: text for JSON, bytes for all else.
    Event,
}

/// The connection of an answer that comes as messages.
#[derive(Clone)]
pub struct Switch {
    upgrade: OnUpgrade,
    form: Form,
}

/// Makes the answer with a log one of messages, if the client wants that.
pub fn of_log(method: &Method, headers: &HeaderMap, upgrade: Option<OnUpgrade>, answer: Response) -> Response {
    let Some(upgrade) = upgrade.filter(|_| websocket::is_wanted(headers)) else { return answer };
    let offered = websocket::offered(headers);
    let chosen = offered.iter().copied().find(|protocol| matches!(*protocol, BINARY | BASE64));
    if chosen.is_none() && !offered.is_empty() {
        return refusal(StatusCode::FORBIDDEN);
    }
    let form = if chosen == Some(BASE64) { Form::Base64 } else { Form::Binary };
    switched(method, headers, chosen, Switch { upgrade, form }, answer)
}

/// As [`of_log`], for a watch. Upstream wants to know from which page a watch comes, and takes only one subprotocol, whatever
/// it is.
pub fn of_watch(method: &Method, headers: &HeaderMap, upgrade: Option<OnUpgrade>, answer: Response) -> Response {
    let wanted = websocket::is_wanted(headers) && matches!(answer.body(), Payload::Watch(_));
    let Some(upgrade) = upgrade.filter(|_| wanted) else { return answer };
    if headers.get(ORIGIN).is_none_or(HeaderValue::is_empty) {
        return refusal(StatusCode::FORBIDDEN);
    }
    let chosen = match websocket::offered(headers)[..] {
        [] => None,
        [only] => Some(only),
        _ => return refusal(StatusCode::BAD_REQUEST),
    };
    switched(method, headers, chosen, Switch { upgrade, form: Form::Event }, answer)
}

fn switched(
    method: &Method,
    headers: &HeaderMap,
    protocol: Option<&str>,
    switch: Switch,
    mut answer: Response,
) -> Response {
    if *method != Method::GET {
        return refusal(StatusCode::METHOD_NOT_ALLOWED);
    }
    let accepted = websocket::accept(headers).and_then(|accepted| HeaderValue::try_from(accepted).ok());
    let protocol = protocol.map(HeaderValue::from_str).transpose();
    let (Some(accepted), Ok(protocol)) = (accepted, protocol) else {
        let mut answer = refusal(StatusCode::BAD_REQUEST);
        answer.headers_mut().insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        return answer;
    };
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = answer.headers_mut();
    headers.clear();
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, accepted);
    if let Some(protocol) = protocol {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    answer.extensions_mut().insert(switch);
    answer
}

/// Whoever wanted another protocol and did not get it may have sent more already: none of it is read as anything.
fn refusal(status: StatusCode) -> Response {
    let mut answer = Response::new(Payload::Empty);
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    answer
}

impl Switch {
    /// Sends the messages, as soon as the connection is free for them, until there are no more or the client is gone.
    pub fn begin(self, text: bool, messages: BoxStream<'static, Result<Bytes, std::io::Error>>) {
        tokio::spawn(async move {
            if let Err(error) = self.send(text, messages).await {
                tracing::debug!(%error, "a stream of messages ended");
            }
        });
    }

    async fn send(
        self,
        text: bool,
        mut messages: BoxStream<'static, Result<Bytes, std::io::Error>>,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let (from, to) = tokio::io::split(TokioIo::new(self.upgrade.await?));
        let (mut from, mut to) = (Reader::new(from), Writer::new(to));
        // A first message without anything in it tells that a log has begun.
        match self.form {
            Form::Binary => to.message(&[], &[]).await?,
            Form::Base64 => to.text(&[]).await?,
            Form::Event => {}
        }
        // Read in a task of its own: to stop reading in the middle of a frame would be to lose it.
        let (answers, mut pings) = tokio::sync::mpsc::channel(1);
        let reading = tokio::spawn(async move {
            loop {
                match from.next().await {
                    Ok(Incoming::Piece { .. }) => {}
                    Ok(Incoming::Ping(data)) => {
                        if answers.send(data).await.is_err() {
                            return;
                        }
                    }
                    Ok(Incoming::Close) | Err(_) => return,
                }
            }
        });
        let sent = async {
            loop {
                let message = tokio::select! {
                    ping = pings.recv() => match ping {
                        Some(data) => {
                            to.pong(&data).await?;
                            continue;
                        }
                        None => break,
                    },
                    message = messages.next() => message,
                };
                match (message, self.form) {
                    (None, _) => break,
                    (Some(message), Form::Base64) => to.text(STANDARD.encode(message?).as_bytes()).await?,
                    (Some(message), Form::Event) if text => to.text(&message?).await?,
                    (Some(message), _) => to.message(&message?, &[]).await?,
                }
            }
            to.close().await
        };
        let sent = sent.await;
        reading.abort();
        Ok(sent?)
    }
}
