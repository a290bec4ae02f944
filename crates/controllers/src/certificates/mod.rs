//! CertificateSigningRequests: approves those of kubelets for themselves, signs approved ones, and cleans up old ones.
//!
//! Four controllers of one subject; `serving` has the one that is not upstream's. `plan` decides and is pure; the signing itself is the
//! [`Signer`](crate::Signer)'s. Upstream: csrapproving, csrsigning, csrcleaner.

mod plan;
mod reconcile;
mod serving;
#[cfg(test)]
mod tests;

use futures::FutureExt;

use crate::controller::Controller;

pub(crate) const CONTROLLERS: &[Controller] = &[
    Controller {
        name: "certificatesigningrequest-approving-controller",
        alias: "csrapproving",
        account: "certificate-controller",
        events: "certificate-controller",
        queue: "certificate",
        watches: &["CertificateSigningRequest"],
        on: true,
        start: |context| reconcile::start_approver(context).boxed(),
    },
    Controller {
        name: "kubelet-serving-approving-controller",
        alias: "",
        account: "kubelet-serving-approver",
        events: "kubelet-serving-approver",
        queue: "kubelet-serving-approving-controller",
        watches: &["CertificateSigningRequest", "Node"],
        on: true,
        start: |context| serving::start(context).boxed(),
    },
    Controller {
        name: "certificatesigningrequest-signing-controller",
        alias: "csrsigning",
        account: "certificate-controller",
        events: "certificate-controller",
        queue: "certificate",
        watches: &["CertificateSigningRequest"],
        on: true,
        start: |context| reconcile::start_signer(context).boxed(),
    },
    Controller {
        name: "certificatesigningrequest-cleaner-controller",
        alias: "csrcleaner",
        account: "certificate-controller",
        events: "certificate-controller",
        queue: "certificate",
        watches: &["CertificateSigningRequest"],
        on: true,
        start: |context| reconcile::start_cleaner(context).boxed(),
    },
];
