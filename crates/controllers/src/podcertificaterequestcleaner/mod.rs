//! PodCertificateRequest cleaner: deletes requests that are older than any exchange about them can be.
//!
//! `plan` says when and is pure. A request waits for its own moment; upstream, the podcertificaterequest-cleaner-controller, looks at all of
//! them every five minutes.

mod plan;
mod reconcile;
#[cfg(test)]
mod tests;

use futures::FutureExt;

use crate::controller::Controller;

pub(crate) const CONTROLLER: Controller = Controller {
    name: "podcertificaterequest-cleaner-controller",
    alias: "",
    account: "podcertificaterequestcleaner",
    events: "podcertificaterequestcleaner",
    queue: "podcertificaterequest-cleaner-controller",
    watches: &["PodCertificateRequest"],
    on: true,
    start: |context| reconcile::start(context).boxed(),
};
