//! The command line.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use ipnet::IpNet;

/// Kubernetes in one binary.
///
/// Trireme runs a whole Kubernetes cluster in one small process. Every Kubernetes client works with it unchanged:
/// point kubectl at the admin.kubeconfig that the server writes into its data directory.
#[derive(Debug, Parser)]
#[command(name = "trireme", version, max_term_width = 120, arg_required_else_help = true)]
pub struct Cli {
    /// Say more; twice for everything. RUST_LOG, where set, decides instead.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the control plane, and a node, in the foreground.
    ///
    /// At first start it makes its certificates and its store in the data directory; later starts continue from there.
    /// SIGTERM or SIGINT stop it cleanly. Killing it at any time loses nothing that was acknowledged.
    Server(Box<Server>),
    /// Run the controllers in a process of their own, against any API server.
    ControllerManager(Box<crate::standalone::ControllerManager>),
    /// Run the scheduler in a process of its own, against any API server.
    Scheduler(Box<crate::standalone::Scheduler>),
    /// Run a node of a cluster whose control plane is elsewhere.
    ///
    /// It joins with a token at first start; later starts need none. SIGTERM or SIGINT stop it cleanly; its containers go on
    /// running, and the next start takes them over.
    Agent(Box<crate::agent::Agent>),
    /// Make tokens with which nodes join, show them, take them back.
    #[command(subcommand)]
    Token(crate::token::Command),
    /// Make kubeconfigs for people.
    #[command(subcommand)]
    Kubeconfig(crate::kubeconfig::Command),
    /// Show the certificates of a server, and have them made anew.
    #[command(subcommand)]
    Certificates(crate::certificates::Command),
    /// Have Secrets sealed in the store, with keys that are made and changed by command.
    #[command(subcommand)]
    Secrets(crate::secrets::Command),
    /// Run a cluster of several nodes on this machine, for development.
    Cluster(Box<crate::cluster::Cluster>),
    /// Run the service proxy of a node in a process of its own, against any API server.
    Proxy(Box<crate::proxy::Proxy>),
    /// Ask what network policies say.
    #[command(subcommand)]
    Netpol(crate::netpol::Command),
    /// Say what containers should ask for, from what they were seen to use.
    Recommend(crate::recommend::Recommend),
    /// Pretend to be nodes: they register, and their pods run without containers. For runs at scale.
    HollowNode(Box<crate::hollow::HollowNode>),
    /// Make backups of a running server, and new servers from backups.
    #[command(subcommand)]
    Backup(crate::backup::Command),
    /// Look after the members of the etcd that several servers share.
    #[command(subcommand)]
    Etcd(crate::etcd::Command),
    /// Back up, restore or check a store that no server has open.
    #[command(subcommand)]
    Store(crate::store::Command),
    /// Make images without a registry.
    #[command(subcommand)]
    Image(crate::image::Command),
    /// Make this machine start a server or an agent by itself, by systemd.
    Install(Box<crate::install::Install>),
    /// Undo what `install` did; the data stays, unless asked for otherwise.
    Uninstall(crate::install::Uninstall),
    /// Put another version of this program in place on this machine: drain, replace, start again, check, and back if it is not well.
    Upgrade(crate::upgrade::Upgrade),
    /// Say what on this machine would keep a server or a node from working well, and what to do about it.
    Check(crate::check::Check),
    /// Write one archive with what somebody needs who is to help, without secrets.
    Support(crate::support::Support),
    /// Look after what a node leaves on its machine.
    #[command(subcommand)]
    Node(crate::node::Command),
    /// Talk to a cluster, as kubectl does; the binary called as `kubectl` does the same.
    ///
    /// Without another configuration it talks to the server of this machine: that of TRIREME_DATA_DIR, or of .run.
    #[command(disable_help_flag = true)]
    Kubectl {
        /// What kubectl is told.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
        arguments: Vec<std::ffi::OsString>,
    },
    /// Show every hop on the way of an object and of what it owns, timed: `trireme trace deployment/web`.
    ///
    /// The same as `trireme kubectl trace`, which has the options.
    #[command(disable_help_flag = true)]
    Trace {
        /// What `kubectl trace` is told.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
        arguments: Vec<std::ffi::OsString>,
    },
    /// Show what nodes, pods and the control plane use, as it changes: `trireme top`.
    ///
    /// The same as `trireme kubectl top live`, which has the options.
    #[command(disable_help_flag = true)]
    Top {
        /// What `kubectl top live` is told.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
        arguments: Vec<std::ffi::OsString>,
    },
    /// Open the page of the cluster in a browser, with the credentials of your kubeconfig: `trireme ui`.
    ///
    /// The same as `trireme kubectl ui`, which has the options.
    #[command(disable_help_flag = true)]
    Ui {
        /// What `kubectl ui` is told.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
        arguments: Vec<std::ffi::OsString>,
    },
    /// Show objects, also as they were: `trireme get pods --at 10m`.
    ///
    /// The same as `trireme kubectl get`, which has the options.
    #[command(disable_help_flag = true)]
    Get {
        /// What `kubectl get` is told.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
        arguments: Vec<std::ffi::OsString>,
    },
    /// Compare objects with what they were: `trireme diff deployment/web --from 1h --to now`.
    ///
    /// The same as `trireme kubectl diff`, which has the options.
    #[command(disable_help_flag = true)]
    Diff {
        /// What `kubectl diff` is told.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
        arguments: Vec<std::ffi::OsString>,
    },
    /// Show what changed, when and by whom: `trireme history pod/web-1`.
    ///
    /// The same as `trireme kubectl history`, which has the options.
    #[command(disable_help_flag = true)]
    History {
        /// What `kubectl history` is told.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
        arguments: Vec<std::ffi::OsString>,
    },
    /// Make an object what it was: `trireme undo deployment/web --to REVISION`.
    ///
    /// The same as `trireme kubectl undo`, which has the options.
    #[command(disable_help_flag = true)]
    Undo {
        /// What `kubectl undo` is told.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
        arguments: Vec<std::ffi::OsString>,
    },
    /// Print a script by which a shell completes command lines: `trireme completion bash > /etc/bash_completion.d/trireme`.
    Completion(crate::documents::Completion),
    /// Write pages for `man`, one for each command.
    Man(crate::documents::Man),
    /// Say which version this is.
    Version,
}

