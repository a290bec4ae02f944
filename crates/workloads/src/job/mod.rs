//! Job: runs pods until enough of them succeeded.
//!
//! `tally` counts, `plan` decides, `status` reports; all are pure. Every pod carries a finalizer until it is counted, so that none is lost when somebody deletes
//! it, and none is counted twice. Upstream: job controller.

mod failure_policy;
mod figures;
mod indexes;
mod orphans;
mod plan;
mod pod;
mod reconcile;
mod status;
mod tally;
#[cfg(test)]
mod tests;

use futures::FutureExt;

use crate::controller::Controller;

pub const CONTROLLER: Controller = Controller {
    name: "job-controller",
    alias: "job",
    account: "job-controller",
    events: "job-controller",
    queue: "job",
    watches: &["Job", "Pod"],
    on: true,
    start: |context| reconcile::start(context).boxed(),
};
