//! Parts of the control plane as processes of their own, against any API server: ours or upstream's.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use client::{Client, Config};
use informer::election::Election;
use ipnet::IpNet;
use tokio_util::sync::CancellationToken;

use crate::component::Failure;
use crate::parts::{self, Identities};
use crate::server::flags::duration;
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
    #[command(flatten)]
    election: Elections,
}

/// How the one is found that works.
#[derive(Debug, Clone, clap::Args)]
pub struct Elections {
    /// A lease that was not renewed for so long is free [default: 15s].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    leader_elect_lease_duration: Option<Duration>,
    /// A holder that could not renew it for so long stops working [default: 10s].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    leader_elect_renew_deadline: Option<Duration>,
    /// How often is tried [default: 2s].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    leader_elect_retry_period: Option<Duration>,
    /// The lease's name [default: the component's].
    #[arg(long, value_name = "NAME")]
    leader_elect_resource_name: Option<String>,
    /// The lease's namespace [default: kube-system].
    #[arg(long, value_name = "NAMESPACE")]
    leader_elect_resource_namespace: Option<String>,
}

impl Elections {
    /// An election as these say, and as it was where they say nothing.
    fn of(&self, mut election: Election) -> Result<Election, Failure> {
        let timings = &mut election.timings;
        timings.lease = self.leader_elect_lease_duration.unwrap_or(timings.lease);
        timings.renew_deadline = self.leader_elect_renew_deadline.unwrap_or(timings.renew_deadline);
        timings.retry = self.leader_elect_retry_period.unwrap_or(timings.retry);
        if timings.lease <= timings.renew_deadline {
            return Err("--leader-elect-lease-duration: it must be greater than --leader-elect-renew-deadline".into());
        }
        if timings.renew_deadline <= timings.retry || timings.retry.is_zero() {
            return Err("--leader-elect-renew-deadline: it must be greater than --leader-elect-retry-period".into());
        }
        election.name = self.leader_elect_resource_name.clone().unwrap_or(election.name);
        election.namespace = self.leader_elect_resource_namespace.clone().unwrap_or(election.namespace);
        Ok(election)
    }
}

impl Connection {
    /// Who controllers are: all the same, or these accounts each.
    async fn identities(
        &self,
        accounts: Option<Vec<&'static str>>,
        stop: CancellationToken,
    ) -> Result<Identities, Failure> {
        let client = self.kubeconfig.connect()?;
        let Some(names) = accounts else { return Ok(Identities::Remote(client)) };
        let config = Config::from_kubeconfig(&self.kubeconfig.kubeconfig)?;
        let accounts = parts::accounts::Accounts::begin(config, names, stop).await?;
        Ok(Identities::Accounts(client, Arc::new(accounts)))
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
    /// Let each controller act as an account of its own, with that account's role and no more.
    #[arg(long, value_name = "BOOL", default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    use_service_account_credentials: bool,
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
    #[command(flatten)]
    election: Elections,
    /// A KubeSchedulerConfiguration.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    serving: parts::serving::Options,
}

/// Runs the controllers until a signal stops them.
pub async fn controller_manager(options: ControllerManager) -> Result<(), Failure> {
    let stop = stop_on_signal()?;
    let accounts = || controllers::enabled_accounts(&options.controllers.controllers);
    let accounts = options.use_service_account_credentials.then(accounts).transpose()?;
    let identities = options.connection.identities(accounts, stop.clone()).await?;
    let election = || options.connection.election.of(parts::controllers::election());
    let contested = options.connection.leader_elect.then(election).transpose()?;
    let contested = contested.map(|election| (election, Arc::default()));
    let vitals = contested.as_ref().map(|(_, vitals)| vitals);
    let pages = parts::controllers::pages(&options.controllers, vitals, &stop)?;
    let client = identities.component(parts::controllers::NAME);
    let serving = options.serving.start(parts::controllers::PORT, client, pages).await?;
    parts::controllers::run(
        options.controllers,
        &options.service_cluster_ip_range,
        identities,
        parts::signing::Signing::of_files(&options.keys)?,
        // Whose network policies are enforced by whom is not known here.
        (contested, false),
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
    let election = || options.election.of(parts::scheduler::election(&configuration)?);
    let election = contested.then(election).transpose()?;
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
