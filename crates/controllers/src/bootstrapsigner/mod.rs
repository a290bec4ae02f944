//! Bootstrap signer: signs the public ConfigMap `cluster-info` with every bootstrap token, so that a joining node that knows a token can trust it.
//!
//! `plan` decides and is pure. Upstream: Signer of the bootstrap package.

mod plan;
mod reconcile;

use futures::FutureExt;

use crate::controller::Controller;

pub(crate) const CONTROLLER: Controller = Controller {
    name: "bootstrap-signer-controller",
    alias: "bootstrapsigner",
    account: "bootstrap-signer",
    events: "bootstrap-signer",
    queue: "bootstrap_signer_queue",
    watches: &["ConfigMap", "Secret"],
    on: false,
    start: |context| reconcile::start(context).boxed(),
};
