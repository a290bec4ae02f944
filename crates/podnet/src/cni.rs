//! The link between this node's pods and the node: the configuration of the CNI plugins, from the ranges that the Node has.

use std::path::PathBuf;

use ipnet::IpNet;

use crate::Error;
use crate::plan::Peer;

/// How the CNI plugins of this node are configured.
#[derive(Debug, Clone)]
pub struct Cni {
    /// Where the runtime looks for the configuration.
    pub conf_dir: PathBuf,
    /// Name of the bridge that pods hang on.
    pub bridge: String,
    /// Largest packet, when it is not the kernel's choice.
    pub mtu: Option<u32>,
    /// Where addresses in use are remembered.
    pub ipam_dir: PathBuf,
}

impl Cni {
    /// Writes the configuration, where it is not there yet. A node without ranges keeps what it has: its pods have addresses.
    pub(crate) fn configure(&self, node: &str, peers: &[Peer]) -> Result<(), Error> {
        let ranges: &[IpNet] = peers.iter().find(|peer| peer.name == node).map_or(&[], |own| &own.ranges);
        if ranges.is_empty() {
            return Ok(());
        }
        let network = node::cni::Network {
            bridge: self.bridge.clone(),
            ranges: ranges.iter().map(ToString::to_string).collect(),
            mtu: self.mtu,
            ipam_dir: self.ipam_dir.clone(),
        };
        if node::cni::write(&self.conf_dir, &network).map_err(Error::Cni)? {
            tracing::info!(ranges = ?network.ranges, "pod network configured");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plugins_are_told_the_ranges_of_this_node_once_it_has_some() {
        let dir = tempfile::tempdir().unwrap();
        let cni = Cni { conf_dir: dir.path().into(), bridge: "b0".into(), mtu: None, ipam_dir: "/ipam".into() };
        let file = dir.path().join(node::cni::FILE);
        let peer = |name: &str, ranges: &[&str]| Peer {
            name: name.into(),
            addresses: Vec::new(),
            ranges: ranges.iter().map(|range| range.parse().unwrap()).collect(),
        };
        let others = peer("b", &["10.1.1.0/24"]);
        for early in [vec![others.clone()], vec![others.clone(), peer("a", &[])]] {
            cni.configure("a", &early).unwrap();
            assert!(!file.exists());
        }
        cni.configure("a", &[others.clone(), peer("a", &["10.1.0.0/24", "fd00::/64"])]).unwrap();
        let written = std::fs::read_to_string(&file).unwrap();
        assert!(written.contains("10.1.0.0/24") && written.contains("fd00::/64") && !written.contains("10.1.1."));
        cni.configure("a", &[others]).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), written, "a node that lost its ranges");
    }
}
