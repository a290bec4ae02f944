//! The gauntlet: what every request passes, in order, whatever transport it came by. This file is the chain.
//!
//! ```text
//! authenticate ▸ audit ▸ impersonate ▸ flow control ▸ authorize ▸ route ─► decode ▸ mutate ▸ validate ▸ admit ▸ commit (rest)
//! ```
//! Nothing goes around it: the in-process client enters at the top like everybody else.

pub mod authentication;
pub mod authorization;
pub mod configuration;
pub mod context;
pub mod expiring;
mod fence;
pub mod flow_control;
pub mod outbound;
pub mod reload;
mod routes;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use hops::Hop;
use http::header::{CACHE_CONTROL, HOST, HeaderName, HeaderValue, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, StatusCode};
use hyper::upgrade::OnUpgrade;
use machinery::gvk::GroupResource;
use machinery::rest::{Body, Handler, Payload, Peer, Request, Response};
use machinery::status::ApiError;

use crate::admission::{self, Operation};
use crate::audit::{self, Audit};
use crate::components::Parts;
use crate::messages::of_watch;
use crate::proxy::Proxy;
use crate::query::Query;
use crate::rest::Api;
use crate::route::RequestInfo;
use authentication::{Authenticator, impersonation};
use authorization::{Attributes, Authorizers, Selectors};
use flow_control::FlowControl;
pub use routes::{Documents, bytes, tagged, text};

/// How long a request may take until its answer begins; a watch's stream is not part of that.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

static AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// The whole API server as one handler.
pub struct Chain {
    /// Who is it?
    pub authenticator: Authenticator,
    /// What is written about it?
    pub audit: Option<Arc<Audit>>,
    /// May they now?
    pub flow_control: Option<Arc<FlowControl>>,
    /// May they?
    pub authorizers: Arc<Authorizers>,
    /// The resources.
    pub api: Arc<Api>,
    /// Requests that a kubelet, a pod or a Service answers.
    pub proxy: Proxy,
    /// How the other parts of this process are.
    pub parts: Arc<Parts>,
    /// Everything else: discovery, health, metrics, version.
    pub documents: Documents,
}

impl Handler for Chain {
    fn handle(&self, request: Request) -> BoxFuture<'_, Response> {
        Box::pin(async move {
            let audit_id = audit_id(request.headers());
            let mut response = context::scope(self.answer(request, &audit_id)).await;
            let headers = response.headers_mut();
            headers.insert(&AUDIT_ID, audit_id);
            headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
            response
        })
    }
}

impl Chain {
    /// The answer, when it may go out: what is audited has been written.
    async fn answer(&self, request: Request, audit_id: &HeaderValue) -> Response {
        // A bug in one request must not take the server down, nor leave the client without an answer.
        let outcome = AssertUnwindSafe(self.pass_in_time(request, audit_id)).catch_unwind().await;
        let panicked = outcome.is_err();
        let response = match outcome {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => refusal(&error),
            Err(_) => refusal(&ApiError::internal("the request made the server panic; its log has more")),
        };
        let mut response = response;
        context::write_flow(response.headers_mut());
        // Who is refused hears the warnings too.
        context::write_warnings(response.headers_mut());
        let response = match context::record() {
            Some(record) => record.answered(response, panicked, context::take_annotations()).await,
            None => response,
        };
        match context::take_measure() {
            Some(measure) => measure.answered(response),
            None => response,
        }
    }

    /// Requests that are not meant to stay open end after a minute, whatever holds them up: a slow body, a store that is away.
    async fn pass_in_time(&self, request: Request, audit_id: &HeaderValue) -> Result<Response, ApiError> {
        let limit = time_limit(request.uri().query().unwrap_or_default())?;
        match tokio::time::timeout(limit, threads::heavy::scope(self.pass(request, audit_id))).await {
            Ok(outcome) => outcome,
            Err(_) => Err(ApiError::timeout("request did not complete within the allotted timeout")),
        }
    }

