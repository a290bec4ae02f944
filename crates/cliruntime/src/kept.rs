//! Answers that are asked for again and again, on disk in the layout of upstream's kubectl, so that both may share them. What is still as it was is not
//! sent again, and what says how long it holds is not asked for until then.

use std::ops::ControlFlow;
use std::path::PathBuf;

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, DATE, ETAG, EXPIRES, LOCATION, TRANSFER_ENCODING, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};

use crate::api::Api;
use crate::discovery::cache::{put, root};
use crate::error::{Failure, Outcome};
use crate::session::Session;

/// How often an answer may send to another address, as in Go.
const REDIRECTS: usize = 10;

/// The answers of one server.
pub struct Kept {
    directory: PathBuf,
    server: String,
}

/// An answer as it was.
#[derive(Debug)]
struct Answer {
    headers: HeaderMap,
    body: Bytes,
}

impl Kept {
    pub fn of(session: &Session) -> Outcome<Self> {
        let directory = root(&session.environment, &session.flags).join("http");
        Ok(Self { directory, server: session.connection()?.client.server.clone() })
    }

    /// Reads a path of the server. Servers of one cluster may have different documents for a moment: whoever asks for an old one is sent to the new one.
    pub async fn get(&self, api: &Api, path: &str, accept: &str) -> Outcome<Bytes> {
        let mut path = path.to_owned();
        for _ in 0..REDIRECTS {
            match self.at(api, &path, accept).await? {
                ControlFlow::Break(answer) => return Ok(answer),
                ControlFlow::Continue(elsewhere) => path = elsewhere,
            }
        }
        Err(Failure::Message(format!("stopped after {REDIRECTS} redirects")))
    }

    /// The answer at a path, or where it is instead.
    async fn at(&self, api: &Api, path: &str, accept: &str) -> Outcome<ControlFlow<Bytes, String>> {
        let file = self.directory.join(hex(digest(&SHA256, format!("{}{path}", self.server).as_bytes()).as_ref()));
        let known = std::fs::read(&file).ok().and_then(|bytes| Answer::read(bytes.into()));
        let known = known.filter(|answer| answer.is_for(accept));
        if let Some(answer) =
            known.as_ref().filter(|answer| answer.holds(Timestamp::now().to_zoned(TimeZone::UTC).datetime()))
        {
            return Ok(ControlFlow::Break(answer.body.clone()));
        }
        let tag = known.as_ref().and_then(|answer| answer.headers.get(ETAG)?.to_str().ok());
        let (status, headers, body) = api.changed(path, accept, tag).await?;
        if status == StatusCode::NOT_MODIFIED {
            return Ok(ControlFlow::Break(known.map(|answer| answer.body).unwrap_or_default()));
        }
        if let Some(elsewhere) = self.elsewhere(status, &headers) {
            return Ok(ControlFlow::Continue(elsewhere));
        }
        let answer = Answer { headers, body };
        if status == StatusCode::OK && directive(&answer.headers, "no-store").is_none() {
            // An answer that cannot be kept is no failure: the next command asks again.
            let _ = put(&file, &answer.written(accept));
        }
        Ok(ControlFlow::Break(answer.body))
    }

    /// The path that an answer sends to. Another server is not asked: credentials are not for it.
    fn elsewhere(&self, status: StatusCode, headers: &HeaderMap) -> Option<String> {
        let place: Uri = headers.get(LOCATION).filter(|_| status.is_redirection())?.to_str().ok()?.parse().ok()?;
        let server: Uri = self.server.parse().ok()?;
        let path = place.path_and_query()?.as_str();
        let is_same = place.authority().is_none_or(|other| Some(other) == server.authority());
        // What stands before all paths of the server is added to each.
        let below = path.strip_prefix(server.path().trim_end_matches('/')).filter(|rest| rest.starts_with('/'));
        is_same.then(|| below.unwrap_or(path).to_owned())
    }
}

