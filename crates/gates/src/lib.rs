//! The gauntlet: what every request passes, in order, whatever transport it came by. [`Gates::pass`] is the list.
//!
//! ```text
//! authenticate ▸ audit ▸ impersonate ▸ flow control ▸ authorize ▸ fence ─► what is behind the gates
//! ```
//! Nothing goes around it: the in-process client enters at the top like everybody else. What one gate finds out about a request
//! is in its [`Exchange`], for all gates after it and for whoever answers it.

pub mod answer;
pub mod audit;
pub mod authentication;
pub mod authorization;
pub mod body;
pub mod configuration;
pub mod exchange;
mod fence;
pub mod flow_control;
pub mod forms;
pub mod notes;
pub mod outbound;
pub mod request_info;
pub mod requests;
mod traced;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use hops::{Hop, Stage};
use http::header::{CACHE_CONTROL, HeaderValue};
use machinery::rest::{Body, Handler, Request, Response};
use machinery::status::ApiError;

use audit::Audit;
use authentication::{Authenticator, impersonation};
use authorization::Authorizers;
pub use exchange::{Asked, Exchange, Stop};
pub use fence::{Fence, Held};
use flow_control::FlowControl;
pub use request_info::RequestInfo;

/// What is behind the gates.
pub trait Destination: Send + Sync + 'static {
    /// Answers a request that passed them all.
    fn answer<'a>(&'a self, exchange: &'a mut Exchange, body: Body) -> BoxFuture<'a, Result<Response, Stop>>;

    /// How many objects there are of the resource that a request is about: a long list takes more seats.
    fn objects(&self, info: &RequestInfo) -> Option<usize>;
}

/// The gates, and what is behind them.
pub struct Gates {
    pub authenticator: Arc<Authenticator>,
    /// What is written about it?
    pub audit: Option<Arc<Audit>>,
    pub flow_control: Option<Arc<FlowControl>>,
    pub authorizers: Arc<Authorizers>,
    pub fence: Fence,
    pub destination: Arc<dyn Destination>,
    /// How long a request may take until its answer begins.
    pub request_timeout: Duration,
}

impl Handler for Gates {
    fn handle(&self, request: Request) -> BoxFuture<'_, Response> {
        Box::pin(async move {
            let audit_id = exchange::audit_id(request.headers());
            let mut response = match Exchange::open(request, audit_id.clone(), self.request_timeout) {
                Ok((exchange, body)) => self.answer(exchange, body).await,
                Err(error) => exchange::refusal(&error),
            };
            let headers = response.headers_mut();
            exchange::write_audit_id(headers, audit_id);
            headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
            response
        })
    }
}

impl Gates {
    /// The answer, when it may go out. Requests that are not meant to stay open end in time, whatever holds them up: a slow
    /// body, a store that is away.
    async fn answer(&self, mut exchange: Exchange, body: Body) -> Response {
        let limit = exchange.limit;
        let passing = tokio::time::timeout(limit, threads::heavy::scope(self.pass(&mut exchange, body)));
        // A bug in one request must not take the server down, nor leave the client without an answer.
        let outcome = AssertUnwindSafe(passing).catch_unwind().await;
        let panicked = outcome.is_err();
        let response = match outcome {
            Ok(Ok(Ok(response))) => response,
            Ok(Ok(Err(stop))) => stop.response(),
            Ok(Err(_)) => exchange::refusal(&ApiError::timeout("request did not complete within the allotted timeout")),
            Err(_) => exchange::refusal(&ApiError::internal("the request made the server panic; its log has more")),
        };
        exchange.close(response, panicked).await
    }

    /// The list. Each gate lets the request pass, or stops it.
    async fn pass(&self, exchange: &mut Exchange, body: Body) -> Result<Response, Stop> {
        let hop = hops::start(Hop::Authentication, exchange.info.verb);
        // Who is it? A credential that is shown and does not hold is 401.
        self.authenticate(exchange).await?;
        // Which trace do they belong to? Only some are believed.
        traced::begin(exchange);
        // On the heap: everything that a request may come to is in this future, and each frame around would have room for it.
        Box::pin(self.pass_known(exchange, body, hop)).await
    }

