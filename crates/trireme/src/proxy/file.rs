//! `--config`: a `KubeProxyConfiguration`. `fields.txt` says of every field what becomes of it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use rules::upstream;
use serde_json::Value;

use crate::component::Failure;

const API_VERSION: &str = "kubeproxy.config.k8s.io/v1alpha1";
const KIND: &str = "KubeProxyConfiguration";

/// What a file says.
#[derive(Debug, Default)]
pub struct File {
    pub kubeconfig: Option<PathBuf>,
    pub hostname_override: Option<String>,
    cluster_cidrs: Option<Vec<IpNet>>,
    node_port_addresses: Option<Vec<::proxy::NodePortAddress>>,
    healthz_address: Option<SocketAddr>,
    metrics_address: Option<SocketAddr>,
    masquerade_all: Option<bool>,
    masquerade_bit: Option<u8>,
    conntrack: Value,
}

/// Reads a file; what is wrong with it names its line.
pub fn read(path: &Path) -> Result<File, Failure> {
    let wrong = |why: String| format!("{}: {why}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    Ok(parse(&text).map_err(wrong)?)
}

fn parse(text: &str) -> Result<File, String> {
    let tree: Value = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
    if tree["apiVersion"] != API_VERSION || tree["kind"] != KIND {
        return Err(format!("not a {KIND} of {API_VERSION}"));
    }
    let table = upstream::table(include_str!("fields.txt"));
    let tree = upstream::file::honoured(&table, text, tree).map_err(|mistake| mistake.to_string())?;
    let wrong = |field: &str, why: String| format!("line {}: {field}: {why}", upstream::file::line_of(text, field));
    let given = |field: &str| {
        let found = field.split('.').fold(&tree, |tree, part| &tree[part]);
        found.as_str().map(str::to_owned).or_else(|| (!found.is_null()).then(|| found.to_string()))
    };
    let given = |field: &str| given(field).filter(|text| !text.is_empty());
    let address = |field: &str, port: u16| match given(field) {
        None => Ok(None),
        // An address without a port is answered at the usual one.
        Some(text) => match (text.parse(), text.parse()) {
            (Ok(address), _) => Ok(Some(address)),
            (_, Ok(ip)) => Ok(Some(SocketAddr::new(ip, port))),
            _ => Err(wrong(field, format!("{text:?} is no address"))),
        },
    };
    let ranges = |text: String| text.split(',').map(|range| range.trim().parse()).collect::<Result<Vec<IpNet>, _>>();
    let cluster_cidrs = given("clusterCIDR").map(ranges).transpose();
    let addresses = tree["nodePortAddresses"].as_array().filter(|list| !list.is_empty()).map(|list| {
        list.iter()
            .map(|one| one.as_str().unwrap_or_default().parse())
            .collect::<Result<Vec<::proxy::NodePortAddress>, _>>()
    });
    let bit =
        given("nftables.masqueradeBit").map(|bit| bit.parse().ok().filter(|bit| *bit < 32).ok_or(bit)).transpose();
    Ok(File {
        kubeconfig: given("clientConnection.kubeconfig").map(PathBuf::from),
        hostname_override: given("hostnameOverride"),
        cluster_cidrs: cluster_cidrs.map_err(|error| wrong("clusterCIDR", error.to_string()))?,
        node_port_addresses: addresses.transpose().map_err(|error| wrong("nodePortAddresses", error.to_string()))?,
        healthz_address: address("healthzBindAddress", 10256)?,
        metrics_address: address("metricsBindAddress", 10249)?,
        masquerade_all: tree["nftables"]["masqueradeAll"].as_bool(),
        masquerade_bit: bit.map_err(|bit| wrong("nftables.masqueradeBit", format!("{bit} is not within 0 to 31")))?,
        conntrack: tree["conntrack"].clone(),
    })
}

impl File {
    /// Sets what it says.
    pub fn set(&self, config: &mut ::proxy::Config) {
        fn set<T: Clone>(place: &mut T, given: Option<&T>) {
            if let Some(given) = given {
                place.clone_from(given);
            }
        }
        set(&mut config.cluster_cidrs, self.cluster_cidrs.as_ref());
        set(&mut config.node_port_addresses, self.node_port_addresses.as_ref());
        set(&mut config.masquerade_all, self.masquerade_all.as_ref());
        set(&mut config.masquerade_bit, self.masquerade_bit.as_ref());
        config.healthz_address = self.healthz_address.or(config.healthz_address);
        config.metrics_address = self.metrics_address.or(config.metrics_address);
        let seconds = |field: &str| Some(machinery::duration::parse(self.conntrack[field].as_str()?)?.as_secs());
        let wanted = &mut config.conntrack;
        for (place, value) in [
            (&mut wanted.max_per_core, self.conntrack["maxPerCore"].as_u64()),
            (&mut wanted.min, self.conntrack["min"].as_u64()),
            (&mut wanted.tcp_established, seconds("tcpEstablishedTimeout")),
            (&mut wanted.tcp_close_wait, seconds("tcpCloseWaitTimeout")),
            (&mut wanted.udp, seconds("udpTimeout")),
            (&mut wanted.udp_stream, seconds("udpStreamTimeout")),
        ] {
            set(place, value.as_ref());
        }
        set(&mut wanted.be_liberal, self.conntrack["tcpBeLiberal"].as_bool().as_ref());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(fields: &str) -> Result<::proxy::Config, String> {
        let file = parse(&format!("apiVersion: {API_VERSION}\nkind: {KIND}\n{fields}"))?;
        let mut config = ::proxy::Config::new("n");
        file.set(&mut config);
        Ok(config)
    }

    #[test]
    fn what_kubeadm_writes_is_read_with_nftables() {
        let config = check(
            "bindAddress: 0.0.0.0\nbindAddressHardFail: false\nclientConnection:\n  acceptContentTypes: \"\"\n  burst: 0\n  qps: 0\n\
             clusterCIDR: 10.244.0.0/16,fd00::/64\nconfigSyncPeriod: 0s\nconntrack:\n  maxPerCore: null\n  min: 5\n  tcpEstablishedTimeout: 1h\n\
             detectLocal:\n  bridgeInterface: \"\"\n  interfaceNamePrefix: \"\"\ndetectLocalMode: \"\"\nhealthzBindAddress: 127.0.0.1\n\
             hostnameOverride: \"\"\niptables: {localhostNodePorts: null, masqueradeAll: false}\nmode: nftables\n\
             nftables: {masqueradeAll: true, masqueradeBit: 3}\nwinkernel: {enableDSR: false}\n",
        )
        .expect("a file");
        assert_eq!((config.cluster_cidrs.len(), config.masquerade_all, config.masquerade_bit), (2, true, 3));
        assert_eq!((config.conntrack.min, config.conntrack.tcp_established), (5, 3600));
        assert_eq!(config.conntrack.max_per_core, ::proxy::Conntrack::default().max_per_core);
        assert_eq!(config.healthz_address.map(|address| address.to_string()).as_deref(), Some("127.0.0.1:10256"));
    }

    #[test]
    fn mistakes_name_their_line() {
        for (fields, want) in [
            ("nonsense: 1", "line 3: nonsense: unknown field"),
            ("clusterCIDR: 10.0.0.0/16\nmode: ipvs", "line 4: mode: \"ipvs\" is not possible, only nftables"),
            ("clusterCIDR: here", "line 3: clusterCIDR: "),
            ("healthzBindAddress: here", "line 3: healthzBindAddress: \"here\" is no address"),
            ("nftables:\n  masqueradeBit: 40", "line 4: nftables.masqueradeBit: 40 is not within"),
            ("featureGates: {Nonsense: true}", "line 3: featureGates: unrecognized feature gate"),
        ] {
            let error = check(fields).expect_err(fields);
            assert!(error.starts_with(want), "{fields}: {error}");
        }
        assert!(parse("kind: Pod").is_err());
    }
}
