//! Paths that are not resources: discovery, OpenAPI, health, version, metrics.

use std::sync::Arc;

use bytes::Bytes;
use gates::Exchange;
use gates::answer::{bytes, text};
use gates::audit::Audit;
use gates::flow_control::FlowControl;
use gates::forms::{self, Media, Shape};
use http::header::{ACCEPT, CACHE_CONTROL, ETAG, HeaderValue, IF_NONE_MATCH, VARY, WARNING};
use http::{Method, StatusCode};
use jiff::Timestamp;
use machinery::rest::{Payload, Response};
use machinery::status::ApiError;
use rest::{Api, value_response};
use rules::zpages::{Component, Page};
use storage::encryption::Encryption;

use crate::aggregation::Aggregation;
use crate::discovery::{Aggregated, Document, Root};
use crate::extension::Published;
use crate::health::Health;
use crate::metrics;
use crate::page;
use crate::peers::Peers;
use crate::version;

/// Everything that answers at a fixed path.
pub struct Documents {
    /// Groups, versions, resources and schemas.
    pub published: Arc<Published>,
    /// What other servers have.
    pub aggregation: Aggregation,
    /// What the other servers of the cluster have.
    pub(crate) peers: Option<Arc<Peers>>,
    pub health: Arc<Health>,
    /// For its figures and dumps.
    pub flow_control: Option<Arc<FlowControl>>,
    pub audit: Option<Arc<Audit>>,
    pub encryption: Option<Arc<Encryption>>,
    /// Write the figures of the other parts in this process.
    pub figures: Vec<fn(&mut String)>,
    /// What the server says of itself; the paths are those of the moment.
    pub component: Component,
    pub api: Arc<Api>,
    /// The address that `/api` tells clients.
    pub server_address: String,
}

impl Documents {
    /// Answers a request that is not about a resource. `gates` writes the figures of the gates.
    pub fn answer(&self, exchange: &Exchange, gates: impl Fn(&mut String)) -> Result<Response, ApiError> {
        let Exchange { parts, info, .. } = exchange;
        let segments: Vec<&str> = info.path.split('/').filter(|segment| !segment.is_empty()).collect();
        if info.path.contains("//") {
            return if info.path.starts_with("//") { Ok(no_such_page()) } else { Err(ApiError::no_such_path()) };
        }
        // Some paths have routes, with methods and media types of their own; the others answer whatever they are asked.
        let route = |produced: &[&str]| {
            if parts.method == Method::GET {
                exchange.forms().routed(produced)
            } else {
                Err(ApiError::method_not_allowed())
            }
        };
        match segments.as_slice() {
            [] => Ok(pretty(&serde_json::json!({"paths": self.paths()}))),
            ["api"] => {
                route(forms::OBJECTS)?;
                self.root(exchange, Root::Api)
            }
            ["apis"] => self.root(exchange, Root::Apis),
            ["api", version] => {
                let found = self.published.discovery().resources("", version).ok_or_else(ApiError::no_such_path)?;
                route(forms::OBJECTS)?;
                document(exchange, found)
            }
            ["apis", group] => match self.aggregation.group(group, self.published.discovery().group(group)) {
                Some(found) => document(exchange, found),
                None => Ok(no_such_page()),
            },
            ["apis", group, version] => match self.published.discovery().resources(group, version) {
                Some(found) => {
                    route(forms::OBJECTS)?;
                    document(exchange, found)
                }
                None if self.aggregation.offers(group, version) => {
                    route(forms::OBJECTS)?;
                    document(exchange, resourcemetrics::documents::resources().to_string().into())
                }
                None if facts::table().group(group).is_some() => Err(ApiError::no_such_path()),
                None => Ok(no_such_page()),
            },
            ["version"] => route(&["application/json"])
                .map(|()| pretty(&version::info(self.component.reported_version.as_deref()))),
            [".well-known", "openid-configuration"] => route(&["application/json"]).map(|()| self.issuer()),
            ["openid", "v1", "jwks"] => {
                route(&["application/jwk-set+json"])?;
                let (keys, _) = self.api.service_accounts.key_set();
                Ok(issued("application/jwk-set+json", &keys))
            }
            ["openapi", rest @ ..] => {
                let openapi = self.published.openapi();
                let answer = openapi.answer(rest, parts, &exchange.asked, Some(&self.aggregation));
                Ok(answer.unwrap_or_else(no_such_page))
            }
            ["healthz" | "livez" | "readyz"] if !info.path.ends_with('/') => {
                Ok(self.health.answer(segments[0], exchange.query()))
            }
            ["healthz" | "livez" | "readyz", check @ ..] => {
                Ok(self.health.check(segments[0], &check.join("/")).unwrap_or_else(no_such_page))
            }
            ["metrics", "slis"] => Ok(scraped(exchange, |page| page.push_str(&self.health.figures()))),
            ["metrics"] => Ok(scraped(exchange, |page| self.write_figures(page, gates))),
            ["ui", ..] => page::answer(exchange),
            ["statusz" | "flagz"] if !info.path.ends_with('/') => self.about(exchange),
            ["debug", "hops"] => match exchange.query().get("uid") {
                "" => Err(ApiError::bad_request("name the uid of an object: /debug/hops?uid=")),
                uid => Ok(json(Bytes::from(hops::trail(uid).to_string()))),
            },
            ["debug", "api_priority_and_fairness", dump] => {
                let dumped = self.flow_control.as_ref().and_then(|flow_control| flow_control.dump(dump));
                dumped.map(|dumped| text(StatusCode::OK, dumped)).ok_or_else(ApiError::no_such_path)
            }
            _ => Ok(no_such_page()),
        }
    }

