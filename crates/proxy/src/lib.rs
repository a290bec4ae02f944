//! The service proxy: traffic to a Service's addresses reaches its endpoints, by nftables rules on every node.
//!
//! [`rules`] decides and is pure: Services and EndpointSlices in, nftables transactions out. `model` is what the rules
//! depend on, `choose` which endpoints a node uses, `plan` what one Service adds, `table` how the additions of all
//! Services make one table and what an update changes in it, `render` the text of it.
//!
//! Deliberately absent: `route_localnet` (node ports do not answer on loopback), a rule per Service (a packet costs the
//! same look-ups however many Services there are), and any state that is not in the kernel's table or the API.

mod choose;
mod model;
mod plan;
mod render;
pub mod rules;
mod table;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use model::{Family, NodeView, Protocol, ServiceName};