/// Options of `trireme server`.
#[derive(Debug, Args)]
pub struct Server {
    /// A file with options, each by its name; those of the command line come first [default: /etc/trireme/config.yaml, if it is there].
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where certificates, store and admin.kubeconfig live.
    #[arg(long, value_name = "DIR")]
    pub data_dir: PathBuf,
    /// Address to listen on.
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0")]
    pub bind_address: IpAddr,
    /// Port to listen on; 0 takes any free one, which admin.kubeconfig then names.
    #[arg(long, value_name = "PORT", default_value_t = 6443, alias = "secure-port")]
    pub https_port: u16,
    /// Address at which the rest of the cluster reaches this server [default: the bind address, or the host's own].
    #[arg(long, value_name = "ADDRESS")]
    pub advertise_address: Option<IpAddr>,
    /// Further host names and addresses for the serving certificate.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub tls_san: Vec<String>,
    /// Addresses for Services: a range, or one of each IP family, that of the default one first.
    #[arg(long, value_name = "CIDR", value_delimiter = ',', default_value = "10.96.0.0/16")]
    pub service_cluster_ip_range: Vec<IpNet>,
    /// Ports for Services of type NodePort.
    #[arg(long, value_name = "FROM-TO", default_value = "30000-32767", value_parser = port_range)]
    pub service_node_port_range: (u16, u16),
    /// The domain of Services.
    #[arg(long, value_name = "NAME", default_value = "cluster.local")]
    pub cluster_domain: String,
    /// API versions to serve besides the stable ones, or not to serve: `api/beta=true,batch/v1=false`.
    #[arg(long, value_name = "LIST", default_value = "")]
    pub runtime_config: String,
    /// How long events are kept.
    #[arg(long, value_name = "DURATION", default_value = "1h0m0s", value_parser = seconds)]
    pub event_ttl: u64,
    /// Run no kubelet on this machine.
    #[arg(long)]
    pub disable_agent: bool,
    /// Run no controllers: another controller manager does.
    #[arg(long)]
    pub disable_controller_manager: bool,
    /// Run no scheduler: another one does.
    #[arg(long)]
    pub disable_scheduler: bool,
    /// What lies here is applied, and applied again when it changes [default: manifests in the data directory].
    #[arg(long, value_name = "DIR")]
    pub manifests: Option<PathBuf>,
    /// Make no objects of our own: neither cluster DNS nor a class of volumes nor what nodes join with.
    #[arg(long)]
    pub disable_addons: bool,
    /// Give Services of type LoadBalancer no addresses: another load balancer does.
    #[arg(long)]
    pub disable_service_lb: bool,
    /// A KubeSchedulerConfiguration.
    #[arg(long, value_name = "FILE")]
    pub scheduler_config: Option<PathBuf>,
    /// Where cluster DNS answers [default: the tenth address for Services].
    #[arg(long, value_name = "ADDRESS")]
    pub cluster_dns: Option<IpAddr>,
    /// The gates of the API server.
    #[command(flatten)]
    pub gates: crate::server::flags::Options,
    /// What this machine's node is told.
    #[command(flatten)]
    pub agent: crate::parts::agent::Options,
    /// What the controllers are told.
    #[command(flatten)]
    pub controllers: crate::parts::controllers::Options,
    /// Where objects are kept.
    #[command(flatten)]
    pub store: Store,
    /// How it is one of several.
    #[command(flatten)]
    pub servers: crate::servers::Options,
    /// When they are backed up.
    #[command(flatten)]
    pub backups: crate::backup::Options,
}

