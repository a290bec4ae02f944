//! Parts of the control plane as processes of their own, against any API server: ours or upstream's.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use client::{Client, Config};
use ipnet::IpNet;
use tokio_util::sync::CancellationToken;

use crate::component::Failure;
use crate::parts::{self, Identities};
use crate::signals::Signals;

/// How to reach the API server.
#[derive(Debug, Clone, clap::Args)]
pub struct Kubeconfig {
    /// Whom to connect to, and as whom.
    #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
    kubeconfig: PathBuf,
}

impl Kubeconfig {
    /// A client as the file says.
    pub fn connect(&self) -> Result<Client, Failure> {
        connect(&self.kubeconfig)
    }
}

/// How a part reaches the API server, and whether it may be one of several.
#[derive(Debug, Clone, clap::Args)]
pub struct Connection {
    #[command(flatten)]
    kubeconfig: Kubeconfig,
    /// Work only while holding a lease, so that several can run and one works.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    pub leader_elect: bool,
}

impl Connection {
    fn identities(&self) -> Result<Identities, Failure> {
        Ok(Identities::Remote(self.kubeconfig.connect()?))
    }
}

/// A client as a kubeconfig says.
pub fn connect(kubeconfig: &Path) -> Result<Client, Failure> {
    Ok(Client::https(Config::from_kubeconfig(kubeconfig)?)?)
}

/// Options of `trireme controller-manager`.
#[derive(Debug, clap::Args)]
pub struct ControllerManager {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    controllers: parts::controllers::Options,
    #[command(flatten)]
    keys: parts::signing::Files,
    /// Addresses for Services.
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    service_cluster_ip_range: Vec<IpNet>,
    #[command(flatten)]
    serving: parts::serving::Options,
}

/// Options of `trireme scheduler`.
#[derive(Debug, clap::Args)]
pub struct Scheduler {
    /// Whom to connect to, and as whom [default: as the configuration says, or as the pod that this runs in].
    #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// Work only while holding a lease, so that several can run and one works [default: as the configuration says, or true].
    #[arg(long, value_name = "BOOL", action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    leader_elect: Option<bool>,
    /// A KubeSchedulerConfiguration.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    serving: parts::serving::Options,
}

/// Runs the controllers until a signal stops them.
pub async fn controller_manager(options: ControllerManager) -> Result<(), Failure> {
    let identities = options.connection.identities()?;
    let contested = options.connection.leader_elect.then(Arc::default);
    let stop = stop_on_signal()?;
    let pages = parts::controllers::pages(&options.controllers, contested.as_ref(), &stop)?;
    let client = identities.component(parts::controllers::NAME);
    let serving = options.serving.start(parts::controllers::PORT, client, pages).await?;
    parts::controllers::run(
        options.controllers,
        &options.service_cluster_ip_range,
        identities,
        parts::signing::Signing::of_files(&options.keys)?,
        contested,
        stop.clone(),
    )
    .await?;
    if let Some(serving) = serving {
        serving.stop().await;
    }
    ended(&stop)
}

/// Runs the scheduler until a signal stops it.
pub async fn scheduler(options: Scheduler) -> Result<(), Failure> {
    let configuration = parts::scheduler::configuration(options.config.as_deref())?;
    let configured = Some(&configuration.client_connection.kubeconfig).filter(|file| !file.is_empty());
    let identities = Identities::Remote(match options.kubeconfig.or_else(|| configured.map(PathBuf::from)) {
        Some(file) => connect(&file)?,
        None => Client::https(Config::in_cluster()?)?,
    });
    let contested = options.leader_elect.unwrap_or(configuration.leader_election.leader_elect);
    let election = contested.then(|| parts::scheduler::election(&configuration)).transpose()?;
    let (stop, vitals) = (stop_on_signal()?, Arc::default());
    let pages = parts::scheduler::pages(&configuration, contested, &vitals, &stop);
    let client = identities.component(parts::scheduler::NAME);
    let serving = options.serving.start(parts::scheduler::PORT, client, pages).await?;
    parts::scheduler::run(configuration, identities, election, vitals, stop.clone()).await?;
    if let Some(serving) = serving {
        serving.stop().await;
    }
    ended(&stop)
}

/// A part that ends without being stopped has lost its lease; whoever supervises the process starts it again.
pub fn ended(stop: &CancellationToken) -> Result<(), Failure> {
    if stop.is_cancelled() { Ok(()) } else { Err("ended before its time".into()) }
}

/// Cancelled by the first signal.
pub fn stop_on_signal() -> Result<CancellationToken, Failure> {
    let mut signals = Signals::listen()?;
    let stop = CancellationToken::new();
    let stopping = stop.clone();
    tokio::spawn(async move {
        tracing::info!("{}: stopping", signals.next().await);
        stopping.cancel();
    });
    Ok(stop)
}
