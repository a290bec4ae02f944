//! `trireme hollow-node`: nodes without machines, for runs at scale.

use informer::clock;

use crate::component::Failure;
use crate::standalone::{Kubeconfig, stop_on_signal};

/// Options of `trireme hollow-node`.
#[derive(Debug, clap::Args)]
pub struct HollowNode {
    #[command(flatten)]
    connection: Kubeconfig,
    /// How many nodes.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    count: usize,
    /// Their names are this, a dash and a number.
    #[arg(long, value_name = "TEXT", default_value = "hollow")]
    name_prefix: String,
    /// CPUs of each.
    #[arg(long, value_name = "QUANTITY", default_value = "32")]
    cpu: String,
    /// Memory of each.
    #[arg(long, value_name = "QUANTITY", default_value = "256Gi")]
    memory: String,
    /// The most pods on each.
    #[arg(long, value_name = "NUMBER", default_value_t = 110)]
    max_pods: u32,
}

/// Is the nodes until a signal ends it.
pub async fn run(options: HollowNode) -> Result<(), Failure> {
    let client = options.connection.connect()?.with_user_agent("hollow-node");
    let nodes = hollow::Options {
        count: options.count,
        prefix: options.name_prefix,
        cpu: options.cpu,
        memory: options.memory,
        pods: options.max_pods,
    };
    hollow::run(nodes, client, clock::Real::shared(), stop_on_signal()?).await;
    Ok(())
}
