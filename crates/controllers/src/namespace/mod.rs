//! Namespace: empties a namespace that is being deleted, then lets it go.
//!
//! Every resource the API server knows is emptied, custom ones included; pods first, because others (their secrets, say) may be needed to end them.
//! Upstream: NamespaceController.

mod status;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use client::{Client, DeleteOptions, Gvr, ListParams, Propagation};
use futures::future::join_all;
use informer::{Action, Clock, Informer, Key, Reconciler, clock};
use k8s_openapi::api::core::v1::{Namespace, Pod};

use crate::Error;
use crate::common::discovery::{Discovered, Resource, discover};
use crate::common::meta::MetaExt;
use crate::common::pods;
use crate::context::Context;
use status::{Findings, Remaining};

const WORKERS: usize = 10;
const FINALIZER: &str = "kubernetes";
/// How long objects with finalizers are given before the next look; most are waited for by their own events.
const FINALIZER_ESTIMATE: i64 = 15;

/// Runs the controller.
pub(crate) async fn start(context: Context) {
    let controller = Namespaces {
        client: context.client.clone(),
        clock: context.clock.clone(),
        namespaces: context.informers.of(),
        pods: context.informers.of(),
    };
    let queue = informer::WorkQueue::with_delays(
        context.name,
        context.clock.clone(),
        Duration::from_millis(5),
        Duration::from_secs(60),
    );
    informer::feed(&controller.namespaces, &queue, |change| {
        change.after().filter(|namespace| namespace.metadata.is_deleting()).map(|namespace| namespace.metadata.key())
    });
    let namespaces = controller.namespaces.clone();
    informer::feed(&controller.pods, &queue, move |change| {
        // The rest of the namespace waits for its last pod.
        let key = Key::cluster(change.object().metadata.namespace());
        let ends =
            change.after().is_none() && namespaces.get(&key).is_some_and(|namespace| namespace.metadata.is_deleting());
        ends.then_some(key)
    });
    futures::join!(controller.namespaces.synced(), controller.pods.synced());
    context.run(controller, queue, WORKERS).await;
}

struct Namespaces {
    client: Client,
    clock: Arc<dyn Clock>,
    namespaces: Informer<Namespace>,
    pods: Informer<Pod>,
}

impl Reconciler for Namespaces {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        if !self.namespaces.get(key).is_some_and(|namespace| namespace.metadata.is_deleting()) {
            return Ok(Action::Done);
        }
        let mut namespace = match self.client.get::<Namespace>("", &key.name).await {
            Ok(namespace) if namespace.metadata.is_deleting() => namespace,
            Ok(_) => return Ok(Action::Done),
            Err(error) if error.is_not_found() => return Ok(Action::Done),
            Err(error) => return Err(error.into()),
        };
        let status = namespace.status.get_or_insert_default();
        if status.phase.as_deref() != Some("Terminating") {
            status.phase = Some("Terminating".to_owned());
            namespace = self.client.update_status(&namespace).await?;
        }
        if !namespace
            .spec
            .iter()
            .flat_map(|spec| spec.finalizers.iter().flatten())
            .any(|finalizer| finalizer == FINALIZER)
        {
            return Ok(Action::Done);
        }
        let findings = self.empty(&namespace).await;
        let known = namespace.status.clone().unwrap_or_default();
        if let Some(status) = status::updated(&known, &findings, self.clock.now()) {
            namespace.status = Some(status);
            // What was found is reported as well as can be; the deletion itself does not depend on it.
            match self.client.update_status(&namespace).await {
                Ok(updated) => namespace = updated,
                Err(error) => tracing::debug!(%key, %error, "the namespace's conditions could not be written"),
            }
        }
        if let Some(failure) = findings.first_failure() {
            return Err(Error::Waiting(format!("failed to delete all content of namespace {key}: {failure}")));
        }
        if findings.estimate > 0 {
            let half = u64::try_from(findings.estimate / 2 + 1).unwrap_or(1);
            return Ok(Action::After(Duration::from_secs(half)));
        }
        self.finalize(namespace).await
    }
}

