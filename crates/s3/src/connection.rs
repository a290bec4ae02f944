//! One connection to the endpoint, made when it is needed and kept while it is good.

use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, HOST, HeaderValue};
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio_rustls::TlsConnector;

use crate::sign::{self, Signed};
use crate::{Error, Settings, xml};

const CONNECT: Duration = Duration::from_secs(10);
/// The longest that a request takes until its answer begins; a part of a large file has to get there in that time.
const ANSWER: Duration = Duration::from_secs(300);
/// The longest that an answer stands still.
const STILL: Duration = Duration::from_secs(60);
/// The largest answer that is no object.
const DOCUMENT: usize = 8 << 20;
/// How often a request is sent, and the first pause in between, which grows.
const ATTEMPTS: u32 = 4;
const PAUSE: Duration = Duration::from_millis(500);

/// What is asked.
pub(crate) struct Ask<'a> {
    pub(crate) method: Method,
    /// Bucket and key, not encoded.
    pub(crate) path: &'a str,
    pub(crate) query: &'a [(&'a str, &'a str)],
    pub(crate) body: Bytes,
    /// Of the body, see [`sign::hash`].
    pub(crate) hash: &'a str,
}

pub(crate) struct Connection {
    pub(crate) settings: Settings,
    kept: Mutex<Option<SendRequest<Full<Bytes>>>>,
}

impl Connection {
    pub(crate) fn new(settings: Settings) -> Self {
        Self { settings, kept: Mutex::default() }
    }

    /// The answer to a request, with its body still on the wire. A refusal is an error. What fails on the way is tried again: all that is asked here may be done twice.
    pub(crate) async fn send(&self, ask: &Ask<'_>) -> Result<Response<Incoming>, Error> {
        let mut pause = PAUSE;
        for _ in 1..ATTEMPTS {
            match self.attempt(ask).await {
                Err(error) if error.passes() => {}
                outcome => return outcome,
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        self.attempt(ask).await
    }

    /// The same, and the answer is a document.
    pub(crate) async fn document(&self, ask: &Ask<'_>) -> Result<(http::response::Parts, String), Error> {
        let (parts, body) = self.send(ask).await?.into_parts();
        Ok((parts, self.text(body).await?))
    }

    /// What comes next of an answer that is read as it comes.
    pub(crate) async fn chunk(&self, body: &mut Incoming) -> Result<Option<Bytes>, Error> {
        loop {
            let Ok(frame) = tokio::time::timeout(STILL, body.frame()).await else {
                return Err(self.failed("the answer stands still"));
            };
            let Some(frame) = frame else { return Ok(None) };
            // What is no data is what a server says at the end of its answer.
            if let Ok(data) = frame.map_err(|error| self.failed(error))?.into_data() {
                return Ok(Some(data));
            }
        }
    }

    async fn text(&self, body: Incoming) -> Result<String, Error> {
        let read = tokio::time::timeout(STILL, Limited::new(body, DOCUMENT).collect()).await;
        let read = read.map_err(|_| self.failed("the answer stands still"))?.map_err(|error| self.failed(error))?;
        Ok(String::from_utf8_lossy(&read.to_bytes()).into_owned())
    }

    async fn attempt(&self, ask: &Ask<'_>) -> Result<Response<Incoming>, Error> {
        let mut kept = self.kept.lock().await;
        let mut good = None;
        if let Some(mut sender) = kept.take()
            && sender.ready().await.is_ok()
        {
            good = Some(sender);
        }
        let mut sender = match good {
            Some(sender) => sender,
            None => self.connect().await?,
        };
        let sent = tokio::time::timeout(ANSWER, sender.send_request(self.request(ask)?)).await;
        let response = sent.map_err(|_| self.failed("no answer in time"))?.map_err(|error| self.failed(error))?;
        *kept = Some(sender);
        drop(kept);
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status().as_u16();
        let said = self.text(response.into_body()).await.unwrap_or_default();
        let part = |name| xml::text(&said, name).unwrap_or_default();
        let what = format!("{} {}{}", ask.method, self.settings.endpoint, ask.path.trim_start_matches('/'));
        Err(Error::Refused { what, status, code: part("Code"), message: part("Message") })
    }

    fn request(&self, ask: &Ask<'_>) -> Result<Request<Full<Bytes>>, Error> {
        let Settings { region, credentials, .. } = &self.settings;
        let now = Timestamp::now();
        let (path, query, date) = (sign::path(ask.path), sign::query(ask.query), sign::date(now));
        let mut headers =
            vec![("host", self.settings.authority()), ("x-amz-content-sha256", ask.hash), ("x-amz-date", &*date)];
        headers.extend(credentials.token.as_deref().map(|token| ("x-amz-security-token", token)));
        let signed =
            Signed { method: ask.method.as_str(), path: &path, query: &query, headers: &headers, body: ask.hash };
        let authorization = sign::authorization(&signed, credentials, region, now);
        let uri = if query.is_empty() { path.clone() } else { format!("{path}?{query}") };
        let mut request = Request::builder().method(&ask.method).uri(uri);
        for (name, value) in headers.iter().filter(|(name, _)| *name != HOST.as_str()) {
            request = request.header(*name, *value);
        }
        request = request.header(HOST, self.settings.authority());
        let mut request = request.body(Full::new(ask.body.clone())).map_err(|error| self.failed(error))?;
        let mut authorization = HeaderValue::from_str(&authorization).map_err(|error| self.failed(error))?;
        authorization.set_sensitive(true);
        request.headers_mut().insert(AUTHORIZATION, authorization);
        Ok(request)
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, Error> {
        let endpoint = &self.settings.endpoint;
        let host = endpoint.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let secure = endpoint.scheme_str() == Some("https");
        let port = endpoint.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let connected = async {
            let stream = TcpStream::connect((host, port)).await.map_err(|error| self.failed(error))?;
            let _ = stream.set_nodelay(true);
            if !secure {
                return self.speak(stream).await;
            }
            let name = ServerName::try_from(host.to_owned()).map_err(|error| self.failed(error))?;
            let connector = TlsConnector::from(self.settings.tls.clone());
            let stream = connector.connect(name, stream).await.map_err(|error| self.failed(error))?;
            self.speak(stream).await
        };
        tokio::time::timeout(CONNECT, connected).await.unwrap_or_else(|_| Err(self.failed("no connection in time")))
    }

    async fn speak(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    ) -> Result<SendRequest<Full<Bytes>>, Error> {
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| self.failed(error))?;
        // Its failure is the failure of what is sent over it.
        tokio::spawn(async move { drop(connection.await) });
        Ok(sender)
    }

    fn failed(&self, why: impl std::fmt::Display) -> Error {
        Error::Connection { endpoint: self.settings.endpoint.to_string(), why: why.to_string() }
    }
}
