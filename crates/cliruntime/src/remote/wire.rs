//! The two wires of a conversation, which look alike from above: channels of a WebSocket, and streams of SPDY.

use client::{Connection, Upgrade};
use http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION,
};
use http::header::{HeaderMap, HeaderValue, UPGRADE};
use http::{Method, Request};
use tokio::io::{ReadHalf, WriteHalf};
use websocket::channels::{END_OF, ERROR, OVER_SPDY, STDERR, STDOUT, Streams, VERSION_HEADER, WITH_END_OF_INPUT};
use websocket::spdy::{self, StreamId};
use websocket::{Incoming, Reader, Writer};

use super::refusal;
use crate::api::Api;
use crate::command::Environment;
use crate::error::{Failure, Outcome};

const SPDY: &str = "SPDY/3.1";

/// Whether a WebSocket is tried before SPDY.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Protocols {
    pub websocket: bool,
}

impl Protocols {
    /// As a variable of the environment says; only `false` forbids WebSockets.
    pub fn by(environment: &Environment, variable: &str) -> Self {
        Self { websocket: environment.variable(variable) != Some("false") }
    }
}

/// A connection on which a protocol was agreed.
pub enum Dialed {
    WebSocket(Box<Connection>),
    Spdy(Box<Connection>),
}

/// Opens a connection that speaks `subprotocol` in a WebSocket, or `version` over SPDY.
pub async fn dial(
    api: &Api,
    protocols: Protocols,
    path: &str,
    subprotocol: &str,
    version: &'static str,
) -> Outcome<Dialed> {
    if protocols.websocket {
        let key = websocket::key().map_err(|error| Failure::Message(error.to_string()))?;
        let request = Request::builder()
            .method(Method::GET)
            .uri(path)
            .header(CONNECTION, "Upgrade")
            .header(UPGRADE, "websocket")
            .header(SEC_WEBSOCKET_VERSION, "13")
            .header(SEC_WEBSOCKET_KEY, &key)
            .header(SEC_WEBSOCKET_PROTOCOL, subprotocol);
        if let Upgrade::Switched(headers, connection) = api.upgrade(request).await?
            && agrees(&headers, &key, subprotocol)
        {
            return Ok(Dialed::WebSocket(connection));
        }
    }
    let request = Request::builder()
        .method(Method::POST)
        .uri(path)
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, SPDY)
        .header(VERSION_HEADER, HeaderValue::from_static(version));
    match api.upgrade(request).await? {
        Upgrade::Switched(_, connection) => Ok(Dialed::Spdy(connection)),
        Upgrade::Refused(response) => Err(refusal::failure(&response)),
    }
}

/// Whether the server's half of the handshake is right.
fn agrees(headers: &HeaderMap, key: &str, subprotocol: &str) -> bool {
    let is = |name, expected: &str| {
        headers.get(name).and_then(|value| value.to_str().ok()).is_some_and(|value| value == expected)
    };
    is(SEC_WEBSOCKET_ACCEPT, &websocket::answer_to(key)) && is(SEC_WEBSOCKET_PROTOCOL, subprotocol)
}

pub enum FromServer {
    Data(u8, Vec<u8>),
    /// To be sent back.
    Question(Vec<u8>),
    Over,
}

/// Channel and stream of each.
type Table = Vec<(u8, StreamId)>;

pub enum Sending {
    WebSocket(Writer<WriteHalf<Connection>>),
    Spdy(Box<spdy::Writer<WriteHalf<Connection>>>, Table),
}

pub enum Receiving {
    WebSocket {
        from: Reader<ReadHalf<Connection>>,
        /// The channel of the message under way.
        channel: Option<u8>,
    },
    Spdy {
        from: spdy::Reader<ReadHalf<Connection>>,
        table: Table,
        /// Channels that may still say something.
        open: Vec<u8>,
    },
}

