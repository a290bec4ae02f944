//! A page of figures in the form that its scraper wants: text, or protobuf messages made of it.
//!
//! Everybody writes the same text. Only its first line tells one kind of page from the other, so nobody on the way has to know.

use super::{native, protobuf};

const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";
const MESSAGES: &str = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited; escaping=underscores";

/// An empty page for a scraper that sent this `Accept` header.
pub fn page(accept: &str) -> String {
    let mut page = String::with_capacity(64 * 1024);
    page.push_str(if wants_messages(accept) { native::PAGE } else { "" });
    page
}

/// The media type and the bytes of a page that is complete.
pub fn finished(page: String) -> (&'static str, Vec<u8>) {
    if native::is_wanted(&page) { (MESSAGES, protobuf::encode(&page)) } else { (TEXT, page.into_bytes()) }
}

/// Whether a scraper prefers messages to text. What it says of forms that nobody writes here does not count.
fn wants_messages(accept: &str) -> bool {
    let form = |clause: &str| -> Option<(f32, bool)> {
        let mut parts = clause.split(';').map(str::trim);
        let media = parts.next()?;
        let parameters: Vec<(&str, &str)> = parts.filter_map(|part| part.split_once('=')).collect();
        let parameter = |name: &str| parameters.iter().find(|(key, _)| *key == name).map_or("", |(_, value)| value);
        let messages = match media {
            "application/vnd.google.protobuf" => {
                let described = (parameter("proto"), parameter("encoding"));
                (described == ("io.prometheus.client.MetricFamily", "delimited")).then_some(true)?
            }
            "text/plain" => matches!(parameter("version"), "" | "0.0.4").then_some(false)?,
            _ => return None,
        };
        Some((parameter("q").parse().unwrap_or(1.0), messages))
    };
    // Among equals the first counts.
    let best = accept.split(',').filter_map(form).reduce(|best, next| if next.0 > best.0 { next } else { best });
    best.is_some_and(|(_, messages)| messages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scrapers_get_what_they_like_best() {
        let messages = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";
        for (accept, wanted) in [
            ("", false),
            ("*/*", false),
            (messages, true),
            (&format!("{messages};q=0.7,text/plain;version=0.0.4;q=0.3"), true),
            (&format!("{messages};q=0.3, text/plain;version=0.0.4;q=0.7"), false),
            (&format!("text/plain, {messages}"), false),
            (&format!("application/openmetrics-text;version=1.0.0, {messages};q=0.5, */*;q=0.1"), true),
            ("application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=text", false),
            ("application/json", false),
        ] {
            assert_eq!(wants_messages(accept), wanted, "{accept}");
            assert_eq!(finished(page(accept)).0, if wanted { MESSAGES } else { TEXT });
        }
    }
}
