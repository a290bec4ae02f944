//! Waiting until a cluster works.

use std::collections::BTreeSet;
use std::time::Duration;

use client::{Client, Event, WatchParams};
use devnet::Machine;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;

use super::host::Host;
use crate::component::Failure;
use crate::standalone::connect;

/// How long the API may take to answer, and then all nodes to become ready.
const PATIENCE: Duration = Duration::from_secs(120);
/// Between two looks at what cannot be watched: a process that lives, an API that does not answer yet.
const LOOK: Duration = Duration::from_millis(50);
/// So much of a log is shown when its process ended.
const SHOWN: usize = 20;

/// Waits until the API answers.
pub(super) async fn control_plane(host: &Host) -> Result<(), Failure> {
    let answers = async {
        loop {
            if let Ok(client) = connect(&host.kubeconfig())
                && client.raw("/readyz").await.is_ok()
            {
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::select! {
        answered = tokio::time::timeout(PATIENCE, answers) => {
            answered.map_err(|_| "the API does not answer in time".into())
        }
        ended = died(host, &host.layout.machines[..1]) => Err(ended),
    }
}

/// Waits until every machine's node is ready, and says so of each.
pub(super) async fn nodes(host: &Host) -> Result<(), Failure> {
    let client = connect(&host.kubeconfig())?;
    let mut waiting: BTreeSet<&str> = host.layout.machines.iter().map(|machine| machine.name.as_str()).collect();
    let all = async {
        while !waiting.is_empty() {
            watch(&client, &mut waiting).await?;
        }
        Ok::<(), Failure>(())
    };
    let outcome = tokio::select! {
        outcome = tokio::time::timeout(PATIENCE, all) => outcome,
        ended = died(host, &host.layout.machines) => return Err(ended),
    };
    match outcome {
        Ok(outcome) => outcome,
        Err(_) => Err(format!("not ready in time: {}", waiting.iter().copied().collect::<Vec<_>>().join(", ")).into()),
    }
}

async fn watch(client: &Client, waiting: &mut BTreeSet<&str>) -> Result<(), Failure> {
    let mut changes = client.watch::<Node>("", &WatchParams::default()).await?;
    while let Some(change) = changes.next().await {
        if let Event::Added(node) | Event::Modified(node) = change?
            && rules::pods::is_node_ready(&node)
            && let Some(name) = node.metadata.name.as_deref()
            && waiting.remove(name)
        {
            println!("{name} is ready");
        }
        if waiting.is_empty() {
            break;
        }
    }
    Ok(())
}

/// Waits until the Trireme of one of the machines has ended, and says what it said last.
async fn died(host: &Host, machines: &[Machine]) -> Failure {
    loop {
        for machine in machines {
            let program = host.program(machine);
            // A node that is not started yet has no log.
            if program.log().exists() && program.running().is_none() {
                let log = std::fs::read_to_string(program.log()).unwrap_or_default();
                let lines: Vec<&str> = log.lines().collect();
                let last = lines[lines.len().saturating_sub(SHOWN)..].join("\n");
                return format!("{} ended:\n{last}", machine.name).into();
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}
