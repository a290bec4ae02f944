//! Wires the scheduler.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use informer::clock;
use informer::election::{Election, Timings};
use scheduler::config::Configuration;
use tokio_util::sync::CancellationToken;

use ::serving::{Check, Pages};

use super::serving::Vitals;
use super::{Identities, fenced, host_name, run_leading};
use crate::component::Failure;

/// Its name, and that of its lease.
pub const NAME: &str = "kube-scheduler";
/// Where upstream's serves health and figures.
pub const PORT: u16 = 10259;

/// Runs the scheduler until it is stopped. Where others may run too, `election` is theirs and its own.
pub async fn run(
    configuration: Configuration,
    identities: Identities,
    election: Option<Election>,
    vitals: Arc<Vitals>,
    stop: CancellationToken,
) -> Result<(), Failure> {
    let client = identities.component(NAME);
    let run = async |stop, fence| {
        let client = fenced(client, fence);
        let host = host_name().unwrap_or_else(|| "localhost".to_owned());
        let synced = vitals.synced.clone();
        let config = scheduler::Config { configuration, host, synced, ..scheduler::Config::default() };
        Ok(scheduler::run(config, client, stop).await?)
    };
    match election {
        None => run(stop, None).await,
        Some(election) => run_leading(NAME, election, &identities, clock::Real::shared(), &vitals, stop, run).await,
    }
}

/// The election that a configuration wants.
pub fn election(configuration: &Configuration) -> Result<Election, Failure> {
    let wanted = &configuration.leader_election;
    let (lease, renew_deadline, retry) = wanted.timings()?;
    Ok(Election {
        namespace: wanted.resource_namespace.clone(),
        name: wanted.resource_name.clone(),
        timings: Timings { lease, renew_deadline, retry },
        ..super::lease(NAME)
    })
}

/// What a scheduler in a process of its own shows of itself.
pub fn pages(configuration: &Configuration, contested: bool, vitals: &Arc<Vitals>, stop: &CancellationToken) -> Pages {
    let leads = contested.then(|| vitals.leader_check(NAME));
    let (waiting, stopping) = (vitals.clone(), stop.clone());
    let synced = Check::new("sched-handler-sync", move || {
        // One that stands by has nothing to take in yet, and is ready to.
        match waiting.synced.load(Ordering::Acquire) || (contested && !waiting.has_led()) {
            true => Ok(()),
            false => Err("handlers are not fully synchronized".to_owned()),
        }
    });
    let shutdown = Check::new("shutdown", move || match stopping.is_cancelled() {
        true => Err("process is shutting down".to_owned()),
        false => Ok(()),
    });
    Pages {
        healthz: leads.clone().into_iter().collect(),
        livez: Vec::new(),
        readyz: leads.into_iter().chain([shutdown, synced]).collect(),
        metrics: Arc::new(|text| {
            scheduler::metrics::write(text);
            super::serving::figures(text);
        }),
        resources: Some(Arc::new(scheduler::metrics::resources::write)),
        configz: Some(serde_json::json!({ "componentconfig": configuration.shown() })),
        component: crate::flagz::component(NAME),
    }
}

/// A `KubeSchedulerConfiguration` in YAML; the default one without a file.
pub fn configuration(file: Option<&Path>) -> Result<Configuration, Failure> {
    let Some(file) = file else { return Ok(Configuration::default()) };
    let read = || -> Result<Configuration, Failure> {
        let text = std::fs::read_to_string(file)?;
        Ok(Configuration::parse(serde_saphyr::from_str(&text)?)?)
    };
    read().map_err(|error| format!("{}: {error}", file.display()).into())
}
