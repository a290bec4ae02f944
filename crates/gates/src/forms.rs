//! Content negotiation: which form of an answer a client wants most. It is done once for a request ([`Forms::of`]); whoever needs a
//! form, from the first gate to the encoder, asks what came of it.

use http::HeaderMap;
use http::header::{ACCEPT, ACCEPT_ENCODING, USER_AGENT};
use machinery::accept::{Clause, clauses};
use machinery::query::Query;
use machinery::status::{ApiError, Reason};

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
    pub media: Media,
    pub shape: Shape,
    /// Whether the shape is that of `meta.k8s.io/v1beta1`, which is v1's under another name.
    pub beta: bool,
}

/// JSON of objects as they are.
pub const PLAIN: Accepted = Accepted { media: Media::Json, shape: Shape::Whole, beta: false };

const ACCEPTED: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

/// What a client said about the form of its answer, read once, and the best form of each kind of answer that both sides know.
#[derive(Debug, Default)]
pub struct Forms {
    /// In the client's order of preference; none takes anything.
    clauses: Vec<Clause>,
    /// The form of objects and of lists of them; none if the client takes no form of ours.
    objects: Option<Accepted>,
    /// As `objects`, of custom resources.
    custom: Option<Accepted>,
    /// The form of what has no table.
    answers: Option<Accepted>,
    /// The form of words about what went wrong.
    errors: Option<Media>,
    /// Whether JSON is to be written for people.
    pub pretty: bool,
    /// Whether the client reads gzip.
    pub gzip: bool,
}

/// What a clause means to us, if it is something that we have.
fn accepted(clause: &Clause, tables: bool) -> Option<Accepted> {
    let media = encoding(clause)?;
    let known = clause.parameter("g") == "meta.k8s.io" && matches!(clause.parameter("v"), "v1" | "v1beta1");
    let shape = match clause.parameter("as") {
        "" if clause.parameter("v").is_empty() && clause.parameter("g").is_empty() => Shape::Whole,
        "Table" if known => Shape::Table,
        "PartialObjectMetadata" if known => Shape::Metadata,
        "PartialObjectMetadataList" if known => Shape::MetadataList,
        _ => return None,
    };
    // A Table is for people, and has no binary form.
    let table = tables && matches!(media, Media::Json | Media::Yaml);
    let beta = shape != Shape::Whole && clause.parameter("v") == "v1beta1";
    (table || shape != Shape::Table).then_some(Accepted { media, shape, beta })
}

fn encoding(clause: &Clause) -> Option<Media> {
    Some(match &*clause.media {
        "application/json" | "*/*" | "application/*" => Media::Json,
        "application/yaml" => Media::Yaml,
        "application/vnd.kubernetes.protobuf" => Media::Protobuf,
        "application/cbor" => Media::Cbor,
        _ => return None,
    })
}

impl Forms {
    /// What these headers and this query ask for.
    pub fn of(headers: &HeaderMap, query: &Query) -> Self {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let accept = text(ACCEPT);
        let mut forms = Self {
            gzip: text(ACCEPT_ENCODING).split(',').any(|encoding| encoding.trim() == "gzip"),
            pretty: is_for_people(query.get("pretty"), || text(USER_AGENT)),
            ..Self::default()
        };
        if accept.is_empty() {
            return forms.plain();
        }
        forms.clauses = clauses(accept);
        if accept.trim().is_empty() {
            return forms.plain();
        }
        let named = || forms.clauses.iter().filter(|clause| !clause.media.is_empty());
        let followed = named().find(|clause| accepted(clause, true).is_some());
        forms.pretty |= followed.is_some_and(|clause| clause.parameter("pretty") == "1");
        forms.objects = followed.and_then(|clause| accepted(clause, true));
        let is_message = |form: &Accepted| form.media == Media::Protobuf && form.shape == Shape::Whole;
        forms.custom = named().filter_map(|clause| accepted(clause, true)).find(|form| !is_message(form));
        forms.answers = named().find_map(|clause| accepted(clause, false));
        let whole = |accepted: &Accepted| accepted.shape == Shape::Whole;
        forms.errors = named().find_map(|clause| accepted(clause, false).filter(whole)).map(|accepted| accepted.media);
        forms
    }