    /// Everything that is counted.
    fn write_figures(&self, page: &mut String, gates: impl Fn(&mut String)) {
        metrics::write(page, &self.api, self.audit.as_deref());
        gates(page);
        if let Some(flow_control) = &self.flow_control {
            flow_control.metrics(page);
        }
        if let Some(encryption) = &self.encryption {
            encryption.metrics(page);
        }
        self.aggregation.aggregator.figures(page);
        Peers::figures(page);
        for write in &self.figures {
            write(page);
        }
    }

    fn root(&self, exchange: &Exchange, root: Root) -> Result<Response, ApiError> {
        let Some(version) = exchange.forms().aggregated_discovery() else {
            let found = match root {
                Root::Api => self.published.discovery().api_versions(&self.server_address),
                Root::Apis => self.aggregation.group_list(self.published.discovery().group_list()),
            };
            return document(exchange, found);
        };
        let discovery = self.published.discovery();
        let mut document = self.aggregation.aggregated(root, discovery.aggregated(root, version));
        if let (Some(peers), Root::Apis, Aggregated::V2) = (&self.peers, root, version) {
            document = peers.discovery(exchange, document);
        }
        let name = match version {
            Aggregated::V2 => "v2",
            Aggregated::V2beta1 => "v2beta1",
        };
        let content = format!("application/json;g=apidiscovery.k8s.io;v={name};as=APIGroupDiscoveryList");
        Ok(known_or(&exchange.parts, &document, &content))
    }

    /// What others need to know to check the tokens of service accounts.
    fn issuer(&self) -> Response {
        let accounts = &self.api.service_accounts;
        let (_, algorithms) = accounts.key_set();
        let own = || format!("https://{}/openid/v1/jwks", self.server_address);
        let document = serde_json::json!({
            "issuer": accounts.issuer(),
            "jwks_uri": accounts.settings().keys_at.clone().unwrap_or_else(own),
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": algorithms,
        });
        issued("application/json", &document)
    }

    /// `/statusz` and `/flagz`.
    fn about(&self, exchange: &Exchange) -> Result<Response, ApiError> {
        let Some(page) = Page::at(&exchange.info.path) else { return Ok(no_such_page()) };
        let component = Component { paths: self.paths(), ..self.component.clone() };
        let page = component.page(page, accept(exchange), Timestamp::now())?;
        let mut response = bytes(StatusCode::OK, page.content_type, Bytes::from(page.body));
        if let Some(warning) = page.warning.and_then(|warning| HeaderValue::try_from(warning).ok()) {
            response.headers_mut().insert(WARNING, warning);
        }
        Ok(response)
    }

