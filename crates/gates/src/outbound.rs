//! Calls from the gates to others: webhooks that authenticate, authorize, admit or take audit events, and issuers of tokens.
//!
//! One small client for all of them: HTTPS with the roots it was given, JSON both ways, a bound on time and on size, a few
//! connections kept open, and never a redirect followed: an answer that points elsewhere is a failure, so nobody can make
//! the server fetch what they may not see.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hops::Context;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
use http::{Method, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use machinery::{Value, codec, value};
use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The largest answer that is read, besides so many bytes for each that was sent: who converts objects answers with all of them.
const MAX_ANSWER: usize = 3 * 1024 * 1024;
const MAX_ANSWER_PER_BYTE: usize = 4;
/// Where a pod finds its account.
pub const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Connections that are kept open while nobody uses them.
const MAX_IDLE: usize = 16;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address makes no sense.
    #[error("{0:?} is no address of a webhook")]
    Address(String),
    /// A file cannot be read.
    #[error("cannot read {path}: {source}")]
    File { path: String, source: std::io::Error },
    /// A kubeconfig or a certificate cannot be used.
    #[error("{0}")]
    Setting(String),
    /// No answer in time.
    #[error("context deadline exceeded")]
    Timeout,
    #[error("{0}")]
    Connection(String),
    /// The answer is not a success.
    #[error("{}", meaning(*.0))]
    Status(u16),
    /// The answer cannot be read.
    #[error("{0}")]
    Answer(String),
    /// The answer breaks off, or is larger than any answer may be.
    #[error("unexpected error when reading response body. Please retry. Original error: {0}")]
    Body(String),
    /// There is nothing in the answer.
    #[error("0-length response with status code: {status} and content type: {kind}")]
    Empty {
        status: u16,
        /// What the answer says it is.
        kind: String,
    },
}

impl Error {
    /// Whether the next attempt may well succeed: the other side was away or busy.
    fn passes(&self) -> bool {
        matches!(self, Self::Timeout | Self::Connection(_) | Self::Status(429 | 500..=599))
    }
}

/// How often a call that failed on the way is made again. Each pause is half as long again as the one before.
#[derive(Debug, Clone, Copy)]
pub struct Retry {
    pub attempts: usize,
    pub pause: Duration,
}

impl Retry {
    /// Makes the call until it succeeds, fails for good, or has failed often enough.
    pub async fn run<T, F: Future<Output = Result<T, Error>>>(&self, call: impl Fn() -> F) -> Result<T, Error> {
        let mut pause = self.pause;
        for _ in 1..self.attempts {
            match call().await {
                Err(error) if error.passes() => tracing::debug!(%error, "a call failed and is made again"),
                outcome => return outcome,
            }
            tokio::time::sleep(pause).await;
            pause = pause * 3 / 2;
        }
        call().await
    }
}

/// Whom to trust and what to show.
#[derive(Debug, Clone, Default)]
pub struct Trust {
    /// Authorities in PEM; none is what the system trusts.
    pub roots: Option<String>,
    /// Chain and key in PEM.
    pub certificate: Option<(String, String)>,
}

impl Trust {
    pub fn tls(&self) -> Result<Arc<ClientConfig>, Error> {
        let setting = |error: &dyn std::fmt::Display| Error::Setting(error.to_string());
        let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| setting(&error))?;
        let builder = match &self.roots {
            None => builder.with_root_certificates(pki::system_roots()),
            Some(pem) => {
                let verifier = pki::trusting(pem).map_err(|error| match error {
                    pki::Error::NotPem(_) => setting(&"unable to load root certificates: no certificate in the bundle"),
                    other => setting(&other),
                })?;
                builder.dangerous().with_custom_certificate_verifier(verifier)
            }
        };
        let config = match &self.certificate {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => {
                let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain.as_bytes()).collect();
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes());
                match (chain, key) {
                    (Ok(chain), Ok(key)) => {
                        builder.with_client_auth_cert(chain, key).map_err(|error| setting(&error))?
                    }
                    _ => return Err(Error::Setting("the client certificate or its key is not PEM".to_owned())),
                }
            }
        };
        Ok(Arc::new(config))
    }
}

struct Question {
    method: Method,
    body: Bytes,
    /// The trace that it is asked for.
    trace: Context,
}

impl Question {
    const GET: Self = Self { method: Method::GET, body: Bytes::new(), trace: Context::NONE };
}

struct Answer {
    status: StatusCode,
    kind: String,
    body: Bytes,
}

