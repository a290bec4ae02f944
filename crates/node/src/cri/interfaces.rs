//! How a sandbox is linked to the node, as the runtime's CNI plugins said it. It is among what a runtime tells without promising its form,
//! so what cannot be read is not there.

use std::collections::BTreeMap;

use serde::Deserialize;

/// An interface that was made for a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    pub name: String,
    /// Its hardware address, as written by the plugin.
    pub mac: String,
    /// Whether it is the sandbox's end, and not the node's.
    pub inside: bool,
}

#[derive(Deserialize)]
struct Info {
    #[serde(rename = "cniResult")]
    network: Option<Network>,
}

#[derive(Deserialize)]
struct Network {
    #[serde(rename = "Interfaces", default)]
    interfaces: BTreeMap<String, Option<Config>>,
}

#[derive(Deserialize)]
struct Config {
    #[serde(rename = "Mac", default)]
    mac: String,
    #[serde(rename = "Sandbox", default)]
    sandbox: String,
}

/// Reads the runtime's further information on a sandbox.
pub fn read(info: &str) -> Vec<Interface> {
    let network = serde_json::from_str::<Info>(info).ok().and_then(|info| info.network);
    let all = network.map(|network| network.interfaces).unwrap_or_default().into_iter();
    all.filter_map(|(name, config)| config.map(|c| Interface { name, mac: c.mac, inside: !c.sandbox.is_empty() }))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_a_link_are_told_apart_and_nonsense_is_nothing() {
        let info = r#"{"pid": 7, "cniResult": {"Interfaces": {
            "cni0": {"IPConfigs": null, "Mac": "0a:00:00:00:00:01", "Sandbox": ""},
            "eth0": {"IPConfigs": [{"IP": "10.1.0.2", "Gateway": "10.1.0.1"}], "Mac": "0a:00:00:00:00:02", "Sandbox": "/run/netns/x"},
            "lo": null, "veth1": {"Mac": "0a:00:00:00:00:03"}}, "DNS": [{}], "Routes": null}}"#;
        let shown: Vec<String> = read(info).iter().map(|i| format!("{} {} {}", i.name, i.mac, i.inside)).collect();
        assert_eq!(
            shown,
            ["cni0 0a:00:00:00:00:01 false", "eth0 0a:00:00:00:00:02 true", "veth1 0a:00:00:00:00:03 false"]
        );
        for nothing in ["", "[]", r#"{"cniResult": null}"#, r#"{"cniResult": {"Interfaces": []}}"#] {
            assert_eq!(read(nothing), [], "{nothing}");
        }
    }
}
