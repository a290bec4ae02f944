//! Start-up, memory, requests and watches of the API server, and of the whole control plane with nothing in it.

use std::time::Duration;

use client::DeleteOptions;
use k8s_openapi::api::core::v1::Namespace;
use testkit::Server;

use crate::process::{private_megabytes, resident_megabytes};
use crate::report::Line;
use crate::{Failure, Options, Target, pods, start, watches, wire};

/// Start-up and idle memory of everything in one process.
pub async fn whole_control_plane() -> Result<(), Failure> {
    let begun = std::time::Instant::now();
    let mut server = Server::start(start(&["--disable-agent"])).await;
    Line::new("ready_empty").figure("ms", begun.elapsed().as_secs_f64() * 1e3).at_most("ms", 200.0).print();
    wire::openapi(&server.client()).await?;
    // Freed pages go back to the system within seconds.
    tokio::time::sleep(Duration::from_secs(15)).await;
    let id = server.id().ok_or("the server is gone")?;
    Line::new("idle_memory")
        .figure("megabytes", resident_megabytes(id)?)
        .figure("private_megabytes", private_megabytes(id)?)
        .at_most("megabytes", 40.0)
        .print();
    server.stop().await;
    Ok(())
}

/// An API server and its store, nothing else.
pub const ALONE: [&str; 3] = ["--disable-agent", "--disable-controller-manager", "--disable-scheduler"];

/// Requests, watches and memory of the API server and its store.
pub async fn api_server(options: &Options) -> Result<(), Failure> {
    let mut server = Server::start(start(&ALONE)).await;
    let target = Target::new(&server.kubeconfig(), server.id(), options.scale)?;
    requests(&target).await?;
    watches::idle(&target).await?;

    // Together with those of the benches before.
    let count = target.scaled(100_000);
    pods::fill(&target, "full", count - target.scaled(pods::CREATES) - target.scaled(pods::LISTED)).await?;
    let id = server.id().ok_or("the server is gone")?;
    // Freed pages go back within a second or two.
    tokio::time::sleep(Duration::from_secs(3)).await;
    Line::new("memory_full")
        .figure("pods", count as f64)
        .figure("megabytes", resident_megabytes(id)?)
        .at_most("megabytes", 600.0)
        .print();
    drop(target);
    server.stop().await;
    let begun = std::time::Instant::now();
    server.spawn();
    server.ready().await;
    Line::new("ready_full")
        .figure("pods", count as f64)
        .figure("ms", begun.elapsed().as_secs_f64() * 1e3)
        .at_most("ms", 1000.0)
        .print();
    server.stop().await;
    Ok(())
}

/// What can be measured of any API server.
pub async fn requests(target: &Target) -> Result<(), Failure> {
    let spaces = ["bench-create", "bench-list", "bench-watch", "bench-idle", "full"];
    for space in spaces {
        pods::space(target.client(), space).await?;
    }
    pods::creates(target, "bench-create").await?;
    pods::gets(target, "bench-create").await?;
    pods::lists(target, "bench-list").await?;
    wire::protobuf_lists(target, "bench-list").await?;
    watches::fan_out(target, "bench-watch").await?;
    clean(target, &spaces).await
}

pub async fn writes(target: &Target) -> Result<(), Failure> {
    let spaces = ["bench-wire"];
    pods::space(target.client(), spaces[0]).await?;
    wire::patches(target, spaces[0]).await?;
    clean(target, &spaces).await
}

/// Leaves another server as it was; our own is gone with its directory.
async fn clean(target: &Target, spaces: &[&str]) -> Result<(), Failure> {
    if target.process.is_none() {
        for space in spaces {
            target.client().delete::<Namespace>("", space, &DeleteOptions::default()).await?;
        }
    }
    Ok(())
}
