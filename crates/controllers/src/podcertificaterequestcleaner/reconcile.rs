//! Observes, applies what `plan` decides, and reports.

use client::DeleteOptions;
use informer::{Action, Informer, Key, Reconciler};
use k8s_openapi::api::certificates::v1::PodCertificateRequest;

use super::plan::plan;
use crate::Error;
use crate::common::expiry::Expiry;
use crate::context::{Context, Tools};
use crate::inputs::present;

pub(crate) async fn start(context: Context) {
    let mut inputs = context.inputs();
    let controller = Cleaner { tools: context.tools.clone(), requests: inputs.watch(present) };
    inputs.run(controller, 1).await;
}

struct Cleaner {
    tools: Tools,
    requests: Informer<PodCertificateRequest>,
}

impl Reconciler for Cleaner {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(request) = self.requests.get(key) else { return Ok(Action::Done) };
        match plan(&request, self.tools.clock.now()) {
            Expiry::Never => return Ok(Action::Done),
            Expiry::In(left) => return Ok(Action::After(left)),
            Expiry::Now => {}
        }
        // Only this very request: another may have its name by now.
        let options = DeleteOptions { uid: request.metadata.uid.clone(), ..DeleteOptions::default() };
        match self.tools.client.delete::<PodCertificateRequest>(&key.namespace, &key.name, &options).await {
            Err(error) if !error.is_not_found() && !error.is_conflict() => Err(error.into()),
            _ => Ok(Action::Done),
        }
    }
}
