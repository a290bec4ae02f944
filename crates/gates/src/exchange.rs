//! One request under way: what there is to know of it, found out once, and what is owed at its end.
//!
//! It is opened when a request comes in, passed along the gates, each of which adds what it found out, and closed with the
//! answer. Nobody behind the gates reads the query, negotiates a form or asks who the user is a second time.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use http::header::{HeaderName, HeaderValue, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, StatusCode};
use hyper::upgrade::OnUpgrade;
use machinery::query::Query;
use machinery::rest::{Body, Payload, Peer, Request, Response, User};
use machinery::status::ApiError;

use super::authorization::{Attributes, Selectors};
use super::flow_control::Seat;
use super::forms::Forms;
use super::notes::Notes;
use super::request_info::RequestInfo;
use super::{Held, traced};
use crate::audit::Record;
use crate::requests::Measure;

/// How long a request may take until its answer begins, by default; a watch's stream is not part of that.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

static AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// Who a request is from before anybody has found out.
static NOBODY: LazyLock<Arc<User>> = LazyLock::new(Arc::default);

/// What a request asks for besides its subject. A listener, which needs it for the answer, reads it and sends it along as an
/// extension of the request.
#[derive(Debug)]
pub struct Asked {
    pub query: Query,
    /// In which form it wants its answer.
    pub forms: Forms,
}

impl Asked {
    pub fn of(parts: &http::request::Parts) -> Arc<Self> {
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let forms = Forms::of(&parts.headers, &query);
        Arc::new(Self { query, forms })
    }
}

/// Why a request goes no further.
pub enum Stop {
    Refused(ApiError),
    /// It has its answer, which is no plain `Status`.
    Answered(Box<Response>),
}

impl From<ApiError> for Stop {
    fn from(error: ApiError) -> Self {
        Self::Refused(error)
    }
}

impl Stop {
    /// A refusal whose text has in it what the client sent: no browser is to make more of it.
    pub fn plainly(error: &ApiError) -> Self {
        let mut response = refusal(error);
        response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        Self::Answered(Box::new(response))
    }

    /// The answer that the client gets.
    pub fn response(self) -> Response {
        match self {
            Self::Refused(error) => refusal(&error),
            Self::Answered(response) => *response,
        }
    }
}

