//! TTL after finished: deletes Jobs some time after they ended, if they say so.
//!
//! Upstream: ttlafterfinished controller.

use std::sync::Arc;
use std::time::Duration;

use client::{Client, DeleteOptions, Propagation};
use informer::{Action, Clock, Informer, Key, Reconciler, clock};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;

use crate::Error;
use crate::common::meta::MetaExt;
use crate::context::Context;
use crate::metrics;

const WORKERS: usize = 5;

/// Runs the controller.
pub(crate) async fn start(context: Context) {
    let controller = Ttl { client: context.client.clone(), clock: context.clock.clone(), jobs: context.informers.of() };
    let queue = context.queue();
    informer::feed(&controller.jobs, &queue, |change| {
        change.after().filter(|job| expires(job).is_some()).map(|job| job.metadata.key())
    });
    controller.jobs.synced().await;
    context.run(controller, queue, WORKERS).await;
}

struct Ttl {
    client: Client,
    clock: Arc<dyn Clock>,
    jobs: Informer<Job>,
}

/// When a finished Job expires; `None` for those that run, keep themselves, or are going already.
fn expires(job: &Job) -> Option<Timestamp> {
    let seconds = u64::try_from(job.spec.as_ref()?.ttl_seconds_after_finished?).ok()?;
    let conditions = job.status.as_ref()?.conditions.iter().flatten();
    let mut ended = conditions
        .filter(|condition| matches!(condition.type_.as_str(), "Complete" | "Failed") && condition.status == "True");
    let at = ended.next()?.last_transition_time.as_ref()?.0;
    (!job.metadata.is_deleting()).then(|| clock::add(at, Duration::from_secs(seconds)))
}

impl Reconciler for Ttl {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(end) = self.jobs.get(key).and_then(|job| expires(&job)) else { return Ok(Action::Done) };
        let left = clock::since(end, self.clock.now());
        if !left.is_zero() {
            return Ok(Action::After(left));
        }
        // The cache may be behind: the time may have been made longer since.
        let live = match self.client.get::<Job>(&key.namespace, &key.name).await {
            Ok(job) => job,
            Err(error) if error.is_not_found() => return Ok(Action::Done),
            Err(error) => return Err(error.into()),
        };
        let Some(end) = expires(&live) else { return Ok(Action::Done) };
        let left = clock::since(end, self.clock.now());
        if !left.is_zero() {
            return Ok(Action::After(left));
        }
        let options = DeleteOptions {
            propagation_policy: Some(Propagation::Foreground),
            uid: live.metadata.uid.clone(),
            resource_version: live.metadata.resource_version.clone(),
            ..DeleteOptions::default()
        };
        match self.client.delete::<Job>(&key.namespace, &key.name, &options).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => {
                metrics::TTL_DELETION_SECONDS.observe(&[], clock::since(self.clock.now(), end).as_secs_f64());
                Ok(Action::Done)
            }
        }
    }
}
