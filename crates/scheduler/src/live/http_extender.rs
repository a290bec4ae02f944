//! Extenders over HTTP, by upstream's protocol: JSON posted to a verb under a URL.
//!
//! Called from the scheduling thread, which waits for the answer; the request itself runs on the runtime.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use client::Client;
use client::config::{Config, Trust};
use futures::FutureExt;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use k8s_openapi::api::core::v1::{Container, Pod};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::runtime::Handle;

use crate::config::ExtenderConfig;
use crate::framework::Work;
use crate::framework::api::ApiFailure;
use crate::framework::extender::{Extended, Extender, VictimsByNode};
use crate::model::node::NodeInfo;
use crate::model::pod::PodInfo;

/// The largest answer that is read.
const MAX_ANSWER: usize = 64 << 20;

/// The extenders of a configuration. Must be called within a runtime. Every call of one that cannot be set up fails, and
/// so does scheduling, visibly, unless it is ignorable.
pub fn all(configs: &[ExtenderConfig]) -> Vec<Arc<dyn Extender>> {
    configs.iter().map(|c| Arc::new(HttpExtender::new(c.clone())) as Arc<dyn Extender>).collect()
}

#[derive(Clone)]
enum Transport {
    Plain(Box<HttpClient<HttpConnector, Full<Bytes>>>),
    Tls(Client),
    Unusable(String),
}

/// An extender reached over HTTP.
struct HttpExtender {
    config: ExtenderConfig,
    caller: Caller,
}

/// What it takes to call an extender.
#[derive(Clone)]
struct Caller {
    url: String,
    timeout: Duration,
    transport: Transport,
    runtime: Handle,
}

impl HttpExtender {
    fn new(config: ExtenderConfig) -> Self {
        let url = config.url_prefix.trim_end_matches('/').to_owned();
        let transport = if config.enable_https || url.starts_with("https://") {
            tls(&config, &url).map_or_else(Transport::Unusable, Transport::Tls)
        } else {
            Transport::Plain(Box::new(HttpClient::builder(TokioExecutor::new()).build_http()))
        };
        let caller = Caller { url, timeout: config.timeout(), transport, runtime: Handle::current() };
        Self { config, caller }
    }

    fn nodes(&self, pod: &PodInfo, nodes: &[&NodeInfo]) -> Value {
        if self.config.node_cache_capable {
            let names: Vec<_> = nodes.iter().map(|n| n.name()).collect();
            json!({ "Pod": object(pod), "Nodes": null, "NodeNames": names })
        } else {
            let items: Vec<_> = nodes.iter().filter_map(|n| n.node()).collect();
            json!({ "Pod": object(pod), "Nodes": { "metadata": {}, "items": items }, "NodeNames": null })
        }
    }

    fn manages(&self, container: &Container) -> bool {
        let resources = container.resources.as_ref();
        let lists = [resources.and_then(|r| r.requests.as_ref()), resources.and_then(|r| r.limits.as_ref())];
        let mut names = lists.into_iter().flatten().flat_map(|l| l.keys());
        names.any(|name| self.config.managed_resources.iter().any(|m| m.name == *name))
    }
}

/// The pod as the API has it. Sources keep it when there are extenders.
fn object(pod: &PodInfo) -> Option<&Pod> {
    pod.object().map(|object| &**object)
}

fn tls(config: &ExtenderConfig, url: &str) -> Result<Client, String> {
    let mut client = Config::new(url);
    client.timeout = config.timeout();
    let given = |name: &str| config.tls_config.as_ref().and_then(|c| c.get(name)).and_then(Value::as_str);
    client.server_name = given("serverName").map(str::to_owned);
    client.trust = match given("caFile") {
        Some(path) => {
            let pem = std::fs::read(path).map_err(|e| format!("{path}: {e}"))?;
            Trust::bundle(&pem).map_err(|e| e.to_string())?
        }
        // Upstream's rule: without an authority, HTTPS to an extender is not verified.
        None => Trust::Insecure,
    };
    Client::https(client).map_err(|e| e.to_string())
}