pub struct Remote {
    uri: Uri,
    /// Where to connect to, when that is not what the address says: an endpoint of a Service.
    dial: Option<String>,
    tls: Arc<ClientConfig>,
    server_name: Option<String>,
    authorization: Option<HeaderValue>,
    idle: Mutex<Vec<SendRequest<Full<Bytes>>>>,
}

impl Remote {
    /// At this `https` address (`http` on the loopback only).
    pub fn new(address: &str, trust: &Trust) -> Result<Self, Error> {
        let uri: Uri = address.parse().map_err(|_| Error::Address(address.to_owned()))?;
        let host = uri.host().ok_or_else(|| Error::Address(address.to_owned()))?;
        let loopback = matches!(host, "localhost" | "127.0.0.1" | "[::1]");
        if uri.scheme_str() != Some("https") && !(uri.scheme_str() == Some("http") && loopback) {
            return Err(Error::Address(address.to_owned()));
        }
        let tls = trust.tls()?;
        Ok(Self { uri, dial: None, tls, server_name: None, authorization: None, idle: Mutex::default() })
    }

    /// The same, reached at another address.
    pub fn dialled_at(self, address: String) -> Self {
        Self { dial: Some(address), ..self }
    }

    /// The server that a kubeconfig's current context names: how webhooks are configured by file.
    pub fn from_kubeconfig(path: &Path) -> Result<Self, Error> {
        let file = |path: &Path| {
            std::fs::read(path).map_err(|source| Error::File { path: path.display().to_string(), source })
        };
        let text = file(path)?;
        let tree = codec::yaml::decode(&text, codec::Limits::default())
            .map_err(|error| Error::Setting(format!("{}: {}", path.display(), error.message)))?
            .value;
        let find = |list: &str, name: &str| {
            value::list(&tree, list).iter().find(|entry| name.is_empty() || value::text(entry, "name") == name).cloned()
        };
        let context = find("contexts", value::text(&tree, "current-context")).unwrap_or_default();
        let cluster = find("clusters", value::text(&context, "context.cluster"))
            .ok_or_else(|| Error::Setting(format!("{}: no cluster is named", path.display())))?;
        let user = find("users", value::text(&context, "context.user")).unwrap_or_default();
        let beside = |named: &str| path.parent().unwrap_or(Path::new("")).join(named);
        // Either a file or the thing itself in base64.
        let read = |tree: &Value, key: &str| -> Result<Option<String>, Error> {
            let data = value::text(tree, &format!("{key}-data"));
            let bytes = match (data, value::text(tree, key)) {
                ("", "") => return Ok(None),
                ("", named) => file(&beside(named))?,
                (data, _) => STANDARD.decode(data).map_err(|_| Error::Setting(format!("{key}-data is not base64")))?,
            };
            Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
        };
        let cluster = cluster.get("cluster").cloned().unwrap_or_default();
        let user = user.get("user").cloned().unwrap_or_default();
        let certificate = read(&user, "client-certificate")?.zip(read(&user, "client-key")?);
        let trust = Trust { roots: read(&cluster, "certificate-authority")?, certificate };
        let mut remote = Self::new(value::text(&cluster, "server"), &trust)?;
        remote.server_name = Some(value::text(&cluster, "tls-server-name").to_owned()).filter(|name| !name.is_empty());
        let token = match (value::text(&user, "token"), value::text(&user, "tokenFile")) {
            ("", "") => None,
            ("", named) => Some(String::from_utf8_lossy(&file(&beside(named))?).trim().to_owned()),
            (token, _) => Some(token.to_owned()),
        };
        match token {
            Some(token) => remote.with_token(&token),
            None => Ok(remote),
        }
    }

    /// The API server of the cluster that this process is a pod of, by what every pod is given: an account's token and the
    /// authority in a directory, and the address in the environment.
    pub fn in_cluster(account: &Path, environment: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let given = |name: &str| environment(name).filter(|text| !text.is_empty());
        let (Some(host), Some(port)) = (given("KUBERNETES_SERVICE_HOST"), given("KUBERNETES_SERVICE_PORT")) else {
            return Err(Error::Setting(
                "unable to load in-cluster configuration, KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT must be defined"
                    .to_owned(),
            ));
        };
        let file = |name: &str| {
            let path = account.join(name);
            std::fs::read_to_string(&path).map_err(|source| Error::File { path: path.display().to_string(), source })
        };
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let trust = Trust { roots: Some(file("ca.crt")?), certificate: None };
        Self::new(&format!("https://{host}:{port}"), &trust)?.with_token(file("token")?.trim())
    }

