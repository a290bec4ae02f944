//! `metrics.k8s.io`: what nodes and pods use, as long as nobody's metrics-server has the group.
//!
//! Who there is comes from the watch cache, how much they use from their kubelets ([`resourcemetrics`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use aggregator::{GroupVersion, Offered, Priority};
use futures::future::BoxFuture;
use gates::Exchange;
use gates::forms::{Media, Shape, unacceptable};
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, StatusCode};
use jiff::Timestamp;
use machinery::Value;
use machinery::gvk::GroupResource;
use machinery::object::{Meta, Object};
use machinery::rest::{Payload, Response};
use machinery::selector::field::FieldSelector;
use machinery::selector::label::LabelSelector;
use machinery::status::ApiError;
use resourcemetrics::collect::{Collector, Kubelets};
use resourcemetrics::objects::{self, About, Kind};
use resourcemetrics::points::Points;
use resourcemetrics::{GROUP, VERSION, documents};
use rest::Api;
use storage::Lookup as _;
use storage::cache::{Cache, Filter, Scope};

use crate::proxy::Proxy;

/// The most bytes of a kubelet's figures: a thousand pods of ten containers say less.
const MOST: usize = 16 << 20;

/// What upstream's metrics-server asks for.
const PRIORITY: Priority = Priority { group: 100, version: 100 };

/// The group, for whoever may take it over.
pub fn offered() -> Offered {
    Offered { of: GroupVersion::new(GROUP, VERSION), priority: PRIORITY, document: documents::version() }
}

pub struct ResourceMetrics {
    collector: Arc<Collector>,
    nodes: Arc<Cache>,
    pods: Arc<Cache>,
}

impl ResourceMetrics {
    pub fn new(api: Arc<Api>, proxy: Arc<Proxy>) -> Result<Self, String> {
        let cache = |plural: &str| api.registry.objects("", plural).ok_or_else(|| format!("{plural} must be served"));
        let (nodes, pods) = (cache("nodes")?, cache("pods")?);
        let collector = Collector::new(Arc::new(Nodes { nodes: nodes.clone(), api, proxy }));
        Ok(Self { collector, nodes, pods })
    }

    pub async fn answer(&self, exchange: &Exchange) -> Result<Response, ApiError> {
        let info = &exchange.info;
        let kind =
            Kind::of_resource(&info.resource).filter(|kind| info.subresource.is_empty() && scoped(*kind, exchange));
        let kind = kind.ok_or_else(ApiError::no_such_path)?;
        if exchange.parts.method != Method::GET || !matches!(info.verb, "get" | "list") {
            return Err(ApiError::method_not_allowed());
        }
        let form = Form::of(exchange)?;
        let found = self.find(kind, exchange)?;
        let now = self.collector.now();
        let items = self.collector.read(|points| {
            let item = |object: &Arc<Object>| usage(kind, object.meta(), points, now);
            found.iter().filter_map(item).collect::<Vec<_>>()
        });
        let mut items = items.await;
        let answer = match (info.verb, form.shape) {
            ("get", _) if items.is_empty() => return Err(missing(GROUP, kind, &info.namespace, &info.name)),
            (_, Shape::Table) => objects::table(&items, |item| form.included(exchange, item)),
            ("get", _) => items.remove(0),
            _ => objects::list(kind, items),
        };
        form.write(&answer)
    }

    /// The nodes or pods that are asked about.
    fn find(&self, kind: Kind, exchange: &Exchange) -> Result<Vec<Arc<Object>>, ApiError> {
        let info = &exchange.info;
        let cache = match kind {
            Kind::Node => &self.nodes,
            Kind::Pod => &self.pods,
        };
        if info.verb == "get" {
            let key =
                if info.namespace.is_empty() { info.name.clone() } else { format!("{}/{}", info.namespace, info.name) };
            let found = cache.get(&key).ok_or_else(|| missing("", kind, "", &info.name))?;
            return Ok(vec![found]);
        }
        let labels = LabelSelector::parse(exchange.query().get("labelSelector")).map_err(ApiError::bad_request)?;
        let fields = FieldSelector::parse(exchange.query().get("fieldSelector")).map_err(ApiError::bad_request)?;
        let scope = match info.namespace.as_str() {
            "" => Scope::All,
            namespace => Scope::Namespace(namespace.into()),
        };
        Ok(cache.list(&Filter::new(scope, labels, fields), None, usize::MAX).0)
    }
}

