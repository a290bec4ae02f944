//! Why a request came to nothing, in the words that people search for: refusals that are no `Status`, and servers that nobody reached.

use http::Method;
use machinery::ApiError;
use machinery::status::Reason;
use serde_json::Value;

use crate::error::Failure;

/// What a request was about, as upstream adds it to a refusal that says nothing itself: ` (get pods a)`.
pub(crate) fn asked(method: &Method, path: &str) -> String {
    let path = path.split('?').next().unwrap_or_default();
    let words: Vec<&str> = path.split('/').skip(1).collect();
    let (group, rest) = match &words[..] {
        ["api", _, rest @ ..] => ("", rest),
        ["apis", group, _, rest @ ..] => (*group, rest),
        _ => return String::new(),
    };
    let (resource, name) = match rest {
        ["namespaces", _, resource, rest @ ..] => (*resource, rest.first()),
        [resource, rest @ ..] => (*resource, rest.first()),
        [] => return String::new(),
    };
    let dot = if group.is_empty() { "" } else { "." };
    let name = name.map(|name| format!(" {name}")).unwrap_or_default();
    format!(" ({} {resource}{dot}{group}{name})", method.as_str().to_lowercase())
}

/// A refusal that is a `Status`, or made into one as upstream makes it.
pub(crate) fn refusal(status: http::StatusCode, body: &[u8], asked: &str) -> Failure {
    let parsed: Option<Value> = serde_json::from_slice(body).ok();
    if let Some(tree) = parsed.filter(|tree| tree.get("kind").and_then(Value::as_str) == Some("Status")) {
        return ApiError::from_value(status.as_u16(), &tree).into();
    }
    let text = String::from_utf8_lossy(body).trim().chars().take(1024).collect::<String>();
    let (reason, message) = match status.as_u16() {
        400 => (Reason::BadRequest, "the server rejected our request for an unknown reason".to_owned()),
        401 => (Reason::Unauthorized, "the server has asked for the client to provide credentials".to_owned()),
        403 => (Reason::Forbidden, if text.is_empty() { "unknown".to_owned() } else { text }),
        404 => (Reason::NotFound, "the server could not find the requested resource".to_owned()),
        405 => (Reason::MethodNotAllowed, "the server does not allow this method on the requested resource".to_owned()),
        406 => (Reason::NotAcceptable, if text.is_empty() { "unknown".to_owned() } else { text }),
        415 => (Reason::UnsupportedMediaType, if text.is_empty() { "unknown".to_owned() } else { text }),
        429 => (
            Reason::TooManyRequests,
            "the server has received too many requests and has asked us to try again later".to_owned(),
        ),
        503 => (Reason::ServiceUnavailable, "the server is currently unable to handle the request".to_owned()),
        504 => (
            Reason::Timeout,
            "the server was unable to return a response in the time allotted, but may still be processing the request"
                .to_owned(),
        ),
        code if code >= 500 => (
            Reason::InternalError,
            format!("an error on the server ({}) has prevented the request from succeeding", quoted(&text)),
        ),
        code => {
            let mut error = ApiError::new(
                Reason::BadRequest,
                format!("the server responded with the status code {code} but did not return more information"),
            );
            (error.code, error.reason) = (code, None);
            error.message += asked;
            return error.into();
        }
    };
    let mut error = ApiError::new(reason, message + asked);
    error.code = status.as_u16();
    error.into()
}

fn quoted(text: &str) -> String {
    if text.is_empty() { "\"unknown\"".to_owned() } else { machinery::status::go_quote(text) }
}

/// Why nobody answered.
pub fn failure(host: &str, error: client::Error) -> Failure {
    match error {
        client::Error::Api(error) => error.into(),
        client::Error::Transport(source) => {
            let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&*source);
            let mut text = source.to_string();
            while let Some(error) = cause {
                if let Some(io) = error.downcast_ref::<std::io::Error>()
                    && io.kind() == std::io::ErrorKind::ConnectionRefused
                {
                    return Failure::Refused(host.to_owned());
                }
                text = error.to_string();
                cause = error.source();
            }
            Failure::Unreachable(certificate(&text))
        }
        client::Error::Timeout(_) => Failure::Unreachable(
            "net/http: request canceled (Client.Timeout exceeded while awaiting headers)".to_owned(),
        ),
        client::Error::Config(error @ client::config::Error::Server { .. }) => {
            let words = error.to_string();
            let scheme = words.trim_start_matches('"').split_once("://").map_or("", |(scheme, _)| scheme);
            if matches!(scheme, "" | "http" | "https") {
                return Failure::Message(words);
            }
            Failure::Unreachable(format!("unsupported protocol scheme {}", machinery::status::go_quote(scheme)))
        }
        // Whoever has no credentials cannot even ask.
        client::Error::Config(error @ client::config::Error::Plugin { .. }) => Failure::Unreachable(error.to_string()),
        other => Failure::Message(other.to_string()),
    }
}

