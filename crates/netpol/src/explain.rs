//! Whether one end may connect to another, and which policies say so. Pure, and read from the API alone.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use crate::cluster_policy::{Action, ClusterPolicy, Tier};
use crate::model::{Alike, Direction, Labels, NodeFacts, Peer, PodFacts, Policy, PolicyName, Rule, addresses_of};
use rules::network_policies::{self, Doubt, NamedPort};
use rules::protocol::Protocol;

/// One end of a connection: a pod, or just an address.
#[derive(Debug, Clone)]
pub struct End {
    pub addresses: Vec<IpAddr>,
    /// What policies know of the pod; nothing for other addresses, and for pods that share their node's.
    pub alike: Option<Arc<Alike>>,
}

/// What there is to know.
#[derive(Debug, Clone, Copy)]
pub struct World<'a> {
    pub policies: &'a [Policy],
    /// In any order.
    pub cluster: &'a [ClusterPolicy],
    pub namespaces: &'a BTreeMap<String, Labels>,
    pub nodes: &'a BTreeMap<String, NodeFacts>,
}

/// The first rule of a tier that matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matched {
    pub tier: Tier,
    pub policy: PolicyName,
    /// Counted from one.
    pub rule: usize,
    pub action: Action,
}

impl std::fmt::Display for Matched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (tier, action) = (self.tier.as_str(), self.action.as_str());
        write!(f, "{} (tier {tier}, rule {}: {action})", self.policy, self.rule)
    }
}

/// What the policies of one end say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Side {
    /// What the cluster's policies say before all others.
    pub admin: Option<Matched>,
    /// The policies that isolate it in this direction; without any all is allowed.
    pub isolated: Vec<PolicyName>,
    /// Those of them that allow the connection, and with which of their rules, counted from one.
    pub allowing: Vec<(PolicyName, usize)>,
    /// What the cluster's policies say if no other isolates the pod.
    pub baseline: Option<Matched>,
}

impl Side {
    /// The rule of the cluster's policies that decides, if one does.
    pub fn decided(&self) -> Option<&Matched> {
        let final_word = |matched: &&Matched| matched.action != Action::Pass;
        let baseline = self.baseline.as_ref().filter(|_| self.isolated.is_empty());
        self.admin.as_ref().filter(final_word).or(baseline.filter(final_word))
    }

    pub fn allows(&self) -> bool {
        match self.decided() {
            Some(matched) => matched.action == Action::Accept,
            None => self.isolated.is_empty() || !self.allowing.is_empty(),
        }
    }

    /// The policies that the verdict follows from.
    pub fn policies(&self) -> Vec<PolicyName> {
        match (self.decided(), self.allows()) {
            (Some(matched), _) => vec![matched.policy.clone()],
            (None, true) => self.allowing.iter().map(|(name, _)| name.clone()).collect(),
            (None, false) => self.isolated.clone(),
        }
    }
}

/// What is said about a connection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Explanation {
    pub egress: Side,
    pub ingress: Side,
}

impl Explanation {
    pub fn allows(&self) -> bool {
        self.egress.allows() && self.ingress.allows()
    }
}

/// What the policies say about a connection; no port stands for a protocol without any. A pod reaches itself whatever they say.
pub fn explain(world: World<'_>, from: &End, to: &End, port: Option<(Protocol, u16)>) -> Explanation {
    if from.alike.is_some() && from.addresses == to.addresses {
        return Explanation::default();
    }
    let side = |direction, pod: &End, other: &End| {
        let mut side = Side::default();
        let Some(alike) = &pod.alike else { return side };
        let matches = |rule: &Rule| matches(world, rule, direction, (other, to), port);
        for policy in world.policies.iter().filter(|policy| policy.selects(&alike.namespace, &alike.labels)) {
            let Some(rules) = policy.rules(direction) else { continue };
            side.isolated.push(policy.name.clone());
            let rule = rules.iter().position(matches);
            side.allowing.extend(rule.map(|rule| (policy.name.clone(), rule + 1)));
        }
        let mut cluster: Vec<&ClusterPolicy> =
            world.cluster.iter().filter(|policy| policy.selects(alike, world.namespaces)).collect();
        cluster.sort_unstable_by_key(|policy| policy.order());
        for policy in cluster {
            let said = if policy.tier == Tier::Admin { &mut side.admin } else { &mut side.baseline };
            if said.is_none() {
                let rules = policy.rules(direction);
                *said = rules.iter().position(|rule| matches(&rule.rule)).map(|rule| Matched {
                    tier: policy.tier,
                    policy: PolicyName { namespace: String::new(), name: policy.name.clone() },
                    rule: rule + 1,
                    action: rules[rule].action,
                });
            }
        }
        side
    };
    Explanation { egress: side(Direction::Egress, from, to), ingress: side(Direction::Ingress, to, from) }
}

