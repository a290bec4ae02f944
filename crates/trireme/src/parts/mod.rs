//! How each part of the control plane is wired, whether it runs beside the API server or in a process of its own.

pub mod accounts;
pub mod addons;
pub mod agent;
pub mod balancer;
pub mod controllers;
mod identity;
pub mod joining;
mod policies;
pub mod scheduler;
pub mod serving;
pub mod signing;

use std::future::Future;
use std::sync::Arc;

use client::Client;
use informer::Clock;
use informer::election::{Election, Fence, Timings, lead};
use tokio_util::sync::CancellationToken;

use crate::component::Failure;
pub use identity::Identities;

/// The lease of a part, by default.
fn lease(name: &str) -> Election {
    Election {
        namespace: "kube-system".to_owned(),
        name: name.to_owned(),
        identity: format!("{}_{}", host_name().unwrap_or_else(|| "localhost".to_owned()), uuid::Uuid::new_v4()),
        timings: Timings::default(),
        address: None,
    }
}

/// Runs a part; where others may run it too, only while this is the one who leads, with the fence that its writes have to
/// pass.
async fn run_elected<R>(
    name: &str,
    contested: Option<(Election, Arc<serving::Vitals>)>,
    identities: &Identities,
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
    run: impl FnOnce(CancellationToken, Option<Fence>) -> R,
) -> Result<(), Failure>
where
    R: Future<Output = Result<(), Failure>>,
{
    match contested {
        None => run(stop, None).await,
        Some((election, vitals)) => run_leading(name, election, identities, clock, &vitals, stop, run).await,
    }
}

/// Runs a part while it holds a lease, with the fence that its writes have to pass.
async fn run_leading<R>(
    name: &str,
    election: Election,
    identities: &Identities,
    clock: Arc<dyn Clock>,
    vitals: &serving::Vitals,
    stop: CancellationToken,
    run: impl FnOnce(CancellationToken, Option<Fence>) -> R,
) -> Result<(), Failure>
where
    R: Future<Output = Result<(), Failure>>,
{
    let mut outcome = Ok(());
    let client = identities.component(name);
    lead(client, election, clock, stop, async |leadership| {
        vitals.leads(leadership.fence.clone());
        outcome = run(leadership.over, Some(leadership.fence)).await;
    })
    .await;
    outcome
}

/// A client whose writes pass the fence, where there is one.
fn fenced(client: Client, fence: Option<Fence>) -> Client {
    match fence {
        None => client,
        Some(fence) => client.with_guard(Arc::new(fence)),
    }
}

/// This machine's name, where the kernel knows one.
pub fn host_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_lowercase()).filter(|name| !name.is_empty() && name.is_ascii())
}
