//! nftables text: the fixed part of a table, and changes to the rest.
//!
//! The fixed part (hooks, the chains that look the maps up, empty maps and sets) depends only on the node's
//! configuration and is written when the table is made. Making it, filling it and replacing an older one happen in
//! one transaction, so packets see either the old rules or the new ones. Everything later is element changes.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::Write as _;

use ipnet::IpNet;
use rules::protocol::Protocol;

use crate::clients::Clients;
use crate::model::{Family, NodeView};
use crate::plan::{Dispatch, Frontend, Key, Scope, Value, Verdict, family_word};
use crate::table::{Changes, Pick, Table};

/// The table's name, in both families.
pub const TABLE: &str = "trireme-proxy";
/// The mark of routes that are Trireme's.
const ROUTE_PROTOCOL: u8 = 85;
/// So many elements go on one line: `nft` parses one command at a time.
const ELEMENTS_PER_LINE: usize = 512;

/// The whole table as one transaction, which also replaces whatever was there under its name; these clients stay with
/// their endpoints.
pub fn replace(table: &Table, node: &NodeView, clients: &Clients) -> String {
    let family = table.family();
    let ip = family_word(family);
    let mut out = format!("add table {ip} {TABLE}\ndelete table {ip} {TABLE}\n");
    out.push_str(&fixed(family, node));
    let all = table.all();
    out.push_str(&prepare(family, &all));
    out.push_str(&update(family, &all));
    for (set, seconds) in &all.new_clients {
        let known = clients.get(set).into_iter().flatten().map(|(address, left)| {
            format!("{address} timeout {seconds}s expires {}s", (*left).min(u64::from(*seconds)))
        });
        elements(&mut out, "add", ip, known.map(|element| (Cow::Owned(set.clone()), element)));
    }
    out
}

/// Commands for `ip -batch` that give Service addresses a route which leaves by no link, with the node's own address as
/// the source. A process on the node needs some route before the rules can send its packets elsewhere; the default one
/// would do, but not every node has one, and what no rule claims must not leave by it.
pub fn routes(node: &NodeView) -> String {
    let mut out = String::new();
    for range in &node.service_ranges {
        let family = Family::of(range.addr());
        if let Some(own) = node.addresses.iter().find(|ip| Family::of(**ip) == family) {
            let _ = writeln!(out, "route replace {} dev lo src {own} proto {ROUTE_PROTOCOL}", range.trunc());
        }
    }
    out
}

/// Removes the table, whether or not it exists.
pub fn remove(family: Family) -> String {
    let ip = family_word(family);
    format!("add table {ip} {TABLE}\ndelete table {ip} {TABLE}\n")
}

/// Picking chains that [`update`] will lead to; empty if there are none. They come in a transaction of their own, before it:
/// the kernel reads the generation of rules once per packet and chain, but that of elements at every look-up. A packet that
/// enters just before a commit and looks its Service up just after it would follow a new verdict into a chain that has no
/// rules yet in its generation, and be refused.
pub fn prepare(family: Family, changes: &Changes) -> String {
    let ip = family_word(family);
    let mut out = String::new();
    for pick in &changes.new_picks {
        let chain = pick_chain(pick);
        // Added and emptied: one that could not be deleted may still be there.
        let _ = writeln!(out, "add chain {ip} {TABLE} {chain}\nflush chain {ip} {TABLE} {chain}");
        for rule in pick_rules(family, pick) {
            let _ = writeln!(out, "add rule {ip} {TABLE} {chain} {rule}");
        }
    }
    out
}

