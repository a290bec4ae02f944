//! `-v`: what is sent and answered, as upstream's log writes it. Credentials are never written.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use client::config::Dial;
use http::{HeaderMap, HeaderName};

/// Where log lines go, and how much is logged.
#[derive(Clone)]
pub struct Trace {
    level: i64,
    to: Arc<Mutex<Box<dyn Write + Send>>>,
}

/// How long a request took, and its connection, where it was the first on one.
#[derive(Debug, Default)]
pub struct Took {
    pub whole: Duration,
    pub dial: Option<Dial>,
}

impl Took {
    /// What of it was the connection's, and what the server's.
    fn parts(&self) -> String {
        let Some(dial) = &self.dial else {
            return format!("getConnectionMilliseconds=0 serverProcessingMilliseconds={}", self.whole.as_millis());
        };
        let (dialed, handshake) = (dial.dial.as_millis(), dial.handshake.as_millis());
        let server = self.whole.saturating_sub(dial.dial + dial.handshake).as_millis();
        format!(
            "dnsLookupMilliseconds=0 dialMilliseconds={dialed} tlsHandshakeMilliseconds={handshake} serverProcessingMilliseconds={server}"
        )
    }
}

impl Trace {
    pub fn new(to: Box<dyn Write + Send>) -> Self {
        Self { level: 0, to: Arc::new(Mutex::new(to)) }
    }

    pub fn at(mut self, level: i64) -> Self {
        self.level = level;
        self
    }

    fn line(&self, place: &str, text: &str) {
        let mut to = self.to.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // There is nobody left to tell if this fails.
        let _ = writeln!(to, "{}", crate::streams::log_line('I', place, text));
    }

    /// What is told at this level and above.
    pub fn told(&self, level: i64, place: &str, text: &str) {
        if self.level >= level {
            self.line(place, text);
        }
    }

    /// A request that is about to be sent.
    pub fn request(&self, method: &str, url: &str, headers: &HeaderMap, body: Option<&[u8]>) {
        if self.level < 7 {
            return;
        }
        if let Some(body) = body.filter(|_| self.level >= 8) {
            self.body("Request Body", body);
        }
        let fields = if self.level >= 9 {
            format!("curlCommand={}", value(&curl(method, url, headers)))
        } else {
            format!("verb={} url={} headers={}", value(method), value(url), value(&shown(headers)))
        };
        self.line("round_trippers.go:527", &format!("\"Request\" {fields}"));
    }

    /// Whether connections are told of.
    pub fn tells_connections(&self) -> bool {
        self.level >= 9
    }

    /// The answer to it, or that there was none.
    pub fn response(&self, method: &str, url: &str, status: &str, headers: &HeaderMap, times: &Took) {
        let took = times.whole.as_millis();
        if let Some(dial) = times.dial.as_ref().filter(|_| self.tells_connections()) {
            let text = format!("\"HTTP Trace: Dial succeed\" network=\"tcp\" address={}", value(&dial.address));
            self.line("round_trippers.go:560", &text);
        }
        let fields = match self.level {
            ..6 => return,
            6 => format!("verb={} url={} status={} milliseconds={took}", value(method), value(url), value(status)),
            7 => format!("status={} milliseconds={took}", value(status)),
            8 => format!("status={} headers={} milliseconds={took}", value(status), value(&shown(headers))),
            9.. => format!(
                "verb={} url={} status={} headers={} milliseconds={took} {}",
                value(method),
                value(url),
                value(status),
                value(&shown(headers)),
                times.parts()
            ),
        };
        self.line("round_trippers.go:632", &format!("\"Response\" {fields}"));
    }

    pub fn answer(&self, body: &[u8]) {
        if self.level >= 8 {
            self.body("Response Body", body);
        }
    }

    fn body(&self, what: &str, body: &[u8]) {
        let text = String::from_utf8_lossy(body);
        let most = match self.level {
            ..=8 => 1024,
            9 => 10240,
            _ => usize::MAX,
        };
        let mut cut = text.len().min(most);
        while !text.is_char_boundary(cut) {
            cut -= 1;
        }
        let mut shown = text[..cut].to_owned();
        if cut < text.len() {
            shown += &format!(" [truncated {} chars]", text.len() - cut);
        }
        self.line("request.go:1351", &format!("{what:?} body={}", value(&shown)));
    }
}

