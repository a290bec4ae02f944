//! The kernel's rules as text: fixed chains that look maps up, and the elements of the maps.
//!
//! Packets are judged where they are forwarded: Services' addresses are translated by then, and sources are not masqueraded yet, so
//! both ends are those that policies speak of. What two pods behind the node's bridge send each other is forwarded too, since
//! the bridge hands it to the IP rules. The node itself reaches its pods and is reached by them, as upstream documents, except at
//! addresses of Services that it answers itself, such as cluster DNS: these are judged like the pods that would answer elsewhere.
//!
//! Every packet of a connection's first direction is judged, so a policy is in force for connections that are there; answers are not
//! judged. The other end's number is put into the packet's mark, because a rule can look up nothing else that was looked up;
//! what was in the mark (the service proxy asks for masquerading there) waits in the connection's mark meanwhile.
//!
//! Where policies of the cluster have a say, one number is looked up instead of three, and what is said of it is the answer. These are also asked
//! about what a pod sends to its own node.
//!
//! A second table binds each pod's port of the bridge to the addresses that the pod was given.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::IpAddr;

use node::nft::{self, Data, Registers};

use crate::elements::{Element, IN_ORDER, Transaction};
use crate::flow::{COUNTED, FOLLOWED};
use crate::model::Direction;
use crate::port::Port;

/// The tables' name: that of IP packets, and that of the bridge.
pub const TABLE: &str = "trireme-netpol";
/// How a rule begins to write into a log.
const LOG: &str = "log prefix";
/// So many elements go on one line: `nft` parses one command at a time.
const PER_LINE: usize = 512;
/// Messages by which neighbours find each other: without them there is no IPv6.
const NEIGHBOURS: &str = "nd-router-solicit, nd-router-advert, nd-neighbor-solicit, nd-neighbor-advert, \
                          mld-listener-query, mld-listener-report, mld-listener-done, mld2-listener-report";
/// What a pod may say as a neighbour before it has an address.
const ANNOUNCEMENTS: &str = "nd-router-solicit, nd-neighbor-solicit, nd-neighbor-advert, mld-listener-report, \
                             mld-listener-done, mld2-listener-report";

/// One transaction that makes the tables exactly these, whatever was there.
pub fn replace(
    served: &[IpAddr],
    elements: &BTreeMap<Element, u32>,
    ports: &[Port],
    quiet: &BTreeSet<String>,
) -> String {
    let mut out = remove();
    out.push_str(&judging(served));
    out.push_str(&binding());
    add(&mut out, elements);
    bind(&mut out, ports, quiet);
    out
}

/// What is left to rules where programs judge, as one transaction.
pub fn companion(ports: &[Port], quiet: &BTreeSet<String>) -> String {
    let mut out = remove();
    out.push_str(&tracking());
    out.push_str(&binding());
    bind(&mut out, ports, quiet);
    out
}

/// A rule that no packet meets: while it is there, the kernel remembers connections.
pub fn tracking() -> String {
    format!("table inet {TABLE} {{\nchain tracked {{\nct state new\n}}\n}}\n")
}

fn bind(out: &mut String, ports: &[Port], quiet: &BTreeSet<String>) {
    for port in ports {
        for (set, element) in port.elements() {
            let _ = writeln!(out, "add element bridge {TABLE} {set} {{ {} }}", element.text);
        }
    }
    for link in quiet {
        let _ = writeln!(out, "add element bridge {TABLE} quiet {{ \"{link}\" }}");
    }
}

/// Removes the tables, whether or not they exist.
pub fn remove() -> String {
    ["inet", "bridge"].map(|family| format!("add table {family} {TABLE}\ndelete table {family} {TABLE}\n")).concat()
}

