//! Root CA publisher: every namespace has the ConfigMap `kube-root-ca.crt`, with which pods check the API server.
//!
//! Upstream: rootcacertpublisher.

mod plan;
mod reconcile;
#[cfg(test)]
mod tests;

use futures::FutureExt;

use crate::controller::Controller;

pub(crate) const CONTROLLER: Controller = Controller {
    name: "root-ca-certificate-publisher-controller",
    alias: "root-ca-cert-publisher",
    account: "root-ca-cert-publisher",
    events: "root-ca-cert-publisher",
    queue: "root_ca_cert_publisher",
    watches: &["ConfigMap", "Namespace"],
    on: true,
    start: |context| reconcile::start(context).boxed(),
};
