//! How connections are served: what an administrator says of HTTP itself.

use std::sync::Arc;

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, HeaderMap, HeaderValue, ORIGIN,
    STRICT_TRANSPORT_SECURITY,
};
use regex::Regex;

/// Requests at once on one HTTP/2 connection, by default.
const MAX_STREAMS: u32 = 1_000;

#[derive(Debug, Clone)]
pub struct Settings {
    /// `--http2-max-streams-per-connection`.
    pub max_streams: u32,
    /// `--goaway-chance`: how likely a request over HTTP/2 has its client told to open another connection, 0 to 1.
    pub goaway_chance: f64,
    pub headers: Headers,
}

impl Default for Settings {
    fn default() -> Self {
        Self { max_streams: MAX_STREAMS, goaway_chance: 0.0, headers: Headers::default() }
    }
}

/// Headers of answers that have nothing to do with what was asked.
#[derive(Debug, Clone, Default)]
pub struct Headers {
    /// `--cors-allowed-origins`: pages of which origins may read answers.
    origins: Arc<[Regex]>,
    /// `--strict-transport-security-directives`.
    transport_security: Option<HeaderValue>,
}

impl Headers {
    /// `--cors-allowed-origins`: regular expressions.
    pub fn allow_origins(mut self, patterns: &[String]) -> Result<Self, String> {
        let pattern = |text: &String| {
            // A pattern that fits anywhere in a name would let in whoever has that in his.
            let pinned = (text.contains('^') || text.contains("//")) && (text.contains('$') || text.contains(':'));
            match Regex::new(text) {
                Ok(pattern) if pinned => Ok(pattern),
                Ok(_) => Err("regular expression does not pin to start/end of host in the origin header".to_owned()),
                Err(error) => Err(error.to_string()),
            }
        };
        self.origins = patterns.iter().map(pattern).collect::<Result<_, _>>()?;
        Ok(self)
    }

    /// `--strict-transport-security-directives`.
    pub fn demand_transport_security(mut self, directives: &[String]) -> Result<Self, String> {
        let known =
            |one: &String| matches!(one.as_str(), "includeSubDomains" | "preload") || one.starts_with("max-age=");
        if !directives.iter().all(known) {
            return Err("invalid, allowed values: max-age=expireTime, includeSubDomains, preload".to_owned());
        }
        if !directives.is_empty() {
            let value = HeaderValue::try_from(directives.join("; ")).map_err(|error| error.to_string())?;
            self.transport_security = Some(value);
        }
        Ok(self)
    }

    /// The origin that a request comes from, if pages of it may read answers.
    pub(super) fn origin(&self, request: &HeaderMap) -> Option<HeaderValue> {
        let origin = request.get(ORIGIN).filter(|_| !self.origins.is_empty())?;
        let text = origin.to_str().ok().filter(|text| !text.is_empty())?;
        self.origins.iter().any(|pattern| pattern.is_match(text)).then(|| origin.clone())
    }

    /// Writes what an answer has to say, to pages of this origin too, if there is one.
    pub(super) fn write(&self, origin: Option<HeaderValue>, answer: &mut HeaderMap) {
        if let Some(value) = &self.transport_security {
            answer.entry(STRICT_TRANSPORT_SECURITY).or_insert_with(|| value.clone());
        }
        let Some(origin) = origin else { return };
        answer.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        for (name, text) in [
            (ACCESS_CONTROL_ALLOW_METHODS, "POST, GET, OPTIONS, PUT, DELETE, PATCH"),
            (
                ACCESS_CONTROL_ALLOW_HEADERS,
                "Content-Type, Content-Length, Accept-Encoding, X-CSRF-Token, Authorization, X-Requested-With, If-Modified-Since",
            ),
            (ACCESS_CONTROL_EXPOSE_HEADERS, "Date"),
            (ACCESS_CONTROL_ALLOW_CREDENTIALS, "true"),
        ] {
            answer.insert(name, HeaderValue::from_static(text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_allowed_origins_may_read_answers() {
        let patterns = ["^https://page\\.example(:|$)".to_owned(), "//other\\.example(:|$)".to_owned()];
        let headers = Headers::default().allow_origins(&patterns).expect("patterns");
        let origin = |text: &str| {
            let request = HeaderMap::from_iter([(ORIGIN, HeaderValue::try_from(text).expect("a header"))]);
            headers.origin(&request).is_some()
        };
        for (text, allowed) in [
            ("https://page.example", true),
            ("https://page.example:8443", true),
            ("http://page.example", false),
            ("https://page.example.evil", false),
            ("http://other.example", true),
            ("", false),
        ] {
            assert_eq!(origin(text), allowed, "{text}");
        }
        assert!(headers.origin(&HeaderMap::new()).is_none());
        let mut answer = HeaderMap::new();
        headers.write(Some(HeaderValue::from_static("https://page.example")), &mut answer);
        assert_eq!(
            (&answer[ACCESS_CONTROL_ALLOW_ORIGIN], answer.len()),
            (&HeaderValue::from_static("https://page.example"), 5)
        );
        for bad in ["example.com", "^https//example.com", "(", "//example.com"] {
            assert!(Headers::default().allow_origins(&[bad.to_owned()]).is_err(), "{bad}");
        }
    }

    #[test]
    fn transport_security_is_said_once() {
        let directives = ["max-age=31536000".to_owned(), "includeSubDomains".to_owned()];
        let headers = Headers::default().demand_transport_security(&directives).expect("directives");
        let mut answer = HeaderMap::new();
        headers.write(None, &mut answer);
        assert_eq!(answer[STRICT_TRANSPORT_SECURITY], "max-age=31536000; includeSubDomains");
        assert!(Headers::default().demand_transport_security(&["sometimes".to_owned()]).is_err());
    }
}
