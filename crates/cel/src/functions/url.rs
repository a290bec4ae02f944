//! URLs, as Go takes them apart.

use std::sync::Arc;

use super::error;
use crate::eval::Outcome;
use crate::functions::opaque::Opaque;
use crate::value::Value;

/// A URL in its parts.
#[derive(Debug, PartialEq, Eq)]
pub struct Url {
    scheme: String,
    host: String,
    path: String,
    query: String,
}

impl Url {
    /// Reads an absolute URL or an absolute path, as a request names its target.
    fn parse(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("URL parse error during conversion from string: parse {text:?}: {why}");
        if text.is_empty() {
            return Err(wrong("empty url"));
        }
        if text.bytes().any(|byte| byte.is_ascii_control()) {
            return Err(wrong("net/url: invalid control character in URL"));
        }
        let (before, query) = text.split_once('?').unwrap_or((text, ""));
        let scheme_end = before.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.')));
        let (scheme, rest) = match scheme_end {
            Some(end)
                if end > 0
                    && before[end..].starts_with(':')
                    && before.starts_with(|c: char| c.is_ascii_alphabetic()) =>
            {
                (before[..end].to_ascii_lowercase(), &before[end + 1..])
            }
            Some(0) if before.starts_with(':') => return Err(wrong("missing protocol scheme")),
            _ => (String::new(), before),
        };
        if scheme.is_empty() && !rest.starts_with('/') {
            return Err(wrong("invalid URI for request"));
        }
        let (host, path) = match rest.strip_prefix("//") {
            Some(rest) => {
                let end = rest.find('/').unwrap_or(rest.len());
                let (user, host) = rest[..end].rsplit_once('@').unwrap_or(("", &rest[..end]));
                if !user.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte)) {
                    return Err(wrong("net/url: invalid userinfo"));
                }
                if !escapes_are_sane(user) || !escapes_are_sane(host) {
                    return Err(wrong("invalid URL escape"));
                }
                (host.to_owned(), rest[end..].to_owned())
            }
            None => (String::new(), rest.to_owned()),
        };
        if host.contains([' ', '<', '>', '"']) {
            return Err(wrong("invalid character in host name"));
        }
        if let Some((_, port)) =
            host.rsplit_once(':').filter(|(before, _)| !before.contains('[') || before.ends_with(']'))
            && !port.bytes().all(|byte| byte.is_ascii_digit())
        {
            return Err(wrong(&format!("invalid port {:?} after host", format!(":{port}"))));
        }
        if !escapes_are_sane(&path) {
            return Err(wrong("invalid URL escape"));
        }
        Ok(Self { scheme, host, path, query: query.to_owned() })
    }

    fn hostname(&self) -> &str {
        match self.host.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or_default(),
            None => self.host.split(':').next().unwrap_or_default(),
        }
    }

    fn port(&self) -> &str {
        let after = self.host.rfind(']').map_or(self.host.as_str(), |end| &self.host[end..]);
        after.rsplit_once(':').map_or("", |(_, port)| port)
    }
}

fn escapes_are_sane(path: &str) -> bool {
    let bytes = path.as_bytes();
    bytes.iter().enumerate().filter(|(_, byte)| **byte == b'%').all(|(at, _)| {
        bytes.get(at + 1).is_some_and(u8::is_ascii_hexdigit) && bytes.get(at + 2).is_some_and(u8::is_ascii_hexdigit)
    })
}

/// `%41` and `+`, undone.
fn unescape(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'+' => out.push(b' '),
            b'%' => {
                let code = [bytes.next().unwrap_or_default(), bytes.next().unwrap_or_default()];
                let code = std::str::from_utf8(&code).ok().and_then(|code| u8::from_str_radix(code, 16).ok());
                out.extend(code);
            }
            other => out.push(other),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Escapes what a path must not hold as it is.
fn escaped(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        let plain = byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@!'()*%".contains(&byte);
        if plain { out.push(char::from(byte)) } else { out.push_str(&format!("%{byte:02X}")) }
    }
    out
}

/// A function of URLs, if it is one.
pub fn call<'a>(function: &str, args: &[Value<'a>]) -> Option<Outcome<'a>> {
    let text = |text: &str| Some(Ok(Value::from(text.to_owned())));
    match (function, args) {
        ("url", [Value::String(own)]) => {
            Some(Url::parse(own).map_or_else(error, |url| Ok(Value::Opaque(Opaque::Url(Arc::new(url))))))
        }
        ("isURL", [Value::String(own)]) => Some(Ok(Value::Bool(Url::parse(own).is_ok()))),
        (_, [Value::Opaque(Opaque::Url(url))]) => match function {
            "getScheme" => text(&url.scheme),
            "getHost" => text(&url.host),
            "getHostname" => text(url.hostname()),
            "getPort" => text(url.port()),
            "getEscapedPath" => text(&escaped(&url.path)),
            "getQuery" => {
                let mut all: Vec<(String, Vec<Value<'a>>)> = Vec::new();
                for pair in url.query.split('&').filter(|pair| !pair.is_empty()) {
                    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                    let (key, value) = (unescape(key), Value::from(unescape(value)));
                    match all.iter_mut().find(|(known, _)| *known == key) {
                        Some((_, values)) => values.push(value),
                        None => all.push((key, vec![value])),
                    }
                }
                let entries = all.into_iter().map(|(key, values)| (Value::from(key), Value::list(values)));
                Some(Ok(Value::map(entries.collect())))
            }
            _ => None,
        },
        _ => None,
    }
}
