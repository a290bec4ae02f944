//! What tests of whole clusters need: a real server per test, a real kubectl, builders for objects, waiting without
//! sleeping, and a checker for histories.

mod browser;
pub mod build;
mod cluster;
pub mod csi;
mod etcd;
mod hollow_nodes;
mod https;
mod issuer;
mod kubectl;
pub mod linear;
mod process;
mod wait;

pub use browser::Browser;
pub use cluster::{Cluster, Options};
pub use etcd::{Etcd, free_port};
pub use hollow_nodes::HollowNodes;
pub use https::Https;
pub use issuer::Issuer;
pub use kubectl::{Kubectl, Output};
pub use process::{Place, Server, ServerOptions};
pub use wait::{eventually, object, objects};
