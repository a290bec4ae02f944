//! ClusterRole aggregation: roles such as `admin` hold the rules of all roles that their selectors pick.
//!
//! Upstream: ClusterRoleAggregationController.

mod plan;
mod reconcile;
#[cfg(test)]
mod tests;

use futures::FutureExt;

use crate::controller::Controller;

pub(crate) const CONTROLLER: Controller = Controller {
    name: "clusterrole-aggregation-controller",
    alias: "clusterrole-aggregation",
    account: "clusterrole-aggregation-controller",
    events: "clusterrole-aggregation-controller",
    queue: "ClusterRoleAggregator",
    watches: &["ClusterRole"],
    on: true,
    start: |context| reconcile::start(context).boxed(),
};
