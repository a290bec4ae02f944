//! Content negotiation: which form of an answer a client wants most.

use http::HeaderMap;
use http::header::{ACCEPT, USER_AGENT};
use machinery::status::{ApiError, Reason};

use crate::discovery::Aggregated;
use crate::query::Query;

/// The encodings there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Media {
    /// `application/json`.
    Json,
    /// `application/yaml`.
    Yaml,
    /// `application/vnd.kubernetes.protobuf`.
    Protobuf,
    /// `application/cbor`.
    Cbor,
}

impl Media {
    /// The media type.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
            Self::Cbor => "application/cbor",
        }
    }

    /// The media type of a stream of events.
    pub const fn stream_name(self) -> &'static str {
        match self {
            Self::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
            Self::Cbor => "application/cbor-seq",
            other => other.name(),
        }
    }
}

/// Into what objects are turned before they are encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Nothing: as they are.
    Whole,
    /// Rows of a `meta.k8s.io/v1` Table.
    Table,
    /// `PartialObjectMetadata`.
    Metadata,
    /// `PartialObjectMetadataList`.
    MetadataList,
}

/// What the client wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accepted {
    /// The encoding.
    pub media: Media,
    /// The shape.
    pub shape: Shape,
    /// Whether the shape is that of `meta.k8s.io/v1beta1`, which is v1's under another name.
    pub beta: bool,
}

/// JSON of objects as they are.
pub const PLAIN: Accepted = Accepted { media: Media::Json, shape: Shape::Whole, beta: false };

const ACCEPTED: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

/// One clause of an `Accept` header.
struct Clause<'a> {
    media: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
    quality: f32,
}

fn clauses(accept: &str) -> Vec<Clause<'_>> {
    let mut clauses: Vec<Clause<'_>> = accept
        .split(',')
        .map(|clause| {
            let mut parts = clause.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default();
            let parameters: Vec<(&str, &str)> = parts.filter_map(|part| part.split_once('=')).collect();
            let quality = parameters.iter().find(|(key, _)| *key == "q").and_then(|(_, q)| q.parse().ok());
            Clause { media, parameters, quality: quality.unwrap_or(1.0) }
        })
        .filter(|clause| !clause.media.is_empty())
        .collect();
    // Stable: among equals the client's own order counts.
    clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality));
    clauses
}

impl Clause<'_> {
    fn parameter(&self, name: &str) -> &str {
        self.parameters.iter().find(|(key, _)| *key == name).map_or("", |(_, value)| value)
    }

    fn accepted(&self, tables: bool) -> Option<Accepted> {
        let media = self.encoding()?;
        let known = self.parameter("g") == "meta.k8s.io" && matches!(self.parameter("v"), "v1" | "v1beta1");
        let shape = match self.parameter("as") {
            "" if self.parameter("v").is_empty() && self.parameter("g").is_empty() => Shape::Whole,
            "Table" if known => Shape::Table,
            "PartialObjectMetadata" if known => Shape::Metadata,
            "PartialObjectMetadataList" if known => Shape::MetadataList,
            _ => return None,
        };
        // A Table is for people, and has no binary form.
        let table = tables && matches!(media, Media::Json | Media::Yaml);
        let beta = shape != Shape::Whole && self.parameter("v") == "v1beta1";
        (table || shape != Shape::Table).then_some(Accepted { media, shape, beta })
    }

    fn encoding(&self) -> Option<Media> {
        Some(match self.media {
            "application/json" | "*/*" | "application/*" => Media::Json,
            "application/yaml" => Media::Yaml,
            "application/vnd.kubernetes.protobuf" => Media::Protobuf,
            "application/cbor" => Media::Cbor,
            _ => return None,
        })
    }
}

/// The best form that both sides know, or 406. `tables` says whether the answer can be one.
pub fn accepted(headers: &HeaderMap, tables: bool) -> Result<Accepted, ApiError> {
    let accept = accept(headers);
    if accept.trim().is_empty() {
        return Ok(PLAIN);
    }
    clauses(accept).iter().find_map(|clause| clause.accepted(tables)).ok_or_else(unacceptable)
}

/// As [`accepted`], of a stream of events, which YAML has no form for.
pub fn accepted_stream(headers: &HeaderMap) -> Result<Accepted, ApiError> {
    let accepted = accepted(headers, true)?;
    if accepted.media == Media::Yaml {
        let streams = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
        let message = format!("only the following media types are accepted: {streams}");
        return Err(ApiError::new(Reason::NotAcceptable, message));
    }
    Ok(accepted)
}

/// Nothing that the client takes can be given.
pub fn unacceptable() -> ApiError {
    ApiError::new(Reason::NotAcceptable, format!("only the following media types are accepted: {ACCEPTED}"))
}

/// The encoding for words about what went wrong, which have no shape but their own. None if the client takes none of ours:
/// such words are then written as JSON for people.
pub fn of_errors(headers: &HeaderMap) -> Option<Media> {
    let accept = accept(headers);
    if accept.trim().is_empty() {
        return Some(Media::Json);
    }
    let whole = |accepted: &Accepted| accepted.shape == Shape::Whole;
    clauses(accept).iter().find_map(|clause| clause.accepted(false).filter(whole)).map(|accepted| accepted.media)
}

fn accept(headers: &HeaderMap) -> &str {
    headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default()
}