impl Answer {
    /// From a file: the checksum of the rest, and an answer as HTTP/1.1 writes it.
    fn read(file: Bytes) -> Option<Self> {
        if file.len() < SHA256_OUTPUT_LEN {
            return None;
        }
        let rest = file.slice(SHA256_OUTPUT_LEN..);
        if digest(&SHA256, &rest).as_ref() != &file[..SHA256_OUTPUT_LEN] {
            return None;
        }
        let end = rest.windows(4).position(|four| four == b"\r\n\r\n")?;
        let mut lines = std::str::from_utf8(&rest[..end]).ok()?.split("\r\n");
        if lines.next()?.split(' ').nth(1)? != "200" {
            return None;
        }
        let mut headers = HeaderMap::new();
        for line in lines {
            let (name, value) = line.split_once(':')?;
            headers.append(name.parse::<HeaderName>().ok()?, HeaderValue::from_str(value.trim()).ok()?);
        }
        // Upstream's may have been written piece by piece, which is not worth reading.
        let whole = !headers.contains_key(TRANSFER_ENCODING);
        whole.then(|| Self { headers, body: rest.slice(end + 4..) })
    }

    fn written(&self, accept: &str) -> Vec<u8> {
        let mut text = b"HTTP/1.1 200 OK\r\n".to_vec();
        let mut line = |name: &str, value: &[u8]| {
            text.extend_from_slice(&[name.as_bytes(), b": ", value, b"\r\n"].concat());
        };
        for (name, value) in &self.headers {
            if ![CONTENT_LENGTH, CONTENT_ENCODING, TRANSFER_ENCODING].contains(name) {
                line(name.as_str(), value.as_bytes());
            }
        }
        line("Content-Length", self.body.len().to_string().as_bytes());
        if self.varies().any(|name| name.eq_ignore_ascii_case("accept")) {
            line("X-Varied-Accept", accept.as_bytes());
        }
        text.extend_from_slice(b"\r\n");
        text.extend_from_slice(&self.body);
        [digest(&SHA256, &text).as_ref(), &text].concat()
    }

    /// The headers of a request that its answer depends on.
    fn varies(&self) -> impl Iterator<Item = &str> {
        let values = self.headers.get_all(VARY).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).map(str::trim).filter(|name| !name.is_empty())
    }

    /// Whether it answers a request that takes this.
    fn is_for(&self, accept: &str) -> bool {
        self.varies().all(|name| {
            let asked = self.headers.get(format!("x-varied-{name}")).map(HeaderValue::as_bytes).unwrap_or_default();
            match &*name.to_ascii_lowercase() {
                "accept" => asked == accept.as_bytes(),
                // Neither is sent.
                "accept-encoding" | "origin" => asked.is_empty(),
                // It may be somebody else's: credentials and impersonation are not written down.
                _ => false,
            }
        })
    }

    /// Whether it says of itself that it still holds.
    fn holds(&self, now: DateTime) -> bool {
        // Not as a moment: some answers hold until the last second of the calendar, which is none everywhere.
        let time = |name: HeaderName| {
            DateTime::strptime("%a, %d %b %Y %H:%M:%S GMT", self.headers.get(name)?.to_str().ok()?).ok()
        };
        let Some(made) = time(DATE).filter(|_| directive(&self.headers, "no-cache").is_none()) else { return false };
        let lifetime = match directive(&self.headers, "max-age") {
            Some(seconds) => SignedDuration::from_secs(seconds.parse().unwrap_or_default()),
            None => time(EXPIRES).map(|end| end.duration_since(made)).unwrap_or_default(),
        };
        // A server whose clock is ahead has not said anything about how long it holds.
        lifetime > now.duration_since(made).max(SignedDuration::ZERO)
    }
}

