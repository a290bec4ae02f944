//! What other servers say about themselves, read in the background: discovery and OpenAPI. A client that asks for them gets what was
//! read last, at once, whatever state the other server is in.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use machinery::Value;
use machinery::codec::{self, Limits};
use machinery::rest::User;
use serde_json::Map;

use crate::availability::{discovery_path, user};
use crate::backend::{Answered, Backend, Question};
use crate::{discovery, openapi};

/// How long a server may take to say which resources it has.
const DISCOVERY_PATIENCE: Duration = Duration::from_secs(5);
/// How long a server may take to describe them.
const OPENAPI_PATIENCE: Duration = Duration::from_secs(60);
/// The longest descriptions that are read: upstream's own whole API takes four megabytes.
const MAX_DISCOVERY: usize = 8 << 20;
const MAX_OPENAPI: usize = 16 << 20;
/// When a server is asked again that answered, and at the latest when one is that did not.
pub(crate) const REFRESH: Duration = Duration::from_secs(60);
/// When a server that did not answer is asked again first.
pub(crate) const RETRY: Duration = Duration::from_millis(500);

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// What is known of a server.
#[derive(Debug, Clone, Default)]
pub(crate) struct Published {
    /// Its group version's part of aggregated discovery.
    pub discovery: Option<Value>,
    /// Whether that could be read the last time.
    pub fresh: bool,
    /// Its part of the root of OpenAPI version 3.
    pub v3: Map<String, Value>,
    /// Its part of OpenAPI version 2.
    pub v2: Option<Arc<Value>>,
    /// By which it is known again that there is nothing new.
    discovery_tag: String,
    v2_tag: String,
}

impl Backend {
    /// Reads discovery anew. Returns whether something is different, and why it could not be read. What was read before is
    /// better than nothing then, and is called what it is: stale.
    pub(crate) async fn refresh_discovery(&self) -> (bool, Result<(), String>) {
        let old = self.published.read().clone();
        let discovered = self.discover(&old).await;
        let mut published = self.published.write();
        let mut new = Published::clone(&published);
        new.fresh = discovered.is_ok();
        let outcome = discovered.map(|(document, tag)| (new.discovery, new.discovery_tag) = (document, tag));
        let changed = new.discovery != published.discovery || new.fresh != published.fresh;
        *published = Arc::new(new);
        (changed, outcome)
    }

    /// Reads OpenAPI anew. Returns whether something is different, and why it could not be read.
    pub(crate) async fn refresh_openapi(&self) -> (bool, Result<(), String>) {
        let old = self.published.read().clone();
        let (v3, v2, tag) = match self.describe(&old).await {
            Ok(described) => described,
            Err(why) => return (false, Err(why)),
        };
        let changed = v3 != old.v3 || v2 != old.v2;
        let mut published = self.published.write();
        let mut new = Published::clone(&published);
        (new.v3, new.v2, new.v2_tag) = (v3, v2, tag);
        *published = Arc::new(new);
        (changed, Ok(()))
    }

    /// The resources of the group version: from aggregated discovery where the server has it, otherwise from the version's own list.
    async fn discover(&self, old: &Published) -> Result<(Option<Value>, String), String> {
        let (group, version) = (&self.service.group, &self.service.version);
        let masters = User { groups: vec!["system:masters".to_owned()], ..user("system:kube-aggregator") };
        let known = (!old.discovery_tag.is_empty() && old.discovery.is_some()).then_some(&*old.discovery_tag);
        let question = |path, accept, known| Question {
            path,
            user: &masters,
            accept,
            known,
            limit: MAX_DISCOVERY,
            patience: DISCOVERY_PATIENCE,
        };
        let answer = self.ask(question("/apis", AGGREGATED, known)).await?;
        match answer.status {
            StatusCode::NOT_MODIFIED if known.is_some() => {
                return Ok((old.discovery.clone(), old.discovery_tag.clone()));
            }
            StatusCode::SERVICE_UNAVAILABLE => {
                let reference = self.reference();
                return Err(format!(
                    "service {}/{}:{} returned non-success response code: 503",
                    reference.namespace, reference.name, reference.port
                ));
            }
            StatusCode::OK if answer.kind.contains("as=APIGroupDiscoveryList") => {
                let document = tree(&answer).await?;
                return Ok((discovery::read_aggregated(&document, group, version), answer.tag));
            }
            _ => {}
        }
        let path = discovery_path(&self.service);
        let answer = self.ask(question(&path, "application/json", None)).await?;
        if answer.status != StatusCode::OK {
            return Err(format!("failed to download legacy discovery for {path}: {}", answer.status));
        }
        let read = discovery::read_legacy(&tree(&answer).await?, version);
        Ok((Some(read.ok_or_else(|| format!("{path} is no list of resources"))?), String::new()))
    }

    #[allow(clippy::type_complexity, reason = "what is known of OpenAPI, once")]
    async fn describe(&self, old: &Published) -> Result<(Map<String, Value>, Option<Arc<Value>>, String), String> {
        let (group, version) = (&self.service.group, &self.service.version);
        let aggregator = user("system:aggregator");
        let question = |path, known| Question {
            path,
            user: &aggregator,
            accept: "application/json",
            known,
            limit: MAX_OPENAPI,
            patience: OPENAPI_PATIENCE,
        };
        let root = self.ask(question("/openapi/v3", None)).await?;
        let v3 = match root.status {
            StatusCode::OK => openapi::filtered_v3_root(&tree(&root).await?, group, version),
            StatusCode::NOT_FOUND => Map::new(),
            other => return Err(format!("failed to retrieve openAPI spec, http error: {other}")),
        };
        let known = (!old.v2_tag.is_empty() && old.v2.is_some()).then_some(&*old.v2_tag);
        let whole = self.ask(question("/openapi/v2", known)).await?;
        match whole.status {
            StatusCode::NOT_MODIFIED if known.is_some() => Ok((v3, old.v2.clone(), old.v2_tag.clone())),
            StatusCode::NOT_FOUND => Ok((v3, None, String::new())),
            StatusCode::OK => {
                let v2 = openapi::filtered_v2(&tree(&whole).await?, group, version);
                Ok((v3, Some(Arc::new(v2)), whole.tag))
            }
            other => Err(format!("failed to retrieve openAPI spec, http error: {other}")),
        }
    }

    /// The group version's entry in discovery.
    pub(crate) fn entry(&self) -> discovery::Entry {
        let published = self.published.read().clone();
        let version = &self.service.version;
        discovery::Entry {
            group: self.service.group.clone(),
            version: version.clone(),
            priority: self.service.priority,
            document: discovery::with_freshness(published.discovery.as_ref(), version, published.fresh),
        }
    }
}

/// A JSON object, read with the bound on depth that every body has.
async fn tree(answer: &Answered) -> Result<Value, String> {
    let read = || codec::json::decode(&answer.body, Limits::default());
    let decoded = threads::heavy::run(answer.body.len(), read).await.map_err(|error| error.message)?.value;
    if decoded.is_object() { Ok(decoded) } else { Err("the answer is no document".to_owned()) }
}