    async fn pass(&self, request: Request, audit_id: &HeaderValue) -> Result<Response, ApiError> {
        let begun = Instant::now();
        let (mut parts, mut body) = request.into_parts();
        let upgrade = parts.extensions.remove::<OnUpgrade>();
        let path = percent_encoding::percent_decode_str(parts.uri.path())
            .decode_utf8()
            .map_err(|_| ApiError::bad_request("the path is not UTF-8"))?;
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let info = RequestInfo::of(&parts.method, &path, &query);

        let hop = hops::start(Hop::Authenticate, info.verb);
        let peer = parts.extensions.remove::<Peer>().ok_or_else(ApiError::unauthorized)?;
        let attempted = self.audit.as_ref().and_then(|_| audit::attempted(&parts.headers, &peer));
        let user = self.authenticator.authenticate(&peer, &mut parts.headers, &path).await;
        let record = match &self.audit {
            None => None,
            Some(audit) => self.begin_record(audit, audit_id, &parts, &info, &user, &peer, attempted).await?,
        };
        let authenticated = user?;
        let selectors = Selectors::of(&info, &query);
        let request = Attributes { selectors: Some(&selectors), ..Attributes::of(&authenticated, &info) };
        let user = match self.authenticator.impersonation.impersonate(&self.authorizers, &request, &parts.headers).await
        {
            Err(error) => return Ok(plain(&error)),
            Ok(None) => authenticated.clone(),
            Ok(Some(impersonated)) => {
                if let Some(record) = &record {
                    record.impersonates(&impersonated.user, impersonated.constraint);
                }
                impersonated.user
            }
        };
        impersonation::strip(&mut parts.headers);
        hop.end("", "", 0);

        let hop = hops::start(Hop::FlowControl, info.verb);
        let _seat = match &self.flow_control {
            Some(flow_control) => match flow_control.enter(&info, &query, &user, || self.objects(&info)).await {
                Ok(seat) => seat,
                Err(busy) => return Ok(busy.response()),
            },
            None => None,
        };
        hop.end("", "", 0);

        let hop = hops::start(Hop::Authorize, info.verb);
        let attributes = Attributes { selectors: Some(&selectors), ..Attributes::of(&user, &info) };
        let verdict = self.authorizers.authorize(&attributes).await;
        if let Some(record) = &record {
            let decision = if verdict.allows() { "allow" } else { "forbid" };
            record.annotate("authorization.k8s.io/decision", decision);
            record.annotate("authorization.k8s.io/reason", verdict.reason());
        }
        if !verdict.allows() {
            return Ok(plain(&authorization::forbidden(&attributes, verdict.reason())));
        }
        hop.end("", "", 0);

        fence::check(&self.api, &info, &parts.headers)?;
        if !info.is_resource {
            context::keep_measure(self.api.metrics.requests.begin(None, &info, &query, false, begun));
            return self.documents.answer(&parts, &info, &query, |figures| {
                self.authenticator.metrics(figures);
                self.authorizers.metrics(figures);
            });
        }
        let served = match self.api.registry.get(&info.group, &info.version, &info.resource) {
            Ok(served) if !info.path.contains("//") => served,
            // Where there is no API there is not even a word of one.
            Err(_) if !info.group.is_empty() && facts::table().group(&info.group).is_none() => {
                return Ok(routes::no_such_page());
            }
            Ok(_) => return Err(ApiError::no_such_path()),
            Err(error) => return Err(error),
        };
        // Who asks for what is not offered hears that, and nothing of what is.
        let offered = match info.subresource.as_str() {
            "" => served.facts.verbs.has(info.verb),
            name => served.facts.subresource(name).is_some_and(|subresource| subresource.verbs.has(info.verb)),
        };
        if let Some(text) = crate::registry::deprecation::warning(served.facts).filter(|_| offered) {
            context::warn(text);
        }
        let applies = crate::rest::is_apply(&parts.headers);
        context::keep_measure(self.api.metrics.requests.begin(Some(served.facts), &info, &query, applies, begun));
        match &served.resource {
            Some(resource) => {
                let call = crate::rest::Call {
                    info: &info,
                    query: &query,
                    headers: &parts.headers,
                    method: &parts.method,
                    user: &user,
                    served,
                    resource,
                };
                if call.connects() {
                    self.check_upgrade(&attributes).await?;
                    if info.subresource != "log" {
                        let request = admission::Request {
                            operation: Operation::Connect,
                            info: &info,
                            resource,
                            facts: served.facts,
                            user: &user,
                            dry_run: false,
                            options: query.pairs(),
                        };
                        let options = admission::connect_options(&info.resource, &info.subresource, query.pairs());
                        Box::pin(self.api.admission.connect(&self.api, &request, options)).await?;
                    }
                    let host = parts.uri.authority().map(http::uri::Authority::as_str);
                    let host = host.or_else(|| parts.headers.get(HOST).and_then(|host| host.to_str().ok()));
                    let client = crate::proxy::Client { peer: &peer, host: host.unwrap_or_default(), upgrade };
                    return Box::pin(self.proxy.pass(&self.api, &call, client, body)).await;
                }
                if let Some(record) = &record {
                    body = record.sent(&parts.headers, body).await?;
                }
                let answer = self.api.serve(call, body).await?;
                Ok(if info.verb == "watch" { of_watch(&parts.method, &parts.headers, upgrade, answer) } else { answer })
            }
            None => {
                if let Some(record) = &record {
                    body = record.sent(&parts.headers, body).await?;
                }
                // Boxed, as the connections above: what few requests need is not to be part of every request's state.
                Box::pin(self.review(served, &info, &parts.headers, &query, &user, body)).await
            }
        }
    }

