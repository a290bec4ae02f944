//! The node: a container runtime, the kubelet on it, the service proxy, cluster DNS and the pod network.
//!
//! They reach the API server through the clients they are given: in its process, or over HTTPS from another machine.
//! Containers, and the kernel's rules for Services and routes, outlive this process; the next start takes them over.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use client::Client;
use hops::export::Part;
use informer::Informers;
use ipnet::IpNet;
use node::cgroups::{Cgroups, Driver, Name};
use node::containerd::{self, Containerd};
use node::private;
use tokio_util::sync::CancellationToken;

use super::host_name;
use super::policies::{self, Policies};
use crate::component::Failure;
use crate::kubelet_root;

/// The image of every pod's first process.
const PAUSE: &str = "registry.trireme.local/pause:1";
/// The bridge that pods hang on.
pub const BRIDGE: &str = "cni0";
/// Where the kubelet serves, by default.
pub const KUBELET_PORT: u16 = 10250;
/// Where the proxy tells whether the node takes Service traffic.
pub const PROXY_HEALTH_PORT: u16 = 10256;
/// Where the proxy tells its metrics, on loopback.
const PROXY_METRICS_PORT: u16 = 10249;
/// Where cluster DNS tells its metrics, at the address where it answers.
pub const DNS_METRICS_PORT: u16 = 9153;
/// The port of DNS servers.
const DNS_PORT: u16 = 53;

/// What an administrator configures of the node.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Node")]
#[group(id = "node")]
pub struct Options {
    /// The node's name [default: the host's].
    #[arg(long, value_name = "NAME")]
    pub node_name: Option<String>,
    /// The node's address, or one of each IP family [default: the one by which the host reaches others].
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    pub node_ip: Vec<IpAddr>,
    /// Further labels of the node.
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
    pub node_labels: Vec<String>,
    /// Use this container runtime instead of a containerd of our own.
    #[arg(long, value_name = "SOCKET")]
    pub container_runtime_endpoint: Option<PathBuf>,
    /// How pods on other nodes are reached.
    #[arg(long, value_name = "HOW", default_value = "host-gw")]
    pub pod_network: PodNetwork,
    /// Do not keep pods to network policies: somebody else does [default where somebody else's CNI sees to pods].
    #[arg(long)]
    pub disable_network_policy: bool,
    /// Who keeps pods to network policies.
    #[arg(long, value_name = "ENGINE", default_value = "auto")]
    pub network_policy_engine: policies::Engine,
    /// Which of the node's addresses take NodePort traffic: CIDRs, `primary` or `all` [default: all but loopback].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub nodeport_addresses: Vec<proxy::NodePortAddress>,
    /// Who knows names that are not the cluster's [default: the servers of /etc/resolv.conf].
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',', value_parser = server)]
    pub dns_upstreams: Vec<SocketAddr>,
    /// Who knows the names under a domain, as corp.example=10.0.0.53,10.0.0.54; may be given several times.
    #[arg(long, value_name = "DOMAIN=ADDRESS", value_parser = stub_domain)]
    pub dns_stub_domain: Vec<(String, Vec<SocketAddr>)>,
    /// The most pods on this node.
    #[arg(long, value_name = "NUMBER", default_value_t = 110)]
    pub max_pods: u32,
    /// The cgroup below which all pods of this node are, for several nodes on one machine [default: the root].
    #[arg(long, value_name = "CGROUP", default_value = "/")]
    pub cgroup_root: String,
    /// The port of the kubelet's API.
    #[arg(long, value_name = "PORT", default_value_t = KUBELET_PORT)]
    pub kubelet_port: u16,
    /// Where the kubelet keeps volumes and meets storage drivers [default: /var/lib/kubelet if the data directory is
    /// /var/lib/trireme, otherwise agent/kubelet in it].
    #[arg(long, value_name = "DIR")]
    pub kubelet_root: Option<PathBuf>,
    /// Run the pods that can be read at this URL, too.
    #[arg(long, value_name = "URL")]
    pub manifest_url: Option<String>,
    /// Headers of requests to that URL: `a:hello,b:again`.
    #[arg(long, value_name = "NAME:VALUE", value_delimiter = ',', requires = "manifest_url")]
    pub manifest_url_header: Vec<String>,
    /// A KubeletConfiguration with further settings: thresholds, log rotation, image collection, reservations.
    #[arg(long, value_name = "FILE")]
    pub kubelet_config: Option<PathBuf>,
    /// A field of a KubeletConfiguration, as `maxPods=50` or `evictionHard={"memory.available": "200Mi"}`; may be given several times.
    ///
    /// The command line comes after the file. Flags of upstream's kubelet that are fields, such as --eviction-hard, are taken as these.
    #[arg(long, value_name = "FIELD=VALUE", value_parser = setting)]
    pub kubelet_setting: Vec<(String, serde_json::Value)>,
}