    /// The same, with a token to show.
    pub fn with_token(self, token: &str) -> Result<Self, Error> {
        let mut header = HeaderValue::from_str(&format!("Bearer {token}"))
            .map_err(|_| Error::Setting("the token is not plain text".to_owned()))?;
        header.set_sensitive(true);
        Ok(Self { authorization: Some(header), ..self })
    }

    pub fn address(&self) -> String {
        self.uri.to_string()
    }

    /// Sends a tree, and reads the tree that comes back: JSON, or YAML, which upstream's clients read as well.
    /// It is named the trace that it is asked for.
    pub async fn post(&self, tree: &Value, timeout: Duration, trace: Context) -> Result<Value, Error> {
        self.post_json(Bytes::from(tree.to_string()), timeout, trace).await
    }

    /// As [`Remote::post`], of a tree that is written already.
    pub async fn post_json(&self, json: Bytes, timeout: Duration, trace: Context) -> Result<Value, Error> {
        let answer = self.call(Question { method: Method::POST, body: json, trace }, timeout).await?;
        if answer.body.is_empty() {
            return Err(Error::Empty { status: answer.status.as_u16(), kind: answer.kind });
        }
        let limits = codec::Limits::default;
        let decoded = codec::json::decode(&answer.body, limits())
            .or_else(|error| codec::yaml::decode(&answer.body, limits()).map_err(|_| error));
        let tree = decoded.map_err(|error| Error::Answer(error.message))?.value;
        if tree.is_object() {
            return Ok(tree);
        }
        // Nobody who asks may take a word for an answer.
        let why = machinery::codec::unreadable_kind(&tree).unwrap_or_default();
        Err(Error::Answer(why.trim_start_matches("couldn't get version/kind; json parse error: ").to_owned()))
    }

    pub async fn get(&self, timeout: Duration) -> Result<Value, Error> {
        let answer = self.call(Question::GET, timeout).await?;
        let decoded = codec::json::decode(&answer.body, codec::Limits::default());
        decoded.map(|decoded| decoded.value).map_err(|error| Error::Answer(error.message))
    }

    pub async fn text(&self, timeout: Duration) -> Result<String, Error> {
        let answer = self.call(Question::GET, timeout).await?;
        String::from_utf8(answer.body.to_vec()).map_err(|error| Error::Answer(error.to_string()))
    }

    /// Sends JSON; whatever comes back with a success is fine.
    pub async fn notify(&self, json: Bytes, timeout: Duration) -> Result<(), Error> {
        self.call(Question { method: Method::POST, body: json, trace: Context::NONE }, timeout).await.map(|_| ())
    }