/// A failure as an answer.
pub fn refusal(error: &ApiError) -> Response {
    let mut response = Response::new(Payload::Value(error.to_value()));
    *response.status_mut() = StatusCode::from_u16(error.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if let Some(seconds) = error.details.as_ref().map(|details| details.retry_after).filter(|seconds| *seconds > 0) {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// One request under way.
pub struct Exchange {
    /// When it came in.
    pub begun: Instant,
    /// Method, address and headers. The headers that prove who sent it are gone once that is known.
    pub parts: http::request::Parts,
    /// Its parameters, and the forms it takes.
    pub asked: Arc<Asked>,
    /// What it is about.
    pub info: RequestInfo,
    /// Which objects it is about, as its selectors say.
    pub selectors: Selectors,
    /// How long it may take.
    pub limit: Duration,
    /// Who is at the other end.
    pub peer: Peer,
    /// Who asks: whom the peer was found to be, or acts as.
    pub user: Arc<User>,
    /// What is written about it, where a policy wants that. Who carries a connection on after the answer holds it until the end.
    pub record: Option<Arc<Record>>,
    /// The uids of its flow schema and of its priority level.
    pub flow: Option<(HeaderValue, HeaderValue)>,
    pub seat: Option<Seat>,
    /// The lease that it is made under.
    pub held: Option<Held>,
    pub notes: Notes,
    /// How it is counted; none as long as it has not passed the gates.
    pub measure: Option<Measure>,
    /// Its connection, if it wants to use it for something else.
    pub upgrade: Option<OnUpgrade>,
    /// What ties its hops together.
    pub trace: hops::Trace,
    /// The trace that it says it belongs to.
    pub(crate) given: Option<hops::Context>,
    audit_id: HeaderValue,
}

impl Exchange {
    /// Opens it, with the body apart: that is read only behind the gates. It may take no longer than `longest`.
    pub fn open(request: Request, audit_id: HeaderValue, longest: Duration) -> Result<(Self, Body), ApiError> {
        let begun = Instant::now();
        let (mut parts, body) = request.into_parts();
        let asked = parts.extensions.remove::<Arc<Asked>>().unwrap_or_else(|| Asked::of(&parts));
        let limit = time_limit(&asked.query, longest)?;
        let path = percent_encoding::percent_decode_str(parts.uri.path())
            .decode_utf8()
            .map_err(|_| ApiError::bad_request("the path is not UTF-8"))?;
        let info = RequestInfo::of(&parts.method, &path, &asked.query);
        let selectors = Selectors::of(&info, &asked.query);
        let peer = parts.extensions.remove::<Peer>().ok_or_else(ApiError::unauthorized)?;
        let upgrade = parts.extensions.remove::<OnUpgrade>();
        let given = traced::given(&mut parts);
        let exchange = Self {
            begun,
            parts,
            asked,
            info,
            selectors,
            limit,
            peer,
            user: NOBODY.clone(),
            record: None,
            flow: None,
            seat: None,
            held: None,
            notes: Notes::default(),
            measure: None,
            upgrade,
            trace: hops::Trace::begin(),
            given,
            audit_id,
        };
        Ok((exchange, body))
    }

    /// The id under which it is audited.
    pub fn audit_id(&self) -> &str {
        self.audit_id.to_str().unwrap_or_default()
    }

    /// The same, as it goes into headers.
    pub fn audit_header(&self) -> &HeaderValue {
        &self.audit_id
    }

    pub fn query(&self) -> &Query {
        &self.asked.query
    }

    /// The forms it takes.
    pub fn forms(&self) -> &Forms {
        &self.asked.forms
    }

    pub fn headers(&self) -> &HeaderMap {
        &self.parts.headers
    }

    /// What authorizers decide by.
    pub fn attributes(&self) -> Attributes<'_> {
        Attributes { selectors: Some(&self.selectors), ..Attributes::of(&self.user, &self.info) }.within(self.trace)
    }

    /// Closes it with this answer, which may go out when this is done: what is audited has been written.
    pub async fn close(mut self, mut response: Response, panicked: bool) -> Response {
        self.seat = None;
        traced::ended(&self, response.status());
        let headers = response.headers_mut();
        if let Some((schema, level)) = self.flow.take() {
            headers.insert(HeaderName::from_static("x-kubernetes-pf-flowschema-uid"), schema);
            headers.insert(HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid"), level);
        }
        // A refusal carries the warnings too.
        self.notes.write_warnings(headers);
        if let Some(record) = self.record.take() {
            response = record.answered(response, panicked, self.notes.take_annotations()).await;
        }
        match self.measure.take() {
            Some(measure) => measure.answered(response),
            None => response,
        }
    }
}

/// The client's own id of the request, if it has a sane one, or a new one.
pub fn audit_id(headers: &HeaderMap) -> HeaderValue {
    match headers.get(&AUDIT_ID) {
        Some(id) if !id.is_empty() && id.len() <= 64 => id.clone(),
        _ => {
            let mut text = uuid::Uuid::encode_buffer();
            let text = common::new_uuid().hyphenated().encode_lower(&mut text);
            HeaderValue::from_str(text).expect("a uuid is plain ASCII")
        }
    }
}

/// Writes the id of the request into its answer.
pub fn write_audit_id(headers: &mut HeaderMap, audit_id: HeaderValue) {
    headers.insert(&AUDIT_ID, audit_id);
}

/// How long a request may take: what it says itself, if that is less than what every request may.
fn time_limit(query: &Query, longest: Duration) -> Result<Duration, ApiError> {
    let text = query.get("timeout");
    if text.is_empty() || query.flag("watch") {
        return Ok(longest);
    }
    let nanos = machinery::duration::parse_nanos(text)
        .map_err(|why| ApiError::bad_request(format!("invalid timeout specified in the request URL - {why}")))?;
    let wanted = u64::try_from(nanos).ok().filter(|nanos| *nanos > 0).map(Duration::from_nanos);
    Ok(wanted.map_or(longest, |wanted| wanted.min(longest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_listener_has_read_is_not_read_again() {
        let request = |asked: Option<Arc<Asked>>| {
            let mut request = Request::new(Body::Empty);
            *request.uri_mut() = "/api/v1/pods?limit=3&timeout=5s".parse().expect("a URI");
            request.extensions_mut().insert(Peer::InProcess(Arc::default()));
            if let Some(asked) = asked {
                request.extensions_mut().insert(asked);
            }
            Exchange::open(request, HeaderValue::from_static("id"), REQUEST_TIMEOUT).expect("an exchange").0
        };
        let own = request(None);
        assert_eq!((own.query().get("limit"), own.limit), ("3", Duration::from_secs(5)));
        assert_eq!((own.info.verb, own.audit_id()), ("list", "id"));
        let parts = http::Request::new(()).into_parts().0;
        let asked = Asked::of(&parts);
        assert!(Arc::ptr_eq(&request(Some(asked.clone())).asked, &asked));
    }

    #[test]
    fn a_request_may_ask_for_less_time_and_not_for_more() {
        let limit = |query: &str| time_limit(&Query::parse(query), REQUEST_TIMEOUT).map_err(|error| error.message);
        assert_eq!(limit(""), Ok(REQUEST_TIMEOUT));
        assert_eq!(limit("timeout=2s"), Ok(Duration::from_secs(2)));
        for as_usual in ["timeout=2h", "timeout=0s", "timeout=-3s", "timeout=1s&watch=true"] {
            assert_eq!(limit(as_usual), Ok(REQUEST_TIMEOUT), "{as_usual}");
        }
        let refused = "invalid timeout specified in the request URL - time: invalid duration \"soon\"";
        assert_eq!(limit("timeout=soon"), Err(refused.to_owned()));
    }
}
