//! A ClusterNetworkPolicy (`policy.networking.k8s.io/v1alpha2`): what administrators say before and after all NetworkPolicies.
//!
//! Its definition is not ours: users install it, and versions of it differ. The spec is therefore read by hand, and what cannot be read fails
//! closed, as the API's authors ask: an `Accept` matches nothing then, a `Deny` or a `Pass` denies everything. What was not understood is
//! said in [`ClusterPolicy::doubts`].

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{self as meta, ObjectMeta};
use rules::protocol::Protocol;
use rules::selectors::LabelSelector;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model::{Alike, Block, Direction, Labels, Namespaces, Peer, PeerPods, Rule};
use crate::ports::{Ports, Range};

/// The definition's name.
pub const DEFINITION: &str = "clusternetworkpolicies.policy.networking.k8s.io";

/// The object as the API has it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ClusterNetworkPolicy {
    #[serde(default)]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: Value,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub status: Value,
}

impl k8s_openapi::Resource for ClusterNetworkPolicy {
    const API_VERSION: &'static str = "policy.networking.k8s.io/v1alpha2";
    const GROUP: &'static str = "policy.networking.k8s.io";
    const KIND: &'static str = "ClusterNetworkPolicy";
    const VERSION: &'static str = "v1alpha2";
    const URL_PATH_SEGMENT: &'static str = "clusternetworkpolicies";
    type Scope = k8s_openapi::ClusterResourceScope;
}

impl k8s_openapi::Metadata for ClusterNetworkPolicy {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// Before or after all NetworkPolicies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tier {
    Admin,
    Baseline,
}

impl Tier {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "Admin",
            Self::Baseline => "Baseline",
        }
    }
}

/// What a rule does with what it matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    Accept,
    Deny,
    /// The tier has nothing more to say.
    Pass,
}

impl Action {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accept => "Accept",
            Self::Deny => "Deny",
            Self::Pass => "Pass",
        }
    }

    fn of(value: &Value) -> Option<Self> {
        [Self::Accept, Self::Deny, Self::Pass].into_iter().find(|action| value == action.as_str())
    }
}

/// A rule, in the order of its policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterRule {
    pub action: Action,
    pub rule: Rule,
}

/// A ClusterNetworkPolicy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterPolicy {
    pub name: String,
    pub tier: Tier,
    /// The least comes first within its tier.
    pub priority: i64,
    pub subject: PeerPods,
    pub ingress: Vec<ClusterRule>,
    pub egress: Vec<ClusterRule>,
    /// What could not be understood, and what is done instead.
    pub doubts: Vec<String>,
}

impl ClusterPolicy {
    /// Reads a policy; nothing if it has no name.
    pub fn of(policy: &ClusterNetworkPolicy) -> Option<Self> {
        let (name, spec) = (policy.metadata.name.clone()?, &policy.spec);
        let mut doubts = Vec::new();
        let tier = [Tier::Admin, Tier::Baseline].into_iter().find(|tier| spec["tier"] == tier.as_str());
        let priority = spec["priority"].as_i64();
        let subject = pods(&spec["subject"]);
        let readable = tier.is_some() && priority.is_some() && subject.is_some();
        if !readable {
            doubts
                .push("its tier, priority or subject cannot be read: what it denies is denied to all pods".to_owned());
        }
        let mut rules = |direction: &str, peers: &str| -> Vec<ClusterRule> {
            let listed = spec[direction].as_array().map(Vec::as_slice).unwrap_or_default();
            let mut read = Vec::new();
            for (number, rule) in listed.iter().enumerate() {
                let rule = self::rule(rule, peers).unwrap_or_else(|(instead, why)| {
                    let done = if instead.action == Action::Deny { "denies everything" } else { "matches nothing" };
                    doubts.push(format!("{direction} rule {} {done}: {why}", number + 1));
                    instead
                });
                // Who is meant is not known: what lets through is not said to anybody, and every rule keeps its number.
                read.push(if readable || rule.action == Action::Deny { rule } else { closed(Action::Accept) });
            }
            read
        };
        let (ingress, egress) = (rules("ingress", "from"), rules("egress", "to"));
        let everybody = || PeerPods { namespaces: Namespaces::Any, pods: LabelSelector::default() };
        Some(Self {
            name,
            tier: tier.unwrap_or(Tier::Admin),
            priority: priority.unwrap_or_default(),
            subject: subject.filter(|_| readable).unwrap_or_else(everybody),
            ingress,
            egress,
            doubts,
        })
    }

    pub fn rules(&self, direction: Direction) -> &[ClusterRule] {
        match direction {
            Direction::Ingress => &self.ingress,
            Direction::Egress | Direction::Node => &self.egress,
        }
    }

    /// Whether it has a say about such a pod.
    pub fn selects(&self, alike: &Alike, namespaces: &BTreeMap<String, Labels>) -> bool {
        self.subject.matches(&alike.namespace, namespaces.get(&alike.namespace), &alike.labels)
    }