impl Caller {
    async fn send<R: DeserializeOwned + Send + Sync + 'static>(
        &self,
        verb: &str,
        args: &Value,
    ) -> Result<R, ApiFailure> {
        let other = |text: String| ApiFailure::Other(text);
        let url = format!("{}/{verb}", self.url);
        match &self.transport {
            Transport::Unusable(why) => Err(other(why.clone())),
            Transport::Tls(client) => client.post(&format!("/{verb}"), args).await.map_err(|e| other(e.to_string())),
            Transport::Plain(client) => {
                let body = serde_json::to_vec(args).map_err(|e| other(e.to_string()))?;
                let request = hyper::Request::post(&url)
                    .header("content-type", "application/json")
                    .body(Full::new(Bytes::from(body)))
                    .map_err(|e| other(e.to_string()))?;
                let response = client.request(request).await.map_err(|e| other(e.to_string()))?;
                if response.status() != hyper::StatusCode::OK {
                    let code = response.status().as_u16();
                    return Err(other(format!("failed {verb} with extender at URL {url}, code {code}")));
                }
                let limited = Limited::new(response.into_body(), MAX_ANSWER);
                let answer = limited.collect().await.map_err(|e| other(e.to_string()))?.to_bytes();
                serde_json::from_slice(&answer).map_err(|e| other(e.to_string()))
            }
        }
    }

    async fn call<R: DeserializeOwned + Send + Sync + 'static>(
        &self,
        verb: &str,
        args: &Value,
    ) -> Result<R, ApiFailure> {
        let late = || ApiFailure::Other(format!("extender at {} did not answer {verb} in time", self.url));
        tokio::time::timeout(self.timeout, self.send(verb, args)).await.map_err(|_| late())?
    }

    fn wait<R: DeserializeOwned + Send + Sync + 'static>(&self, verb: &str, args: &Value) -> Result<R, ApiFailure> {
        self.runtime.block_on(self.call(verb, args))
    }
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "PascalCase")]
struct FilterResult {
    #[serde(alias = "nodes")]
    nodes: Option<NodeList>,
    #[serde(alias = "nodenames", alias = "nodeNames")]
    node_names: Option<Vec<String>>,
    #[serde(alias = "failedNodes")]
    failed_nodes: Option<BTreeMap<String, String>>,
    #[serde(alias = "failedAndUnresolvableNodes")]
    failed_and_unresolvable_nodes: Option<BTreeMap<String, String>>,
    #[serde(alias = "error")]
    error: String,
}

#[derive(Deserialize)]
struct NodeList {
    #[serde(default)]
    items: Vec<k8s_openapi::api::core::v1::Node>,
}

#[derive(Deserialize)]
struct HostPriority {
    #[serde(rename = "Host", alias = "host")]
    host: String,
    #[serde(rename = "Score", alias = "score")]
    score: i64,
}

#[derive(Deserialize, Default)]
struct BindingResult {
    #[serde(rename = "Error", alias = "error", default)]
    error: String,
}

#[derive(Serialize, Deserialize, Default)]
struct MetaPod {
    #[serde(rename = "UID", alias = "uid")]
    uid: String,
}

#[derive(Serialize, Deserialize, Default)]
struct MetaVictims {
    #[serde(rename = "Pods", alias = "pods", default)]
    pods: Vec<MetaPod>,
    #[serde(rename = "NumPDBViolations", alias = "numPDBViolations", default)]
    violations: i64,
}

#[derive(Deserialize, Default)]
struct PreemptionResult {
    #[serde(rename = "NodeNameToMetaVictims", alias = "nodeNameToMetaVictims", default)]
    victims: BTreeMap<String, MetaVictims>,
}

impl Extender for HttpExtender {
    fn name(&self) -> &str {
        &self.caller.url
    }

    fn is_interested(&self, pod: &PodInfo) -> bool {
        let containers = pod
            .object()
            .and_then(|p| p.spec.as_ref())
            .into_iter()
            .flat_map(|s| s.containers.iter().chain(s.init_containers.iter().flatten()));
        self.config.managed_resources.is_empty() || containers.into_iter().any(|c| self.manages(c))
    }

    fn is_ignorable(&self) -> bool {
        self.config.ignorable
    }

