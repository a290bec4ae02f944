//! Observes, applies what `plan` decides, and reports.

use informer::{Action, Informer, Key, Reconciler};
use k8s_openapi::api::core::v1::{Endpoints, Service};

use super::plan;
use crate::Error;
use crate::common::slices::{Figures, Slices};
use crate::context::{Context, Tools};
use crate::inputs::changed;
use crate::metrics;

const WORKERS: usize = 5;

pub(crate) async fn start(context: Context) {
    let mut inputs = context.inputs();
    let controller = Mirroring {
        tools: context.tools.clone(),
        services: inputs.watch(changed),
        endpoints: inputs.watch(changed),
        slices: Slices::new(&context, &mut inputs, plan::MANAGER, FIGURES),
    };
    inputs.run(controller, WORKERS).await;
}

const FIGURES: Figures = Figures {
    added: &metrics::MIRROR_ADDED,
    removed: &metrics::MIRROR_REMOVED,
    endpoints: &metrics::MIRROR_ENDPOINTS,
    slices: &metrics::MIRRORS,
    desired: &metrics::MIRRORS_DESIRED,
    changes: &metrics::MIRROR_CHANGES,
};

struct Mirroring {
    tools: Tools,
    services: Informer<Service>,
    endpoints: Informer<Endpoints>,
    slices: Slices,
}

impl Reconciler for Mirroring {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let begun = self.tools.clock.monotonic();
        let existing = self.slices.of(key);
        let service = self.services.get(key).filter(|service| plan::is_selectorless(service));
        let endpoints = self.endpoints.get(key).filter(|endpoints| plan::is_mirrored(endpoints));
        let wanted = match (service, endpoints) {
            (Some(_), Some(endpoints)) => plan::slices(&endpoints),
            _ => Vec::new(),
        };
        if wanted.is_empty() && existing.is_empty() {
            // Most Services have a selector, and are none of this controller's business.
            self.slices.forget(key);
            return Ok(Action::Done);
        }
        let enough = wanted.len();
        let plan = plan::plan(&existing, wanted);
        let answer = self.slices.apply(key, &existing, &plan, enough).await;
        if enough == 0 {
            self.slices.forget(key);
        }
        metrics::MIRROR_SECONDS.observe(&[], self.tools.clock.monotonic().saturating_sub(begun).as_secs_f64());
        answer?;
        Ok(Action::Done)
    }
}