    /// Where it stands among others.
    pub fn order(&self) -> (Tier, i64, &str) {
        (self.tier, self.priority, &self.name)
    }

    /// The nodes that its rules speak of.
    pub fn nodes(&self) -> impl Iterator<Item = &LabelSelector> {
        let peers = self.egress.iter().flat_map(|rule| rule.rule.peers.iter().flatten());
        peers.filter_map(|peer| match peer {
            Peer::Nodes(selector) => Some(selector),
            _ => None,
        })
    }
}

/// What a rule that cannot be read does.
fn closed(action: Action) -> ClusterRule {
    match action {
        Action::Accept => {
            let nobody = Rule { peers: Some(Vec::new()), ports: Ports::default(), named: Vec::new() };
            ClusterRule { action, rule: nobody }
        }
        Action::Deny | Action::Pass => {
            let all = Rule { peers: None, ports: Ports::all(), named: Vec::new() };
            ClusterRule { action: Action::Deny, rule: all }
        }
    }
}

/// Reads a rule; what it does instead, and why, if it cannot be read.
fn rule(rule: &Value, peers: &str) -> Result<ClusterRule, (ClusterRule, Cow<'static, str>)> {
    let action = Action::of(&rule["action"]);
    let read = || -> Result<ClusterRule, Cow<'static, str>> {
        let action = action.ok_or("its action is unknown")?;
        let listed = rule[peers].as_array().ok_or("it has no peers")?;
        let mut all = Vec::new();
        for one in listed {
            all.extend(peer(one)?);
        }
        let (ports, named) = protocols(&rule["protocols"])?;
        Ok(ClusterRule { action, rule: Rule { peers: Some(all), ports, named } })
    };
    read().map_err(|why| (closed(action.unwrap_or(Action::Deny)), why))
}

fn selector(value: &Value) -> Option<LabelSelector> {
    let selector = meta::LabelSelector::deserialize(value).ok()?;
    LabelSelector::parse(Some(&selector)).ok()
}

/// Pods of a subject or peer: by their namespaces alone, or by labels of both.
fn pods(value: &Value) -> Option<PeerPods> {
    if let Some(namespaces) = value.get("namespaces") {
        return Some(PeerPods {
            namespaces: Namespaces::Selected(selector(namespaces)?),
            pods: LabelSelector::default(),
        });
    }
    let pods = value.get("pods")?;
    let namespaces = pods.get("namespaceSelector").map_or_else(|| Some(LabelSelector::default()), selector)?;
    Some(PeerPods { namespaces: Namespaces::Selected(namespaces), pods: selector(pods.get("podSelector")?)? })
}

/// A peer, which may be several blocks.
fn peer(value: &Value) -> Result<Vec<Peer>, Cow<'static, str>> {
    if value.get("domainNames").is_some() {
        return Err("domain names are not supported".into());
    }
    if let Some(nodes) = value.get("nodes") {
        return Ok(vec![Peer::Nodes(selector(nodes).ok_or("its selector of nodes cannot be read")?)]);
    }
    if let Some(networks) = value.get("networks") {
        let networks = networks.as_array().ok_or("its networks cannot be read")?;
        let block = |network: &Value| {
            let range = network.as_str().and_then(|text| text.parse::<IpNet>().ok());
            let range = range.ok_or_else(|| format!("{network} is no network"))?;
            Ok(Peer::Block(Block { range: range.trunc(), except: Vec::new() }))
        };
        return networks.iter().map(block).collect();
    }
    Ok(vec![Peer::Pods(pods(value).ok_or("it has a peer that cannot be read")?)])
}

/// Ports by number, and by name.
type NumberedAndNamed = (Ports, Vec<(String, Protocol)>);

