//! Observes, applies what `plan` decides, and reports.

use client::Patch;
use informer::{Action, EventType, Informer, Key, Reconciler};
use k8s_openapi::api::networking::v1::{IPAddress, ServiceCIDR};
use serde_json::json;

use super::plan::{self, FINALIZER, Ready};
use crate::Error;
use crate::common::meta::MetaExt;
use crate::context::{Context, Tools};

const WORKERS: usize = 5;

pub(crate) async fn start(context: Context) {
    let mut inputs = context.inputs();
    let controller = ServiceCidrs { tools: context.tools.clone(), ranges: inputs.read(), addresses: inputs.read() };
    let all = controller.ranges.clone();
    inputs.feed(&controller.ranges, move |change| {
        // One that comes or goes may free another one that overlaps with it.
        let own = change.object();
        let overlapping = all.list().into_iter().filter(|other| plan::ranges(other).overlap(&plan::ranges(own)));
        let mut keys: Vec<Key> = overlapping.map(|other| other.metadata.key()).collect();
        keys.push(own.metadata.key());
        keys
    });
    let all = controller.ranges.clone();
    inputs.feed(&controller.addresses, move |change| {
        let address = plan::allocated(change.object());
        // Only ranges that are going care for addresses.
        let going = all.list().into_iter().filter(|range| range.metadata.is_deleting());
        let concerned = going.filter(|range| address.is_some_and(|address| plan::ranges(range).contain(address)));
        concerned.map(|range| range.metadata.key()).collect::<Vec<_>>()
    });
    inputs.run(controller, WORKERS).await;
}

struct ServiceCidrs {
    tools: Tools,
    ranges: Informer<ServiceCIDR>,
    addresses: Informer<IPAddress>,
}

impl Reconciler for ServiceCidrs {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(range) = self.ranges.get(key) else { return Ok(Action::Done) };
        let plan = plan::plan(&range, &self.ranges.list(), &self.addresses.list(), self.tools.clock.now());
        if let Some(hold) = plan.hold {
            self.hold(&range, hold).await?;
        }
        if let Some(ready) = plan.ready {
            self.report(&range, ready).await?;
        }
        Ok(Action::after(plan.again))
    }
}

impl ServiceCidrs {
    /// Keeps a range from going, or lets it go.
    async fn hold(&self, range: &ServiceCIDR, hold: bool) -> Result<(), Error> {
        let field = if hold { "finalizers" } else { "$deleteFromPrimitiveList/finalizers" };
        let patch = Patch::Strategic(json!({"metadata": {field: [FINALIZER]}}));
        match self.tools.client.patch::<ServiceCIDR>("", range.metadata.name(), &patch).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(()),
        }
    }

    async fn report(&self, range: &ServiceCIDR, ready: Ready) -> Result<(), Error> {
        let condition = json!({
            "type": "Ready", "status": ready.status, "reason": ready.reason, "message": ready.message,
            "lastTransitionTime": machinery::time::format(self.tools.clock.now()),
        });
        let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
        let written = self.tools.client.patch_status::<ServiceCIDR>("", range.metadata.name(), &patch).await;
        if written.is_err() && ready.status == "True" {
            let message = "The ServiceCIDR Status can not be set to Ready=True";
            self.tools.recorder.event(range, EventType::Warning, "KubernetesServiceCIDRError", message);
        }
        Ok(written.map(drop)?)
    }
}