/// Changes to a table that is there, once it is prepared; empty if there are none.
///
/// Chains nothing leads to any more are emptied here but deleted by [`sweep`], in a transaction of its own: before
/// Linux 6.2 a chain counts as used for a moment after the map element that led to it is gone.
pub fn update(family: Family, changes: &Changes) -> String {
    let ip = family_word(family);
    let mut out = String::new();
    for chain in changes.chains.keys() {
        let _ = writeln!(out, "add chain {ip} {TABLE} {chain}\nflush chain {ip} {TABLE} {chain}");
    }
    elements(&mut out, "delete", ip, changes.remove.iter().map(|key| (set_of(key), key_text(key))));
    for chain in &changes.dead_chains {
        let _ = writeln!(out, "flush chain {ip} {TABLE} {chain}");
    }
    for set in &changes.dead_clients {
        let _ = writeln!(out, "delete set {ip} {TABLE} {set}");
    }
    for (set, seconds) in &changes.new_clients {
        let address = address_type(family);
        let _ = writeln!(
            out,
            "add set {ip} {TABLE} {set} {{ type {address}; size 65535; flags dynamic,timeout; timeout {seconds}s; }}"
        );
    }
    for (chain, rules) in &changes.chains {
        for rule in rules {
            let _ = writeln!(out, "add rule {ip} {TABLE} {chain} {rule}");
        }
    }
    let added = changes.add.iter().map(|(key, value)| (set_of(key), key_text(key) + &value_text(key, value)));
    elements(&mut out, "add", ip, added);
    out
}

/// Takes out the elements that go when [`update`] is done; empty if there are none.
#[cfg(test)]
pub fn last(family: Family, changes: &Changes) -> String {
    let mut out = String::new();
    let keys = changes.remove_last.iter().map(|key| (set_of(key), key_text(key)));
    elements(&mut out, "delete", family_word(family), keys);
    out
}

/// Deletes the chains [`update`] left empty; empty if there are none.
pub fn sweep(family: Family, changes: &Changes) -> String {
    let ip = family_word(family);
    let mut out = String::new();
    let dead = changes.dead_chains.iter().cloned().chain(changes.dead_picks.iter().map(pick_chain));
    for chain in dead {
        let _ = writeln!(out, "delete chain {ip} {TABLE} {chain}");
    }
    out
}

