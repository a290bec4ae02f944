//! Wires the controllers: their identities, the cluster's networks, and the keys they sign with.

use std::sync::Arc;
use std::time::Duration;

use controllers::Config;
use informer::election::Election;
use informer::{Informers, clock};
use ipnet::IpNet;
use tokio_util::sync::CancellationToken;

use ::serving::{Check, Pages};

use super::serving::Vitals;
use super::signing::Signing;
use super::{Identities, addons, fenced, run_elected};
use crate::component::Failure;

/// What the controllers are told by their administrator.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Controllers to run: `*` is all that are on by default, `name` adds one, `-name` leaves one out.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "*,bootstrap-signer-controller,token-cleaner-controller",
        allow_hyphen_values = true
    )]
    pub controllers: Vec<String>,
    /// Addresses for pods, of which each node gets a part: a range, or one of each IP family.
    #[arg(long, value_name = "CIDR", value_delimiter = ',', default_value = "10.244.0.0/16")]
    pub cluster_cidr: Vec<IpNet>,
    /// How long a node may be silent before it is taken for lost.
    #[arg(long, value_name = "DURATION", default_value = "50s", value_parser = crate::cli::seconds)]
    pub node_monitor_grace_period: u64,
    /// Give every node a part of --cluster-cidr.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1,
        require_equals = true, default_missing_value = "true")]
    pub allocate_node_cidrs: bool,
    /// The size of a node's part of --cluster-cidr, where that is one range [default: 24, of IPv6 64].
    #[arg(long, value_name = "BITS", conflicts_with_all = ["node_cidr_mask_size_ipv4", "node_cidr_mask_size_ipv6"])]
    pub node_cidr_mask_size: Option<u8>,
    /// The size of a node's part of the IPv4 range.
    #[arg(long, value_name = "BITS")]
    pub node_cidr_mask_size_ipv4: Option<u8>,
    /// The size of a node's part of the IPv6 range.
    #[arg(long, value_name = "BITS")]
    pub node_cidr_mask_size_ipv6: Option<u8>,
}

/// Runs the controllers until it is stopped; where others may run them too, only while this is the one who leads. Where network policies are ours to enforce,
/// whoever leads says as well what became of those of the cluster.
pub async fn run(
    options: Options,
    service_ranges: &[IpNet],
    identities: Identities,
    signing: Signing,
    (contested, policies): (Option<(Election, Arc<Vitals>)>, bool),
    stop: CancellationToken,
) -> Result<(), Failure> {
    let clock = clock::Real::shared();
    let run = async |stop: CancellationToken, fence: Option<informer::election::Fence>| {
        let statuses = fenced(identities.component(POLICIES), fence.clone());
        let (accounts, own) = (identities.clone(), fence.clone());
        let clients = Arc::new(move |name: &str| fenced(accounts.controller(name), own.clone()));
        let mut config = Config::new(clients, fenced(identities.component(NAME), fence), clock.clone());
        config.controllers = options.controllers;
        config.node_monitor_grace_period = Duration::from_secs(options.node_monitor_grace_period);
        config.network.node_bits_v4 =
            options.node_cidr_mask_size_ipv4.or(options.node_cidr_mask_size).unwrap_or(config.network.node_bits_v4);
        config.network.node_bits_v6 =
            options.node_cidr_mask_size_ipv6.or(options.node_cidr_mask_size).unwrap_or(config.network.node_bits_v6);
        if options.allocate_node_cidrs {
            config.network.cluster_cidrs = options.cluster_cidr;
        }
        config.network.service_cidrs = service_ranges.to_vec();
        config.cluster_ca = signing.bundle;
        config.signer = signing.certificates;
        config.tokens = signing.tokens;
        let informers = Informers::with_clock(statuses, clock.clone());
        // Whatever ends the controllers ends it as well.
        let over = stop.child_token();
        let told = async {
            if policies {
                // What it may do, before it does anything.
                if let Err(error) = addons::ensure_policy_status(&identities.administrator()).await {
                    tracing::warn!(%error, "what became of the cluster's network policies cannot be said yet");
                }
                netpol::status::run(&informers, over.clone()).await;
            }
        };
        let controlled = async {
            let ended = controllers::run(config, stop).await;
            over.cancel();
            ended
        };
        let (ended, ()) = tokio::join!(controlled, told);
        Ok(ended?)
    };
    run_elected(NAME, contested, &identities, clock.clone(), stop, run).await
}

/// The election of controller managers, by default.
pub fn election() -> Election {
    super::lease(NAME)
}

/// Its name, and that of its lease.
pub const NAME: &str = "kube-controller-manager";
/// Who says what became of the cluster's network policies.
pub const POLICIES: &str = "cluster-network-policy";
/// Where upstream's serves health and figures.
pub const PORT: u16 = 10257;

/// What a controller manager in a process of its own shows of itself: every controller has a check of its name.
pub fn pages(options: &Options, contested: Option<&Arc<Vitals>>, stop: &CancellationToken) -> Result<Pages, Failure> {
    let leads = contested.map(|vitals| vitals.leader_check(NAME));
    let each = controllers::enabled_names(&options.controllers)?.into_iter().map(|name| {
        Check::new(name, move || match controllers::is_well(name) {
            true => Ok(()),
            false => Err("the controller broke down when it started".to_owned()),
        })
    });
    let stopping = stop.clone();
    let shutdown = Check::new("shutdown", move || match stopping.is_cancelled() {
        true => Err("process is shutting down".to_owned()),
        false => Ok(()),
    });
    Ok(Pages {
        healthz: leads.clone().into_iter().chain(each).collect(),
        livez: Vec::new(),
        readyz: leads.into_iter().chain([shutdown]).collect(),
        metrics: Arc::new(|text| {
            controllers::metrics::write(text);
            super::serving::figures(text);
        }),
        resources: None,
        configz: None,
        component: crate::flagz::component(NAME),
    })
}
