//! What is behind the gates: a request that passed them is sent to whoever answers it.
//!
//! ```text
//! a path that is no resource ─► documents        a resource that is asked and never stored ─► reviews
//! a stored resource ─► rest                       one that a kubelet, a pod or a Service answers ─► proxy
//! a group version of another server ─► aggregation  what nodes and pods use ─► resource_metrics
//! ```

use std::sync::Arc;

use futures::future::BoxFuture;
use gates::authentication::Authenticator;
use gates::authorization::{Attributes, Authorizers};
use gates::{Destination, Exchange, RequestInfo, Stop};
use http::header::HOST;
use machinery::gvk::GroupResource;
use machinery::rest::{Body, Response};
use machinery::status::ApiError;
use rest::admission;
use rest::registry::Served;
use rest::{Api, Call, is_apply};
use threads::heavy;

use crate::aggregation::Aggregation;
use crate::backups::{self, Backups};
use crate::components::Parts;
use crate::documents::{Documents, no_such_page};
use crate::joining::{self, Joining};
use crate::messages::of_watch;
use crate::past;
use crate::proxy::{Client, Proxy};
use crate::resource_metrics::ResourceMetrics;
use crate::reviews;

pub struct Router {
    pub api: Arc<Api>,
    /// Requests that a kubelet, a pod or a Service answers.
    pub proxy: Arc<Proxy>,
    /// What nodes and pods use.
    pub resource_metrics: ResourceMetrics,
    /// How the other parts of this process are.
    pub parts: Arc<Parts>,
    /// Makes backups on request.
    pub backups: Option<Arc<dyn Backups>>,
    /// Lets other servers join.
    pub joining: Option<Arc<dyn Joining>>,
    /// Everything else: discovery, health, metrics, version.
    pub documents: Documents,
    /// For reviews of tokens.
    pub authenticator: Arc<Authenticator>,
    /// For reviews of access.
    pub authorizers: Arc<Authorizers>,
}

impl Destination for Router {
    fn answer<'a>(&'a self, exchange: &'a mut Exchange, body: Body) -> BoxFuture<'a, Result<Response, Stop>> {
        Box::pin(async move {
            if let Some(backend) = self.documents.aggregation.backend(&exchange.info.path) {
                let Exchange { info, asked, begun, .. } = &*exchange;
                exchange.measure = Some(self.api.metrics.requests.begin(None, info, &asked.query, false, *begun));
                // Boxed: what few requests need is not to be part of every request's state.
                return Ok(Box::pin(Aggregation::forward(&backend, exchange, body)).await?);
            }
            let offered = exchange.info.group == resourcemetrics::GROUP
                && self.documents.aggregation.offers(&exchange.info.group, &exchange.info.version);
            if exchange.info.is_resource && !offered {
                return self.resource(exchange, body).await;
            }
            let Exchange { info, asked, begun, .. } = &*exchange;
            exchange.measure = Some(self.api.metrics.requests.begin(None, info, &asked.query, false, *begun));
            if offered {
                return Ok(Box::pin(self.resource_metrics.answer(exchange)).await?);
            }
            if exchange.info.path == backups::PATH {
                return Ok(backups::answer(self.backups.as_deref(), exchange).await?);
            }
            if exchange.info.path == rest::past::PATH {
                return Ok(past::answer(&self.api, exchange).await?);
            }
            if exchange.info.path == rules::names::SERVERS_PATH {
                return joining::answer(self.joining.as_deref(), exchange, body).await;
            }
            if exchange.info.path.starts_with("/openapi/") {
                // What is not prepared yet is made now, of as many definitions as there are.
                heavy::weigh(heavy::HEAVY).await;
            }
            Ok(self.documents.answer(exchange, |figures| {
                self.authenticator.metrics(figures);
                self.authorizers.metrics(figures);
            })?)
        })
    }

    fn objects(&self, info: &RequestInfo) -> Option<usize> {
        let served = self.api.registry.get(&info.group, &info.version, &info.resource).ok()?;
        served.resource.as_ref().map(|resource| resource.cache.len())
    }
}