/// A field and its value, in YAML as the file has it.
fn setting(text: &str) -> Result<(String, serde_json::Value), String> {
    let (field, value) = text.split_once('=').ok_or("give a field and its value, such as maxPods=50")?;
    let value = serde_saphyr::from_str(value).map_err(|error| error.to_string())?;
    Ok((field.to_owned(), value))
}

/// How pods on other nodes are reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum PodNetwork {
    /// By routes to the nodes: they share a link.
    HostGw,
    /// By a VXLAN between the nodes.
    Vxlan,
    /// Somebody else's CNI sees to it.
    None,
}

impl std::fmt::Display for PodNetwork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::HostGw => "host-gw",
            Self::Vxlan => "vxlan",
            Self::None => "none",
        })
    }
}

/// What the cluster says about its networks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// Addresses of all pods, a range for each family.
    pub pods: Vec<IpNet>,
    /// Addresses of Services, a range for each family.
    pub services: Vec<IpNet>,
    /// Where cluster DNS answers.
    pub dns: IpAddr,
    /// The domain of Services.
    pub domain: String,
}

/// The identities of the node's parts.
#[derive(Clone)]
pub struct Clients {
    /// The kubelet's: `system:node:NAME`.
    pub kubelet: Client,
    /// The proxy's, which the pod network shares: both only read.
    pub proxy: Client,
    /// That of cluster DNS, which only reads too.
    pub dns: Client,
    /// That of network policies, which reads pods, namespaces and policies.
    pub policies: Client,
}

impl Options {
    pub fn name(&self) -> String {
        self.node_name.clone().unwrap_or_else(own_name)
    }

    /// Whether network policies are ours to enforce: not where somebody else's CNI sees to pods.
    pub fn enforces_policies(&self) -> bool {
        self.pod_network != PodNetwork::None && !self.disable_network_policy
    }

    /// What they say of the kubelet, and what its file says.
    fn set(&self, kubelet: &mut kubelet::Config) -> Result<(), Failure> {
        kubelet.cgroup_root = cgroup(&self.cgroup_root);
        kubelet.node.labels = labels(&self.node_labels)?;
        kubelet.node.max_pods = self.max_pods;
        kubelet.node.port = self.kubelet_port;
        kubelet.eviction = kubelet::pressure::Config::for_a_shared_disk();
        kubelet::configuration::read(self.kubelet_config.as_deref(), &self.kubelet_setting, kubelet)?;
        if let Some(url) = self.manifest_url.clone() {
            let headers = headers(&self.manifest_url_header)?;
            let source = kubelet::configuration::static_url(url, headers, None);
            kubelet.static_url = Some(source.map_err(|why| format!("--manifest-url: {why}"))?);
        }
        Ok(())
    }
}

fn own_name() -> String {
    host_name().unwrap_or_else(|| "localhost".to_owned())
}

