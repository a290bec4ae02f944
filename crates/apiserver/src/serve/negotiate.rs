//! Content negotiation: which form of an answer a client wants most.

use http::HeaderMap;
use http::header::ACCEPT;
use machinery::status::{ApiError, Reason};

use crate::discovery::Aggregated;

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
}

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

    fn accepted(&self) -> Option<Accepted> {
        let media = match self.media {
            "application/json" | "*/*" | "application/*" => Media::Json,
            "application/yaml" => Media::Yaml,
            "application/vnd.kubernetes.protobuf" => Media::Protobuf,
            "application/cbor" | "application/cbor-seq" => Media::Cbor,
            _ => return None,
        };
        let known = self.parameter("g") == "meta.k8s.io" && matches!(self.parameter("v"), "v1" | "v1beta1");
        let shape = match self.parameter("as") {
            "" => Shape::Whole,
            "Table" if known => Shape::Table,
            "PartialObjectMetadata" if known => Shape::Metadata,
            "PartialObjectMetadataList" if known => Shape::MetadataList,
            _ => return None,
        };
        // A Table has no protobuf form.
        (media != Media::Protobuf || shape != Shape::Table).then_some(Accepted { media, shape })
    }
}

/// The best form that both sides know, or 406.
pub fn accepted(headers: &HeaderMap) -> Result<Accepted, ApiError> {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    if accept.trim().is_empty() {
        return Ok(Accepted { media: Media::Json, shape: Shape::Whole });
    }
    clauses(accept).iter().find_map(Clause::accepted).ok_or_else(|| {
        ApiError::new(Reason::NotAcceptable, format!("only the following media types are accepted: {ACCEPTED}"))
    })
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
        let got = accepted(&headers).ok().map(|accepted| (accepted.media, accepted.shape));
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
        check("text/html", None);
    }

    #[test]
    fn aggregated_discovery_is_given_to_those_who_prefer_it() {
        let kubectl = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
        assert_eq!(aggregated_discovery(kubectl), Some(Aggregated::V2));
        assert_eq!(aggregated_discovery("application/json"), None);
    }
}
