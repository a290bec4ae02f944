//! A plan as commands: one `ip -batch` for links and routes, one `nft` transaction for masquerading.
//!
//! Routes of ours carry a protocol number of their own, so those of an earlier run that no plan wants any more are
//! found and removed, and nobody else's ever are. Commands replace what is there: applying a plan again changes
//! nothing, and a restart interrupts nothing.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use node::{nft, run};

use crate::plan::{Mode, Plan, Tunnel, Way, pod_mtu};

/// The interface of the tunnel.
pub const LINK: &str = "trireme.vxlan";
/// The masquerading table, in both families.
pub const TABLE: &str = "trireme-podnet";
/// The mark of our routes.
pub const PROTOCOL: u8 = 84;
/// Worse than any route that claims an address.
const LAST_RESORT: u32 = u32::MAX - 2;
const VNI: u32 = 1;
/// The port the kernel's own tunnels use by default.
const PORT: u16 = 8472;
const LIMIT: Duration = Duration::from_secs(30);

/// Why the pod network is not as planned.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("pod network: {0}")]
    Ip(#[from] run::Error),
    /// The masquerading rules were refused.
    #[error(transparent)]
    Rules(#[from] nft::Error),
    /// `ip` said something unexpected.
    #[error("pod network: read routes and addresses: {0}")]
    Read(#[from] serde_json::Error),
    /// The CNI plugins' configuration could not be written.
    #[error("pod network: write CNI configuration: {0}")]
    Cni(#[source] std::io::Error),
    /// A switch of the kernel could not be set.
    #[error("pod network: set {0}: {1}")]
    Switch(&'static str, #[source] std::io::Error),
}

/// The commands for `ip -batch`.
pub fn commands(plan: &Plan, present: &BTreeSet<IpNet>) -> String {
    let mut out = String::new();
    for range in &plan.refused {
        let _ = writeln!(out, "route replace unreachable {range} proto {PROTOCOL} metric {LAST_RESORT}");
    }
    for (range, way) in &plan.ways {
        let _ = match way {
            Way::Direct(via) => writeln!(out, "route replace {range} via {via} proto {PROTOCOL}"),
            Way::Tunnel(Tunnel { gateway, mac, .. }) => writeln!(
                out,
                "neigh replace {gateway} lladdr {mac} dev {LINK} nud permanent\n\
                 route replace {range} via {gateway} dev {LINK} onlink proto {PROTOCOL}"
            ),
        };
    }
    for range in present.iter().filter(|range| !plan.ways.contains_key(range) && !plan.refused.contains(range)) {
        let _ = writeln!(out, "route del {range} proto {PROTOCOL}");
    }
    out
}

/// The commands for `bridge -batch`: which node is behind which link address.
pub fn forwarding(plan: &Plan) -> String {
    let mut out = String::new();
    for way in plan.ways.values() {
        if let Way::Tunnel(tunnel) = way {
            let _ = writeln!(out, "fdb replace {} dev {LINK} dst {} self permanent", tunnel.mac, tunnel.node);
        }
    }
    out
}

/// The masquerading rules: what our pods send out of the cluster takes the node's address, so that it finds its way back.
pub fn rules(plan: &Plan) -> String {
    let mut out = String::new();
    for (family, v4) in [("ip", true), ("ip6", false)] {
        let of_family = |ranges: &BTreeSet<IpNet>| -> String {
            let own: Vec<IpNet> = ranges.iter().filter(|r| r.addr().is_ipv4() == v4).copied().collect();
            IpNet::aggregate(&own).iter().map(|r| r.trunc().to_string()).collect::<Vec<_>>().join(", ")
        };
        let _ = writeln!(out, "add table {family} {TABLE}\ndelete table {family} {TABLE}");
        let (own, inside) = (of_family(&plan.own), of_family(&plan.inside));
        if own.is_empty() || inside.is_empty() {
            continue;
        }
        let multicast = if v4 { "224.0.0.0/4" } else { "ff00::/8" };
        let _ = writeln!(
            out,
            "table {family} {TABLE} {{\nchain postrouting {{\ntype nat hook postrouting priority 100; policy accept;\n\
             {family} saddr {{ {own} }} {family} daddr != {{ {inside}, {multicast} }} oifname != \"lo\" masquerade fully-random\n}}\n}}"
        );
    }
    out
}

/// Makes the kernel's state the plan's.
pub async fn apply(plan: &Plan) -> Result<(), Error> {
    if let Some(end) = &plan.tunnel {
        tunnel(end).await?;
    }
    let batch = commands(plan, &present_routes().await?);
    run::output("ip", &["-batch", "-"], batch.as_bytes(), LIMIT).await?;
    let batch = forwarding(plan);
    if !batch.is_empty() {
        run::output("bridge", &["-batch", "-"], batch.as_bytes(), LIMIT).await?;
    }
    Ok(nft::apply(&rules(plan)).await?)
}

/// Only the refusals of a plan; routes that are there stay.
pub async fn refuse(plan: &Plan) -> Result<(), Error> {
    let batch = commands(plan, &BTreeSet::new());
    run::output("ip", &["-batch", "-"], batch.as_bytes(), LIMIT).await?;
    Ok(())
}

/// Makes our end of the tunnel, or keeps it if it is as it should be.
async fn tunnel(end: &crate::plan::TunnelEnd) -> Result<(), Error> {
    let (local, mac) = (end.local.to_string(), end.mac.as_str());
    let links = run::output("ip", &["-j", "-d", "addr", "show"], b"", LIMIT).await?;
    let links: serde_json::Value = serde_json::from_slice(&links)?;
    let all = || links.as_array().into_iter().flatten();
    let present = all().find(|link| link["ifname"] == LINK);
    let has_local = |link: &&serde_json::Value| {
        link["addr_info"].as_array().into_iter().flatten().any(|address| address["local"] == local.as_str())
    };
    let outer = all().find(has_local).and_then(|link| u32::try_from(link["mtu"].as_u64()?).ok());
    let as_wanted = present.is_some_and(|link| {
        let data = &link["linkinfo"]["info_data"];
        link["address"] == mac && (data["local"] == local.as_str() || data["local6"] == local.as_str())
    });
    let mut batch = String::new();
    if !as_wanted {
        if present.is_some() {
            let _ = writeln!(batch, "link del {LINK}");
        }
        let _ = writeln!(
            batch,
            "link add {LINK} address {mac} type vxlan id {VNI} local {local} dstport {PORT} nolearning"
        );
    }
    // What is as it should be is not said again: the kernel would announce it, and who listens would come back here.
    let present = present.filter(|_| as_wanted);
    for address in &end.addresses {
        let text = address.to_string();
        let has = |a: &serde_json::Value| a["local"] == text.as_str();
        if !present.is_some_and(|link| link["addr_info"].as_array().into_iter().flatten().any(has)) {
            let prefix = if address.is_ipv4() { 32 } else { 128 };
            let _ = writeln!(batch, "addr replace {address}/{prefix} dev {LINK}");
        }
    }
    // Larger packets would have to be cut in two on their way.
    if let Some(mtu) = outer.map(|outer| pod_mtu(outer, Mode::Vxlan, end.local))
        && !present.is_some_and(|link| link["mtu"] == mtu)
    {
        let _ = writeln!(batch, "link set {LINK} mtu {mtu}");
    }
    let is_up = |link: &serde_json::Value| link["flags"].as_array().into_iter().flatten().any(|flag| flag == "UP");
    if !present.is_some_and(is_up) {
        let _ = writeln!(batch, "link set {LINK} up");
    }
    if !batch.is_empty() {
        run::output("ip", &["-batch", "-"], batch.as_bytes(), LIMIT).await?;
    }
    Ok(())
}

/// A route as `ip -j` shows it.
#[derive(serde::Deserialize)]
struct Route {
    dst: String,
}

async fn present_routes() -> Result<BTreeSet<IpNet>, Error> {
    let mut present = BTreeSet::new();
    for family in ["-4", "-6"] {
        let args = [family, "-j", "route", "show", "table", "main", "proto", &PROTOCOL.to_string()];
        let text = run::output("ip", &args, b"", LIMIT).await?;
        let routes: Vec<Route> = if text.is_empty() { Vec::new() } else { serde_json::from_slice(&text)? };
        // A route to one address is shown without its length.
        let parse = |dst: &str| dst.parse::<IpNet>().ok().or_else(|| dst.parse::<IpAddr>().ok().map(IpNet::from));
        present.extend(routes.iter().filter_map(|route| parse(&route.dst)));
    }
    Ok(present)
}

/// An interface as `ip -j addr` shows it.
#[derive(serde::Deserialize)]
struct Link {
    ifname: String,
    #[serde(default)]
    addr_info: Vec<Address>,
}

#[derive(serde::Deserialize)]
struct Address {
    local: IpAddr,
    prefixlen: u8,
    scope: String,
}

/// The networks this machine's links are in; the tunnel's own and those of single addresses connect nobody.
pub async fn links() -> Result<Vec<IpNet>, Error> {
    let text = run::output("ip", &["-j", "addr", "show"], b"", LIMIT).await?;
    let links: Vec<Link> = serde_json::from_slice(&text)?;
    let addresses = links.into_iter().filter(|link| link.ifname != LINK).flat_map(|link| link.addr_info);
    let global = addresses.filter(|a| a.scope == "global").filter_map(|a| IpNet::new(a.local, a.prefixlen).ok());
    Ok(global.filter(|net| net.prefix_len() < net.max_prefix_len()).collect())
}

/// Switches the kernel on to pass packets on, also those that only cross a bridge: answers of a pod to another one
/// behind the same bridge must meet the rules their questions met.
pub fn switch_on() -> Result<(), Error> {
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").map_err(|e| Error::Switch("net.ipv4.ip_forward", e))?;
    // Absent where the kernel has no IPv6, or no bridge filter (then nothing crosses a bridge unseen either way).
    for path in
        ["net/ipv6/conf/all/forwarding", "net/bridge/bridge-nf-call-iptables", "net/bridge/bridge-nf-call-ip6tables"]
    {
        if let Err(error) = std::fs::write(format!("/proc/sys/{path}"), "1") {
            tracing::debug!(path, %error, "not switched on");
        }
    }
    Ok(())
}

/// Removes everything the pod network ever made on this machine.
pub async fn cleanup() -> Result<(), Error> {
    let mut batch = commands(&Plan::default(), &present_routes().await?);
    let links = run::output("ip", &["-j", "link", "show"], b"", LIMIT).await?;
    let links: Vec<Link> = serde_json::from_slice(&links)?;
    if links.iter().any(|link| link.ifname == LINK) {
        let _ = writeln!(batch, "link del {LINK}");
    }
    run::output("ip", &["-batch", "-"], batch.as_bytes(), LIMIT).await?;
    Ok(nft::apply(&rules(&Plan::default())).await?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Here, Peer, plan};

    #[test]
    fn a_plan_becomes_commands_and_stale_routes_go() {
        let peer = |name: &str, address: &str, range: &str| Peer {
            name: name.into(),
            addresses: vec![address.parse().unwrap()],
            ranges: vec![range.parse().unwrap()],
        };
        let here = Here {
            name: "a".into(),
            links: vec!["192.0.2.1/24".parse().unwrap()],
            cluster_ranges: vec!["10.1.0.0/16".parse().unwrap()],
        };
        let peers = [
            peer("a", "192.0.2.1", "10.1.0.0/24"),
            peer("b", "192.0.2.2", "10.1.1.0/24"),
            peer("c", "203.0.113.3", "10.1.2.0/24"),
        ];
        let plan = plan(&here, &peers, Mode::Vxlan);
        let present = ["10.1.0.0/16", "10.1.1.0/24", "10.1.7.0/24"].map(|r| r.parse().unwrap()).into();
        assert_eq!(
            commands(&plan, &present),
            "route replace unreachable 10.1.0.0/16 proto 84 metric 4294967293\n\
             route replace 10.1.1.0/24 via 192.0.2.2 proto 84\n\
             neigh replace 10.1.2.0 lladdr 0e:58:0a:01:02:00 dev trireme.vxlan nud permanent\n\
             route replace 10.1.2.0/24 via 10.1.2.0 dev trireme.vxlan onlink proto 84\n\
             route del 10.1.7.0/24 proto 84\n"
        );
        assert_eq!(
            forwarding(&plan),
            "fdb replace 0e:58:0a:01:02:00 dev trireme.vxlan dst 203.0.113.3 self permanent\n"
        );
        let rules = rules(&plan);
        let inside = "10.1.0.0/16, 192.0.2.1/32, 192.0.2.2/32, 203.0.113.3/32, 224.0.0.0/4";
        assert!(rules.contains(&format!("ip saddr {{ 10.1.0.0/24 }} ip daddr != {{ {inside} }} oifname")), "{rules}");
    }
}