/// One command per map, in the order the keys come (they are sorted by map).
fn elements(out: &mut String, verb: &str, ip: &str, all: impl Iterator<Item = (Cow<'static, str>, String)>) {
    let mut open: Option<(Cow<'static, str>, usize)> = None;
    for (set, element) in all {
        match &mut open {
            Some((current, count)) if *current == set && *count < ELEMENTS_PER_LINE => {
                *count += 1;
                out.push_str(", ");
            }
            _ => {
                if open.is_some() {
                    out.push_str(" }\n");
                }
                let _ = write!(out, "{verb} element {ip} {TABLE} {set} {{ ");
                open = Some((set, 1));
            }
        }
        out.push_str(&element);
    }
    if open.is_some() {
        out.push_str(" }\n");
    }
}

/// The set or map a key is in.
pub fn set_of(key: &Key) -> Cow<'static, str> {
    let name = match key {
        Key::ClusterIp(_) => "cluster-ips",
        Key::Hairpin(_) => "hairpin-connections",
        Key::Dispatch(map, Frontend::Address(..)) => match map {
            Dispatch::Entry => "service-ips",
            Dispatch::ViaCluster => "via-cluster",
            Dispatch::ViaLocal => "via-local",
            Dispatch::Refused => "no-endpoint-services",
            Dispatch::Firewall => "firewall-ips",
        },
        Key::Dispatch(map, Frontend::NodePort(..)) => match map {
            Dispatch::Entry | Dispatch::Firewall => "service-nodeports",
            Dispatch::ViaCluster => "nodeport-via-cluster",
            Dispatch::ViaLocal => "nodeport-via-local",
            Dispatch::Refused => "no-endpoint-nodeports",
        },
        Key::Endpoint(scope, at, _) => return endpoint_map(*scope, at.is_node_port(), at.protocol()).into(),
    };
    name.into()
}

/// A map of endpoints per protocol: `nft` cannot read back one whose ports are of any protocol.
fn endpoint_map(scope: Scope, node_port: bool, protocol: Protocol) -> String {
    let prefix = if node_port { "nodeport-" } else { "" };
    let scope = match scope {
        Scope::Cluster => "",
        Scope::Local => "local-",
    };
    format!("{prefix}{scope}endpoints-{protocol}")
}

fn key_text(key: &Key) -> String {
    let frontend = |at: &Frontend| match at {
        Frontend::Address(ip, protocol, port) => format!("{ip} . {protocol} . {port}"),
        Frontend::NodePort(protocol, port) => format!("{protocol} . {port}"),
    };
    match key {
        Key::ClusterIp(ip) => ip.to_string(),
        Key::Hairpin(ip) => format!("{ip} . {ip}"),
        Key::Dispatch(_, at) => frontend(at),
        Key::Endpoint(_, Frontend::Address(ip, _, port), number) => format!("{ip} . {port} . {number}"),
        Key::Endpoint(_, Frontend::NodePort(_, port), number) => format!("{port} . {number}"),
    }
}

fn value_text(key: &Key, value: &Value) -> String {
    match value {
        Value::Member => String::new(),
        Value::Target(ip, port) => format!(" : {ip} . {port}"),
        Value::Verdict(verdict) => match chain_of(key, verdict) {
            Some(chain) => format!(" : goto {chain}"),
            None => " : drop".to_owned(),
        },
    }
}

/// The chain a verdict leads to; absent where the packet ends.
pub fn chain_of(key: &Key, verdict: &Verdict) -> Option<String> {
    match (verdict, key) {
        (Verdict::Reject, _) => Some("reject-chain".to_owned()),
        (Verdict::Drop, _) => None,
        (Verdict::Chain(chain), _) => Some(chain.clone()),
        (Verdict::Pick(scope, count), Key::Dispatch(_, at)) => Some(pick_chain(&Pick::of(at, *scope, *count))),
        (Verdict::External(local), Key::Dispatch(_, at)) => {
            let prefix = if at.is_node_port() { "nodeport-" } else { "" };
            let suffix = if *local { "-local" } else { "" };
            Some(format!("{prefix}external{suffix}"))
        }
        (Verdict::Pick(..) | Verdict::External(_), _) => unreachable!("only dispatch maps lead to chains"),
    }
}

fn pick_chain(pick: &Pick) -> String {
    let prefix = if pick.node_port { "nodeport-" } else { "" };
    let scope = match pick.scope {
        Scope::Cluster => "cluster",
        Scope::Local => "local",
    };
    format!("{prefix}{scope}-{}-{}", pick.protocol, pick.count)
}

/// The second rule is for a packet that reads its verdict just before a transaction and its endpoint just after it,
/// when the last endpoint is gone: the first one (`mod 1` is always 0) is there as long as any is.
fn pick_rules(family: Family, pick: &Pick) -> Vec<String> {
    let (ip, protocol) = (family_word(family), pick.protocol);
    let key = endpoint_key(family, pick.node_port, protocol);
    let map = endpoint_map(pick.scope, pick.node_port, protocol);
    let rule =
        |below: u32| format!("meta l4proto {protocol} dnat {ip} to {key} . numgen random mod {below} map @{map}");
    if pick.count == 1 { vec![rule(1)] } else { vec![rule(pick.count), rule(1)] }
}

fn endpoint_key(family: Family, node_port: bool, protocol: Protocol) -> String {
    let address = if node_port { String::new() } else { format!("{} daddr . ", family_word(family)) };
    format!("{address}{protocol} dport")
}

const NODE_PORT_KEY: &str = "meta l4proto . th dport";

fn address_key(family: Family) -> String {
    format!("{} daddr . {NODE_PORT_KEY}", family_word(family))
}

fn address_type(family: Family) -> &'static str {
    match family {
        Family::V4 => "ipv4_addr",
        Family::V6 => "ipv6_addr",
    }
}

/// Ranges of one family as a set literal; absent if there are none.
fn ranges(family: Family, all: &[IpNet]) -> Option<String> {
    let own: Vec<IpNet> = all.iter().filter(|range| family.has(range)).copied().collect();
    let texts: BTreeSet<String> = IpNet::aggregate(&own).iter().map(|range| range.trunc().to_string()).collect();
    let texts: Vec<String> = texts.into_iter().collect();
    (!texts.is_empty()).then(|| format!("{{ {} }}", texts.join(", ")))
}