/// What `Cache-Control` says under this name, if anything.
fn directive<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let text = headers.get(CACHE_CONTROL)?.to_str().ok()?;
    let mut parts = text.split(',').map(|part| part.trim().split_once('=').unwrap_or((part.trim(), "")));
    parts.find(|(known, _)| *known == name).map(|(_, value)| value)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(lines: &str) -> Answer {
        let text = format!("HTTP/2.0 200 OK\r\n{lines}\r\n\r\n{{}}");
        let file = [digest(&SHA256, text.as_bytes()).as_ref(), text.as_bytes()].concat();
        Answer::read(file.into()).expect("an answer")
    }

    #[test]
    fn what_is_written_is_read_again_unless_it_is_damaged() {
        let made = answer("Etag: \"a\"\r\nVary: Accept\r\nX-Varied-Accept: x\r\nConnection: close");
        assert_eq!(made.body, "{}");
        assert!(made.is_for("x") && !made.is_for("y"));
        assert!(answer("Vary: Accept-Encoding, Origin").is_for("x"), "neither is sent");
        for other in ["Authorization", "Impersonate-User", "Accept-Encoding, Cookie", "*"] {
            assert!(!answer(&format!("Vary: {other}")).is_for("x"), "{other}: it may be somebody else's");
        }
        let mut file = made.written("y");
        let again = Answer::read(file.clone().into()).expect("an answer");
        assert_eq!((again.body.as_ref(), again.headers[ETAG].as_bytes()), (&b"{}"[..], &b"\"a\""[..]));
        *file.last_mut().expect("a byte") = b'!';
        assert!(Answer::read(file.into()).is_none());
        assert!(Answer::read(Bytes::from_static(b"short")).is_none());
    }

    #[test]
    fn an_answer_that_is_elsewhere_is_looked_for_at_the_same_server() {
        for (server, location, expected) in [
            ("https://h:6443", "/openapi/v3/api/v1?hash=A", Some("/openapi/v3/api/v1?hash=A")),
            ("https://h:6443", "https://h:6443/apis", Some("/apis")),
            ("https://h:6443", "https://other/apis", None),
            ("https://h/k8s/c1/", "/k8s/c1/apis", Some("/apis")),
            ("https://h/k8s/c1", "/apis", Some("/apis")),
        ] {
            let kept = Kept { directory: PathBuf::new(), server: server.to_owned() };
            let headers = HeaderMap::from_iter([(LOCATION, HeaderValue::from_static(location))]);
            let found = kept.elsewhere(StatusCode::MOVED_PERMANENTLY, &headers);
            assert_eq!(found.as_deref(), expected, "{server} {location}");
            assert_eq!(kept.elsewhere(StatusCode::OK, &headers), None);
        }
    }

    #[test]
    fn an_answer_holds_as_long_as_it_says() {
        let date = "Date: Wed, 18 Nov 2026 20:00:00 GMT";
        let soon = jiff::civil::datetime(2026, 11, 18, 20, 0, 59, 0);
        for (lines, expected) in [
            ("Cache-Control: no-cache, private\r\nExpires: Thu, 19 Nov 2026 20:00:00 GMT", false),
            ("Cache-Control: public, immutable\r\nExpires: Thu, 19 Nov 2026 20:00:00 GMT", true),
            ("Cache-Control: public, immutable\r\nExpires: Fri, 31 Dec 9999 23:59:59 GMT", true),
            ("Cache-Control: max-age=60", true),
            ("Cache-Control: max-age=59", false),
            ("Etag: \"a\"", false),
        ] {
            assert_eq!(answer(&format!("{date}\r\n{lines}")).holds(soon), expected, "{lines}");
        }
        assert!(!answer("Cache-Control: max-age=60").holds(soon), "nobody knows since when");
        let earlier = jiff::civil::datetime(2026, 11, 18, 19, 55, 0, 0);
        assert!(!answer(&format!("{date}\r\nCache-Control: public")).holds(earlier), "the server's clock is ahead");
    }
}
