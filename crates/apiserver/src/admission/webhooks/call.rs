//! Asking one webhook: where it is, the exchange, and what its answer means.

use std::sync::Arc;

use machinery::status::ApiError;
use machinery::{Value, patch, value};

use super::super::subject::Subject;
use super::hook::{Hook, Place};
use super::review;
use crate::cache::Filter;
use crate::gates::context;
use crate::gates::outbound::{Error, Remote, Trust};
use crate::rest::Api;

/// The most servers behind one webhook that are remembered.
const MAX_REMOTES: usize = 16;

/// Why a webhook does not let a request through.
pub enum Stop {
    /// It could not be asked.
    Unasked(String),
    /// It said no, or the request cannot be shown to it.
    Refused(ApiError),
}

/// What a webhook that may change the object did.
#[derive(Default)]
pub struct Mutated {
    /// The object in storage form, if the patch made another of it.
    pub object: Option<Value>,
    /// The operations of the patch.
    pub patch: Option<Value>,
}

impl Hook {
    /// Asks it whether the request may go on.
    pub async fn validate(&self, subject: &Subject<'_>, version: &'static facts::Resource) -> Result<(), Stop> {
        self.ask(subject, version, false).await.map(|_| ())
    }

    /// Asks it what to change.
    pub async fn mutate(&self, subject: &Subject<'_>, version: &'static facts::Resource) -> Result<Mutated, Stop> {
        let Some(operations) = self.ask(subject, version, true).await? else { return Ok(Mutated::default()) };
        let Some(new) = subject.new else {
            let why = format!(
                "admission webhook {:?} attempted to modify the object, which is not supported for this operation",
                self.name
            );
            return Err(Stop::Refused(ApiError::internal(why)));
        };
        let mut patched = subject.show(new, version);
        patch::json::apply(&mut patched, &operations).map_err(|error| Stop::Refused(ApiError::internal(error)))?;
        let stored = subject.take(patched, version, new).map_err(Stop::Refused)?;
        Ok(Mutated { object: (stored != *new).then_some(stored), patch: Some(operations) })
    }

    /// The exchange. What comes back is the patch.
    async fn ask(
        &self,
        subject: &Subject<'_>,
        version: &'static facts::Resource,
        mutating: bool,
    ) -> Result<Option<Value>, Stop> {
        if subject.request.dry_run && !self.harmless_when_dry {
            return Err(Stop::Refused(review::not_dry(&self.name)));
        }
        let reads = self.version.ok_or_else(|| {
            let why = "could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)";
            Stop::Unasked(why.to_owned())
        })?;
        let uid = crate::gates::new_uuid().to_string();
        let mut request = subject.describe(version);
        request["uid"] = Value::String(uid.clone());
        request["object"] = subject.new.map(|object| subject.show(object, version)).unwrap_or_default();
        request["oldObject"] = subject.old.map(|object| subject.show(object, version)).unwrap_or_default();
        let remote = self.remote(subject.api).map_err(Stop::Unasked)?;
        let answer = remote.post(&review::question(reads, request), self.timeout).await.map_err(|error| {
            Stop::Unasked(match error {
                // These are about the answer; the others about getting one.
                Error::Status(_) | Error::Empty { .. } => format!("failed to call webhook: {error}"),
                Error::Answer(why) => {
                    format!("failed to call webhook: couldn't get version/kind; json parse error: {why}")
                }
                other => format!("failed to call webhook: Post {:?}: {other}", remote.address()),
            })
        })?;
        if let Some(why) = review::foreign(&answer, reads) {
            return Err(Stop::Unasked(format!("failed to call webhook: {why}")));
        }
        let answer = review::read(&answer, reads, &uid, mutating)
            .map_err(|error| Stop::Unasked(format!("received invalid webhook response: {error}")))?;
        for (key, text) in answer.annotations {
            context::annotate(format!("{}/{key}", self.name), text);
        }
        answer.warnings.into_iter().for_each(context::warn);
        if !answer.allowed {
            return Err(Stop::Refused(review::denial(&self.name, &answer.status)));
        }
        let Some((patch, kind)) = answer.patch else { return Ok(None) };
        review::operations(&patch, &kind).map_err(Stop::Unasked)
    }

    fn remote(&self, api: &Api) -> Result<Arc<Remote>, String> {
        let timeout = self.timeout.as_secs();
        let (address, dial) = match &self.place {
            Place::Url(url) => (format!("{url}?timeout={timeout}s"), String::new()),
            Place::Service { namespace, name, port, path } => {
                let path = path.trim_start_matches('/');
                let address = format!("https://{name}.{namespace}.svc:{port}/{path}?timeout={timeout}s");
                let dial = resolve(api, namespace, name, *port)
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

/// An address behind a Service: a ready endpoint, or the Service's own address when nobody has listed its endpoints.
fn resolve(api: &Api, namespace: &str, name: &str, port: u16) -> Result<String, String> {
    let missing = || format!("service {name:?} not found");
    let services = api.registry.stored("", "services").ok_or_else(missing)?;
    let service = services.cache.get(&services.key(namespace, name)).ok_or_else(missing)?.to_value();
    let host = |address: &str, port: i64| {
        if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
    };
    if value::text(&service, "spec.type") == "ExternalName" {
        return Ok(host(value::text(&service, "spec.externalName"), i64::from(port)));
    }
    let chosen = value::list(&service, "spec.ports")
        .iter()
        .find(|candidate| value::int(candidate, "port") == Some(i64::from(port)));
    let chosen = chosen.ok_or_else(|| format!("no service port {port} found for service {name:?}"))?;
    let slices = api.registry.stored("discovery.k8s.io", "endpointslices");
    let (all, _) = slices.map(|slices| slices.cache.list(&Filter::namespace(namespace), None, 0)).unwrap_or_default();
    for slice in all.iter().filter(|slice| slice.meta().label("kubernetes.io/service-name") == Some(name)) {
        let slice = slice.to_value();
        let target = value::list(&slice, "ports")
            .iter()
            .find(|candidate| value::text(candidate, "name") == value::text(chosen, "name"));
        let Some(target) = target.and_then(|target| value::int(target, "port")) else { continue };
        let ready = value::list(&slice, "endpoints")
            .iter()
            .find(|endpoint| value::at(endpoint, "conditions.ready").and_then(Value::as_bool).unwrap_or(true));
        let address = ready.and_then(|ready| value::list(ready, "addresses").first()).and_then(Value::as_str);
        if let Some(address) = address {
            return Ok(host(address, target));
        }
    }
    match value::text(&service, "spec.clusterIP") {
        address @ ("" | "None") => Err(format!("cannot route to service with ClusterIP {address:?}")),
        address => Ok(host(address, i64::from(port))),
    }
}
