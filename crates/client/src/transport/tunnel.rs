//! Servers that are reached through a proxy: it is told where to go, and bytes go through it from then on.

use std::io;

use base64::Engine as _;
use http::Uri;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The longest answer of a proxy that is read.
const LONGEST: usize = 8 << 10;

/// A proxy, and how it is spoken to.
#[derive(Debug, Clone)]
pub(crate) struct Proxy {
    /// Where it is.
    pub(crate) uri: Uri,
    socks: bool,
    /// The value of `Proxy-Authorization`.
    credentials: Option<String>,
}

impl Proxy {
    /// `http://[user:password@]host:port` or `socks5://host:port`; nothing for what is neither.
    pub(crate) fn parse(url: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let socks = match scheme {
            "http" => false,
            "socks5" | "socks5h" => true,
            _ => return None,
        };
        let rest = rest.trim_end_matches('/');
        let (user, place) = rest.rsplit_once('@').map_or((None, rest), |(user, place)| (Some(user), place));
        let port = if socks { 1080 } else { 80 };
        let has_port = place.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let place = if has_port { place.to_owned() } else { format!("{place}:{port}") };
        let decoded = |user: &str| percent_encoding::percent_decode_str(user).collect::<Vec<u8>>();
        let encoded = user.map(|user| base64::engine::general_purpose::STANDARD.encode(decoded(user)));
        let uri = format!("http://{place}").parse().ok()?;
        Some(Self { uri, socks, credentials: encoded.map(|encoded| format!("Basic {encoded}")) })
    }

    /// Has the proxy go on to the server that is meant.
    pub(crate) async fn open(&self, stream: &mut TcpStream, server: &Uri) -> io::Result<()> {
        let host = server.host().unwrap_or_default().trim_matches(['[', ']']);
        let plain = server.scheme() == Some(&http::uri::Scheme::HTTP);
        let port = server.port_u16().unwrap_or(if plain { 80 } else { 443 });
        if self.socks { socks(stream, host, port).await } else { self.connect(stream, host, port).await }
    }

    async fn connect(&self, stream: &mut TcpStream, host: &str, port: u16) -> io::Result<()> {
        let place = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        let mut request = format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n");
        if let Some(credentials) = &self.credentials {
            request += &format!("Proxy-Authorization: {credentials}\r\n");
        }
        stream.write_all(format!("{request}\r\n").as_bytes()).await?;
        // Byte by byte: what follows the answer belongs to the server.
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            if answer.len() >= LONGEST {
                return Err(io::Error::other("proxyconnect tcp: the proxy's answer is too long"));
            }
            answer.push(stream.read_u8().await?);
        }
        let answer = String::from_utf8_lossy(&answer);
        let status = answer.lines().next().unwrap_or_default();
        let (code, words) =
            status.split_once(' ').map_or(("", ""), |(_, rest)| rest.split_once(' ').unwrap_or((rest, "")));
        if code == "200" {
            Ok(())
        } else {
            Err(io::Error::other(if words.is_empty() { code } else { words }.to_owned()))
        }
    }
}

/// A proxy that wants no password, told a name: who resolves it is the proxy.
async fn socks(stream: &mut TcpStream, host: &str, port: u16) -> io::Result<()> {
    let refused = |why: &str| io::Error::other(format!("socks connect: {why}"));
    stream.write_all(&[5, 1, 0]).await?;
    let mut chosen = [0; 2];
    stream.read_exact(&mut chosen).await?;
    if chosen != [5, 0] {
        return Err(refused("no acceptable authentication methods"));
    }
    let length = u8::try_from(host.len()).map_err(|_| refused("FQDN too long"))?;
    let mut request = vec![5, 1, 0, 3, length];
    request.extend_from_slice(host.as_bytes());
    request.extend_from_slice(&port.to_be_bytes());
    stream.write_all(&request).await?;
    let mut head = [0; 4];
    stream.read_exact(&mut head).await?;
    if head[1] != 0 {
        return Err(refused(match head[1] {
            1 => "general SOCKS server failure",
            2 => "connection not allowed by ruleset",
            3 => "network unreachable",
            4 => "host unreachable",
            5 => "connection refused",
            _ => "unknown error",
        }));
    }
    let address = match head[3] {
        1 => 4,
        4 => 16,
        _ => usize::from(stream.read_u8().await?),
    };
    let mut bound = vec![0; address + 2];
    stream.read_exact(&mut bound).await.map(drop)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// What a proxy that answers so was sent, and what came of it.
    async fn through(url: &str, expects: usize, answers: &'static [&'static [u8]]) -> (Vec<u8>, io::Result<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let at = listener.local_addr().expect("an address");
        let proxy = Proxy::parse(&url.replace("HERE", &at.to_string())).expect("a proxy");
        let serving = tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.expect("a connection");
            let mut sent = Vec::new();
            for answer in answers {
                let before = sent.len();
                let mut piece = vec![0; 512];
                let read = socket.read(&mut piece).await.expect("bytes");
                sent.extend_from_slice(&piece[..read]);
                assert!(sent.len() > before);
                socket.write_all(answer).await.expect("an answer");
            }
            sent
        });
        let mut stream = TcpStream::connect((proxy.uri.host().expect("a host"), proxy.uri.port_u16().expect("a port")))
            .await
            .expect("connected");
        let outcome = proxy.open(&mut stream, &"https://api.example:6443".parse().expect("a URI")).await;
        let sent = serving.await.expect("the proxy");
        assert!(sent.len() >= expects);
        (sent, outcome)
    }

    #[tokio::test]
    async fn proxies_are_told_where_to_go() {
        let (sent, outcome) = through("http://u:p%40@HERE", 10, &[b"HTTP/1.1 200 OK\r\nX: y\r\n\r\n"]).await;
        let sent = String::from_utf8(sent).expect("text");
        assert!(outcome.is_ok());
        assert!(sent.starts_with("CONNECT api.example:6443 HTTP/1.1\r\nHost: api.example:6443\r\n"), "{sent}");
        assert!(sent.ends_with("Proxy-Authorization: Basic dTpwQA==\r\n\r\n"), "{sent}");
        let (_, outcome) = through("http://HERE", 10, &[b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"]).await;
        assert_eq!(outcome.expect_err("refused").to_string(), "Proxy Authentication Required");
        let (sent, outcome) = through("socks5://HERE", 3, &[&[5, 0], &[5, 0, 0, 1, 1, 2, 3, 4, 0, 80]]).await;
        assert!(outcome.is_ok());
        assert_eq!(&sent[..8], [5, 1, 0, 5, 1, 0, 3, 11]);
        assert_eq!(&sent[8..], b"api.example\x19\x2b");
    }

    #[test]
    fn what_is_no_proxy_is_none() {
        assert_eq!(Proxy::parse("http://h").expect("a proxy").uri, "http://h:80");
        assert_eq!(Proxy::parse("socks5://h/").expect("a proxy").uri, "http://h:1080");
        assert!(Proxy::parse("ftp://h").is_none() && Proxy::parse("h:1").is_none());
    }
}
