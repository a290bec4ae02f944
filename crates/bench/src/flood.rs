//! 50,000 pods that fit nowhere: how fast they are created beside how fast pods are created without a scheduler that looks at them, how
//! many writes each costs, and what is left of it in memory a minute later. Everything runs but a kubelet; the client is the outside one.

use std::time::Duration;

use crate::process::{private_megabytes, resident_megabytes};
use crate::report::{Line, quantile_ms};
use crate::versus::{Outside, bind};
use crate::{Failure, Options, start};

const PODS: usize = 50_000;
/// Creates with nobody who schedules, for comparison.
const UNDISTURBED: usize = 20_000;
const LATER: Duration = Duration::from_secs(60);
const SPACE: &str = "bench-flood";

pub async fn run(options: &Options) -> Result<(), Failure> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut server = testkit::Server::start(start(&["--disable-agent", "--disable-scheduler"])).await;
    let outside = Outside::connect(&server.kubeconfig()).await?;
    outside.space(SPACE).await?;
    let undisturbed =
        bind::create(&outside, SPACE, "calm", options.scaled(UNDISTURBED, 200), "500").await?.per_second();
    drop(outside);
    server.stop().await;

    let mut server = testkit::Server::start(start(&["--disable-agent"])).await;
    let process = server.id().ok_or("the server is gone")?;
    let outside = Outside::connect(&server.kubeconfig()).await?;
    outside.space(SPACE).await?;
    let pods = options.scaled(PODS, 200);
    let revision = outside.revision().await?;
    let run = bind::create(&outside, SPACE, "flood", pods, "500").await?;
    let peak = resident_megabytes(process)?;
    tokio::time::sleep(LATER).await;
    Line::new("flood")
        .figure("pods", pods as f64)
        .figure("per_second", run.per_second())
        .figure("undisturbed_per_second", undisturbed)
        .figure("share_of_undisturbed", run.per_second() / undisturbed)
        .figure("p99_ms", quantile_ms(&run.latencies, 0.99))
        .figure("writes_per_pod", (outside.revision().await? - revision) / pods as f64)
        .figure("peak_megabytes", peak)
        .figure("later_megabytes", resident_megabytes(process)?)
        .figure("later_private_megabytes", private_megabytes(process)?)
        .at_least("share_of_undisturbed", 0.8)
        .at_most("writes_per_pod", 3.0)
        .print();
    server.stop().await;
    Ok(())
}