/// What routes of built-in resources produce.
pub const OBJECTS: &[&str] = &["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
/// What their collections produce: they can be watched, too.
pub const COLLECTIONS: &[&str] = &[
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
];

/// Upstream's routes name what they produce, and a request that names none of it goes no further. CBOR is produced
/// everywhere, though no route of upstream's says so by default.
pub fn routed(headers: &HeaderMap, produced: &[&str]) -> Result<(), ApiError> {
    let accept = accept(headers);
    let mut wanted = accept.split(',').map(|clause| clause.split(';').next().unwrap_or_default().trim());
    if accept.is_empty() || wanted.any(|media| matches!(media, "*/*" | "application/cbor") || produced.contains(&media))
    {
        return Ok(());
    }
    let message = format!("406: Not Acceptable\n\nAvailable representations: {}", produced.join(", "));
    let mut error = ApiError::new(Reason::NotAcceptable, message);
    error.details = Some(Box::default());
    Err(error)
}

/// Whether JSON is to be written for people: they say so, or their program is one of those that people look at.
pub fn pretty(headers: &HeaderMap, query: &Query) -> bool {
    // The clause that is followed may say it, too.
    let accept = accept(headers);
    if accept.contains("pretty=")
        && clauses(accept)
            .iter()
            .find(|clause| clause.accepted(true).is_some())
            .is_some_and(|clause| clause.parameter("pretty") == "1")
    {
        return true;
    }
    match query.get("pretty") {
        "" => {
            let agent = headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
            ["curl", "Wget", "Mozilla/5.0"].iter().any(|browser| agent.starts_with(browser))
        }
        text => matches!(text, "1" | "t" | "T" | "true" | "TRUE" | "True"),
    }
}

/// The aggregated discovery document that a client prefers to the legacy one, if it does.
pub fn aggregated_discovery(accept: &str) -> Option<Aggregated> {
    clauses(accept)
        .iter()
        .find_map(|clause| match (clause.media, clause.parameter("g"), clause.parameter("v"), clause.parameter("as")) {
            ("application/json", "apidiscovery.k8s.io", "v2", "APIGroupDiscoveryList") => Some(Some(Aggregated::V2)),
            ("application/json", "apidiscovery.k8s.io", "v2beta1", "APIGroupDiscoveryList") => {
                Some(Some(Aggregated::V2beta1))
            }
            ("application/json" | "*/*", _, _, "") => Some(None),
            _ => None,
        })
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn check(accept: &'static str, expect: Option<(Media, Shape)>) {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        let got = accepted(&headers, true).ok().map(|accepted| (accepted.media, accepted.shape));
        assert_eq!(got, expect, "{accept}");
    }

    #[test]
    fn the_clients_first_choice_that_we_know_wins() {
        check("", Some((Media::Json, Shape::Whole)));
        check("*/*", Some((Media::Json, Shape::Whole)));
        check("application/yaml", Some((Media::Yaml, Shape::Whole)));
        check("application/json;q=0.5, application/yaml;q=0.9", Some((Media::Yaml, Shape::Whole)));
        check("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", Some((Media::Json, Shape::Table)));
        check("application/json;as=Chair;v=v1;g=meta.k8s.io,application/json", Some((Media::Json, Shape::Whole)));
        check("application/vnd.kubernetes.protobuf,application/json", Some((Media::Protobuf, Shape::Whole)));
        check(
            "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,application/json",
            Some((Media::Json, Shape::Whole)),
        );
        check("application/cbor;as=Table;v=v1;g=meta.k8s.io,application/json", Some((Media::Json, Shape::Whole)));
        check("text/html", None);
        check("application/cbor-seq", None);
        check("application/json;v=v1", None);
        check("application/json;as=;v=v1;g=meta.k8s.io,application/yaml", Some((Media::Yaml, Shape::Whole)));
    }

    fn headers(name: http::HeaderName, text: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_static(text))])
    }

    #[test]
    fn errors_have_no_shape_but_their_own() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        assert_eq!(of_errors(&headers(ACCEPT, table)), None);
        assert_eq!(of_errors(&headers(ACCEPT, "text/html")), None);
        let either = "application/json;as=Table;v=v1;g=meta.k8s.io,application/yaml";
        assert_eq!(of_errors(&headers(ACCEPT, either)), Some(Media::Yaml));
        assert_eq!(of_errors(&HeaderMap::new()), Some(Media::Json));
    }

    #[test]
    fn routes_refuse_what_they_do_not_produce() {
        assert!(routed(&headers(ACCEPT, "text/html, */*;q=0.1"), OBJECTS).is_ok());
        assert!(routed(&headers(ACCEPT, "application/json;as=Table;v=v2;g=meta.k8s.io"), OBJECTS).is_ok());
        let refused = routed(&headers(ACCEPT, "application/*"), COLLECTIONS).expect_err("refused");
        assert_eq!(
            refused.message,
            "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf, application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
        );
    }

    #[test]
    fn events_have_no_form_in_yaml() {
        let refused = accepted_stream(&headers(ACCEPT, "application/yaml")).expect_err("refused");
        assert_eq!(
            refused.message,
            "only the following media types are accepted: application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
        );
        assert!(accepted_stream(&headers(ACCEPT, "application/cbor")).is_ok());
    }

    #[test]
    fn people_get_lines() {
        let (curl, kubectl) = (headers(USER_AGENT, "curl/8"), headers(USER_AGENT, "kubectl/v1"));
        assert!(pretty(&curl, &Query::parse("")) && !pretty(&curl, &Query::parse("pretty=0")));
        assert!(pretty(&kubectl, &Query::parse("pretty=true")) && !pretty(&kubectl, &Query::parse("pretty")));
        assert!(!pretty(&curl, &Query::parse("pretty=x")));
        assert!(pretty(&headers(ACCEPT, "application/json; pretty=1"), &Query::parse("")));
    }

    #[test]
    fn aggregated_discovery_is_given_to_those_who_prefer_it() {
        let kubectl = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
        assert_eq!(aggregated_discovery(kubectl), Some(Aggregated::V2));
        assert_eq!(aggregated_discovery("application/json"), None);
    }
}