    /// The rest of the list, for somebody who is known.
    async fn pass_known(&self, exchange: &mut Exchange, body: Body, hop: hops::Timer) -> Result<Response, Stop> {
        // What is written about it? Where the log must have a line first, there is no passing without.
        self.audit(exchange).await?;
        // As whom do they act, and may they act as that?
        self.impersonate(exchange).await?;
        hop.within(exchange.trace).end_unnamed();

        let hop = hops::stage(Stage::FlowControl, exchange.info.verb).within(exchange.trace);
        // Is there a seat for them now? Those who find none in time come back later: 429.
        self.take_seats(exchange).await?;
        hop.end_unnamed();

        let hop = hops::start(Hop::Authorisation, exchange.info.verb).within(exchange.trace);
        // May they do this at all? 403.
        self.authorize(exchange).await?;
        hop.end_unnamed();

        // Do they still hold the lease that they write under? The store asks once more.
        exchange.held = self.fence.check(&exchange.info, exchange.headers()).await?;
        // Then somebody answers.
        self.destination.answer(exchange, body).await
    }

    async fn authenticate(&self, exchange: &mut Exchange) -> Result<(), Stop> {
        let Exchange { parts, peer, info, notes, .. } = exchange;
        let attempted = self.audit.as_ref().and_then(|_| audit::attempted(&parts.headers, peer));
        match self.authenticator.authenticate(peer, &mut parts.headers, &info.path, notes).await {
            Ok(user) => exchange.user = user,
            Err(error) => {
                if let Some(audit) = &self.audit {
                    audit.unauthenticated(exchange, attempted).await;
                }
                return Err(error.into());
            }
        }
        Ok(())
    }

    async fn audit(&self, exchange: &mut Exchange) -> Result<(), Stop> {
        if let Some(audit) = &self.audit {
            exchange.record = audit.begin(exchange).await?;
        }
        Ok(())
    }

    async fn impersonate(&self, exchange: &mut Exchange) -> Result<(), Stop> {
        let (modes, attributes) = (&self.authenticator.impersonation, exchange.attributes());
        let impersonated = modes.impersonate(&self.authorizers, &attributes, exchange.headers()).await;
        let impersonated = impersonated.map_err(|error| Stop::plainly(&error))?;
        if let Some(impersonated) = impersonated {
            if let Some(record) = &exchange.record {
                record.impersonates(&impersonated.user, impersonated.constraint);
            }
            exchange.user = impersonated.user;
        }
        impersonation::strip(&mut exchange.parts.headers);
        Ok(())
    }

    async fn take_seats(&self, exchange: &mut Exchange) -> Result<(), Stop> {
        let Some(flow_control) = &self.flow_control else { return Ok(()) };
        let objects = || self.destination.objects(&exchange.info);
        let entered = flow_control.enter(&exchange.info, &exchange.asked.query, &exchange.user, objects).await;
        exchange.flow = entered.flow;
        exchange.seat = entered.seat.map_err(|busy| Stop::Answered(Box::new(busy.response())))?;
        Ok(())
    }

    async fn authorize(&self, exchange: &mut Exchange) -> Result<(), Stop> {
        let attributes = exchange.attributes();
        let verdict = self.authorizers.authorize(&attributes).await;
        if let Some(record) = &exchange.record {
            let decision = if verdict.allows() { "allow" } else { "forbid" };
            record.annotate("authorization.k8s.io/decision", decision);
            record.annotate("authorization.k8s.io/reason", verdict.reason());
        }
        if verdict.allows() {
            return Ok(());
        }
        Err(Stop::plainly(&authorization::forbidden(&attributes, verdict.reason())))
    }
}