    /// JSON of everything, for a client that takes anything.
    fn plain(self) -> Self {
        let plain = Some(PLAIN);
        Self { objects: plain, custom: plain, answers: plain, errors: Some(Media::Json), ..self }
    }

    /// The form of objects and of lists of them, or 406.
    pub fn objects(&self) -> Result<Accepted, ApiError> {
        self.objects.ok_or_else(unacceptable)
    }

    /// As [`Forms::objects`], of custom resources, which have no messages of protobuf.
    pub fn custom_objects(&self) -> Result<Accepted, ApiError> {
        self.custom.ok_or_else(unacceptable)
    }

    /// The form of what has no table, or 406.
    pub fn answers(&self) -> Result<Accepted, ApiError> {
        self.answers.ok_or_else(unacceptable)
    }

    /// As [`Forms::objects`], of a stream of events, which YAML has no form for.
    pub fn events(&self, custom: bool) -> Result<Accepted, ApiError> {
        let accepted = if custom { self.custom_objects()? } else { self.objects()? };
        if accepted.media == Media::Yaml {
            let streams = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
            let message = format!("only the following media types are accepted: {streams}");
            return Err(ApiError::new(Reason::NotAcceptable, message));
        }
        Ok(accepted)
    }

    /// The encoding for words about what went wrong, which have no shape but their own. None if the client takes none of
    /// ours: such words are then written as JSON for people.
    pub fn errors(&self) -> Option<Media> {
        self.errors
    }

    /// The media types that are named, without parameters, in the client's order of preference.
    pub fn named(&self) -> impl Iterator<Item = &str> {
        self.clauses.iter().map(|clause| &*clause.media)
    }

    /// What the first clause means that `choose` knows, by its media type and its parameters.
    pub fn first<T>(&self, choose: impl Fn(&str, &dyn Fn(&str) -> String) -> Option<T>) -> Option<T> {
        self.clauses.iter().find_map(|clause| choose(&clause.media, &|name| clause.parameter(name).to_owned()))
    }

    /// Upstream's routes name what they produce, and a request that names none of it goes no further. CBOR is produced
    /// everywhere, though no route of upstream's says so by default.
    pub fn routed(&self, produced: &[&str]) -> Result<(), ApiError> {
        let fits = |media: &str| matches!(media, "*/*" | "application/cbor") || produced.contains(&media);
        if self.clauses.is_empty() || self.named().any(fits) {
            return Ok(());
        }
        let message = format!("406: Not Acceptable\n\nAvailable representations: {}", produced.join(", "));
        let mut error = ApiError::new(Reason::NotAcceptable, message);
        error.details = Some(Box::default());
        Err(error)
    }

    /// The aggregated discovery document that a client prefers to the legacy one, if it does.
    pub fn aggregated_discovery(&self) -> Option<Aggregated> {
        let wanted = |clause: &Clause| {
            let of = (&*clause.media, clause.parameter("g"), clause.parameter("v"), clause.parameter("as"));
            match of {
                ("application/json", "apidiscovery.k8s.io", "v2", "APIGroupDiscoveryList") => {
                    Some(Some(Aggregated::V2))
                }
                ("application/json", "apidiscovery.k8s.io", "v2beta1", "APIGroupDiscoveryList") => {
                    Some(Some(Aggregated::V2beta1))
                }
                ("application/json" | "*/*", _, _, "") => Some(None),
                _ => None,
            }
        };
        self.clauses.iter().find_map(wanted).flatten()
    }
}

/// The version of the aggregated document of discovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregated {
    /// `apidiscovery.k8s.io/v2`.
    V2,
    /// `apidiscovery.k8s.io/v2beta1`, the same but for its name.
    V2beta1,
}

impl Aggregated {
    /// The `apiVersion` of the document.
    pub fn api_version(self) -> &'static str {
        match self {
            Aggregated::V2 => "apidiscovery.k8s.io/v2",
            Aggregated::V2beta1 => "apidiscovery.k8s.io/v2beta1",
        }
    }
}