/// Whether a path has a namespace where there is one to name.
fn scoped(kind: Kind, exchange: &Exchange) -> bool {
    let info = &exchange.info;
    match kind {
        Kind::Node => info.namespace.is_empty(),
        Kind::Pod => info.name.is_empty() || !info.namespace.is_empty(),
    }
}

/// Upstream's metrics-server names a pod without use by its namespace too.
fn missing(group: &str, kind: Kind, namespace: &str, name: &str) -> ApiError {
    let name = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
    ApiError::not_found(&GroupResource::new(group, kind.resource()), &name)
}

fn usage(kind: Kind, meta: &Meta, points: &Points, now: Timestamp) -> Option<Value> {
    let labels: BTreeMap<String, String> =
        meta.labels.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    let about = About { namespace: &meta.namespace, name: &meta.name, labels: &labels };
    match kind {
        Kind::Node => Some(objects::node(about, &points.node(&meta.name)?, now)),
        Kind::Pod => {
            let key = (meta.namespace.to_string(), meta.name.to_string());
            Some(objects::pod(about, &points.pod(&key)?, now))
        }
    }
}

/// How the answer is written. These kinds have no messages in protobuf here, so whoever prefers those gets JSON if they take it.
struct Form {
    media: Media,
    shape: Shape,
}

impl Form {
    fn of(exchange: &Exchange) -> Result<Self, ApiError> {
        let forms = exchange.forms();
        let accepted = forms.objects()?;
        match accepted.media {
            media @ (Media::Json | Media::Yaml) if matches!(accepted.shape, Shape::Whole | Shape::Table) => {
                Ok(Self { media, shape: accepted.shape })
            }
            _ if forms.named().any(|media| matches!(media, "application/json" | "application/*" | "*/*")) => {
                Ok(Self { media: Media::Json, shape: Shape::Whole })
            }
            _ => Err(unacceptable()),
        }
    }

    /// What a row carries of its object.
    fn included(&self, exchange: &Exchange, item: &Value) -> Value {
        match exchange.query().get("includeObject") {
            "None" => Value::Null,
            "Object" => item.clone(),
            _ => serde_json::json!({
                "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": item["metadata"],
            }),
        }
    }

    fn write(&self, answer: &Value) -> Result<Response, ApiError> {
        let text = match self.media {
            Media::Yaml => machinery::codec::yaml::encode(answer),
            _ => answer.to_string(),
        };
        let mut response = Response::new(Payload::Bytes(text.into()));
        *response.status_mut() = StatusCode::OK;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(self.media.name()));
        Ok(response)
    }
}

/// The kubelets, as the API server reaches them.
struct Nodes {
    nodes: Arc<Cache>,
    api: Arc<Api>,
    proxy: Arc<Proxy>,
}

impl Kubelets for Nodes {
    fn nodes(&self) -> Vec<String> {
        let (nodes, _) = self.nodes.list(&Filter::everything(), None, usize::MAX);
        nodes.iter().map(|node| node.meta().name.to_string()).collect()
    }

    fn scrape<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Result<String, String>> {
        Box::pin(async move {
            let object = self.nodes.get(node).ok_or("the node is gone")?;
            self.proxy.ask_kubelet(&object.to_value(), "/metrics/resource", MOST).await
        })
    }

    fn now(&self) -> Timestamp {
        (self.api.clock)()
    }
}