/// No protocols are everything.
fn protocols(value: &Value) -> Result<NumberedAndNamed, Cow<'static, str>> {
    let listed = match value {
        Value::Null => return Ok((Ports::all(), Vec::new())),
        value => value.as_array().filter(|all| !all.is_empty()).ok_or("its protocols cannot be read")?,
    };
    let (mut ranges, mut named) = (Vec::new(), BTreeSet::new());
    for one in listed {
        if let Some(name) = one.get("destinationNamedPort") {
            let name = name.as_str().ok_or("the name of a port cannot be read")?;
            named.extend([Protocol::Tcp, Protocol::Udp, Protocol::Sctp].map(|protocol| (name.to_owned(), protocol)));
            continue;
        }
        let protocols = [(Protocol::Tcp, "tcp"), (Protocol::Udp, "udp"), (Protocol::Sctp, "sctp")];
        let found = protocols.into_iter().find_map(|(protocol, name)| Some((protocol, one.get(name)?)));
        let (protocol, what) = found.ok_or("it has a protocol that cannot be read")?;
        let port = &what["destinationPort"];
        let (first, last) = match port.get("range") {
            Some(range) => (&range["start"], &range["end"]),
            None => (&port["number"], &port["number"]),
        };
        let number = |value: &Value| value.as_u64().and_then(|number| u16::try_from(number).ok());
        let (first, last) = number(first).zip(number(last)).ok_or("a port cannot be read")?;
        ranges.push(Range { protocol, first, last });
    }
    Ok((Ports::of(ranges), named.into_iter().collect()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(spec: Value) -> ClusterPolicy {
        let policy = json!({"metadata": {"name": "p"}, "spec": spec});
        ClusterPolicy::of(&serde_json::from_value(policy).unwrap()).unwrap()
    }

    fn with(rule: Value) -> ClusterPolicy {
        read(json!({"tier": "Admin", "priority": 5, "subject": {"namespaces": {}}, "egress": [rule]}))
    }

    #[test]
    fn every_field_is_read() {
        let policy = read(json!({
            "tier": "Baseline", "priority": 7,
            "subject": {"pods": {"namespaceSelector": {"matchLabels": {"a": "b"}}, "podSelector": {}}},
            "ingress": [{"action": "Pass", "from": [{"namespaces": {}}], "protocols": [{"destinationNamedPort": "web"}]}],
            "egress": [{"name": "x", "action": "Deny", "to": [{"networks": ["10.0.0.0/8", "fd00::/8"]}, {"nodes": {}}],
                "protocols": [{"tcp": {"destinationPort": {"number": 80}}}, {"udp": {"destinationPort": {"range": {"start": 5, "end": 9}}}}]}],
        }));
        assert_eq!((policy.tier, policy.priority, policy.doubts.len()), (Tier::Baseline, 7, 0));
        assert_eq!((policy.ingress[0].action, policy.egress[0].action), (Action::Pass, Action::Deny));
        assert_eq!(policy.ingress[0].rule.named.len(), 3, "a name is of every protocol");
        assert_eq!(policy.egress[0].rule.peers.as_ref().map(Vec::len), Some(3));
        assert_eq!(policy.egress[0].rule.ports.ranges().len(), 2);
        assert_eq!(policy.nodes().count(), 1);
        assert!(!policy.selects(
            &Alike { namespace: "n".into(), labels: Labels::new(), ports: BTreeMap::new() },
            &BTreeMap::from([("n".to_owned(), Labels::new())])
        ));
    }

    #[test]
    fn what_cannot_be_read_fails_closed_and_says_so() {
        let check = |rule: Value, says: &str| {
            let policy = with(rule);
            assert_eq!(policy.doubts, [says]);
            policy.egress[0].clone()
        };
        let names = json!([{"domainNames": ["example.com"]}]);
        let nothing = check(
            json!({"action": "Accept", "to": names}),
            "egress rule 1 matches nothing: domain names are not supported",
        );
        assert_eq!((nothing.action, nothing.rule.peers), (Action::Accept, Some(Vec::new())));
        for (rule, why) in [
            (json!({"action": "Deny", "to": names}), "domain names are not supported"),
            (json!({"action": "Pass", "to": [{"planets": {}}]}), "it has a peer that cannot be read"),
            (json!({"action": "Log", "to": [{"nodes": {}}]}), "its action is unknown"),
            (json!({"action": "Deny", "to": [{"networks": ["10.0.0.0/99"]}]}), "\"10.0.0.0/99\" is no network"),
            (
                json!({"action": "Deny", "to": [{"nodes": {}}], "protocols": [{"icmp": {}}]}),
                "it has a protocol that cannot be read",
            ),
            (
                json!({"action": "Deny", "to": [{"nodes": {}}], "protocols": [{"tcp": {"destinationPort": {"number": 70000}}}]}),
                "a port cannot be read",
            ),
            (json!({"action": "Deny"}), "it has no peers"),
        ] {
            let all = check(rule, &format!("egress rule 1 denies everything: {why}"));
            assert_eq!((all.action, all.rule.peers), (Action::Deny, None));
            assert!(all.rule.ports.is_all());
        }
        let broken = read(json!({"tier": "Admin", "priority": 5, "subject": {"planets": {}}, "ingress": [
            {"action": "Accept", "from": [{"namespaces": {}}]}, {"action": "Deny", "from": [{"namespaces": {}}]}]}));
        assert_eq!(broken.doubts.len(), 1);
        assert_eq!(broken.ingress[0].rule.peers, Some(Vec::new()));
        assert_eq!(broken.ingress[1].action, Action::Deny);
        let anybody = Alike { namespace: "n".into(), labels: Labels::new(), ports: BTreeMap::new() };
        assert!(broken.selects(&anybody, &BTreeMap::new()), "what it denies is denied to all");
        for spec in [json!(null), json!(7), json!({"ingress": {"a": 1}}), json!({"egress": [7, null, "x"]})] {
            assert!(!read(spec).doubts.is_empty());
        }
    }
}