/// Where objects are kept.
#[derive(Debug, Args)]
#[command(next_help_heading = "Store")]
pub struct Store {
    /// `embedded` keeps them in the data directory, `etcd` in an etcd cluster (3.4 or later).
    #[arg(long, value_enum, default_value_t = Engine::Embedded, requires_if("etcd", "etcd_servers"))]
    pub store: Engine,
    /// The etcd members, for example https://10.0.0.1:2379,https://10.0.0.2:2379.
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    pub etcd_servers: Vec<String>,
    /// Authorities that etcd's certificates are checked against.
    #[arg(long, value_name = "FILE")]
    pub etcd_cafile: Option<PathBuf>,
    /// Client certificate for etcd.
    #[arg(long, value_name = "FILE", requires = "etcd_keyfile")]
    pub etcd_certfile: Option<PathBuf>,
    /// Key of the client certificate for etcd.
    #[arg(long, value_name = "FILE", requires = "etcd_certfile")]
    pub etcd_keyfile: Option<PathBuf>,
    /// What the keys of this cluster begin with in etcd.
    #[arg(long, value_name = "PREFIX", default_value = "/registry")]
    pub etcd_prefix: String,
    /// How often etcd is told to give up history; 0 leaves it to others.
    #[arg(long, value_name = "DURATION", default_value = "5m0s", value_parser = crate::server::flags::duration)]
    pub etcd_compaction_interval: Duration,
    /// How long every change can be asked for (`trireme history`, `get --at`), such as 12h or 7d; 0s keeps none. An etcd keeps what it keeps.
    #[arg(long, value_name = "DURATION", default_value = "1d", value_parser = history_time)]
    pub history: Duration,
    /// How much disk that may take, such as 2Gi; the oldest goes first.
    #[arg(long, value_name = "SIZE", default_value = "512Mi", value_parser = history_size)]
    pub history_size: u64,
}

/// A duration as Go writes it, or a number of seconds.
pub fn seconds(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(seconds) => Ok(seconds),
        Err(_) => crate::server::flags::duration(text).map(|duration| duration.as_secs()),
    }
}

fn history_time(text: &str) -> Result<Duration, String> {
    apiserver::rest::past::span(text).ok_or_else(|| "give a duration such as 12h or 7d".to_owned())
}

fn history_size(text: &str) -> Result<u64, String> {
    let size: machinery::quantity::Quantity =
        text.parse().map_err(|_| "give a size such as 512Mi or 2Gi".to_owned())?;
    u64::try_from(size.value()).map_err(|_| "a size is not negative".to_owned())
}

/// Which store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Engine {
    /// On the local disk.
    Embedded,
    /// In an etcd cluster.
    Etcd,
}

fn port_range(text: &str) -> Result<(u16, u16), String> {
    let parsed = text.split_once('-').and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
    match parsed {
        Some((from, to)) if from > 0 && from <= to => Ok((from, to)),
        _ => Err("give a range such as 30000-32767".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent_and_every_option_is_described() {
        let mut command = Cli::command();
        command.clone().debug_assert();
        let mut pending = vec![command.render_long_help().to_string()];
        let mut commands: Vec<clap::Command> = command.get_subcommands().cloned().collect();
        while let Some(mut command) = commands.pop() {
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "{} of {}", argument.get_id(), command.get_name());
            }
            assert!(command.get_about().is_some(), "{}", command.get_name());
            commands.extend(command.get_subcommands().cloned());
            pending.push(command.render_long_help().to_string());
        }
        assert!(pending.iter().all(|help| !help.is_empty()));
    }

    #[test]
    fn durations_may_be_seconds() {
        assert_eq!((seconds("90"), seconds("1h0m0s"), seconds("1m30s")), (Ok(90), Ok(3600), Ok(90)));
        assert!(seconds("soon").is_err() && seconds("-5s").is_err());
    }

    #[test]
    fn port_ranges_are_checked() {
        assert_eq!(port_range("30000-32767"), Ok((30000, 32767)));
        for text in ["", "1", "2-1", "0-5", "a-b", "1-70000"] {
            assert!(port_range(text).is_err(), "{text}");
        }
    }
}