    fn filters(&self) -> bool {
        !self.config.filter_verb.is_empty()
    }

    fn prioritizes(&self) -> bool {
        !self.config.prioritize_verb.is_empty()
    }

    fn preempts(&self) -> bool {
        !self.config.preempt_verb.is_empty()
    }

    fn filter(&self, pod: &PodInfo, nodes: &[&NodeInfo]) -> Result<Extended, ApiFailure> {
        let result: FilterResult = self.caller.wait(&self.config.filter_verb, &self.nodes(pod, nodes))?;
        if !result.error.is_empty() {
            return Err(ApiFailure::Other(result.error));
        }
        let kept = match (result.node_names, result.nodes) {
            (Some(names), _) if self.config.node_cache_capable => names,
            (_, Some(list)) => list.items.into_iter().filter_map(|n| n.metadata.name).collect(),
            _ => Vec::new(),
        };
        if let Some(unknown) = kept.iter().find(|name| !nodes.iter().any(|n| n.name() == name.as_str())) {
            let text = format!(
                "extender {:?} claims a filtered node {unknown:?} which is not found in the input node list",
                self.caller.url
            );
            return Err(ApiFailure::Other(text));
        }
        Ok(Extended {
            nodes: kept,
            failed: result.failed_nodes.unwrap_or_default().into_iter().collect(),
            unresolvable: result.failed_and_unresolvable_nodes.unwrap_or_default().into_iter().collect(),
        })
    }

    fn prioritize(&self, pod: &PodInfo, nodes: &[&NodeInfo]) -> Result<(Vec<(String, i64)>, i64), ApiFailure> {
        let scores: Vec<HostPriority> = self.caller.wait(&self.config.prioritize_verb, &self.nodes(pod, nodes))?;
        Ok((scores.into_iter().map(|s| (s.host, s.score)).collect(), self.config.weight))
    }

    fn preempt(&self, pod: &PodInfo, victims: VictimsByNode) -> Result<VictimsByNode, ApiFailure> {
        let args = if self.config.node_cache_capable {
            let meta = |pods: &[Arc<PodInfo>]| pods.iter().map(|p| MetaPod { uid: p.uid().to_string() }).collect();
            let by_node: BTreeMap<_, _> = victims
                .iter()
                .map(|(node, pods, n)| (node, MetaVictims { pods: meta(pods), violations: *n }))
                .collect();
            json!({ "Pod": object(pod), "NodeNameToMetaVictims": by_node })
        } else {
            let full = |pods: &[Arc<PodInfo>]| pods.iter().map(|p| json!(object(p))).collect::<Vec<_>>();
            let by_node: BTreeMap<_, _> = victims
                .iter()
                .map(|(node, pods, n)| (node, json!({ "Pods": full(pods), "NumPDBViolations": n })))
                .collect();
            json!({ "Pod": object(pod), "NodeNameToVictims": by_node })
        };
        let result: PreemptionResult = self.caller.wait(&self.config.preempt_verb, &args)?;
        let mut narrowed = VictimsByNode::new();
        for (node, chosen) in result.victims {
            let Some((_, proposed, _)) = victims.iter().find(|(name, ..)| *name == node) else { continue };
            let pods = chosen
                .pods
                .iter()
                .filter_map(|c| proposed.iter().find(|p| &**p.uid() == c.uid.as_str()).cloned())
                .collect();
            narrowed.push((node, pods, chosen.violations));
        }
        Ok(narrowed)
    }

    fn bind(&self, pod: &Arc<PodInfo>, node: &str) -> Option<Work> {
        if self.config.bind_verb.is_empty() {
            return None;
        }
        let args =
            json!({ "PodName": pod.name(), "PodNamespace": pod.namespace(), "PodUID": &**pod.uid(), "Node": node });
        let (caller, verb) = (self.caller.clone(), self.config.bind_verb.clone());
        Some(Box::new(move |_| {
            async move {
                let result: BindingResult = caller.call(&verb, &args).await?;
                if result.error.is_empty() { Ok(()) } else { Err(ApiFailure::Other(result.error)) }
            }
            .boxed()
        }))
    }
}
