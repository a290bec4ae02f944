//! Where a webhook is, and how it is reached: at an address, or behind a Service of the cluster.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gates::outbound::{Remote, Trust};
use machinery::{Value, value};
use parking_lot::Mutex;
use storage::cache::Filter;

use crate::registry::{Registry, Resource};

/// The most servers behind one webhook that are remembered.
const MAX_REMOTES: usize = 16;

/// Where a webhook is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    Url(String),
    /// Behind a Service of the cluster.
    Service {
        namespace: String,
        name: String,
        port: u16,
        /// The path of the webhook.
        path: String,
    },
    /// Nowhere: the configuration makes no sense.
    Nowhere,
}

/// The server of a webhook.
#[derive(Debug)]
pub struct Server {
    pub place: Place,
    /// Whose certificate to trust, in PEM.
    authority: Option<String>,
    /// Those that were asked before, by where they were dialled.
    remotes: Mutex<HashMap<String, Arc<Remote>>>,
}

/// What says which addresses are behind a Service.
#[derive(Clone)]
pub struct Services {
    services: Option<Arc<Resource>>,
    slices: Option<Arc<Resource>>,
}

impl Services {
    /// Of a server's own cluster.
    pub fn of(registry: &Registry) -> Self {
        let stored = |group: &str, plural: &str| registry.stored(group, plural).cloned();
        Self { services: stored("", "services"), slices: stored("discovery.k8s.io", "endpointslices") }
    }
}

impl Server {
    /// As a `clientConfig` describes it.
    pub fn read(client: &Value) -> Self {
        let service = &client["service"];
        let place = match (client["url"].as_str(), service.is_object()) {
            (Some(url), false) => Place::Url(url.to_owned()),
            (None, true) => Place::Service {
                namespace: value::text(service, "namespace").to_owned(),
                name: value::text(service, "name").to_owned(),
                port: value::int(service, "port").and_then(|port| u16::try_from(port).ok()).unwrap_or(443),
                path: value::text(service, "path").to_owned(),
            },
            _ => Place::Nowhere,
        };
        let authority = client["caBundle"].as_str().filter(|text| !text.is_empty());
        let authority = authority.map(|text| STANDARD.decode(text).unwrap_or_default());
        Self {
            place,
            authority: authority.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
            remotes: Mutex::default(),
        }
    }

    /// Who is to be asked, within so many seconds.
    pub fn remote(&self, services: &Services, seconds: u64) -> Result<Arc<Remote>, String> {
        let (address, dial) = match &self.place {
            Place::Url(url) => (format!("{url}?timeout={seconds}s"), String::new()),
            Place::Service { namespace, name, port, path } => {
                let path = path.trim_start_matches('/');
                let address = format!("https://{name}.{namespace}.svc:{port}/{path}?timeout={seconds}s");
                let dial = resolve(services, namespace, name, *port)
                    .map_err(|why| format!("failed to call webhook: Post {address:?}: {why}"))?;
                (address, dial)
            }
            Place::Nowhere => {
                return Err(
                    "could not get REST client: webhook configuration must have either service or URL".to_owned()
                );
            }
        };
        let mut remotes = self.remotes.lock();
        if let Some(known) = remotes.get(&dial) {
            return Ok(known.clone());
        }
        let trust = Trust { roots: self.authority.clone(), certificate: None };
        let remote = Remote::new(&address, &trust).map_err(|error| format!("could not get REST client: {error}"))?;
        let remote = Arc::new(if dial.is_empty() { remote } else { remote.dialled_at(dial.clone()) });
        if remotes.len() >= MAX_REMOTES {
            remotes.clear();
        }
        remotes.insert(dial, remote.clone());
        Ok(remote)
    }
}

/// An address behind a Service.
fn resolve(known: &Services, namespace: &str, name: &str, port: u16) -> Result<String, String> {
    let missing = || format!("service {name:?} not found");
    let services = known.services.as_ref().ok_or_else(missing)?;
    let service = services.cache.get(&services.key(namespace, name)).ok_or_else(missing)?.to_value();
    let slices = known.slices.as_ref();
    let (all, _) = slices.map(|slices| slices.cache.list(&Filter::namespace(namespace), None, 0)).unwrap_or_default();
    let of_service = all.iter().filter(|slice| slice.meta().label("kubernetes.io/service-name") == Some(name));
    let slices: Vec<Value> = of_service.map(|slice| slice.to_value()).collect();
    rules::services::resolve(&service, &slices, port, |_| 0)
}
