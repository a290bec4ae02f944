//! Wires the scheduler.

use std::path::{Path, PathBuf};

use informer::clock;
use scheduler::config::Configuration;
use tokio_util::sync::CancellationToken;

use super::{Identities, fenced, host_name, run_elected};
use crate::component::Failure;

const NAME: &str = "kube-scheduler";

/// Runs the scheduler until told to stop, with a `KubeSchedulerConfiguration` in YAML where one is given.
pub async fn run(
    file: Option<PathBuf>,
    identities: Identities,
    contested: bool,
    stop: CancellationToken,
) -> Result<(), Failure> {
    let configuration = match file {
        None => Configuration::default(),
        Some(file) => read(&file).map_err(|error| format!("{}: {error}", file.display()))?,
    };
    let client = identities.component(NAME);
    let run = async |stop, fence| {
        let client = fenced(client, fence);
        let host = host_name().unwrap_or_else(|| "localhost".to_owned());
        let config = scheduler::Config { configuration, host, ..scheduler::Config::default() };
        Ok(scheduler::run(config, client, stop).await?)
    };
    run_elected(NAME, contested, &identities, clock::Real::shared(), stop, run).await
}

fn read(file: &Path) -> Result<Configuration, Failure> {
    let text = std::fs::read_to_string(file)?;
    Ok(Configuration::parse(serde_saphyr::from_str(&text)?)?)
}