/// Where the proxy is asked how it is: at every address of the machine, because monitors on the node ask at loopback and load
/// balancers from outside.
fn proxy_health(node: IpAddr) -> SocketAddr {
    let everywhere = match node {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    SocketAddr::new(everywhere, PROXY_HEALTH_PORT)
}

/// Runs the node until it is stopped.
pub async fn run(
    options: Options,
    addresses: Vec<IpAddr>,
    data_dir: PathBuf,
    cluster: Cluster,
    clients: Clients,
    serving: Option<kubelet::Serving>,
    stop: CancellationToken,
) -> Result<(), Failure> {
    let name = options.name();
    let address = *addresses.first().ok_or("a node needs an address")?;
    let dir = data_dir.join("agent");
    let conf_dir = dir.join("cni");
    let engine = options.enforces_policies().then(|| options.network_policy_engine.chosen());
    let (runtime, supervised) = runtime(&options, &dir, &conf_dir, &data_dir.join("images")).await?;
    let cgroups = Cgroups::detect(Driver::detect())
        .inspect_err(|error| tracing::warn!("pods run without limits of their own: {error}"))
        .ok();

    let informers = Informers::new(clients.proxy.clone());
    let proxy = proxy::Config {
        cluster_cidrs: cluster.pods.clone(),
        service_cidrs: cluster.services.clone(),
        served_here: BTreeSet::from([cluster.dns]),
        node_port_addresses: options.nodeport_addresses.clone(),
        healthz_address: Some(proxy_health(address)),
        metrics_address: Some(SocketAddr::from(([127, 0, 0, 1], PROXY_METRICS_PORT))),
        ..proxy::Config::new(&name)
    };
    let dns = dns::Config {
        domain: cluster.domain.clone(),
        claim: true,
        upstreams: upstreams(&options.dns_upstreams, cluster.dns),
        stub_domains: options.dns_stub_domain.clone(),
        ranges: cluster.pods.iter().chain(&cluster.services).copied().collect(),
        ..dns::Config::new(vec![SocketAddr::new(cluster.dns, DNS_PORT)])
    };
    let mode = mode(options.pod_network);
    let mtu = pod_mtu(mode, address).await;
    let cni = (options.pod_network != PodNetwork::None).then(|| podnet::Cni {
        conf_dir,
        bridge: BRIDGE.to_owned(),
        mtu,
        ipam_dir: dir.join("ipam"),
    });
    let podnet = podnet::Config { node_name: name.clone(), mode, cluster_cidrs: cluster.pods, cni };
    let mut kubelet = kubelet::Config {
        cluster_dns: vec![cluster.dns.to_string()],
        cluster_domain: cluster.domain,
        serving,
        component: crate::flagz::component("kubelet"),
        ..kubelet::Config::new(&name, &dir)
    };
    kubelet.node.root = kubelet_root::of(&data_dir, options.kubelet_root.as_deref());
    kubelet_root::claim(&kubelet.node.root, &data_dir)?;
    kubelet.node.addresses = addresses.iter().map(ToString::to_string).collect();
    kubelet.local_path = Some(controllers::LOCAL_PATH_ROOT.into());
    // Every sandbox needs the first, and there may be nowhere to pull the others from.
    kubelet.image_gc.keep = vec![PAUSE.to_owned()];
    kubelet.image_gc.keep.extend(supervised.iter().flat_map(Containerd::imported_images));
    options.set(&mut kubelet)?;
    let traces = kubelet.tracing.as_ref().map_or(Ok(None), |tracing| otlp::start(Part::Kubelet, tracing, &name))?;
    let namespaces = Informers::new(clients.dns);
    let watched = Informers::new(clients.policies);
    let policies = Policies::of(&name, (engine, cluster.dns), &watched, &runtime).await?;
    kubelet.node.annotations.extend(policies.as_ref().map(|(agent, _)| policies::engine(agent)));
    kubelet.pod_network = policies.as_ref().map(|(_, links)| links.clone() as Arc<dyn kubelet::PodNetwork>);
    let ended = tokio::try_join!(
        async { podnet::run(podnet, &informers, stop.clone()).await.map_err(Failure::from) },
        async { proxy::run(proxy, &informers, stop.clone()).await.map_err(Failure::from) },
        names(dns, &informers, &namespaces, stop.clone()),
        policies::keep(policies, stop.clone()),
        async { kubelet::run(kubelet, clients.kubelet, runtime, cgroups, stop.clone()).await.map_err(Failure::from) },
    );
    end(traces, supervised).await;
    ended.map(|_| ())
}

/// What is left to do when the parts have ended.
async fn end(traces: Option<otlp::Sender>, supervised: Option<Containerd>) {
    if let Some(traces) = traces {
        traces.stop().await;
    }
    if let Some(containerd) = supervised {
        containerd.release();
    }
}

fn mode(network: PodNetwork) -> podnet::Mode {
    match network {
        PodNetwork::HostGw => podnet::Mode::HostGw,
        PodNetwork::Vxlan => podnet::Mode::Vxlan,
        PodNetwork::None => podnet::Mode::None,
    }
}

/// Cluster DNS and its metrics. What the proxy watches too is watched once for both.
async fn names(
    config: dns::Config,
    services: &Informers,
    namespaces: &Informers,
    stop: CancellationToken,
) -> Result<(), Failure> {
    let bound = dns::bind(&config).await?;
    let metrics = bound.metrics();
    let page = move |path: &str| match path {
        "/metrics" => proxy::http::figures(metrics.render()),
        _ => proxy::http::not_found(),
    };
    let addresses = bound.addresses().into_iter().map(|at| SocketAddr::new(at.ip(), DNS_METRICS_PORT));
    let pages = addresses.map(|address| proxy::http::serve_at(address, page.clone()));
    tokio::select! {
        ended = bound.run(services, namespaces, stop) => Ok(ended?),
        _ = futures::future::join_all(pages) => unreachable!("pages are served for ever"),
    }
}

/// The container runtime: the one that is named, or a containerd of our own with the images it needs.
async fn runtime(
    options: &Options,
    dir: &Path,
    conf_dir: &Path,
    images: &Path,
) -> Result<(Arc<dyn node::cri::Runtime>, Option<Containerd>), Failure> {
    if let Some(socket) = &options.container_runtime_endpoint {
        let socket = socket.to_string_lossy();
        let client = node::cri::Client::new(socket.strip_prefix("unix://").unwrap_or(&socket))?;
        return Ok((Arc::new(client), None));
    }
    let containerd = Containerd::start(containerd_config(dir, conf_dir)?).await?;
    let pause = || node::oci::pause(PAUSE).unwrap_or_default();
    containerd.import_bytes("pause", pause).await?;
    private::directory(images)?;
    containerd.import_directory(images).await?;
    Ok((Arc::new(containerd.client()), Some(containerd)))
}

/// A containerd of our own, below the node's directory.
pub fn containerd_config(dir: &Path, conf_dir: &Path) -> Result<containerd::Config, Failure> {
    let own = dir.join("containerd");
    private::passage(&own)?;
    let plugins = node::cni::plugin_dir().ok_or(
        "no CNI plugins on this machine: install Debian's containernetworking-plugins, or put them into /opt/cni/bin",
    )?;
    Ok(containerd::Config {
        sandbox_image: PAUSE.to_owned(),
        cni_conf_dir: conf_dir.to_owned(),
        cni_bin_dir: plugins,
        registry_dir: dir.join("registries"),
        cgroup_driver: Driver::detect(),
        snapshotter: containerd::snapshotter(&own),
        restrict_oom_score_adj: !node::process::has_capability(node::process::CAP_SYS_RESOURCE),
        dir: own,
    })
}

/// The name servers that were given, or else the host's own; never ourselves.
fn upstreams(given: &[SocketAddr], own: IpAddr) -> Vec<SocketAddr> {
    let all = if given.is_empty() {
        dns::nameservers(&std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default())
    } else {
        given.to_vec()
    };
    all.into_iter().filter(|server| server.ip() != own).collect()
}

/// A name server, with or without its port.
fn server(text: &str) -> Result<SocketAddr, String> {
    let alone = || text.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, DNS_PORT));
    text.parse().ok().or_else(alone).ok_or_else(|| "give an address such as 10.0.0.53 or 10.0.0.53:5353".to_owned())
}