impl Namespaces {
    /// Deletes everything that can be found; answers what is left.
    async fn empty(&self, namespace: &Namespace) -> Findings {
        let mut findings = Findings::default();
        let mut discovered = discover(&self.client).await.unwrap_or_else(|error| {
            findings.discovery = Some(error.to_string());
            Discovered::default()
        });
        if !discovered.failures.is_empty() {
            discovered.failures.sort();
            findings.discovery = Some(format!(
                "Discovery failed for some groups, {} failing: unable to retrieve the complete list of server APIs: {}",
                discovered.failures.len(),
                discovered.failures.join(", ")
            ));
        }
        findings.parsing = discovered.malformed.first().map(|one| format!("unexpected GroupVersion string: {one}"));
        let deletable =
            discovered.resources.into_iter().filter(|resource| resource.namespaced && resource.can(&["delete"]));
        let (pods, others): (Vec<Resource>, Vec<Resource>) =
            deletable.partition(|resource| resource.gvr.group.is_empty() && resource.gvr.resource == "pods");
        for resource in pods {
            self.empty_resource(namespace, &resource, &mut findings).await;
        }
        if !findings.remaining.is_empty() {
            return findings;
        }
        let each = others.iter().map(|resource| async move {
            let mut own = Findings::default();
            self.empty_resource(namespace, resource, &mut own).await;
            own
        });
        for own in join_all(each).await {
            findings.merge(own);
        }
        findings
    }

    async fn empty_resource(&self, namespace: &Namespace, resource: &Resource, findings: &mut Findings) {
        let name = namespace.metadata.name();
        let grace = if resource.gvr.resource == "pods" { self.grace(namespace) } else { 0 };
        let remaining = match self.delete_all(name, resource).await {
            Ok(remaining) => remaining,
            Err(error) => {
                findings.estimate = findings.estimate.max(grace);
                findings.failures.push(error.to_string());
                return;
            }
        };
        if remaining.count == 0 {
            return;
        }
        let finalizers = !remaining.finalizers.is_empty();
        findings.estimate = findings.estimate.max(match (grace, finalizers) {
            (0, true) => FINALIZER_ESTIMATE,
            (grace, _) => grace,
        });
        if grace == 0 && !finalizers {
            let Gvr { group, version, resource } = &resource.gvr;
            findings.failures.push(format!(
                "unexpected items still remain in namespace: {name} for gvr: {group}/{version}, Resource={resource}"
            ));
        }
        findings.remaining.insert((resource.gvr.resource.clone(), resource.gvr.group.clone()), remaining);
    }

    async fn delete_all(&self, namespace: &str, resource: &Resource) -> Result<Remaining, client::Error> {
        let objects = self.client.dynamic(&resource.gvr);
        let options = DeleteOptions { propagation_policy: Some(Propagation::Background), ..DeleteOptions::default() };
        let everything = ListParams::default();
        let unsupported = |error: &client::Error| error.is_not_found() || error.code() == Some(405);
        if resource.can(&["list"])
            && objects
                .list_metadata(namespace, &ListParams { limit: Some(1), ..ListParams::default() })
                .await?
                .items
                .is_empty()
        {
            return Ok(Remaining::default());
        }
        let mut collected = resource.can(&["deletecollection"]);
        if collected {
            match objects.delete_collection(namespace, &everything, &options).await {
                Ok(()) => {}
                Err(error) if unsupported(&error) => collected = false,
                Err(error) => return Err(error),
            }
        }
        if !resource.can(&["list"]) {
            return Ok(Remaining::default());
        }
        if !collected {
            for object in objects.list_metadata(namespace, &everything).await?.items {
                match objects.delete(namespace, object.metadata.name(), &options).await {
                    Err(error) if !unsupported(&error) => return Err(error),
                    _ => {}
                }
            }
        }
        let mut remaining = Remaining::default();
        for object in objects.list_metadata(namespace, &everything).await?.items {
            remaining.count += 1;
            for finalizer in object.metadata.finalizers.iter().flatten() {
                *remaining.finalizers.entry(finalizer.clone()).or_default() += 1;
            }
        }
        Ok(remaining)
    }

    /// How long the pods may take to end, counted from the deletion of the namespace.
    fn grace(&self, namespace: &Namespace) -> i64 {
        let pods = self.pods.by_namespace(namespace.metadata.name());
        let running = pods.iter().filter(|pod| !pods::is_terminal(pod));
        let grace =
            running.filter_map(|pod| pods::spec(pod)?.termination_grace_period_seconds).max().unwrap_or_default();
        let deleted = namespace.metadata.deletion_timestamp.as_ref().map_or_else(|| self.clock.now(), |time| time.0);
        let passed = clock::since(self.clock.now(), deleted);
        if passed >= Duration::from_secs(u64::try_from(grace).unwrap_or_default()) { 0 } else { grace }
    }

    async fn finalize(&self, mut namespace: Namespace) -> Result<Action, Error> {
        let spec = namespace.spec.get_or_insert_default();
        spec.finalizers.get_or_insert_default().retain(|finalizer| finalizer != FINALIZER);
        let name = namespace.metadata.name().to_owned();
        let answer =
            self.client.update_subresource::<Namespace, Namespace, Namespace>("", &name, "finalize", &namespace).await;
        match answer {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(Action::Done),
        }
    }
}
