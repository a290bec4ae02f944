//! Observes, applies what `plan` decides, and reports.

use client::{DeleteOptions, Propagation};
use informer::{Action, Informer, Key, Reconciler, clock};
use k8s_openapi::api::batch::v1::Job;

use super::plan::{Plan, expires, plan};
use crate::Error;
use crate::common::meta::MetaExt;
use crate::context::{Context, Tools};
use crate::metrics;

const WORKERS: usize = 5;

pub(crate) async fn start(context: Context) {
    let mut inputs = context.inputs();
    let controller = Ttl { tools: context.tools.clone(), jobs: inputs.read() };
    inputs.feed(&controller.jobs, |change| {
        change.after().filter(|job| expires(job).is_some()).map(|job| job.metadata.key())
    });
    inputs.run(controller, WORKERS).await;
}

struct Ttl {
    tools: Tools,
    jobs: Informer<Job>,
}

impl Reconciler for Ttl {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(job) = self.jobs.get(key) else { return Ok(Action::Done) };
        if let Some(action) = waits(&plan(&job, self.tools.clock.now())) {
            return Ok(action);
        }
        // The cache may be behind: the time may have been made longer since.
        let live = match self.tools.client.get::<Job>(&key.namespace, &key.name).await {
            Ok(job) => job,
            Err(error) if error.is_not_found() => return Ok(Action::Done),
            Err(error) => return Err(error.into()),
        };
        let plan = plan(&live, self.tools.clock.now());
        let Plan::Delete(end) = plan else { return Ok(waits(&plan).unwrap_or(Action::Done)) };
        let options = DeleteOptions {
            propagation_policy: Some(Propagation::Foreground),
            uid: live.metadata.uid.clone(),
            resource_version: live.metadata.resource_version.clone(),
            ..DeleteOptions::default()
        };
        match self.tools.client.delete::<Job>(&key.namespace, &key.name, &options).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => {
                metrics::TTL_DELETION_SECONDS.observe(&[], clock::since(self.tools.clock.now(), end).as_secs_f64());
                Ok(Action::Done)
            }
        }
    }
}

/// How a turn ends that deletes nothing.
fn waits(plan: &Plan) -> Option<Action> {
    match plan {
        Plan::Keep => Some(Action::Done),
        Plan::Wait(left) => Some(Action::After(*left)),
        Plan::Delete(_) => None,
    }
}
