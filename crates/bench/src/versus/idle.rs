//! What a cluster costs in which nothing happens, with one node and 30 pods; then a flood of pods that fit nowhere.

use std::time::{Duration, Instant};

use super::bind::{Bound, SPACE, create};
use super::sheet::{Figure, Sheet};
use super::{Outside, Side};
use crate::report::quantile_ms;
use crate::{Failure, Options, process};

/// How many run while nothing happens.
const RUNNING: usize = 30;
/// What began at the start is over.
const SETTLING: Duration = Duration::from_secs(15);
const WATCHED: Duration = Duration::from_secs(30);
const FLOOD: usize = 5_000;
/// After that long the flood is to have left nothing but its pods.
const LATER: Duration = Duration::from_secs(60);

pub async fn measure(side: &Side, options: &Options, sheet: &mut Sheet) -> Result<(), Failure> {
    let outside = Outside::connect(side.kubeconfig()).await?;
    outside.space(SPACE).await?;
    let _hollow = side.hollow_nodes(1)?;
    let mut bound = Bound::watch(&outside, SPACE).await?;
    create(&outside, SPACE, "idle", RUNNING, "100m").await?;
    bound.reach(RUNNING).await?;
    drop(bound);
    tokio::time::sleep(SETTLING).await;
    idle(side, sheet).await?;
    flood(side, &outside, options.scaled(FLOOD, 200), sheet).await
}

async fn idle(side: &Side, sheet: &mut Sheet) -> Result<(), Failure> {
    let counts = || -> Result<_, Failure> {
        Ok((side.cpu()?, side.sum(process::context_switches)?, side.sum(process::written_bytes)?))
    };
    let (begun, before) = (Instant::now(), counts()?);
    tokio::time::sleep(WATCHED).await;
    let (after, seconds) = (counts()?, begun.elapsed().as_secs_f64());
    let (resident, private) = side.memory()?;
    let figures = [
        (Figure::Percent, (after.0 - before.0) / seconds * 100.0),
        (Figure::Switches, (after.1 - before.1) / seconds),
        (Figure::Written, (after.2 - before.2) / seconds),
        (Figure::Resident, resident),
        (Figure::Private, private),
    ];
    sheet.add(side, "idle", &format!("idle, one node, {RUNNING} pods"), &figures);
    Ok(())
}

async fn flood(side: &Side, outside: &Outside, pods: usize, sheet: &mut Sheet) -> Result<(), Failure> {
    let (used, revision) = (side.cpu()?, outside.revision().await?);
    let run = create(outside, SPACE, "flood", pods, "500").await?;
    let (peak, _) = side.memory()?;
    tokio::time::sleep(LATER).await;
    let (resident, private) = side.memory()?;
    let each = |amount: f64| amount / pods as f64;
    let figures = [
        (Figure::Cpu, each((side.cpu()? - used) * 1e3)),
        (Figure::Rate, run.per_second()),
        (Figure::P99, quantile_ms(&run.latencies, 0.99)),
        (Figure::Writes, each(outside.revision().await? - revision)),
        (Figure::Peak, peak),
        (Figure::Resident, resident),
        (Figure::Private, private),
    ];
    let title = format!("flood of {pods} pods that fit nowhere, and {} s", LATER.as_secs());
    sheet.add(side, "flood", &title, &figures);
    Ok(())
}