    /// A WebSocket begins with a GET where SPDY begins with a POST: who may only `get` must not get in by that.
    async fn check_upgrade(&self, attributes: &Attributes<'_>) -> Result<(), ApiError> {
        let enters =
            matches!((attributes.resource, attributes.subresource), ("pods", "exec" | "attach" | "portforward"));
        if !enters || attributes.verb == "create" {
            return Ok(());
        }
        let verdict = self.authorizers.authorize(&Attributes { verb: "create", ..*attributes }).await;
        if verdict.allows() {
            return Ok(());
        }
        let resource = GroupResource::new(attributes.group, attributes.resource);
        Err(ApiError::forbidden(&resource, attributes.name, verdict.reason()))
    }

    /// How many objects there are of the resource that a request is about.
    fn objects(&self, info: &RequestInfo) -> Option<usize> {
        let served = self.api.registry.get(&info.group, &info.version, &info.resource).ok()?;
        served.resource.as_ref().map(|resource| resource.cache.len())
    }

    /// Opens the record of a request, or writes that its sender could not be made out.
    #[allow(clippy::too_many_arguments, reason = "all that is known of a request, once")]
    async fn begin_record(
        &self,
        audit: &Arc<Audit>,
        audit_id: &HeaderValue,
        parts: &http::request::Parts,
        info: &RequestInfo,
        user: &Result<Arc<machinery::rest::User>, ApiError>,
        peer: &Peer,
        attempted: Option<String>,
    ) -> Result<Option<Arc<audit::Record>>, ApiError> {
        let audit_id = audit_id.to_str().unwrap_or_default();
        let Ok(user) = user else {
            audit.unauthenticated(audit_id, parts, info, peer, attempted).await;
            return Ok(None);
        };
        let record = audit.begin(audit_id, parts, info, user, peer).await?;
        if let Some(record) = &record {
            context::keep_record(record.clone());
        }
        Ok(record)
    }

    /// Resources that are asked and answered, and never stored.
    async fn review(
        &self,
        served: &crate::registry::Served,
        info: &RequestInfo,
        headers: &HeaderMap,
        query: &Query,
        user: &Arc<machinery::rest::User>,
        body: Body,
    ) -> Result<Response, ApiError> {
        if !served.facts.verbs.has(info.verb) {
            return Err(ApiError::method_not_allowed());
        }
        crate::reviews::answer(self, served.facts, info, headers, query, user, body).await
    }
}

/// A failure as an answer.
fn refusal(error: &ApiError) -> Response {
    let mut response = Response::new(Payload::Value(error.to_value()));
    *response.status_mut() = StatusCode::from_u16(error.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if let Some(seconds) = error.details.as_ref().map(|details| details.retry_after).filter(|seconds| *seconds > 0) {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// A failure whose text has in it what the client sent: no browser is to make more of it.
fn plain(error: &ApiError) -> Response {
    let mut response = refusal(error);
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// The client's own id of the request, if it has a sane one, or a new one.
fn audit_id(headers: &HeaderMap) -> HeaderValue {
    match headers.get(&AUDIT_ID) {
        Some(id) if !id.is_empty() && id.len() <= 64 => id.clone(),
        _ => {
            let mut text = uuid::Uuid::encode_buffer();
            HeaderValue::from_str(new_uuid().hyphenated().encode_lower(&mut text)).expect("a uuid is plain ASCII")
        }
    }
}

/// A new uuid from the thread's own generator, which is as good as the system's and costs no system call.
pub(crate) fn new_uuid() -> uuid::Uuid {
    uuid::Builder::from_random_bytes(rand::random()).into_uuid()
}

/// How long a request may take: what it says itself, if that is less than what every request may.
fn time_limit(query: &str) -> Result<Duration, ApiError> {
    if !query.contains("timeout=") {
        return Ok(REQUEST_TIMEOUT);
    }
    let query = Query::parse(query);
    let text = query.get("timeout");
    if text.is_empty() || query.flag("watch") {
        return Ok(REQUEST_TIMEOUT);
    }
    let wanted = authorization::settings::duration(text.strip_prefix(['-', '+']).unwrap_or(text)).ok_or_else(|| {
        let why = format!("time: invalid duration {text:?}");
        ApiError::bad_request(format!("invalid timeout specified in the request URL - {why}"))
    })?;
    let some = !wanted.is_zero() && !text.starts_with('-');
    Ok(if some { wanted.min(REQUEST_TIMEOUT) } else { REQUEST_TIMEOUT })
}
