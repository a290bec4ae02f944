//! Observes, applies what `plan` decides, and reports.

use std::time::Duration;

use client::{DeleteOptions, ListParams, Propagation};
use futures::future::join_all;
use informer::{Action, Informer, Key, Reconciler, WorkQueue};
use k8s_openapi::api::core::v1::{Namespace, NamespaceStatus, Pod};

use super::plan::{self, Plan};
use super::status::{self, Findings, Remaining};
use crate::Error;
use crate::common::discovery::{Discovered, Resource, discover};
use crate::common::meta::MetaExt;
use crate::context::{Context, Tools};

const WORKERS: usize = 10;

pub(crate) async fn start(context: Context) {
    let (first, longest) = (Duration::from_millis(5), Duration::from_secs(60));
    let queue = WorkQueue::with_delays(context.controller.queue, context.tools.clock.clone(), first, longest);
    let mut inputs = context.inputs_of(queue);
    let controller = Namespaces { tools: context.tools.clone(), namespaces: inputs.read(), pods: inputs.read() };
    inputs.feed(&controller.namespaces, |change| {
        change.after().filter(|namespace| namespace.metadata.is_deleting()).map(|namespace| namespace.metadata.key())
    });
    let namespaces = controller.namespaces.clone();
    inputs.feed(&controller.pods, move |change| {
        // The rest of the namespace waits for its last pod.
        let key = Key::cluster(change.object().metadata.namespace());
        let ends =
            change.after().is_none() && namespaces.get(&key).is_some_and(|namespace| namespace.metadata.is_deleting());
        ends.then_some(key)
    });
    inputs.run(controller, WORKERS).await;
}

struct Namespaces {
    tools: Tools,
    namespaces: Informer<Namespace>,
    pods: Informer<Pod>,
}

impl Reconciler for Namespaces {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        if !self.namespaces.get(key).is_some_and(|namespace| namespace.metadata.is_deleting()) {
            return Ok(Action::Done);
        }
        let mut namespace = match self.tools.client.get::<Namespace>("", &key.name).await {
            Ok(namespace) if namespace.metadata.is_deleting() => namespace,
            Ok(_) => return Ok(Action::Done),
            Err(error) if error.is_not_found() => return Ok(Action::Done),
            Err(error) => return Err(error.into()),
        };
        // Whoever deletes a namespace says so; this is for those that were written otherwise.
        if let Some(status) = plan::begun(&namespace) {
            namespace = self.report(&namespace, status).await?;
        }
        if !plan::is_held(&namespace) {
            return Ok(Action::Done);
        }
        let findings = self.empty(&namespace).await;
        let known = namespace.status.clone().unwrap_or_default();
        if let Some(status) = status::updated(&known, &findings, self.tools.clock.now()) {
            // What was found is reported as well as can be; the deletion itself does not depend on it.
            match self.report(&namespace, status).await {
                Ok(updated) => namespace = updated,
                Err(error) => tracing::debug!(%key, %error, "the namespace's conditions could not be written"),
            }
        }
        match plan::plan(&namespace, &findings) {
            Plan::Fail(message) => Err(Error::Waiting(message)),
            Plan::Wait(delay) => Ok(Action::After(delay)),
            Plan::Finalize(namespace) => self.finalize(&namespace).await,
        }
    }
}

impl Namespaces {
    async fn report(&self, namespace: &Namespace, status: NamespaceStatus) -> Result<Namespace, client::Error> {
        self.tools.client.update_status(&Namespace { status: Some(status), ..namespace.clone() }).await
    }

    /// Deletes everything that can be found; answers what is left.
    async fn empty(&self, namespace: &Namespace) -> Findings {
        let (discovered, failure) = match discover(&self.tools.client).await {
            Ok(discovered) => (discovered, None),
            Err(error) => (Discovered::default(), Some(error.to_string())),
        };
        let mut findings = plan::discovered(&discovered, failure);
        let (pods, others) = plan::deletable(discovered.resources);
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
        let grace = if resource.gvr.resource == "pods" {
            plan::grace(namespace, self.pods.each_in(name), self.tools.clock.now())
        } else {
            0
        };
        let left = self.delete_all(name, resource).await.map_err(|error| error.to_string());
        plan::note(findings, name, &resource.gvr, grace, left);
    }

    async fn delete_all(&self, namespace: &str, resource: &Resource) -> Result<Remaining, client::Error> {
        let objects = self.tools.client.dynamic(&resource.gvr);
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
        let left = objects.list_metadata(namespace, &everything).await?.items;
        Ok(Remaining::of(left.iter().map(|object| &object.metadata)))
    }

    async fn finalize(&self, namespace: &Namespace) -> Result<Action, Error> {
        let name = namespace.metadata.name();
        let answer = self
            .tools
            .client
            .update_subresource::<Namespace, Namespace, Namespace>("", name, "finalize", namespace)
            .await;
        match answer {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(Action::Done),
        }
    }
}
