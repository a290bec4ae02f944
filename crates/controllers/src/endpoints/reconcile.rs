//! Observes, applies what `plan` decides, and reports.

use client::DeleteOptions;
use informer::{Action, EventType, Informer, Key, Reconciler};
use k8s_openapi::api::core::v1::{Endpoints, Pod, Service};

use super::plan;
use crate::Error;
use crate::common::pod_control::namespace_ends;
use crate::common::services;
use crate::context::{Context, Tools};
use crate::inputs::changed;

const WORKERS: usize = 5;

pub(crate) async fn start(context: Context) {
    let mut inputs = context.inputs();
    let controller = EndpointsController {
        tools: context.tools.clone(),
        services: inputs.watch(changed),
        pods: inputs.read(),
        endpoints: inputs.watch(changed),
    };
    let known = controller.services.clone();
    inputs.feed(&controller.pods, move |change| services::affected(change, &known));
    inputs.run(controller, WORKERS).await;
}

struct EndpointsController {
    tools: Tools,
    services: Informer<Service>,
    pods: Informer<Pod>,
    endpoints: Informer<Endpoints>,
}

impl Reconciler for EndpointsController {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let current = self.endpoints.get(key);
        let Some(service) = self.services.get(key) else {
            // Only what this controller made: others keep records of their own under this kind.
            if current.is_some_and(|endpoints| plan::is_managed(&endpoints)) {
                match self.tools.client.delete::<Endpoints>(&key.namespace, &key.name, &DeleteOptions::default()).await
                {
                    Err(error) if !error.is_not_found() => return Err(error.into()),
                    _ => {}
                }
            }
            return Ok(Action::Done);
        };
        let Some(selector) = services::pod_selector(&service) else { return Ok(Action::Done) };
        let selected = self.pods.select(&key.namespace, &selector);
        let Some(wanted) = plan::plan(&service, current.as_deref(), &selected) else { return Ok(Action::Done) };
        let (answer, reason, verb) = if current.is_none() {
            (self.tools.client.create(&wanted).await, "FailedToCreateEndpoint", "create endpoint for service")
        } else {
            (self.tools.client.update(&wanted).await, "FailedToUpdateEndpoint", "update endpoint")
        };
        match answer {
            Ok(_) => Ok(Action::Done),
            Err(error) if current.is_none() && namespace_ends(&error) => Ok(Action::Done),
            Err(error) => {
                let message = format!("Failed to {verb} {key}: {error}");
                self.tools.recorder.event(&wanted, EventType::Warning, reason, message);
                Err(error.into())
            }
        }
    }
}
