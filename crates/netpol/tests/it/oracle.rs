//! The specification, word by word and as slowly as it reads: no index, no number, no ranges that were merged.
//!
//! Two choices where the API's words leave one: a named port means the port of the pod that is connected to, so towards a block of
//! addresses it means nothing; and policies say nothing of pods that share their node's addresses, neither as selected ones nor as peers.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use rules::protocol::Protocol;
use serde_json::Value;

type Labels = BTreeMap<String, String>;

#[derive(Default)]
pub struct World {
    pub policies: BTreeMap<String, NetworkPolicy>,
    /// The specs of ClusterNetworkPolicies.
    pub cluster: BTreeMap<String, Value>,
    /// Labels and addresses of nodes.
    pub nodes: BTreeMap<String, (Labels, Vec<IpAddr>)>,
    pub namespaces: BTreeMap<String, Labels>,
    /// By uid.
    pub pods: BTreeMap<String, Pod>,
}

fn selected(selector: &LabelSelector, labels: &Labels) -> bool {
    let all = selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    all && selector.match_expressions.iter().flatten().all(|expression| {
        let value = labels.get(&expression.key);
        let listed = value.is_some_and(|value| expression.values.iter().flatten().any(|v| v == value));
        match expression.operator.as_str() {
            "In" => listed,
            "NotIn" => !listed,
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            other => panic!("{other}"),
        }
    })
}

fn labels(pod: &Pod) -> Labels {
    pod.metadata.labels.clone().unwrap_or_default()
}

fn namespace(pod: &Pod) -> &str {
    pod.metadata.namespace.as_deref().unwrap()
}

impl World {
    /// The pod that has an address: of those that run and do not share their node's, the youngest.
    pub fn owner(&self, ip: IpAddr) -> Option<&Pod> {
        let mut all: Vec<(&String, &Pod)> = self.pods.iter().collect();
        all.sort_by_key(|(uid, pod)| (pod.metadata.creation_timestamp.as_ref().map(|t| t.0), (*uid).clone()));
        let owns = |pod: &Pod| {
            let status = pod.status.as_ref().unwrap();
            let runs = !matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
            let own = pod.spec.as_ref().unwrap().host_network != Some(true);
            runs && own && status.pod_ips.iter().flatten().any(|own| own.ip.parse() == Ok(ip))
        };
        all.into_iter().rev().map(|(_, pod)| pod).find(|pod| owns(pod))
    }

    fn peer(&self, policy: &NetworkPolicy, peer: &NetworkPolicyPeer, ip: IpAddr) -> bool {
        if let Some(block) = &peer.ip_block {
            let inside = |range: &String| range.parse::<IpNet>().unwrap().contains(&ip);
            return inside(&block.cidr) && !block.except.iter().flatten().any(inside);
        }
        let Some(pod) = self.owner(ip) else { return false };
        let at_home = match &peer.namespace_selector {
            Some(selector) => self.namespaces.get(namespace(pod)).is_some_and(|labels| selected(selector, labels)),
            None => policy.metadata.namespace.as_deref() == Some(namespace(pod)),
        };
        at_home && peer.pod_selector.as_ref().is_none_or(|selector| selected(selector, &labels(pod)))
    }

    fn port(
        &self,
        port: &NetworkPolicyPort,
        to: IpAddr,
        peers_are_blocks: bool,
        packet: Option<(Protocol, u16)>,
    ) -> bool {
        let Some((protocol, number)) = packet else { return false };
        let wanted = port.protocol.as_deref().unwrap_or("TCP");
        if wanted != protocol.as_str() {
            return false;
        }
        match &port.port {
            None => true,
            Some(IntOrString::Int(first)) => (*first..=port.end_port.unwrap_or(*first)).contains(&i32::from(number)),
            Some(IntOrString::String(name)) => {
                !peers_are_blocks
                    && self.owner(to).is_some_and(|pod| {
                        let containers = &pod.spec.as_ref().unwrap().containers;
                        containers.iter().flat_map(|c| c.ports.iter().flatten()).any(|own| {
                            own.name.as_ref() == Some(name)
                                && own.protocol.as_deref().unwrap_or("TCP") == wanted
                                && own.container_port == i32::from(number)
                        })
                    })
            }
        }
    }