/// The words that people search for when a certificate is not believed.
fn certificate(text: &str) -> String {
    // An authority of the same name that did not sign it is another one: the cluster was made anew, most likely.
    let why = if text.contains("UnknownIssuer") || text.contains("BadSignature") {
        "certificate signed by unknown authority"
    } else if let Some(when) = validity(text) {
        return format!(
            "tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time {when}"
        );
    } else if let Some(names) = names(text) {
        return format!("tls: failed to verify certificate: x509: {names}");
    } else if text.contains("NotValidForName") {
        "certificate is not valid for the name of the server"
    } else {
        return text.to_owned();
    };
    format!("tls: failed to verify certificate: x509: {why}")
}

/// When a certificate was looked at, and when it ended or begins, in Go's words.
fn validity(text: &str) -> Option<String> {
    let (checked, rest) =
        text.split_once("verification time ")?.1.split_once(" (UNIX), but certificate is not valid ")?;
    let (word, rest) = rest.split_once(' ')?;
    let bound = rest.split(' ').next()?;
    let time = |seconds: &str| jiff::Timestamp::from_second(seconds.parse().ok()?).ok();
    // Not valid after a time means that the time is over, and the other way round.
    let relation = if word == "after" { "after" } else { "before" };
    Some(format!("{} is {relation} {}", time(checked)?, time(bound)?))
}

/// For whom a certificate is, in Go's words: names where a name was asked for, addresses where an address was.
fn names(text: &str) -> Option<String> {
    let (asked, all) = text.split_once("not valid for name ")?.1.split_once("; certificate is only valid for ")?;
    let asked = asked.trim_matches('"');
    let kind = if asked.parse::<std::net::IpAddr>().is_ok() { "IpAddress(" } else { "DnsName(" };
    let quoted =
        |part: &str| part.strip_prefix(kind).map(|rest| rest.trim_end_matches(')').trim_matches('"').to_owned());
    let valid: Vec<String> = all.split([',', ' ']).filter_map(quoted).collect();
    Some(match &valid[..] {
        [] if kind == "IpAddress(" => {
            format!("cannot validate certificate for {asked} because it doesn't contain any IP SANs")
        }
        [] => format!("certificate is not valid for any names, but wanted to match {asked}"),
        valid => format!("certificate is valid for {}, not {asked}", valid.join(", ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_is_told_where_the_server_says_nothing() {
        for (method, path, expected) in [
            ("GET", "/api/v1/namespaces/default/pods?limit=500", " (get pods)"),
            ("GET", "/api/v1/namespaces/default/pods/a/log", " (get pods a)"),
            ("DELETE", "/apis/apps/v1/namespaces/default/deployments/a", " (delete deployments.apps a)"),
            ("GET", "/api/v1/namespaces/a", " (get namespaces a)"),
            ("GET", "/api/v1/nodes", " (get nodes)"),
            ("POST", "/apis/authorization.k8s.io/v1/x?timeout=1s", " (post x.authorization.k8s.io)"),
            ("GET", "/api", ""),
            ("GET", "/apis/apps/v1", ""),
            ("GET", "/openapi/v3", ""),
        ] {
            assert_eq!(asked(&method.parse().expect("a method"), path), expected, "{path}");
        }
    }

    #[test]
    fn certificates_for_others_are_told_in_gos_words() {
        let text = "invalid peer certificate: certificate not valid for name \"wrong.example\"; certificate is only valid for DnsName(\"a\"), IpAddress(127.0.0.1) or DnsName(\"b.c\")";
        assert_eq!(
            certificate(text),
            "tls: failed to verify certificate: x509: certificate is valid for a, b.c, not wrong.example"
        );
    }

    #[test]
    fn certificates_of_another_authority_are_told_in_gos_words() {
        for seen in ["UnknownIssuer", "BadSignature"] {
            assert_eq!(
                certificate(&format!("invalid peer certificate: {seen}")),
                "tls: failed to verify certificate: x509: certificate signed by unknown authority"
            );
        }
    }

    #[test]
    fn certificates_of_another_time_are_told_in_gos_words() {
        let seen = "invalid peer certificate: certificate expired: verification time 1795016089 (UNIX), but certificate is not valid after 1609459200 (185556889 seconds ago)";
        assert_eq!(
            certificate(seen),
            "tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time 2026-11-18T15:34:49Z is after 2021-01-01T00:00:00Z"
        );
        let early = "invalid peer certificate: certificate not valid yet: verification time 1795016089 (UNIX), but certificate is not valid before 1893456000 (98439911 seconds in future)";
        assert!(certificate(early).ends_with("current time 2026-11-18T15:34:49Z is before 2030-01-01T00:00:00Z"));
    }

    #[test]
    fn what_is_no_status_is_made_one() {
        for (code, body, expected) in [
            (
                404,
                "404 page not found",
                "Error from server (NotFound): the server could not find the requested resource",
            ),
            (
                500,
                "<html>",
                "Error from server (InternalError): an error on the server (\"<html>\") has prevented the request from succeeding",
            ),
            (403, r#"{"kind":"Status","reason":"Forbidden","message":"no"}"#, "Error from server (Forbidden): no"),
        ] {
            let status = http::StatusCode::from_u16(code).expect("a code");
            assert_eq!(refusal(status, body.as_bytes(), "").render(), expected);
        }
    }
}