fn stub_domain(text: &str) -> Result<(String, Vec<SocketAddr>), String> {
    let (domain, servers) = text.split_once('=').ok_or("give a domain and its servers, as corp.example=10.0.0.53")?;
    if domain.is_empty() {
        return Err("give a domain before the =".to_owned());
    }
    Ok((domain.to_owned(), servers.split(',').map(server).collect::<Result<_, _>>()?))
}

/// The largest packet of pods, where it is not what their bridge would take anyway: the node's link less what a tunnel adds.
async fn pod_mtu(mode: podnet::Mode, address: IpAddr) -> Option<u32> {
    let link = async {
        let net = node::net::Net::open()?;
        let index = net.addresses().await?.into_iter().find(|(_, ip)| *ip == address).map(|(index, _)| index);
        Ok::<_, node::net::Error>(net.links().await?.into_iter().find(|link| Some(link.index) == index))
    };
    match link.await {
        Ok(link) => link.filter(|link| !link.loopback).map(|link| podnet::pod_mtu(link.mtu, mode, address)),
        Err(error) => {
            tracing::warn!("the largest packet of pods is the usual one: {error}");
            None
        }
    }
}

/// The cgroup of all pods.
pub fn cgroup(root: &str) -> Name {
    Name::new(root.split('/').filter(|part| !part.is_empty()).chain(["kubepods"]))
}

