//! `cargo run -p examples --bin controller -- KUBECONFIG`: the controller against any cluster, until Ctrl-C.

use client::{Client, Config};
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let kubeconfig = std::env::args().nth(1).ok_or("usage: controller KUBECONFIG")?;
    let client = Client::https(Config::from_kubeconfig(kubeconfig)?)?.with_user_agent("example-controller");
    let stop = CancellationToken::new();
    let running = tokio::spawn(examples::run(client, stop.clone()));
    tokio::signal::ctrl_c().await?;
    stop.cancel();
    Ok(running.await?)
}
