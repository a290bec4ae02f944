//! What is said of a server that does not switch protocols.

use bytes::Bytes;
use serde_json::Value;

use crate::error::Failure;

/// The message of a `Status`, or the text as it is.
pub fn message(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let status: Value = serde_json::from_slice(body).unwrap_or_default();
    let of = |name: &str| status.get(name).and_then(Value::as_str).unwrap_or_default().trim().to_owned();
    [of("message"), of("error")].into_iter().find(|words| !words.is_empty()).unwrap_or_else(|| text.trim().to_owned())
}

pub fn failure(response: &http::Response<Bytes>) -> Failure {
    Failure::Message(format!("unable to upgrade connection: {}", message(response.body())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_told_by_their_message() {
        for (body, expected) in [
            (r#"{"kind":"Status","message":" no "}"#, "no"),
            (r#"{"error":"odd"}"#, "odd"),
            ("plain\n", "plain"),
            ("", ""),
        ] {
            assert_eq!(message(body.as_bytes()), expected);
        }
    }
}
