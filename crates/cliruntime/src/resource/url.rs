//! Files at URLs: `-f https://…`. Nothing of the session goes there: neither its credentials nor whom it trusts.

use std::time::Duration;

use client::Client;
use client::config::Trust;
use http::header::LOCATION;
use http::{Method, Uri};
use machinery::rest::Body;
use machinery::status::go_quote;

use crate::api::{self, Chunks};
use crate::error::{Failure, Outcome};

/// How often a server that does not answer is asked, and how long it is left alone between.
const ATTEMPTS: u32 = 3;
const PAUSE: Duration = Duration::from_secs(1);
/// How often a server may say that something is elsewhere.
const REDIRECTS: u32 = 10;
const PATIENCE: Duration = Duration::from_secs(300);

/// What is at a URL, if it is not larger than this.
pub async fn read(url: &str, most: u64) -> Outcome<Vec<u8>> {
    let mut attempt = 1;
    loop {
        let (failure, again) = match get(url).await {
            Ok((http::StatusCode::OK, chunks)) => return whole(url, chunks, most).await,
            Ok((status, _)) => {
                let reported = format!("{} {}", status.as_u16(), status.canonical_reason().unwrap_or_default());
                let url = go_quote(url);
                let why = format!(
                    "unable to read URL {url}, server reported {}, status code={}",
                    reported.trim_end(),
                    status.as_u16()
                );
                (Failure::Message(why), status.is_server_error())
            }
            Err(failure) => (failure, true),
        };
        if !again || attempt == ATTEMPTS {
            return Err(failure);
        }
        attempt += 1;
        tokio::time::sleep(PAUSE).await;
    }
}

/// One answer, wherever it is by now.
async fn get(url: &str) -> Outcome<(http::StatusCode, Chunks)> {
    let mut at = url.to_owned();
    for _ in 0..=REDIRECTS {
        let (origin, path) = parts(&at)?;
        let host = origin.split_once("://").map_or(&*origin, |(_, host)| host).to_owned();
        let mut config = client::Config::new(origin.clone());
        config.trust = Trust::System;
        config.allows_plain = true;
        config.timeout = PATIENCE;
        let asked = |error| api::failure(&host, error);
        let client = Client::https(config).map_err(asked)?;
        let request = http::Request::builder().method(Method::GET).uri(path).body(Body::Empty);
        let request = request.map_err(|error| Failure::Message(error.to_string()))?;
        let (head, payload) = client.request(request).await.map_err(asked)?.into_parts();
        match head.headers.get(LOCATION).and_then(|place| place.to_str().ok()) {
            Some(place) if head.status.is_redirection() => {
                at = if place.starts_with('/') { format!("{origin}{place}") } else { place.to_owned() };
            }
            _ => return Ok((head.status, api::chunks(payload))),
        }
    }
    Err(Failure::Message(format!("Get {}: stopped after {REDIRECTS} redirects", go_quote(url))))
}

/// `https://host:port` and what follows it.
fn parts(url: &str) -> Outcome<(String, String)> {
    let odd = || Failure::Message(format!("the URL passed to filename {} is not valid", go_quote(url)));
    let uri: Uri = url.parse().map_err(|_| odd())?;
    let (Some(scheme), Some(host)) = (uri.scheme_str(), uri.authority()) else { return Err(odd()) };
    if !matches!(scheme, "http" | "https") {
        return Err(odd());
    }
    Ok((format!("{scheme}://{host}"), uri.path_and_query().map_or("/", |path| path.as_str()).to_owned()))
}

async fn whole(url: &str, mut chunks: Chunks, most: u64) -> Outcome<Vec<u8>> {
    use futures::StreamExt as _;
    let mut text = Vec::new();
    while let Some(chunk) = chunks.next().await {
        text.extend_from_slice(&chunk.map_err(|error| Failure::Message(error.to_string()))?);
        if text.len() as u64 > most {
            return Err(Failure::Message(format!("what is at {} is larger than {most} bytes", go_quote(url))));
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let (origin, path) = parts("https://example.com:8443/a/b.yaml?x=y").expect("a URL");
        assert_eq!((&*origin, &*path), ("https://example.com:8443", "/a/b.yaml?x=y"));
        assert_eq!(parts("http://example.com").expect("a URL").1, "/");
        for odd in ["https://", "ftp://example.com/a", "https:// x"] {
            assert!(parts(odd).is_err(), "{odd}");
        }
    }
}
