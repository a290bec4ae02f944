//! One HTTP GET: to a container, for probes and lifecycle hooks, or for static pods. No pooling, no proxy.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{Container, HTTPGetAction};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use rustls::pki_types::ServerName;
use threads::patience::within;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// What of the body of a container's answer is kept.
const BODY: usize = 10 << 10;
/// What is spoken inside TLS.
const HTTP: [&[u8]; 1] = [b"http/1.1"];
/// Redirects on the same host that are followed.
const REDIRECTS: usize = 10;

/// A stream, encrypted or not.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    /// The beginning of the body.
    pub body: String,
}

/// Whose certificates are believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// Everybody's: nothing is known of the certificates inside a pod.
    Anyone,
    /// Those that this machine's authorities vouch for.
    System,
}

/// Where an action goes: scheme, host, port and path with query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub tls: bool,
    pub host: String,
    pub port: u16,
    /// Path and query, with a leading slash.
    pub path: String,
}

impl Target {
    /// The target of an action, on the pod's address unless it names a host.
    pub fn new(action: &HTTPGetAction, container: &Container, ip: &str) -> Result<Self, String> {
        let path = action.path.as_deref().unwrap_or_default();
        Ok(Self {
            tls: action.scheme.as_deref().is_some_and(|scheme| scheme.eq_ignore_ascii_case("https")),
            host: action.host.clone().filter(|host| !host.is_empty()).unwrap_or_else(|| ip.to_owned()),
            port: port(&action.port, container)?,
            path: if path.starts_with('/') { path.to_owned() } else { format!("/{path}") },
        })
    }

    /// The target of a URL; nothing when it is none of HTTP.
    pub fn parse(url: &str) -> Option<Self> {
        let uri: http::Uri = url.parse().ok()?;
        let tls = match uri.scheme_str()? {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        Some(Self {
            tls,
            host: uri.host()?.trim_matches(['[', ']']).to_owned(),
            port: uri.port_u16().unwrap_or(if tls { 443 } else { 80 }),
            path: uri.path_and_query().map_or("/".to_owned(), ToString::to_string),
        })
    }

    fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    pub fn url(&self) -> String {
        format!("{}://{}{}", if self.tls { "https" } else { "http" }, self.authority(), self.path)
    }
}

/// A port by number, or by its name among the container's ports.
pub fn port(port: &IntOrString, container: &Container) -> Result<u16, String> {
    let number = match port {
        IntOrString::Int(number) => *number,
        IntOrString::String(name) => match name.parse() {
            Ok(number) => number,
            Err(_) => {
                let named = container.ports.iter().flatten().find(|p| p.name.as_deref() == Some(name));
                named.map(|p| p.container_port).ok_or_else(|| format!("couldn't find port: {name} in container"))?
            }
        },
    };
    u16::try_from(number).ok().filter(|&n| n > 0).ok_or_else(|| format!("invalid port number: {number}"))
}

/// Gets it, following redirects on the same host. Errors are in the words users know from probes.
pub async fn get(
    target: &Target,
    headers: &[(String, String)],
    agent: &str,
    limit: Duration,
) -> Result<Answer, String> {
    let failed = |why: &str| format!("Get {:?}: {why}", target.url());
    let reach = Reach { trust: Trust::Anyone, most: BODY };
    let work = async {
        // To another host it is not followed: the answer counts as it is.
        let raw = follow(target, headers, agent, reach, |next| next.host == target.host).await?;
        Ok::<_, String>(Answer { status: raw.status, body: String::from_utf8_lossy(&raw.body).into_owned() })
    };
    match within(limit, work).await {
        Some(result) => result.map_err(|why| failed(&why)),
        None => Err(failed("context deadline exceeded (Client.Timeout exceeded while awaiting headers)")),
    }
}

/// Gets a document as a whole, from a server that this machine's authorities vouch for. Redirects are followed anywhere, but
/// the headers, which may hold a secret, only go to the host they were meant for.
pub async fn fetch(
    target: &Target,
    headers: &[(String, String)],
    most: usize,
    limit: Duration,
) -> Result<(u16, Vec<u8>), String> {
    let failed = |why: &str| format!("Get {:?}: {why}", target.url());
    let work = follow(target, headers, "Go-http-client/1.1", Reach { trust: Trust::System, most }, |_| true);
    match tokio::time::timeout(limit, work).await {
        Ok(Ok(raw)) if raw.whole => Ok((raw.status, raw.body)),
        Ok(Ok(_)) => Err(failed("the read limit is reached")),
        Ok(Err(why)) => Err(failed(&why)),
        Err(_) => Err(failed("context deadline exceeded (Client.Timeout exceeded while awaiting headers)")),
    }
}

/// Whom to believe and how much to read.
#[derive(Debug, Clone, Copy)]
struct Reach {
    trust: Trust,
    most: usize,
}

/// An answer as it came.
struct Raw {
    status: u16,
    body: Vec<u8>,
    /// Whether the body is all of it.
    whole: bool,
    location: Option<String>,
}

async fn follow(
    target: &Target,
    headers: &[(String, String)],
    agent: &str,
    reach: Reach,
    allowed: impl Fn(&Target) -> bool,
) -> Result<Raw, String> {
    let mut at = target.clone();
    for _ in 0..=REDIRECTS {
        let own = at.host == target.host;
        let raw = once(&at, if own { headers } else { &[] }, agent, reach).await?;
        let location = raw.location.as_ref().filter(|_| (300..400).contains(&raw.status));
        match location.and_then(|location| redirect(&at, location)) {
            Some(next) if allowed(&next) => at = next,
            _ => return Ok(raw),
        }
    }
    Err(format!("stopped after {REDIRECTS} redirects"))
}

fn redirect(from: &Target, location: &str) -> Option<Target> {
    if location.starts_with('/') {
        return Some(Target { path: location.to_owned(), ..from.clone() });
    }
    Target::parse(location)
}

async fn once(target: &Target, headers: &[(String, String)], agent: &str, reach: Reach) -> Result<Raw, String> {
    let stream = connect(&target.host, target.port, target.tls.then_some((HTTP.as_slice(), reach.trust))).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
    let driver = tokio::spawn(connection);
    let mut request = http::Request::get(&target.path);
    let has = |name: &str| headers.iter().any(|(key, _)| key.eq_ignore_ascii_case(name));
    if !has("host") {
        request = request.header("Host", target.authority());
    }
    if !has("user-agent") {
        request = request.header("User-Agent", agent);
    }
    if !has("accept") {
        request = request.header("Accept", "*/*");
    }
    for (name, value) in
        headers.iter().filter(|(name, value)| !(name.eq_ignore_ascii_case("accept") && value.is_empty()))
    {
        request = request.header(name, value);
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|e| e.to_string())?;
    let response = sender
        .send_request(request)
        .await
        .map_err(|e| if e.is_incomplete_message() { "EOF".to_owned() } else { e.to_string() })?;
    let status = response.status().as_u16();
    let location = response.headers().get("location").and_then(|v| v.to_str().ok()).map(str::to_owned);
    let mut body = response.into_body();
    let (mut kept, mut whole) = (Vec::new(), true);
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            whole = false;
            break;
        };
        if let Some(data) = frame.data_ref() {
            let room = reach.most - kept.len();
            kept.extend_from_slice(&data[..data.len().min(room)]);
            if data.len() > room {
                whole = false;
                break;
            }
        }
    }
    driver.abort();
    Ok(Raw { status, body: kept, whole, location })
}

