//! The group `apps`: what keeps pods running.

pub mod controller_revision;
pub mod daemon_set;
pub mod deployment;
pub mod replica_set;
pub mod stateful_set;

use crate::kind::Kind;

/// The kinds of the group.
pub const KINDS: &[Kind] = &[
    Kind::new("controllerrevisions", "ControllerRevision")
        .strategy(&controller_revision::ControllerRevisions)
        .columns(&controller_revision::columns::TABLE),
    Kind::new("daemonsets", "DaemonSet").strategy(&daemon_set::DaemonSets).columns(&daemon_set::columns::TABLE),
    Kind::new("deployments", "Deployment").strategy(&deployment::Deployments).columns(&deployment::columns::TABLE),
    Kind::new("replicasets", "ReplicaSet").strategy(&replica_set::ReplicaSets).columns(&replica_set::columns::TABLE),
    Kind::new("statefulsets", "StatefulSet")
        .strategy(&stateful_set::StatefulSets)
        .columns(&stateful_set::columns::TABLE),
];