    async fn call(&self, question: Question, timeout: Duration) -> Result<Answer, Error> {
        match tokio::time::timeout(timeout, self.attempt(&question)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Error::Timeout),
        }
    }

    async fn attempt(&self, question: &Question) -> Result<Answer, Error> {
        let sent = question.body.len();
        // A connection that was kept may have been closed by the other side meanwhile: then a new one is made, once.
        let kept = self.idle.lock().pop();
        if let Some(mut sender) = kept
            && sender.ready().await.is_ok()
            && let Ok(response) = sender.send_request(self.request(question)?).await
        {
            return self.finish(sender, response, sent).await;
        }
        let mut sender = self.connect().await?;
        let response = sender.send_request(self.request(question)?).await;
        let response = response.map_err(|error| Error::Connection(error.to_string()))?;
        self.finish(sender, response, sent).await
    }

    async fn finish(
        &self,
        sender: SendRequest<Full<Bytes>>,
        response: http::Response<hyper::body::Incoming>,
        sent: usize,
    ) -> Result<Answer, Error> {
        let status = response.status();
        let kind =
            response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default().to_owned();
        let body = Limited::new(response.into_body(), MAX_ANSWER + sent * MAX_ANSWER_PER_BYTE).collect().await;
        let body = body.map_err(|error| Error::Body(error.to_string()))?.to_bytes();
        let mut idle = self.idle.lock();
        if idle.len() < MAX_IDLE {
            idle.push(sender);
        }
        drop(idle);
        match status {
            StatusCode::OK | StatusCode::CREATED | StatusCode::ACCEPTED | StatusCode::NO_CONTENT => {
                Ok(Answer { status, kind, body })
            }
            other => Err(Error::Status(other.as_u16())),
        }
    }

    fn request(&self, question: &Question) -> Result<http::Request<Full<Bytes>>, Error> {
        let Question { method, body, trace } = question;
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        let mut request = http::Request::new(Full::new(body.clone()));
        *request.method_mut() = method.clone();
        *request.uri_mut() = path.parse().map_err(|_| Error::Address(self.address()))?;
        let headers = request.headers_mut();
        let authority = self.uri.authority().map_or("", |authority| authority.as_str());
        headers.insert(HOST, HeaderValue::from_str(authority).map_err(|_| Error::Address(self.address()))?);
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static("kube-apiserver-admission"));
        if *method == Method::POST {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        machinery::rest::name_trace(headers, *trace);
        Ok(request)
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, Error> {
        let failed = |error: &dyn std::fmt::Display| Error::Connection(error.to_string());
        let secure = self.uri.scheme_str() == Some("https");
        let host = self.uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let port = self.uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let stream = match &self.dial {
            Some(address) => TcpStream::connect(address).await,
            None => TcpStream::connect((host.as_str(), port)).await,
        };
        let stream = stream.map_err(|error| {
            let at = self.dial.clone().unwrap_or_else(|| format!("{host}:{port}"));
            dial_failure(&at, &host, &error)
        })?;
        stream.set_nodelay(true).map_err(|error| failed(&error))?;
        if !secure {
            return handshake(TokioIo::new(stream)).await;
        }
        let name = self.server_name.clone().unwrap_or(host);
        let name = ServerName::try_from(name).map_err(|error| failed(&error))?;
        let stream = TlsConnector::from(self.tls.clone()).connect(name, stream).await;
        handshake(TokioIo::new(stream.map_err(|error| tls_failure(&error))?)).await
    }
}

/// What an answer that is no success means, in the words of upstream's clients.
fn meaning(code: u16) -> String {
    let text = match code {
        400 => "the server rejected our request for an unknown reason",
        401 => "the server has asked for the client to provide credentials",
        403 => "the server does not allow access to the requested resource",
        404 => "the server could not find the requested resource",
        405 => "the server does not allow this method on the requested resource",
        409 => "the server reported a conflict",
        422 => "the server rejected our request due to an error in our request",
        429 => "the server has received too many requests and has asked us to try again later",
        503 => "the server is currently unable to handle the request",
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
        }
        500.. => "an error on the server (\"unknown\") has prevented the request from succeeding",
        other => {
            return format!("the server responded with the status code {other} but did not return more information");
        }
    };
    text.to_owned()
}

/// In Go's words, which users know and tools look for.
pub fn dial_failure(at: &str, host: &str, error: &std::io::Error) -> Error {
    use std::io::ErrorKind;
    let why = match error.kind() {
        ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        ErrorKind::HostUnreachable => "connect: no route to host".to_owned(),
        ErrorKind::NetworkUnreachable => "connect: network is unreachable".to_owned(),
        ErrorKind::TimedOut => "i/o timeout".to_owned(),
        _ if error.raw_os_error().is_none() => {
            return Error::Connection(format!("dial tcp: lookup {host}: no such host"));
        }
        _ => error.to_string(),
    };
    Error::Connection(format!("dial tcp {at}: {why}"))
}

/// As [`dial_failure`], for what comes after.
pub fn tls_failure(error: &std::io::Error) -> Error {
    use rustls::CertificateError as Certificate;
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let why = match inner {
        Some(rustls::Error::InvalidCertificate(Certificate::UnknownIssuer)) => {
            "tls: failed to verify certificate: x509: certificate signed by unknown authority".to_owned()
        }
        Some(rustls::Error::InvalidCertificate(Certificate::Expired | Certificate::ExpiredContext { .. })) => {
            "tls: failed to verify certificate: x509: certificate has expired or is not yet valid".to_owned()
        }
        Some(rustls::Error::InvalidCertificate(why)) => format!("tls: failed to verify certificate: x509: {why}"),
        _ => format!("tls: {error}"),
    };
    Error::Connection(why)
}

async fn handshake<S>(stream: TokioIo<S>) -> Result<SendRequest<Full<Bytes>>, Error>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
{
    let shaken = http1::handshake(stream).await;
    let (sender, connection) = shaken.map_err(|error| Error::Connection(error.to_string()))?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to a webhook ended");
        }
    });
    Ok(sender)
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Remote({})", self.uri)
    }
}

#[cfg(test)]
mod tests;