fn judging(served: &[IpAddr]) -> String {
    let mut out = format!("table inet {TABLE} {{\n");
    let (mut forward, mut input) = (String::new(), String::new());
    for (v, ip, address) in [("4", "ip", "ipv4_addr"), ("6", "ip6", "ipv6_addr")] {
        let _ = writeln!(
            out,
            "map identities{v} {{ type {address} : mark; }}\n\
             map exact{v} {{ type {address} : mark; }}\n\
             map blocks{v} {{ type {address} : mark; flags interval; }}\n\
             set itself{v} {{ type {address} . {address}; }}"
        );
        for direction in Direction::ALL {
            out.push_str(&chains(direction, v, ip, address));
        }
        let _ = writeln!(
            forward,
            "{ip} saddr . {ip} daddr @itself{v} accept\n\
             {ip} saddr vmap @egress-isolated{v}\n{ip} daddr vmap @ingress-isolated{v}"
        );
        let own: Vec<String> = served.iter().filter(|a| a.is_ipv4() == (v == "4")).map(ToString::to_string).collect();
        if !own.is_empty() {
            let _ = writeln!(out, "chain served{v} {{\n{ip} saddr vmap @egress-isolated{v}\n}}");
            let _ = writeln!(input, "{ip} daddr {{ {} }} goto served{v}", own.join(", "));
        }
        let _ = writeln!(input, "{ip} saddr vmap @node-isolated{v}");
    }
    let exempt = format!(
        "ct direction reply accept\nct state related meta l4proto {{ icmp, ipv6-icmp }} accept\n\
         icmpv6 type {{ {NEIGHBOURS} }} accept"
    );
    let _ = writeln!(
        out,
        "chain forward {{\ntype filter hook forward priority -10; policy accept;\n{exempt}\n{forward}}}\n\
         chain input {{\ntype filter hook input priority -10; policy accept;\n{exempt}\n{input}}}\n}}"
    );
    out
}

/// The sets of one direction and family, and the chains that ask them.
fn chains(direction: Direction, v: &str, ip: &str, address: &str) -> String {
    let word = word(direction);
    let (own, other) = if direction == Direction::Ingress { ("daddr", "saddr") } else { ("saddr", "daddr") };
    let key = format!("type {address} . mark . inet_proto . inet_service;");
    let asked = format!(
        "{ip} {own} . meta mark . meta l4proto . th dport @{word}-port{v} goto {word}-passed{v}\n\
         {ip} {own} . meta mark @{word}-all{v} goto {word}-passed{v}\n\
         {ip} {own} . meta mark . meta l4proto . th dport @{word}-range{v} goto {word}-passed{v}"
    );
    let begun = "ct state invalid,untracked counter drop\nct mark set meta mark\nmeta mark set 0";
    let denied = format!("meta mark set ct mark\n{}counter drop", logs(told(direction), "denied"));
    let passed = logs(told(direction), "allowed").replace("limit", "ct state new limit");
    // Who is at the other end, then anybody, then the block around the address. A map without the address leaves the mark.
    let added_up = format!(
        "{begun}\nmeta mark set {ip} {other} map @identities{v}\n{asked}\n\
         meta mark set 0\n{asked}\nmeta mark set {ip} {other} map @blocks{v}\n{asked}\n{denied}"
    );
    // What a pod's own number says goes before the block around it.
    let in_order = format!(
        "{begun}\nmeta mark set {ip} {other} map @blocks{v}\nmeta mark set {ip} {other} map @exact{v}\n{asked}\n\
         meta l4proto != {{ tcp, udp, sctp }} {ip} {own} . meta mark @{word}-portless{v} goto {word}-passed{v}\n{denied}"
    );
    format!(
        "map {word}-isolated{v} {{ type {address} : verdict; }}\n\
         set {word}-all{v} {{ type {address} . mark; }}\n\
         set {word}-portless{v} {{ type {address} . mark; }}\n\
         set {word}-port{v} {{ {key} }}\n\
         set {word}-range{v} {{ {key} flags interval; }}\n\
         chain {word}-passed{v} {{\nmeta mark set ct mark\n{passed}}}\n\
         chain {word}{v} {{\n{added_up}\n}}\n\
         chain {word}-ordered{v} {{\n{in_order}\n}}\n"
    )
}

/// Writes some of the packets into the kernel's logs: more than a thousand a second say nothing more.
fn logs(direction: &str, verdict: &str) -> String {
    let log = |group: u16| {
        format!("limit rate 1000/second burst 1000 packets {LOG} \"{direction} {verdict}\" group {group} snaplen 128\n")
    };
    [FOLLOWED, COUNTED].map(log).concat()
}

/// The same rules for a kernel that keeps no such logs.
pub fn without_logs(script: &str) -> String {
    script.lines().filter(|line| !line.contains(LOG)).fold(String::new(), |out, line| out + line + "\n")
}