/// Opens a conversation with these streams.
pub async fn open(api: &Api, protocols: Protocols, path: &str, streams: Streams) -> Outcome<(Sending, Receiving)> {
    match dial(api, protocols, path, WITH_END_OF_INPUT, OVER_SPDY).await? {
        Dialed::WebSocket(connection) => {
            let (read, write) = tokio::io::split(*connection);
            let receiving = Receiving::WebSocket { from: Reader::of_server(read), channel: None };
            Ok((Sending::WebSocket(Writer::to_server(write)), receiving))
        }
        Dialed::Spdy(connection) => {
            let (read, write) = tokio::io::split(*connection);
            let failed = |error: spdy::Error| Failure::Message(error.to_string());
            let (mut from, mut to) = (spdy::Reader::new(read), spdy::Writer::new(write).map_err(failed)?);
            let list = streams.list();
            let types: Vec<&str> = list.iter().map(|(_, kind)| *kind).collect();
            let ids = spdy::open_all(&mut from, &mut to, &types).await.map_err(failed)?;
            let table: Table = list.iter().map(|(channel, _)| *channel).zip(ids).collect();
            let open = list.iter().map(|(channel, _)| *channel);
            let open = open.filter(|channel| matches!(*channel, STDOUT | STDERR | ERROR)).collect();
            Ok((Sending::Spdy(Box::new(to), table.clone()), Receiving::Spdy { from, table, open }))
        }
    }
}

fn stream(table: &Table, channel: u8) -> Option<StreamId> {
    table.iter().find(|(known, _)| *known == channel).map(|(_, stream)| *stream)
}

impl Sending {
    pub async fn data(&mut self, channel: u8, data: &[u8]) -> Result<(), String> {
        match self {
            Self::WebSocket(to) => to.message(&[channel], data).await.map_err(|error| error.to_string()),
            Self::Spdy(to, table) => match stream(table, channel) {
                Some(stream) => to.data(stream, data).await.map_err(|error| error.to_string()),
                None => Ok(()),
            },
        }
    }

    /// Says that nothing more will come on a channel.
    pub async fn end(&mut self, channel: u8) -> Result<(), String> {
        match self {
            Self::WebSocket(to) => to.message(&[END_OF], &[channel]).await.map_err(|error| error.to_string()),
            Self::Spdy(to, table) => match stream(table, channel) {
                Some(stream) => to.end(stream).await.map_err(|error| error.to_string()),
                None => Ok(()),
            },
        }
    }

    /// Sends a question back.
    pub async fn answer(&mut self, question: &[u8]) -> Result<(), String> {
        match self {
            Self::WebSocket(to) => to.pong(question).await.map_err(|error| error.to_string()),
            Self::Spdy(to, _) => match question.try_into() {
                Ok(id) => to.ping(id).await.map_err(|error| error.to_string()),
                Err(_) => Ok(()),
            },
        }
    }
}

impl Receiving {
    pub async fn next(&mut self) -> Result<FromServer, String> {
        match self {
            Self::WebSocket { from, channel } => loop {
                match from.next().await.map_err(|error| error.to_string())? {
                    Incoming::Close => return Ok(FromServer::Over),
                    Incoming::Ping(question) => return Ok(FromServer::Question(question)),
                    Incoming::Piece { begins, mut data, .. } => {
                        if begins {
                            *channel = None;
                        }
                        if channel.is_none() {
                            if data.is_empty() {
                                continue;
                            }
                            *channel = Some(data.remove(0));
                        }
                        if let (Some(channel), false) = (*channel, data.is_empty()) {
                            return Ok(FromServer::Data(channel, data));
                        }
                    }
                }
            },
            Self::Spdy { from, table, open } => loop {
                if open.is_empty() {
                    return Ok(FromServer::Over);
                }
                let of =
                    |stream: StreamId| table.iter().find(|(_, known)| *known == stream).map(|(channel, _)| *channel);
                match from.next().await.map_err(|error| error.to_string())? {
                    spdy::Incoming::Data(stream, data) => {
                        if let Some(channel) = of(stream) {
                            return Ok(FromServer::Data(channel, data));
                        }
                    }
                    spdy::Incoming::End(stream) | spdy::Incoming::Cut(stream) => {
                        let ended = of(stream);
                        open.retain(|channel| Some(*channel) != ended);
                    }
                    spdy::Incoming::Ping(id) => return Ok(FromServer::Question(id.to_vec())),
                    spdy::Incoming::Accepted(_) => {}
                    spdy::Incoming::Over => return Ok(FromServer::Over),
                }
            },
        }
    }
}
