//! ValidatingAdmissionPolicy status: checks a policy's expressions against the types of the kinds that it names, and says
//! what cannot be right, so that its author sees it before a request fails.
//!
//! `plan` decides and is pure; a warning never changes what the policy does. Upstream: the ValidatingAdmissionPolicy status
//! controller.

mod kinds;
mod plan;
mod reconcile;

use futures::FutureExt;

use crate::controller::Controller;

pub(crate) const CONTROLLER: Controller = Controller {
    name: "validatingadmissionpolicy-status-controller",
    alias: "validatingadmissionpolicy-status",
    account: "validatingadmissionpolicy-status-controller",
    events: "validatingadmissionpolicy-status-controller",
    queue: "validatingadmissionpolicy-status-controller",
    watches: &["CustomResourceDefinition", "ValidatingAdmissionPolicy"],
    on: true,
    start: |context| reconcile::start(context).boxed(),
};