    fn rule(
        &self,
        policy: &NetworkPolicy,
        peers: Option<&Vec<NetworkPolicyPeer>>,
        ports: Option<&Vec<NetworkPolicyPort>>,
        other: IpAddr,
        packet: (IpAddr, bool, Option<(Protocol, u16)>),
    ) -> bool {
        let (to, egress, port) = packet;
        let ports_allow = |blocks: bool| {
            ports.is_none_or(|ports| ports.is_empty() || ports.iter().any(|p| self.port(p, to, blocks, port)))
        };
        match peers.filter(|peers| !peers.is_empty()) {
            None => ports_allow(false),
            Some(peers) => peers
                .iter()
                .any(|peer| self.peer(policy, peer, other) && ports_allow(egress && peer.ip_block.is_some())),
        }
    }

    /// The pods that a ClusterNetworkPolicy's subject or peer means.
    fn of_cluster(&self, who: &Value, pod: &Pod) -> bool {
        let read = |value: &Value| serde_json::from_value::<LabelSelector>(value.clone()).unwrap();
        let in_namespace = |selector: &Value| {
            self.namespaces.get(namespace(pod)).is_some_and(|labels| selected(&read(selector), labels))
        };
        match who.get("namespaces") {
            Some(namespaces) => in_namespace(namespaces),
            None => {
                in_namespace(&who["pods"]["namespaceSelector"])
                    && selected(&read(&who["pods"]["podSelector"]), &labels(pod))
            }
        }
    }

    /// Whether a rule of the cluster's is about a packet.
    fn concerns(&self, rule: &Value, other: IpAddr, packet: (IpAddr, bool, Option<(Protocol, u16)>)) -> bool {
        let (to, egress, port) = packet;
        let peers = rule[if egress { "to" } else { "from" }].as_array().unwrap();
        peers.iter().any(|peer| {
            let is_pod = peer.get("networks").is_none() && peer.get("nodes").is_none();
            let meant = if let Some(networks) = peer.get("networks") {
                networks
                    .as_array()
                    .unwrap()
                    .iter()
                    .any(|n| n.as_str().unwrap().parse::<IpNet>().unwrap().contains(&other))
            } else if let Some(nodes) = peer.get("nodes") {
                let selector: LabelSelector = serde_json::from_value(nodes.clone()).unwrap();
                self.nodes.values().any(|(labels, all)| selected(&selector, labels) && all.contains(&other))
            } else {
                self.owner(other).is_some_and(|pod| self.of_cluster(peer, pod))
            };
            let Some(protocols) = rule.get("protocols") else { return meant };
            let fits = |protocol: &Value| {
                let Some((of, number)) = port else { return false };
                if let Some(name) = protocol.get("destinationNamedPort") {
                    let all = self.owner(to).filter(|_| is_pod).map(|pod| &pod.spec.as_ref().unwrap().containers);
                    return all.into_iter().flatten().flat_map(|c| c.ports.iter().flatten()).any(|own| {
                        own.name.as_deref() == name.as_str()
                            && own.protocol.as_deref().unwrap_or("TCP") == of.as_str()
                            && own.container_port == i32::from(number)
                    });
                }
                let Some(what) = protocol.get(of.as_str().to_lowercase()) else { return false };
                let port = &what["destinationPort"];
                match port.get("range") {
                    Some(range) => {
                        (range["start"].as_u64().unwrap()..=range["end"].as_u64().unwrap()).contains(&number.into())
                    }
                    None => port["number"] == number,
                }
            };
            meant && protocols.as_array().unwrap().iter().any(fits)
        })
    }