/// A connection, encrypted when protocols are given.
pub async fn connect(host: &str, port: u16, tls: Option<(&[&[u8]], Trust)>) -> Result<Box<dyn Stream>, String> {
    let stream = TcpStream::connect((host, port)).await.map_err(|e| dial_error(host, port, &e))?;
    let Some((protocols, trust)) = tls else { return Ok(Box::new(stream)) };
    let builder = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?;
    let mut config = match trust {
        Trust::Anyone => {
            builder.dangerous().with_custom_certificate_verifier(pki::trusting_everybody()).with_no_client_auth()
        }
        Trust::System => builder.with_root_certificates(pki::system_roots()).with_no_client_auth(),
    };
    config.alpn_protocols = protocols.iter().map(|p| p.to_vec()).collect();
    let name = match host.parse::<IpAddr>() {
        Ok(ip) => ServerName::from(ip),
        Err(_) => ServerName::try_from(host.to_owned()).map_err(|e| e.to_string())?,
    };
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    Ok(Box::new(connector.connect(name, stream).await.map_err(|e| e.to_string())?))
}

/// A failed connection in the words of Go's dialler, which users and tools look for.
pub fn dial_error(host: &str, port: u16, error: &std::io::Error) -> String {
    let why = match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        std::io::ErrorKind::HostUnreachable => "connect: no route to host".to_owned(),
        std::io::ErrorKind::NetworkUnreachable => "connect: network is unreachable".to_owned(),
        std::io::ErrorKind::TimedOut => "i/o timeout".to_owned(),
        _ => error.to_string(),
    };
    let address = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    format!("dial tcp {address}: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// Answers each connection with the next text.
    async fn serve(answers: Vec<String>) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            for answer in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut buffer = [0; 1024];
                let _ = stream.read(&mut buffer).await.unwrap();
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        port
    }

    fn target(port: u16) -> Target {
        Target { tls: false, host: "127.0.0.1".into(), port, path: "/a".into() }
    }

    const SOON: Duration = Duration::from_secs(5);

    #[tokio::test]
    async fn redirects_on_the_same_host_are_followed() {
        let port = serve(vec![
            "HTTP/1.1 302 Found\r\nLocation: /b\r\nContent-Length: 0\r\n\r\n".into(),
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".into(),
            "HTTP/1.1 302 Found\r\nLocation: http://other.example/\r\nContent-Length: 0\r\n\r\n".into(),
        ])
        .await;
        assert_eq!(get(&target(port), &[], "t", SOON).await.unwrap(), Answer { status: 200, body: "ok".into() });
        assert_eq!(get(&target(port), &[], "t", SOON).await.unwrap().status, 302);
    }

    #[tokio::test]
    async fn failures_are_told_in_familiar_words() {
        // A port that was just free: nobody listens on it.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let refused = get(&target(port), &[], "t", SOON).await.unwrap_err();
        assert_eq!(
            refused,
            format!("Get \"http://127.0.0.1:{port}/a\": dial tcp 127.0.0.1:{port}: connect: connection refused")
        );
        let port = serve(vec![String::new()]).await;
        assert_eq!(
            get(&target(port), &[], "t", SOON).await.unwrap_err(),
            format!("Get \"http://127.0.0.1:{port}/a\": EOF")
        );
    }

    #[test]
    fn ports_are_found_by_name() {
        let container: Container =
            serde_json::from_value(serde_json::json!({"name": "c", "ports": [{"name": "web", "containerPort": 8080}]}))
                .unwrap();
        assert_eq!(port(&IntOrString::String("web".into()), &container), Ok(8080));
        assert_eq!(port(&IntOrString::Int(1), &container), Ok(1));
        assert!(port(&IntOrString::String("none".into()), &container).is_err());
        assert!(port(&IntOrString::Int(70000), &container).is_err());
    }
}
