//! ServiceCIDR: says that a range of Service addresses is ready, and keeps it from going while addresses are in use that no other range holds.
//!
//! `plan` decides and is pure. Upstream: the ServiceCIDR controller.

mod plan;

use std::sync::Arc;
use std::time::Duration;

use client::{Client, Patch};
use informer::{Action, Clock, EventType, Informer, Key, Reconciler, Recorder};
use k8s_openapi::api::networking::v1::{IPAddress, ServiceCIDR};
use serde_json::{Value, json};

use crate::Error;
use crate::common::meta::MetaExt;
use crate::context::Context;
use plan::Ranges;

const WORKERS: usize = 5;
const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";
/// How long allocators get to hear that a range is going.
const GRACE: Duration = Duration::from_secs(10);

/// Runs the controller.
pub(crate) async fn start(context: Context) {
    let controller = ServiceCidrs {
        client: context.client.clone(),
        recorder: context.recorder.clone(),
        clock: context.clock.clone(),
        ranges: context.informers.of(),
        addresses: context.informers.of(),
    };
    let queue = context.queue();
    let all = controller.ranges.clone();
    informer::feed(&controller.ranges, &queue, move |change| {
        // One that comes or goes may free another one that overlaps with it.
        let own = change.object();
        let overlapping = all.list().into_iter().filter(|other| plan::ranges(other).overlap(&plan::ranges(own)));
        let mut keys: Vec<Key> = overlapping.map(|other| other.metadata.key()).collect();
        keys.push(own.metadata.key());
        keys
    });
    let all = controller.ranges.clone();
    informer::feed(&controller.addresses, &queue, move |change| {
        let address = plan::allocated(change.object());
        // Only ranges that are going care for addresses.
        let going = all.list().into_iter().filter(|range| range.metadata.is_deleting());
        let concerned = going.filter(|range| address.is_some_and(|address| plan::ranges(range).contain(address)));
        concerned.map(|range| range.metadata.key()).collect::<Vec<_>>()
    });
    futures::join!(controller.ranges.synced(), controller.addresses.synced());
    context.run(controller, queue, WORKERS).await;
}

struct ServiceCidrs {
    client: Client,
    recorder: Recorder,
    clock: Arc<dyn Clock>,
    ranges: Informer<ServiceCIDR>,
    addresses: Informer<IPAddress>,
}

impl Reconciler for ServiceCidrs {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(range) = self.ranges.get(key) else { return Ok(Action::Done) };
        let Some(deleted) = &range.metadata.deletion_timestamp else {
            self.hold(&range, true).await?;
            let ready = ("True", "", "Kubernetes Service CIDR is ready");
            if let Err(error) = self.report(&range, ready).await {
                let message = "The ServiceCIDR Status can not be set to Ready=True";
                self.recorder.event(&*range, EventType::Warning, "KubernetesServiceCIDRError", message);
                return Err(error);
            }
            return Ok(Action::Done);
        };
        let others: Vec<Ranges> = self
            .ranges
            .list()
            .iter()
            .filter(|other| other.metadata.name != range.metadata.name)
            .map(|other| plan::ranges(other))
            .collect();
        let in_use = self.addresses.list();
        let in_use = in_use.iter().filter_map(|address| plan::allocated(address));
        if !plan::may_go(&plan::ranges(&range), &others, in_use) {
            let why = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR";
            self.report(&range, ("False", "Terminating", why)).await?;
            return Ok(Action::Done);
        }
        let left = informer::clock::since(informer::clock::add(deleted.0, GRACE), self.clock.now());
        if !left.is_zero() {
            return Ok(Action::After(left));
        }
        self.hold(&range, false).await?;
        Ok(Action::Done)
    }
}

impl ServiceCidrs {
    /// Keeps a range from going, or lets it go.
    async fn hold(&self, range: &ServiceCIDR, hold: bool) -> Result<(), Error> {
        if range.metadata.has_finalizer(FINALIZER) == hold {
            return Ok(());
        }
        let field = if hold { "finalizers" } else { "$deleteFromPrimitiveList/finalizers" };
        let patch = Patch::Strategic(json!({"metadata": {field: [FINALIZER]}}));
        match self.client.patch::<ServiceCIDR>("", range.metadata.name(), &patch).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(()),
        }
    }

    async fn report(&self, range: &ServiceCIDR, (status, reason, message): (&str, &str, &str)) -> Result<(), Error> {
        let conditions = range.status.iter().filter_map(|status| status.conditions.as_ref()).flatten();
        let known = conditions.into_iter().find(|condition| condition.type_ == "Ready");
        if known.is_some_and(|known| (&*known.status, &*known.reason, &*known.message) == (status, reason, message)) {
            return Ok(());
        }
        let condition: Value = json!({
            "type": "Ready", "status": status, "reason": reason, "message": message,
            "lastTransitionTime": machinery::time::format(self.clock.now()),
        });
        let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
        self.client.patch_status::<ServiceCIDR>("", range.metadata.name(), &patch).await?;
        Ok(())
    }
}
