//! ReplicaSet and ReplicationController: keep `spec.replicas` pods alive.
//!
//! The two kinds differ in their names and in the form of their selector, so one reconciler, generic over [`kinds::Replicated`], serves both.
//! `plan` decides and is pure; `reconcile` reads, applies, reports. Upstream: ReplicaSetController.

mod figures;
mod kinds;
mod plan;
mod reconcile;
mod status;
#[cfg(test)]
mod tests;

use futures::FutureExt;

use crate::controller::Controller;

pub const CONTROLLERS: &[Controller] = &[
    Controller {
        name: "replicaset-controller",
        alias: "replicaset",
        account: "replicaset-controller",
        events: "replicaset-controller",
        queue: "replicaset",
        watches: &["Pod", "ReplicaSet"],
        on: true,
        start: |context| reconcile::start(context).boxed(),
    },
    Controller {
        name: "replicationcontroller-controller",
        alias: "replicationcontroller",
        account: "replication-controller",
        events: "replication-controller",
        queue: "replicationmanager",
        watches: &["Pod", "ReplicationController"],
        on: true,
        start: |context| reconcile::start_replication_controllers(context).boxed(),
    },
];