/// A value as upstream's log writes it: quoted, or indented where it has several lines.
fn value(text: &str) -> String {
    if !text.contains('\n') {
        return machinery::status::go_quote(text);
    }
    let lines: Vec<String> = text.trim_end_matches('\n').lines().map(|line| format!("\t{line}")).collect();
    format!("<\n{}\n >", lines.join("\n"))
}

fn canonical(name: &HeaderName) -> String {
    let capital = |part: &str| {
        let mut letters = part.chars();
        letters.next().map(|first| first.to_ascii_uppercase().to_string() + letters.as_str()).unwrap_or_default()
    };
    name.as_str().split('-').map(capital).collect::<Vec<_>>().join("-")
}

/// What may be shown of a header.
fn masked(name: &HeaderName, value: &http::HeaderValue) -> String {
    let text = value.to_str().unwrap_or("<binary>");
    if *name != http::header::AUTHORIZATION {
        return text.to_owned();
    }
    let kind = text.split(' ').next().unwrap_or_default();
    match kind.to_lowercase().as_str() {
        "bearer" | "basic" | "negotiate" if text.len() > kind.len() + 1 => format!("{kind} <masked>"),
        "bearer" | "basic" | "negotiate" => kind.to_owned(),
        "" => String::new(),
        _ => "<masked>".to_owned(),
    }
}

fn shown(headers: &HeaderMap) -> String {
    let mut lines: Vec<String> =
        headers.iter().map(|(name, value)| format!("{}: {}\n", canonical(name), masked(name, value))).collect();
    lines.sort();
    lines.concat()
}

fn curl(method: &str, url: &str, headers: &HeaderMap) -> String {
    let line = |(name, value): (&HeaderName, &http::HeaderValue)| {
        format!(" -H {:?}", format!("{}: {}", canonical(name), masked(name, value)))
    };
    let all: String = headers.iter().map(line).collect();
    format!("curl -v -X{method} {all} '{url}'\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::streams::Memory;

    fn logged(level: i64) -> String {
        let memory = Memory::default();
        let trace = Trace::new(Box::new(memory.clone())).at(level);
        let mut headers = HeaderMap::new();
        headers.insert("authorization", "Bearer secret".parse().expect("a header"));
        headers.insert("accept", "application/json".parse().expect("a header"));
        trace.request("GET", "https://h/api", &headers, Some(b"{}"));
        let dial = Dial {
            address: "1.2.3.4:5".to_owned(),
            dial: Duration::from_millis(1),
            handshake: Duration::from_millis(2),
        };
        let took = Took { whole: Duration::from_millis(5), dial: Some(dial) };
        trace.response("GET", "https://h/api", "200 OK", &headers, &took);
        trace.answer(&[b'x'; 2000]);
        memory
            .text()
            .lines()
            .map(|line| line.split_once("] ").map_or(line, |(_, text)| text))
            .collect::<Vec<_>>()
            .join("\n")
    }

    #[test]
    fn more_is_said_at_higher_levels_and_secrets_never() {
        assert_eq!(logged(5), "");
        assert_eq!(logged(6), "\"Response\" verb=\"GET\" url=\"https://h/api\" status=\"200 OK\" milliseconds=5");
        assert_eq!(
            logged(7),
            "\"Request\" verb=\"GET\" url=\"https://h/api\" headers=<\n\tAccept: application/json\n\tAuthorization: Bearer <masked>\n >\n\"Response\" status=\"200 OK\" milliseconds=5"
        );
        assert!(logged(8).contains("[truncated 976 chars]") && logged(8).starts_with("\"Request Body\" body=\"{}\""));
        assert!(logged(9).contains("curlCommand=<\n\tcurl -v -XGET"), "{}", logged(9));
        assert!(
            logged(9).contains("\"HTTP Trace: Dial succeed\" network=\"tcp\" address=\"1.2.3.4:5\""),
            "{}",
            logged(9)
        );
        assert!(logged(9).contains(" milliseconds=5 dnsLookupMilliseconds=0 dialMilliseconds=1 tlsHandshakeMilliseconds=2 serverProcessingMilliseconds=2"), "{}", logged(9));
        for level in 6..=10 {
            assert!(!logged(level).contains("secret"), "{level}");
        }
    }
}