/// Frames of ports that are known must come from where their pod is. They must not go to an address of a link that only neighbours know, but for
/// what neighbours say: no policy speaks of such addresses, and every pod has one. To isolated pods goes what is addressed to them.
fn binding() -> String {
    format!(
        "table bridge {TABLE} {{\n\
         set ports {{ type ifname; }}\n\
         set links {{ type ifname . ether_addr; }}\n\
         set bound4 {{ type ifname . ether_addr . ipv4_addr; }}\n\
         set bound6 {{ type ifname . ether_addr . ipv6_addr; }}\n\
         set given4 {{ type ifname . ipv4_addr; }}\n\
         set given6 {{ type ifname . ipv6_addr; }}\n\
         set quiet {{ type ifname; }}\n\
         chain forward {{\ntype filter hook forward priority -300; policy accept;\noifname @quiet jump quiet\n}}\n\
         chain quiet {{\n\
         ether type ip oifname . ip daddr != @given4 counter drop\n\
         icmpv6 type {{ {NEIGHBOURS} }} accept\n\
         ether type ip6 oifname . ip6 daddr != @given6 counter drop\n}}\n\
         chain prerouting {{\ntype filter hook prerouting priority -300; policy accept;\niifname @ports jump port\n}}\n\
         chain port {{\n\
         iifname . ether saddr != @links counter drop\n\
         ether type arp arp saddr ip 0.0.0.0 accept\n\
         ether type arp iifname . ether saddr . arp saddr ip != @bound4 counter drop\n\
         ether type ip iifname . ether saddr . ip saddr != @bound4 counter drop\n\
         ip6 daddr fe80::/10 meta l4proto != ipv6-icmp counter drop\n\
         ip6 daddr fe80::/10 icmpv6 type != {{ {NEIGHBOURS} }} counter drop\n\
         ip6 saddr {{ ::, fe80::/10 }} icmpv6 type {{ {ANNOUNCEMENTS} }} accept\n\
         ether type ip6 iifname . ether saddr . ip6 saddr != @bound6 counter drop\n\
         ether type != {{ arp, ip, ip6 }} counter drop\n}}\n}}\n"
    )
}

/// A change as one script.
pub fn script(changes: &Transaction) -> String {
    let mut out = String::new();
    delete(&mut out, changes.remove.iter());
    add(&mut out, &changes.add);
    out
}

/// A change as messages, if it is one of single addresses and ports only, as nearly every one is.
pub fn messages(changes: &Transaction) -> Option<nft::Elements> {
    let is_interval = |key: &Element| matches!(key, Element::Block(..) | Element::Range(..));
    if changes.remove.iter().chain(changes.add.keys()).any(is_interval) {
        return None;
    }
    let mut out = nft::Elements::default();
    let removed: Vec<&Element> = changes.remove.iter().collect();
    for keys in removed.chunk_by(|a, b| set(a) == set(b)) {
        let bytes: Vec<Vec<u8>> = keys.iter().map(|key| bytes(key)).collect();
        out.delete(nft::Family::Inet, TABLE, &set(keys[0]), &bytes);
    }
    let added: Vec<(&Element, &u32)> = changes.add.iter().collect();
    for elements in added.chunk_by(|(a, _), (b, _)| set(a) == set(b)) {
        let bytes: Vec<(Vec<u8>, Data)> =
            elements.iter().map(|(key, value)| (bytes(key), data(key, **value))).collect();
        out.add(nft::Family::Inet, TABLE, &set(elements[0].0), &bytes);
    }
    Some(out)
}

/// What goes when the change is done.
pub fn last(changes: &Transaction) -> Transaction {
    Transaction { remove: changes.remove_last.clone(), ..Transaction::default() }
}

fn delete<'a>(out: &mut String, keys: impl Iterator<Item = &'a Element>) {
    let keys: Vec<&Element> = keys.collect();
    for same in keys.chunk_by(|a, b| set(a) == set(b)).flat_map(|same| same.chunks(PER_LINE)) {
        let texts: Vec<String> = same.iter().map(|key| text(key)).collect();
        let _ = writeln!(out, "delete element inet {TABLE} {} {{ {} }}", set(same[0]), texts.join(", "));
    }
}