/// Hooks, chains, empty maps and sets.
fn fixed(family: Family, node: &NodeView) -> String {
    let mut fixed = Fixed::new(family, node);
    fixed.maps();
    fixed.external();
    fixed.services();
    fixed.checks();
    fixed.unclaimed();
    for (chain, hook, priority, rules) in HOOKS {
        let kind = if chain.starts_with("nat") { "nat" } else { "filter" };
        fixed.line(&format!(
            "chain {chain} {{\ntype {kind} hook {hook} priority {priority}; policy accept;\n{rules}\n}}"
        ));
    }
    format!("table {} {TABLE} {{\n{}}}\n", fixed.ip, fixed.body)
}

/// The fixed part under construction, and the words that its rules share.
struct Fixed<'a> {
    family: Family,
    node: &'a NodeView,
    ip: &'static str,
    /// What a Service's address, protocol and port are matched by.
    key: String,
    mark: String,
    masquerade: String,
    /// The addresses of pods, where they are known.
    pods: Option<String>,
    /// What is sent to the node itself, where node ports are served.
    to_node: Option<String>,
    body: String,
}

impl<'a> Fixed<'a> {
    fn new(family: Family, node: &'a NodeView) -> Self {
        let ip = family_word(family);
        let not_loopback = match family {
            Family::V4 => "ip daddr != 127.0.0.0/8",
            Family::V6 => "ip6 daddr != ::1",
        };
        let to_node = match node.node_port_addresses.get(&family) {
            None => Some(format!("fib daddr type local {not_loopback}")),
            Some(addresses) => {
                let own: Vec<String> = addresses.iter().filter(|a| !a.is_loopback()).map(ToString::to_string).collect();
                (!own.is_empty()).then(|| format!("{ip} daddr {{ {} }}", own.join(", ")))
            }
        };
        let mark = format!("{:#x}", 1_u32 << (node.masquerade_bit & 31));
        let masquerade = format!("meta mark set meta mark or {mark}");
        let (key, pods) = (address_key(family), ranges(family, &node.pod_ranges));
        Self { family, node, ip, key, mark, masquerade, pods, to_node, body: String::new() }
    }

    fn line(&mut self, text: &str) {
        self.body.push_str(text);
        self.body.push('\n');
    }

    fn maps(&mut self) {
        let (family, ip, address) = (self.family, self.ip, address_type(self.family));
        self.line(&format!("set cluster-ips {{ type {address}; }}"));
        self.line(&format!("set hairpin-connections {{ type {address} . {address}; }}"));
        for map in ["service-ips", "via-cluster", "via-local", "no-endpoint-services", "firewall-ips"] {
            self.line(&format!("map {map} {{ type {address} . inet_proto . inet_service : verdict; }}"));
        }
        for map in ["service-nodeports", "nodeport-via-cluster", "nodeport-via-local", "no-endpoint-nodeports"] {
            self.line(&format!("map {map} {{ type inet_proto . inet_service : verdict; }}"));
        }
        for protocol in [Protocol::Tcp, Protocol::Udp, Protocol::Sctp] {
            for (scope, node_port) in
                [(Scope::Cluster, false), (Scope::Local, false), (Scope::Cluster, true), (Scope::Local, true)]
            {
                let map = endpoint_map(scope, node_port, protocol);
                let key = endpoint_key(family, node_port, protocol);
                // The number's type is what counts here, not its limit.
                self.line(&format!(
                    "map {map} {{ typeof {key} . numgen random mod 4294967295 : {ip} daddr . {protocol} dport; }}"
                ));
            }
        }
    }