    /// Everything that is served, for people who look around.
    fn paths(&self) -> Vec<String> {
        let mut paths = vec!["/api".to_owned(), "/apis".to_owned()];
        let discovery = self.published.discovery();
        for group in discovery.groups() {
            if group.name.is_empty() {
                paths.extend(group.versions.iter().map(|version| format!("/api/{}", version.name)));
            } else {
                paths.push(format!("/apis/{}", group.name));
                paths.extend(group.versions.iter().map(|version| format!("/apis/{}/{}", group.name, version.name)));
            }
        }
        for probe in ["healthz", "livez", "readyz"] {
            paths.push(format!("/{probe}"));
            paths.extend(self.health.checks(probe).map(|check| format!("/{probe}/{check}")));
        }
        paths.extend(FlowControl::dumps().iter().map(|dump| format!("/debug/api_priority_and_fairness/{dump}")));
        paths.extend(
            [
                "/.well-known/openid-configuration",
                "/flagz",
                "/metrics",
                "/metrics/slis",
                "/openapi/v2",
                "/openapi/v3",
                "/openid/v1/jwks",
                "/statusz",
                "/version",
            ]
            .map(str::to_owned),
        );
        paths.sort();
        paths
    }
}

/// What the client takes, in its own words.
fn accept(exchange: &Exchange) -> &str {
    exchange.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default()
}

/// Figures in the form that the scraper wants.
fn scraped(exchange: &Exchange, write: impl FnOnce(&mut String)) -> Response {
    let mut page = figures::page(accept(exchange));
    write(&mut page);
    let (content, page) = figures::finished(page);
    bytes(StatusCode::OK, content, Bytes::from(page))
}

/// A document about the issuer of tokens, which may be kept for an hour.
fn issued(content: &str, document: &serde_json::Value) -> Response {
    let mut response = bytes(StatusCode::OK, content, Bytes::from(document.to_string()));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
    response
}

/// A document, or 304 for a client that has it.
pub fn known_or(parts: &http::request::Parts, document: &Document, content: &str) -> Response {
    tagged(parts, &document.etag, || bytes(StatusCode::OK, content, document.body.clone()))
}

/// An answer with a tag, or 304 for a client that has it.
pub fn tagged(parts: &http::request::Parts, etag: &str, answer: impl FnOnce() -> Response) -> Response {
    let etag = format!("\"{etag}\"");
    let known = parts.headers.get(IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == etag.as_bytes());
    let mut response = if known {
        let mut response = Response::new(Payload::Empty);
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        answer()
    };
    let headers = response.headers_mut();
    if let Ok(etag) = HeaderValue::from_str(&etag) {
        headers.insert(ETAG, etag);
    }
    headers.insert(VARY, HeaderValue::from_static("Accept"));
    response
}

/// A document of discovery in the form that the client wants.
fn document(exchange: &Exchange, body: Bytes) -> Result<Response, ApiError> {
    let accepted = exchange.forms().answers()?;
    if accepted.shape != Shape::Whole {
        return Err(forms::unacceptable());
    }
    if accepted.media == Media::Json && !exchange.forms().pretty {
        return Ok(json([&body[..], b"\n"].concat().into()));
    }
    let tree = serde_json::from_slice(&body).map_err(ApiError::internal)?;
    Ok(value_response(StatusCode::OK, tree))
}

/// A document for people.
fn pretty(tree: &serde_json::Value) -> Response {
    json(serde_json::to_vec_pretty(tree).map(Bytes::from).unwrap_or_default())
}

fn json(body: Bytes) -> Response {
    bytes(StatusCode::OK, "application/json", body)
}

/// The answer where there is nothing, not even an API.
pub fn no_such_page() -> Response {
    text(StatusCode::NOT_FOUND, "404 page not found\n".to_owned())
}
