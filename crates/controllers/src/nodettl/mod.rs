//! Node TTL: tells kubelets, by an annotation, for how long they may use Secrets and ConfigMaps without asking again. The larger the cluster, the longer.
//!
//! Upstream: the TTL controller.

mod plan;
mod reconcile;
#[cfg(test)]
mod tests;

use futures::FutureExt;

use crate::controller::Controller;

pub(crate) const CONTROLLER: Controller = Controller {
    name: "ttl-controller",
    alias: "ttl",
    account: "ttl-controller",
    events: "ttl-controller",
    queue: "ttlcontroller",
    watches: &["Node"],
    on: true,
    start: |context| reconcile::start(context).boxed(),
};
