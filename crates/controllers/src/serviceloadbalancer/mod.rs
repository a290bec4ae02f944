//! A load balancer for bare metal: Services of type LoadBalancer get the nodes' own addresses.
//!
//! Every node's proxy answers at a load balancer's addresses, so all that is missing without a cloud is somebody who says
//! which addresses those are. A port of a node belongs to one Service: the older one keeps it, the other waits and says
//! so. With `externalTrafficPolicy: Local` only nodes with a ready endpoint are named. Services that ask for another
//! load balancer by its class are left alone.
//!
//! It is no controller of the manager: the server runs it as a part of its own, with an identity, a lease and a switch of its own. `plan` decides and
//! is pure. Upstream has nothing like it; clouds have their service controller.

mod plan;
mod reconcile;
#[cfg(test)]
mod tests;

pub use reconcile::run;
