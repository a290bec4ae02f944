//! ClusterTrustBundle publisher: the certificates with which clients check the API server are a bundle of the signer
//! `kubernetes.io/kube-apiserver-serving`, and its only one.
//!
//! `plan` decides and is pure. Upstream: kube-apiserver-serving-clustertrustbundle-publisher-controller.

mod plan;
mod reconcile;
#[cfg(test)]
mod tests;

use futures::FutureExt;

use crate::controller::Controller;

pub(crate) const CONTROLLER: Controller = Controller {
    name: "kube-apiserver-serving-clustertrustbundle-publisher-controller",
    alias: "",
    account: "kube-apiserver-serving-clustertrustbundle-publisher",
    events: "kube-apiserver-serving-clustertrustbundle-publisher",
    queue: "ca_cert_publisher_cluster_trust_bundles",
    watches: &["ClusterTrustBundle"],
    on: true,
    start: |context| reconcile::start(context).boxed(),
};