impl Router {
    /// Answers a request about a resource.
    async fn resource(&self, exchange: &mut Exchange, mut body: Body) -> Result<Response, Stop> {
        let served = match self.served(&exchange.info) {
            Ok(served) => served,
            Err(stop) => return self.elsewhere(exchange, body, stop).await,
        };
        let form = served.resource.as_ref().and_then(|resource| resource.form.as_ref());
        if form.is_some_and(|form| !form.definition.established) {
            return Err(ApiError::internal("error resolving resource").into());
        }
        let Exchange { parts, info, asked, notes, begun, .. } = &*exchange;
        let verbs = match info.subresource.as_str() {
            "" => Some(served.facts.verbs),
            name => served.facts.subresource(name).map(|subresource| subresource.verbs),
        };
        // Who asks for what is not offered gets that answer, and nothing of what is.
        if verbs.is_some_and(|verbs| verbs.has(info.verb))
            && let Some(text) = kinds::deprecation(&served.facts)
        {
            notes.warn(text);
        }
        if let Some(text) = form.and_then(|form| form.version.warning.as_ref()) {
            notes.warn(text.clone());
        }
        let (requests, applies) = (&self.api.metrics.requests, is_apply(&parts.headers));
        exchange.measure = Some(requests.begin(Some(&served.facts), info, &asked.query, applies, *begun));
        let upgrade = exchange.upgrade.take();
        let exchange = &*exchange;
        let connecting = served.resource.as_ref().map(|resource| Call::new(exchange, &served, resource, verbs));
        if let Some(call) = connecting.as_ref().filter(|call| call.connects()) {
            // Boxed: what few requests need is not to be part of every request's state.
            return Ok(Box::pin(self.connect(call, upgrade, body)).await?);
        }
        if let Some(record) = &exchange.record {
            body = record.sent(exchange.headers(), body).await?;
        }
        let Some(call) = connecting else {
            if verbs.is_none_or(|verbs| !verbs.has(exchange.info.verb)) {
                return Err(ApiError::method_not_allowed().into());
            }
            return Ok(Box::pin(reviews::answer(self, &served.facts, exchange, body)).await?);
        };
        let answer = self.api.serve(call, body).await?;
        let parts = &exchange.parts;
        Ok(match exchange.info.verb {
            "watch" => of_watch(&parts.method, &parts.headers, upgrade, answer),
            _ => answer,
        })
    }

    /// Answers a request about a resource that this server does not have: another server of the cluster may have it.
    async fn elsewhere(&self, exchange: &mut Exchange, body: Body, stop: Stop) -> Result<Response, Stop> {
        let Some(peers) = self.documents.peers.as_ref().filter(|peers| peers.answers(exchange)) else {
            return Err(stop);
        };
        let Exchange { info, asked, begun, .. } = &*exchange;
        exchange.measure = Some(self.api.metrics.requests.begin(None, info, &asked.query, false, *begun));
        Ok(Box::pin(peers.pass(exchange, body)).await?)
    }

    /// The resource that a request is about.
    fn served(&self, info: &RequestInfo) -> Result<Arc<Served>, Stop> {
        match self.api.registry.get(&info.group, &info.version, &info.resource) {
            Ok(served) if !info.path.contains("//") => Ok(served),
            // Where there is no API there is not even a word of one.
            Err(_) if !info.group.is_empty() && facts::table().group(&info.group).is_none() => {
                Err(Stop::Answered(Box::new(no_such_page())))
            }
            Ok(_) => Err(ApiError::no_such_path().into()),
            Err(error) => Err(error.into()),
        }
    }

    /// Passes a request on to somebody else, whom the client will be connected with.
    async fn connect(
        &self,
        call: &Call<'_>,
        upgrade: Option<hyper::upgrade::OnUpgrade>,
        body: Body,
    ) -> Result<Response, ApiError> {
        let exchange = call.exchange;
        self.check_upgrade(&exchange.attributes()).await?;
        if call.info.subresource != "log" {
            let request = self.api.admission_request(call, admission::Operation::Connect, false);
            let options = admission::connect_options(&call.info.resource, &call.info.subresource, call.query.pairs());
            self.api.admission.connect(&self.api, &request, options).await?;
        }
        let host = exchange.parts.uri.authority().map(http::uri::Authority::as_str);
        let host = host.or_else(|| call.headers.get(HOST).and_then(|host| host.to_str().ok()));
        let client = Client { peer: &exchange.peer, host: host.unwrap_or_default(), upgrade };
        self.proxy.pass(&self.api, call, client, body).await
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
}