fn add(out: &mut String, elements: &BTreeMap<Element, u32>) {
    let elements: Vec<(&Element, &u32)> = elements.iter().collect();
    for same in elements.chunk_by(|(a, _), (b, _)| set(a) == set(b)).flat_map(|same| same.chunks(PER_LINE)) {
        let texts: Vec<String> = same
            .iter()
            .map(|(key, value)| match key {
                Element::Identity(_) | Element::Exact(_) | Element::Block(..) => format!("{} : {value:#x}", text(key)),
                Element::Isolated(..) => format!("{} : jump {}", text(key), chain(key, **value)),
                _ => text(key),
            })
            .collect();
        let _ = writeln!(out, "add element inet {TABLE} {} {{ {} }}", set(same[0].0), texts.join(", "));
    }
}

fn word(direction: Direction) -> &'static str {
    match direction {
        Direction::Ingress => "ingress",
        Direction::Egress => "egress",
        Direction::Node => "node",
    }
}

/// What is told of a direction: to its own node, too, a pod sends.
fn told(direction: Direction) -> &'static str {
    word(if direction == Direction::Node { Direction::Egress } else { direction })
}

/// The chain that judges an isolated pod.
fn chain(key: &Element, judgement: u32) -> String {
    let Element::Isolated(direction, ip) = key else { return String::new() };
    let (ordered, v) = (if judgement == IN_ORDER { "-ordered" } else { "" }, if ip.is_ipv4() { "4" } else { "6" });
    format!("{}{ordered}{v}", word(*direction))
}

/// The set or map that a key is in.
fn set(key: &Element) -> String {
    let v = |ip: &IpAddr| if ip.is_ipv4() { "4" } else { "6" };
    match key {
        Element::Identity(ip) => format!("identities{}", v(ip)),
        Element::Exact(ip) => format!("exact{}", v(ip)),
        Element::Block(ip, _) => format!("blocks{}", v(ip)),
        Element::Itself(ip) => format!("itself{}", v(ip)),
        Element::Isolated(direction, ip) => format!("{}-isolated{}", word(*direction), v(ip)),
        Element::All(direction, ip, _) => format!("{}-all{}", word(*direction), v(ip)),
        Element::Portless(direction, ip, _) => format!("{}-portless{}", word(*direction), v(ip)),
        Element::Port(direction, ip, ..) => format!("{}-port{}", word(*direction), v(ip)),
        Element::Range(direction, ip, ..) => format!("{}-range{}", word(*direction), v(ip)),
    }
}

fn text(key: &Element) -> String {
    match key {
        Element::Identity(ip) | Element::Exact(ip) | Element::Isolated(_, ip) => ip.to_string(),
        Element::Block(first, last) if first == last => first.to_string(),
        Element::Block(first, last) => format!("{first}-{last}"),
        Element::Itself(ip) => format!("{ip} . {ip}"),
        Element::All(_, ip, peer) | Element::Portless(_, ip, peer) => format!("{ip} . {peer:#x}"),
        Element::Port(_, ip, peer, protocol, port) => format!("{ip} . {peer:#x} . {} . {port}", protocol.number()),
        Element::Range(_, ip, peer, range) => {
            format!("{ip} . {peer:#x} . {} . {}-{}", range.protocol.number(), range.first, range.last)
        }
    }
}

fn bytes(key: &Element) -> Vec<u8> {
    let of = Registers::default();
    let of = match *key {
        Element::Identity(ip) | Element::Exact(ip) | Element::Isolated(_, ip) | Element::Block(ip, _) => of.address(ip),
        Element::Itself(ip) => of.address(ip).address(ip),
        Element::All(_, ip, peer) | Element::Portless(_, ip, peer) => of.address(ip).number(peer),
        Element::Port(_, ip, peer, protocol, port) => of.address(ip).number(peer).part(&[protocol.number()]).port(port),
        Element::Range(_, ip, peer, range) => {
            of.address(ip).number(peer).part(&[range.protocol.number()]).port(range.first)
        }
    };
    of.bytes()
}

fn data(key: &Element, value: u32) -> Data {
    match key {
        Element::Identity(_) | Element::Exact(_) => Data::Value(value.to_ne_bytes().to_vec()),
        Element::Isolated(..) => Data::Jump(chain(key, value)),
        _ => Data::None,
    }
}