/// Nothing that the client takes can be given.
pub fn unacceptable() -> ApiError {
    ApiError::new(Reason::NotAcceptable, format!("only the following media types are accepted: {ACCEPTED}"))
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

/// Whether JSON is to be written for people: they say so, or their program is one of those that people look at.
fn is_for_people<'a>(pretty: &str, agent: impl FnOnce() -> &'a str) -> bool {
    match pretty {
        "" => {
            let agent = agent();
            ["curl", "Wget", "Mozilla/5.0"].iter().any(|browser| agent.starts_with(browser))
        }
        text => matches!(text, "1" | "t" | "T" | "true" | "TRUE" | "True"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn check(accept: &'static str, expect: Option<(Media, Shape)>) {
        let got = forms(ACCEPT, accept).objects().ok().map(|accepted| (accepted.media, accepted.shape));
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

    fn forms(name: http::HeaderName, text: &'static str) -> Forms {
        with_query(name, text, "")
    }

    fn with_query(name: http::HeaderName, text: &'static str, query: &str) -> Forms {
        Forms::of(&HeaderMap::from_iter([(name, HeaderValue::from_static(text))]), &Query::parse(query))
    }

    #[test]
    fn custom_resources_have_no_messages() {
        let custom = |accept| forms(ACCEPT, accept).custom_objects().ok().map(|form| (form.media, form.shape));
        assert_eq!(custom("application/vnd.kubernetes.protobuf"), None);
        assert_eq!(custom("application/vnd.kubernetes.protobuf,application/json"), Some((Media::Json, Shape::Whole)));
        assert_eq!(custom("application/vnd.kubernetes.protobuf, */*"), Some((Media::Json, Shape::Whole)));
        assert_eq!(custom(""), Some((Media::Json, Shape::Whole)));
        let metadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        assert_eq!(custom(metadata), Some((Media::Protobuf, Shape::Metadata)));
    }

    #[test]
    fn errors_have_no_shape_but_their_own() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        assert_eq!(forms(ACCEPT, table).errors(), None);
        assert_eq!(forms(ACCEPT, "text/html").errors(), None);
        let either = "application/json;as=Table;v=v1;g=meta.k8s.io,application/yaml";
        assert_eq!(forms(ACCEPT, either).errors(), Some(Media::Yaml));
        assert_eq!(forms(USER_AGENT, "kubectl").errors(), Some(Media::Json));
    }

    #[test]
    fn routes_refuse_what_they_do_not_produce() {
        assert!(forms(ACCEPT, "text/html, */*;q=0.1").routed(OBJECTS).is_ok());
        assert!(forms(ACCEPT, "application/json;as=Table;v=v2;g=meta.k8s.io").routed(OBJECTS).is_ok());
        let refused = forms(ACCEPT, "application/*").routed(COLLECTIONS).expect_err("refused");
        assert_eq!(
            refused.message,
            "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf, application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
        );
    }

    #[test]
    fn events_have_no_form_in_yaml() {
        let refused = forms(ACCEPT, "application/yaml").events(false).expect_err("refused");
        assert_eq!(
            refused.message,
            "only the following media types are accepted: application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
        );
        assert!(forms(ACCEPT, "application/cbor").events(false).is_ok());
    }

    #[test]
    fn people_get_lines() {
        let pretty = |agent, query| with_query(USER_AGENT, agent, query).pretty;
        assert!(pretty("curl/8", "") && !pretty("curl/8", "pretty=0"));
        assert!(pretty("kubectl/v1", "pretty=true") && !pretty("kubectl/v1", "pretty"));
        assert!(!pretty("curl/8", "pretty=x"));
        assert!(forms(ACCEPT, "application/json; pretty=1").pretty);
    }

    #[test]
    fn aggregated_discovery_is_given_to_those_who_prefer_it() {
        let kubectl = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
        assert_eq!(forms(ACCEPT, kubectl).aggregated_discovery(), Some(Aggregated::V2));
        assert_eq!(forms(ACCEPT, "application/json").aggregated_discovery(), None);
    }

    #[test]
    fn clients_say_whether_they_read_gzip() {
        for (accept, expected) in
            [("gzip", true), ("deflate, gzip", true), ("gzip;q=0", false), ("identity", false), ("", false)]
        {
            assert_eq!(forms(ACCEPT_ENCODING, accept).gzip, expected, "{accept}");
        }
    }
}