fn matches(
    world: World<'_>,
    rule: &Rule,
    direction: Direction,
    (other, to): (&End, &End),
    port: Option<(Protocol, u16)>,
) -> bool {
    let by_name = port.is_some_and(|(protocol, number)| {
        let named = |name: &String| to.alike.as_ref()?.ports.get(&(name.clone(), protocol));
        rule.named.iter().any(|(name, of)| *of == protocol && named(name).is_some_and(|all| all.contains(&number)))
    });
    let ports = |block: bool| rule.ports.contains(port) || (by_name && !(block && direction == Direction::Egress));
    let Some(peers) = &rule.peers else { return ports(false) };
    peers.iter().any(|peer| match peer {
        Peer::Block(block) => other.addresses.iter().any(|ip| block.contains(&IpNet::from(*ip))) && ports(true),
        Peer::Nodes(selector) => {
            let nodes = addresses_of(selector, world.nodes);
            other.addresses.iter().any(|ip| nodes.contains(ip)) && ports(true)
        }
        Peer::Pods(pods) => {
            let labels = |alike: &Arc<Alike>| world.namespaces.get(&alike.namespace);
            let meant = |alike: &Arc<Alike>| pods.matches(&alike.namespace, labels(alike), &alike.labels);
            other.alike.as_ref().is_some_and(meant) && ports(false)
        }
    })
}

/// What is doubtful about a policy while these pods are there.
pub fn doubts(policy: &Policy, pods: &[PodFacts]) -> Vec<Doubt> {
    let selected: Vec<&PodFacts> =
        pods.iter().filter(|pod| policy.selects(&pod.alike.namespace, &pod.alike.labels)).collect();
    let [ingress, egress] = Direction::BOTH.map(|direction| {
        let rules = policy.rules(direction).into_iter().flatten();
        rules.flat_map(|rule| rule.named.clone()).collect::<Vec<NamedPort>>()
    });
    let has = |pod: &PodFacts, port: &NamedPort| pod.alike.ports.contains_key(port);
    network_policies::doubts(
        !selected.is_empty(),
        [&ingress, &egress],
        |port| selected.iter().any(|pod| has(pod, port)),
        |port| pods.iter().any(|pod| has(pod, port)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(spec: serde_json::Value) -> Policy {
        let policy = serde_json::json!({"metadata": {"namespace": "a", "name": "p"}, "spec": spec});
        Policy::of(&serde_json::from_value(policy).unwrap()).unwrap()
    }

    #[test]
    fn what_nobody_can_have_meant_is_said() {
        let pod = serde_json::json!({"metadata": {"namespace": "a", "name": "x", "labels": {"app": "x"}},
            "spec": {"containers": [{"name": "c", "ports": [{"name": "web", "containerPort": 80}]}]}});
        let pods = [PodFacts::of(&serde_json::from_value(pod).unwrap(), &[]).unwrap()];
        let check = |spec, want: &[&str]| {
            let said: Vec<String> = doubts(&policy(spec), &pods).iter().map(ToString::to_string).collect();
            assert_eq!(said, want);
        };
        let ports = |name: &str| serde_json::json!([{"ports": [{"port": name}]}]);
        check(serde_json::json!({"podSelector": {"matchLabels": {"app": "x"}}, "ingress": ports("web")}), &[]);
        check(serde_json::json!({"podSelector": {"matchLabels": {"app": "y"}}}), &["selects no pod"]);
        check(
            serde_json::json!({"podSelector": {}, "ingress": ports("wbe"), "egress": ports("dns")}),
            &[
                "names port \"wbe\" of TCP, which none of the pods it is about has",
                "names port \"dns\" of TCP, which none of the pods it is about has",
            ],
        );
    }
}