    /// What a tier of the cluster's policies says: the first rule that matches has the last word.
    fn tier(
        &self,
        tier: &str,
        pod: &Pod,
        other: IpAddr,
        packet: (IpAddr, bool, Option<(Protocol, u16)>),
    ) -> Option<String> {
        let mut policies: Vec<(&String, &Value)> =
            self.cluster.iter().filter(|(_, spec)| spec["tier"] == tier).collect();
        policies.sort_by_key(|(name, spec)| (spec["priority"].as_i64(), (*name).clone()));
        for (_, spec) in policies.into_iter().filter(|(_, spec)| self.of_cluster(&spec["subject"], pod)) {
            for rule in spec[if packet.1 { "egress" } else { "ingress" }].as_array().into_iter().flatten() {
                // A field that nobody knows: what lets through matches nothing, everything else denies everything.
                if rule.to_string().contains("domainNames") {
                    if rule["action"] != "Accept" {
                        return Some("Deny".to_owned());
                    }
                } else if self.concerns(rule, other, packet) {
                    return Some(rule["action"].as_str().unwrap().to_owned());
                }
            }
        }
        None
    }

    /// Whether a pod may send to, or be sent from, the other end.
    pub fn allows(&self, egress: bool, pod: &Pod, other: IpAddr, to: IpAddr, port: Option<(Protocol, u16)>) -> bool {
        let packet = (to, egress, port);
        match self.tier("Admin", pod, other, packet).as_deref() {
            Some("Accept") => return true,
            Some("Deny") => return false,
            _ => {}
        }
        let by_policies = self.by_policies(egress, pod, other, to, port);
        by_policies.unwrap_or_else(|| self.tier("Baseline", pod, other, packet).as_deref() != Some("Deny"))
    }

    /// Whether a pod may send to its own node, from which NetworkPolicies keep nobody.
    pub fn arrives(&self, node: &str, from: IpAddr, to: IpAddr, port: Option<(Protocol, u16)>) -> bool {
        let here = self.owner(from).filter(|pod| pod.spec.as_ref().unwrap().node_name.as_deref() == Some(node));
        here.is_none_or(|pod| match self.tier("Admin", pod, to, (to, true, port)).as_deref() {
            Some("Accept") => true,
            Some("Deny") => false,
            _ => {
                self.by_policies(true, pod, to, to, port).is_some()
                    || self.tier("Baseline", pod, to, (to, true, port)).as_deref() != Some("Deny")
            }
        })
    }

    /// What NetworkPolicies say; nothing if none is about the pod.
    fn by_policies(
        &self,
        egress: bool,
        pod: &Pod,
        other: IpAddr,
        to: IpAddr,
        port: Option<(Protocol, u16)>,
    ) -> Option<bool> {
        let mut isolated = false;
        for policy in self.policies.values() {
            let spec = policy.spec.as_ref().unwrap();
            let types = spec.policy_types.clone().unwrap_or_else(|| {
                let has_egress = spec.egress.as_ref().is_some_and(|rules| !rules.is_empty());
                if has_egress { vec!["Ingress".to_owned(), "Egress".to_owned()] } else { vec!["Ingress".to_owned()] }
            });
            let concerns = types.iter().any(|kind| kind == if egress { "Egress" } else { "Ingress" })
                && policy.metadata.namespace.as_deref() == Some(namespace(pod))
                && selected(spec.pod_selector.as_ref().unwrap(), &labels(pod));
            if !concerns {
                continue;
            }
            isolated = true;
            let packet = (to, egress, port);
            let allowed = if egress {
                let mut rules = spec.egress.iter().flatten();
                rules.any(|rule| self.rule(policy, rule.to.as_ref(), rule.ports.as_ref(), other, packet))
            } else {
                let mut rules = spec.ingress.iter().flatten();
                rules.any(|rule| self.rule(policy, rule.from.as_ref(), rule.ports.as_ref(), other, packet))
            };
            if allowed {
                return Some(true);
            }
        }
        isolated.then_some(false)
    }

    /// Whether a node lets a packet pass that opens a connection.
    pub fn judge(&self, node: &str, from: IpAddr, to: IpAddr, port: Option<(Protocol, u16)>) -> bool {
        let here = |ip| self.owner(ip).filter(|pod| pod.spec.as_ref().unwrap().node_name.as_deref() == Some(node));
        if from == to {
            return true;
        }
        here(from).is_none_or(|pod| self.allows(true, pod, to, to, port))
            && here(to).is_none_or(|pod| self.allows(false, pod, from, to, port))
    }
}