    /// What is for a Service and comes from outside.
    fn external(&mut self) {
        // A reset ends a connection attempt at once; an ICMP error that arrives while `connect` holds the socket is only
        // noted, and the client waits a second for its next try.
        self.line("chain reject-chain {\nmeta l4proto tcp reject with tcp reset\nreject\n}");
        let (ip, masquerade, pods) = (self.ip, self.masquerade.clone(), self.pods.clone());
        for (prefix, key) in [("", self.key.clone()), ("nodeport-", NODE_PORT_KEY.to_owned())] {
            self.line(&format!("chain {prefix}external {{\n{masquerade}\n{key} vmap @{prefix}via-cluster\n}}"));
            self.line(&format!("chain {prefix}external-local {{"));
            // Pods and the node itself are inside: for them it is as if they went out to a load balancer and came back.
            if let Some(pods) = &pods {
                self.line(&format!("{ip} saddr {pods} {key} vmap @{prefix}via-cluster"));
            }
            self.line(&format!("fib saddr type local {masquerade}"));
            self.line(&format!("fib saddr type local {key} vmap @{prefix}via-cluster"));
            self.line(&format!("{key} vmap @{prefix}via-local\n}}"));
        }
    }

    fn services(&mut self) {
        let (ip, masquerade) = (self.ip, &self.masquerade);
        let from_outside = match &self.pods {
            _ if self.node.masquerade_all => Some(String::new()),
            Some(pods) => Some(format!(" {ip} saddr != {pods}")),
            None => None,
        };
        let marked = from_outside.map(|source| format!("{ip} daddr @cluster-ips{source} {masquerade}"));
        let by_address = format!("{} vmap @service-ips", self.key);
        let by_node_port =
            self.to_node.as_ref().map(|to_node| format!("{to_node} {NODE_PORT_KEY} vmap @service-nodeports"));
        self.line("chain services {");
        for rule in marked.into_iter().chain([by_address]).chain(by_node_port) {
            self.line(&rule);
        }
        self.line("}");
    }

    fn checks(&mut self) {
        let (ip, mark, key) = (self.ip, self.mark.clone(), self.key.clone());
        self.line(&format!(
            "chain masquerading {{\nmeta mark and {mark} != 0 meta mark set meta mark xor {mark} masquerade fully-random\n\
             ct status dnat {ip} saddr . {ip} daddr @hairpin-connections masquerade fully-random\n}}"
        ));
        self.line(&format!("chain endpoints-check {{\n{key} vmap @no-endpoint-services\n}}"));
        self.line("chain nodeport-endpoints-check {");
        if let Some(to_node) = self.to_node.clone() {
            self.line(&format!("{to_node} {NODE_PORT_KEY} vmap @no-endpoint-nodeports"));
        }
        self.line("}");
        self.line(&format!("chain firewall-check {{\n{key} vmap @firewall-ips\n}}"));
    }

    /// Whatever still has an address of a Service here was not claimed by any rule, and must not leave the machine.
    fn unclaimed(&mut self) {
        let (family, ip) = (self.family, self.ip);
        self.line("chain unclaimed {");
        let here = self.node.served_here.iter().filter(|address| Family::of(**address) == family);
        let served: Vec<String> = here.map(ToString::to_string).collect();
        if !served.is_empty() {
            self.line(&format!("{ip} daddr {{ {} }} return", served.join(", ")));
        }
        self.line(&format!("{ip} daddr @cluster-ips goto reject-chain"));
        if let Some(services) = ranges(family, &self.node.service_ranges) {
            self.line(&format!("{ip} daddr {services} goto reject-chain"));
        }
        self.line("}");
    }
}

/// Names, hooks, priorities and rules of the chains the kernel enters: source ranges are checked before the
/// destination changes (-110), the destination changes at -100, refusals come after it, the source changes last.
const HOOKS: [(&str, &str, i32, &str); 8] = [
    ("filter-prerouting-pre-dnat", "prerouting", -110, "ct state new jump firewall-check"),
    ("filter-output-pre-dnat", "output", -110, "ct state new jump firewall-check"),
    ("filter-input", "input", 0, "ct state new jump nodeport-endpoints-check\nct state new jump endpoints-check"),
    ("filter-forward", "forward", 0, "ct state new jump endpoints-check\nct state new jump unclaimed"),
    ("filter-output", "output", 0, "ct state new jump endpoints-check\nct state new jump unclaimed"),
    ("nat-prerouting", "prerouting", -100, "jump services"),
    ("nat-output", "output", -100, "jump services"),
    ("nat-postrouting", "postrouting", 100, "jump masquerading"),
];
