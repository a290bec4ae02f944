//! Namespace: empties a namespace that is being deleted, then lets it go.
//!
//! Every resource the API server knows is emptied, custom ones included; pods first, because others (their secrets, say) may be needed to end them.
//! Upstream: NamespaceController.

mod plan;
mod reconcile;
mod status;
#[cfg(test)]
mod tests;

use futures::FutureExt;

use crate::controller::Controller;

pub(crate) const CONTROLLER: Controller = Controller {
    name: "namespace-controller",
    alias: "namespace",
    account: "namespace-controller",
    events: "namespace-controller",
    queue: "namespace",
    watches: &["Namespace", "Pod"],
    on: true,
    start: |context| reconcile::start(context).boxed(),
};
