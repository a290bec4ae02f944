//! The pod network's configuration for CNI plugins: a bridge on the node, addresses from the node's range, host ports.
//!
//! Trireme writes one conflist. A user who wants another network puts a file with an earlier name beside it (the
//! runtime takes the first), or tells Trireme to write none.

use std::path::{Path, PathBuf};

use serde_json::json;

/// Our file: late in the alphabet, so that anybody else's comes first.
pub const FILE: &str = "90-trireme.conflist";

/// A pod network on one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    /// Name of the bridge, at most 15 characters.
    pub bridge: String,
    /// The node's ranges, in CIDR notation, one per IP family.
    pub ranges: Vec<String>,
    /// Largest packet; nothing for the kernel's choice.
    pub mtu: Option<u32>,
    /// Where addresses in use are remembered.
    pub ipam_dir: PathBuf,
}

pub fn conflist(network: &Network) -> String {
    let ranges: Vec<_> = network.ranges.iter().map(|range| json!([{"subnet": range}])).collect();
    let routes: Vec<_> = network
        .ranges
        .iter()
        .map(|range| json!({"dst": if range.contains(':') { "::/0" } else { "0.0.0.0/0" }}))
        .collect();
    let mut bridge = json!({
        "type": "bridge",
        "bridge": network.bridge,
        "isGateway": true,
        "isDefaultGateway": false,
        // A pod that talks to its own Service comes back through the port it left by.
        "hairpinMode": true,
        "forceAddress": false,
        "ipMasq": false,
        "ipam": {
            "type": "host-local",
            "ranges": ranges,
            "routes": routes,
            "dataDir": network.ipam_dir,
        },
    });
    if let Some(mtu) = network.mtu {
        bridge["mtu"] = json!(mtu);
    }
    let list = json!({
        "cniVersion": "1.0.0",
        "name": "trireme",
        "plugins": [
            bridge,
            {"type": "portmap", "snat": true, "capabilities": {"portMappings": true}},
        ],
    });
    format!("{list:#}\n")
}

/// Writes the conflist, atomically, when it differs; says whether it did.
pub fn write(dir: &Path, network: &Network) -> std::io::Result<bool> {
    let (path, text) = (dir.join(FILE), conflist(network));
    if std::fs::read_to_string(&path).is_ok_and(|present| present == text) {
        return Ok(false);
    }
    std::fs::create_dir_all(dir)?;
    // A name the runtime does not read, then one step to the one it does.
    let draft = dir.join(".90-trireme.draft");
    std::fs::write(&draft, text)?;
    std::fs::rename(draft, path)?;
    Ok(true)
}

/// The first directory with the plugins of the pod network, of those where distributions put them.
pub fn plugin_dir() -> Option<PathBuf> {
    ["/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"]
        .map(PathBuf::from)
        .into_iter()
        .find(|dir| ["bridge", "host-local", "portmap", "loopback"].iter().all(|plugin| dir.join(plugin).exists()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network() -> Network {
        Network {
            bridge: "cni0".into(),
            ranges: vec!["10.244.1.0/24".into(), "fd00:1::/64".into()],
            mtu: Some(1450),
            ipam_dir: "/d".into(),
        }
    }

    #[test]
    fn both_families_get_a_range_and_a_default_route() {
        let list: serde_json::Value = serde_json::from_str(&conflist(&network())).unwrap();
        let bridge = &list["plugins"][0];
        assert_eq!(bridge["mtu"], 1450);
        assert_eq!(bridge["ipam"]["ranges"], json!([[{"subnet": "10.244.1.0/24"}], [{"subnet": "fd00:1::/64"}]]));
        assert_eq!(bridge["ipam"]["routes"], json!([{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]));
        assert_eq!(list["plugins"][1]["capabilities"]["portMappings"], true);
    }

    #[test]
    fn the_file_is_written_once_and_again_when_it_differs() {
        let dir = tempfile::tempdir().unwrap();
        assert!(write(dir.path(), &network()).unwrap());
        assert!(!write(dir.path(), &network()).unwrap());
        assert!(write(dir.path(), &Network { mtu: None, ..network() }).unwrap());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
