//! How a request reaches the server.

mod backends;
mod https;
mod lanes;
mod tls;
mod tunnel;
mod upgrade;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::uri::Authority;
use machinery::rest::{Body, Handler, Peer, Request, Response, User};
use serde::Serialize;

use crate::config::Config;
use crate::error::Error;

pub use upgrade::{Connection, Upgrade};

/// One of the two ways.
pub(crate) enum Transport {
    /// Through the handler chain in this process.
    InProcess {
        /// The API server's gates.
        handler: Arc<dyn Handler>,
        user: Arc<User>,
    },
    Https(Box<https::Https>),
}

impl Transport {
    pub(crate) fn in_process(handler: Arc<dyn Handler>, user: User) -> Self {
        Self::InProcess { handler, user: Arc::new(user) }
    }

    pub(crate) fn https(config: Config) -> Result<Self, Error> {
        Ok(Self::Https(Box::new(https::Https::new(config)?)))
    }

    /// Makes later requests use new connections.
    pub(crate) fn reconnect(&self) {
        match self {
            Self::InProcess { .. } => {}
            Self::Https(https) => https.reconnect(),
        }
    }

    /// Any of these servers will do, besides the one that was configured. In process there is but one.
    pub(crate) fn set_servers(&self, servers: &[Authority]) {
        match self {
            Self::InProcess { .. } => {}
            Self::Https(https) => https.set_servers(servers),
        }
    }

    /// A body in the form that this transport carries.
    pub(crate) fn encode(&self, object: &impl Serialize) -> Result<Body, Error> {
        match self {
            Self::InProcess { .. } => serde_json::to_value(object).map(Body::Value),
            Self::Https(_) => serde_json::to_vec(object).map(|bytes| Body::Bytes(Bytes::from(bytes))),
        }
        .map_err(Error::Encode)
    }

    /// Sends a request. A refusal by the server is an answer, not an error.
    pub(crate) async fn send(&self, mut request: Request) -> Result<Response, Error> {
        match self {
            Self::InProcess { handler, user } => {
                request.extensions_mut().insert(Peer::InProcess(Arc::clone(user)));
                let context = hops::current();
                if !context.is_none() {
                    request.extensions_mut().insert(context);
                }
                Ok(handler.handle(request).await)
            }
            Self::Https(https) => {
                machinery::rest::name_trace(request.headers_mut(), hops::current());
                // On the heap: every call of the API would have the whole of TLS and HTTP in its future otherwise.
                Box::pin(https.send(request)).await
            }
        }
    }
}

impl Transport {
    /// Asks the server for another protocol. In process there is no connection that could speak it.
    pub(crate) async fn upgrade(&self, request: http::Request<()>) -> Result<Upgrade, Error> {
        match self {
            Self::InProcess { .. } => Err(Error::Unexpected("a connection of its own")),
            Self::Https(https) => https.upgrade(request).await,
        }
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InProcess { user, .. } => write!(f, "InProcess({})", user.name),
            Self::Https(https) => write!(f, "Https({})", https.server()),
        }
    }
}