fn headers(pairs: &[String]) -> Result<Vec<(String, String)>, Failure> {
    pairs
        .iter()
        .map(|pair| match pair.split_once(':') {
            Some((name, value)) => Ok((name.trim().to_owned(), value.trim().to_owned())),
            // The text may be a secret: it is not shown.
            None => Err("--manifest-url-header: not of the form name:value".into()),
        })
        .collect()
}

fn labels(pairs: &[String]) -> Result<BTreeMap<String, String>, Failure> {
    pairs
        .iter()
        .map(|pair| match pair.split_once('=') {
            Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
            None => Err(format!("--node-labels: {pair:?} is not of the form key=value").into()),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_servers_are_read_with_and_without_ports() {
        assert_eq!(server("192.0.2.1"), Ok(SocketAddr::from(([192, 0, 2, 1], 53))));
        assert_eq!(server("[2001:db8::1]:5353").map(|s| s.port()), Ok(5353));
        let (domain, servers) = stub_domain("corp.example=192.0.2.1,192.0.2.2:5353").expect("a stub domain");
        assert_eq!((domain.as_str(), servers.len(), servers[1].port()), ("corp.example", 2, 5353));
        for bad in ["corp.example", "=192.0.2.1", "corp.example=", "corp.example=here"] {
            assert!(stub_domain(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_proxy_is_asked_at_loopback_too() {
        for (node, want) in [("192.0.2.1", "0.0.0.0:10256"), ("2001:db8::1", "[::]:10256")] {
            assert_eq!(proxy_health(node.parse().expect("an address")).to_string(), want);
        }
    }

    #[test]
    fn nobody_is_forwarded_to_ourselves() {
        let (own, other) = (server("10.96.0.10").expect("ours"), server("192.0.2.1").expect("another"));
        assert_eq!(upstreams(&[own, other], own.ip()), [other]);
    }
}
