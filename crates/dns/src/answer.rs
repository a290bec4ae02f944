//! What a name of the cluster means: the Kubernetes DNS specification as a pure function of zone and question.
//!
//! | name, below the cluster's domain | records |
//! |---|---|
//! | `service.namespace.svc` | A/AAAA: ClusterIPs, or the pods of a headless Service; CNAME of an ExternalName; SRV: all ports |
//! | `_port._protocol.service.namespace.svc` | SRV |
//! | `hostname.service.namespace.svc` | A/AAAA, SRV of one pod of a headless Service |
//! | `1-2-3-4.namespace.pod` | A/AAAA of that address |
//! | `dns-version` | TXT: the specification's version |
//! | reverse names | PTR of ClusterIPs and of pods of headless Services |
//!
//! A name that exists without records of the asked type is answered with none and the zone's SOA; one that does not
//! exist, nor anything below it, with NXDOMAIN.

use std::net::IpAddr;

use hickory_proto::op::{Query, ResponseCode};
use hickory_proto::rr::rdata::{self, A, AAAA, SOA, SRV, TXT};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};

use crate::zone::{Entry, Member, Port, Zone, undashed};

/// The specification's version that is served.
const VERSION: &str = "1.1.0";
/// Aliases that point to aliases are followed so far.
const ALIASES: usize = 8;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reply {
    /// Whether the name exists.
    pub code: ResponseCode,
    pub answers: Vec<Record>,
    /// The SOA, if none does.
    pub authorities: Vec<Record>,
    /// Addresses of names in the answers.
    pub additionals: Vec<Record>,
    /// The answer ends in an alias for this name, which is not ours: its records belong to the answer.
    pub chase: Option<Name>,
}

/// Who answers a question.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    Ours(Reply),
    Elsewhere,
}

pub fn answer(zone: &Zone, question: &Query) -> Answer {
    if question.query_class != DNSClass::IN {
        return Answer::Elsewhere;
    }
    let name = question.name.to_lowercase();
    if zone.origin.zone_of(&name) {
        return Answer::Ours(Asked { zone, question, alias_depth: 0 }.within(&name));
    }
    match reverse(zone, question, &name) {
        Some(reply) => Answer::Ours(reply),
        None => Answer::Elsewhere,
    }
}

/// The reply for a zone that is not known yet.
pub fn not_ready() -> Reply {
    Reply { code: ResponseCode::ServFail, ..Reply::default() }
}

struct Asked<'a> {
    zone: &'a Zone,
    question: &'a Query,
    alias_depth: usize,
}

/// What there is at a name.
enum At<'a> {
    /// Nothing, nor below it.
    Nothing,
    /// Something below it, or records of other types only.
    Empty,
    Apex,
    Version,
    Addresses(Vec<IpAddr>),
    Service(&'a Entry, &'a str, &'a str),
    /// Ports of a Service, by name and protocol.
    Ports(&'a Entry, &'a str, &'a str, &'a str, &'a str),
    Members(Vec<&'a Member>),
}

impl<'a> Asked<'a> {
    fn within(&self, name: &Name) -> Reply {
        let depth = usize::from(name.num_labels() - self.zone.origin.num_labels());
        let labels: Option<Vec<&str>> = name.iter().take(depth).map(|label| std::str::from_utf8(label).ok()).collect();
        let Some(labels) = labels else { return self.negative(ResponseCode::NXDomain) };
        let mut reply = match self.at(&labels) {
            At::Nothing => return self.negative(ResponseCode::NXDomain),
            At::Empty => Reply::default(),
            At::Apex => self.apex(),
            At::Version => self.version(),
            At::Addresses(addresses) => self.addresses(addresses.into_iter()),
            At::Service(entry, namespace, service) => self.service(entry, namespace, service),
            At::Ports(entry, port, protocol, service, namespace) => {
                let wanted = |p: &Port| p.name.eq_ignore_ascii_case(port) && p.protocol == protocol;
                match self.ports(entry, namespace, service, &wanted) {
                    None => return self.negative(ResponseCode::NXDomain),
                    Some(found) if self.question.query_type == RecordType::SRV => found,
                    Some(_) => Reply::default(),
                }
            }
            At::Members(members) => self.members(&members, name),
        };
        if reply.answers.is_empty() {
            reply.authorities.push(self.soa());
        }
        reply
    }

    fn at<'l>(&self, labels: &[&'l str]) -> At<'l>
    where
        'a: 'l,
    {
        let zone = self.zone;
        match *labels {
            [] => At::Apex,
            ["dns-version"] => At::Version,
            ["dns" | "svc" | "pod"] => At::Empty,
            ["ns", "dns"] => At::Addresses(zone.servers.clone()),
            [namespace, "svc" | "pod"] if zone.has_namespace(namespace) => At::Empty,
            [address, namespace, "pod"] if zone.has_namespace(namespace) => {
                undashed(address).map_or(At::Nothing, |ip| At::Addresses(vec![ip]))
            }
            [service, namespace, "svc"] => {
                zone.service(namespace, service).map_or(At::Nothing, |e| At::Service(e, namespace, service))
            }
            [below, service, namespace, "svc"] => match zone.service(namespace, service) {
                Some(Entry::Headless(members)) if !below.starts_with('_') => {
                    let found: Vec<&Member> = members.iter().filter(|m| m.hostname == below).collect();
                    if found.is_empty() { At::Nothing } else { At::Members(found) }
                }
                Some(Entry::Addresses { .. } | Entry::Headless(_)) if ["_tcp", "_udp", "_sctp"].contains(&below) => {
                    At::Empty
                }
                _ => At::Nothing,
            },
            [port, protocol, service, namespace, "svc"] => {
                let names = (port.strip_prefix('_'), protocol.strip_prefix('_'), zone.service(namespace, service));
                let (Some(port), Some(protocol), Some(entry)) = names else { return At::Nothing };
                At::Ports(entry, port, protocol, service, namespace)
            }
            _ => At::Nothing,
        }
    }

    fn service(&self, entry: &Entry, namespace: &str, service: &str) -> Reply {
        match (entry, self.question.query_type) {
            (Entry::External(target), _) => self.alias(target),
            (_, RecordType::SRV) => self.ports(entry, namespace, service, &|_| true).unwrap_or_default(),
            (Entry::Addresses { addresses, .. }, _) => self.addresses(addresses.iter().copied()),
            (Entry::Headless(members), _) => self.addresses(members.iter().map(|m| m.address)),
        }
    }

    fn members(&self, members: &[&Member], name: &Name) -> Reply {
        if self.question.query_type != RecordType::SRV {
            return self.addresses(members.iter().map(|m| m.address));
        }
        let mut reply = Reply::default();
        for member in members {
            for port in member.ports.iter() {
                self.add_srv(&mut reply, port.number, name, std::iter::once(member.address));
            }
        }
        reply
    }

    /// SRV records of the wanted ports; nothing if the Service has no such port.
    fn ports(&self, entry: &Entry, namespace: &str, service: &str, wanted: &dyn Fn(&Port) -> bool) -> Option<Reply> {
        let mut reply = Reply::default();
        let target = self.zone.service_name(namespace, service)?;
        match entry {
            Entry::External(_) => return None,
            Entry::Addresses { addresses, ports } => {
                for port in ports.iter().filter(|port| wanted(port)) {
                    self.add_srv(&mut reply, port.number, &target, addresses.iter().copied());
                }
            }
            Entry::Headless(members) => {
                for member in members {
                    let Ok(target) = target.prepend_label(member.hostname.as_str()) else { continue };
                    for port in member.ports.iter().filter(|port| wanted(port)) {
                        self.add_srv(&mut reply, port.number, &target, std::iter::once(member.address));
                    }
                }
            }
        }
        (!reply.answers.is_empty()).then_some(reply)
    }

    fn add_srv(&self, reply: &mut Reply, port: u16, target: &Name, addresses: impl Iterator<Item = IpAddr>) {
        let srv = RData::SRV(SRV::new(0, 100, port, target.clone()));
        let record = self.record(self.question.name.clone(), srv);
        if !reply.answers.contains(&record) {
            reply.answers.push(record);
        }
        for address in addresses {
            let record = self.record(target.clone(), address_data(address));
            if !reply.additionals.contains(&record) {
                reply.additionals.push(record);
            }
        }
    }

    fn addresses(&self, addresses: impl Iterator<Item = IpAddr>) -> Reply {
        let wanted = |ip: &IpAddr| match self.question.query_type {
            RecordType::A => ip.is_ipv4(),
            RecordType::AAAA => ip.is_ipv6(),
            _ => false,
        };
        let mut reply = Reply::default();
        for address in addresses.filter(wanted) {
            let record = self.record(self.question.name.clone(), address_data(address));
            // Two hostnames may share an address.
            if reply.answers.last() != Some(&record) {
                reply.answers.push(record);
            }
        }
        reply
    }

    /// An alias, with what it stands for: from this zone at once, from elsewhere by the caller.
    fn alias(&self, target: &Name) -> Reply {
        let cname = RData::CNAME(rdata::CNAME(target.clone()));
        let mut reply = Reply::default();
        reply.answers.push(self.record(self.question.name.clone(), cname));
        if self.question.query_type == RecordType::CNAME {
            return reply;
        }
        if !self.zone.origin.zone_of(target) {
            reply.chase = Some(target.clone());
        } else if self.alias_depth < ALIASES {
            let question = Query::query(target.clone(), self.question.query_type);
            let next = Asked { zone: self.zone, question: &question, alias_depth: self.alias_depth + 1 }.within(target);
            reply.code = next.code;
            reply.answers.extend(next.answers);
            reply.additionals = next.additionals;
            reply.chase = next.chase;
        } else {
            reply.code = ResponseCode::ServFail;
        }
        reply
    }

    fn apex(&self) -> Reply {
        let mut reply = Reply::default();
        match self.question.query_type {
            RecordType::SOA => reply.answers.push(self.soa()),
            RecordType::NS => {
                let server = self.server_name();
                let ns = RData::NS(rdata::NS(server.clone()));
                reply.answers.push(self.record(self.question.name.clone(), ns));
                for address in &self.zone.servers {
                    reply.additionals.push(self.record(server.clone(), address_data(*address)));
                }
            }
            _ => {}
        }
        reply
    }

    fn version(&self) -> Reply {
        let mut reply = Reply::default();
        if self.question.query_type == RecordType::TXT {
            let txt = RData::TXT(TXT::new(vec![VERSION.to_owned()]));
            reply.answers.push(self.record(self.question.name.clone(), txt));
        }
        reply
    }

    fn negative(&self, code: ResponseCode) -> Reply {
        Reply { code, authorities: vec![self.soa()], ..Reply::default() }
    }

    fn server_name(&self) -> Name {
        self.below(&["ns", "dns"])
    }

    /// A fixed name of the zone; the zone itself where its own name leaves no room.
    fn below(&self, labels: &[&str]) -> Name {
        let name = Name::from_labels(labels.iter().map(|l| l.as_bytes()));
        name.and_then(|name| name.append_domain(&self.zone.origin)).unwrap_or_else(|_| self.zone.origin.clone())
    }

    fn soa(&self) -> Record {
        let zone = self.zone;
        let soa = SOA::new(self.server_name(), self.below(&["hostmaster"]), zone.serial, 7200, 1800, 86400, zone.ttl);
        self.record(zone.origin.clone(), RData::SOA(soa))
    }

    fn record(&self, name: Name, data: RData) -> Record {
        Record::from_rdata(name, self.zone.ttl, data)
    }
}

fn address_data(address: IpAddr) -> RData {
    match address {
        IpAddr::V4(ip) => RData::A(A(ip)),
        IpAddr::V6(ip) => RData::AAAA(AAAA(ip)),
    }
}

/// Reverse names: ours if some Service has the address, or if the address is in one of the cluster's ranges.
fn reverse(zone: &Zone, question: &Query, name: &Name) -> Option<Reply> {
    let network = name.parse_arpa_name().ok()?;
    let whole = network.prefix_len() == network.max_prefix_len();
    let address = network.addr();
    let asked = Asked { zone, question, alias_depth: 0 };
    let mut names = zone.names_of(address).filter(|_| whole).peekable();
    if names.peek().is_none() {
        let ours = whole && zone.ranges.iter().any(|range| range.contains(&address));
        return ours.then(|| asked.negative(ResponseCode::NXDomain));
    }
    let mut reply = Reply::default();
    if question.query_type == RecordType::PTR {
        let records = names.map(|n| asked.record(question.name.clone(), RData::PTR(rdata::PTR(n.clone()))));
        reply.answers = records.collect();
    } else {
        reply.authorities.push(asked.soa());
    }
    Some(reply)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Puts a Service and its endpoints (`address` or `address=hostname`, `!` if not ready) into a zone.
    fn put(zone: &mut Zone, namespace: &str, name: &str, spec: Value, endpoints: &[&str]) {
        let service = serde_json::from_value(json!({"metadata": {"namespace": namespace, "name": name}, "spec": spec}));
        let endpoints: Vec<Value> = endpoints
            .iter()
            .map(|e| {
                let (address, hostname) =
                    e.trim_end_matches('!').split_once('=').unwrap_or((e.trim_end_matches('!'), ""));
                json!({"addresses": [address], "hostname": hostname, "conditions": {"ready": !e.ends_with('!')}})
            })
            .collect();
        let slice = serde_json::from_value(json!({
            "metadata": {"name": name}, "addressType": "IPv4", "endpoints": endpoints,
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        }));
        let entry = Entry::of(&service.unwrap(), [&slice.unwrap()]);
        zone.set_service(namespace, name, entry);
    }

    fn zone() -> Zone {
        let origin = Name::from_ascii("cluster.local").unwrap();
        let mut zone =
            Zone::new(&origin, 30, vec!["10.96.0.10".parse().unwrap()], vec!["10.96.0.0/12".parse().unwrap()]);
        zone.set_namespace("empty", true);
        let ports =
            json!([{"name": "http", "port": 80, "protocol": "TCP"}, {"name": "dns", "port": 53, "protocol": "UDP"}]);
        let ips = json!(["10.96.0.1", "fd96::1"]);
        put(&mut zone, "ns", "web", json!({"clusterIP": "10.96.0.1", "clusterIPs": ips, "ports": ports}), &[]);
        let none = || json!({"clusterIP": "None"});
        put(&mut zone, "ns", "db", none(), &["10.1.0.2=db-0", "10.1.0.3=db-1", "10.1.0.4=db-2!"]);
        put(&mut zone, "ns", "anon", none(), &["10.1.0.9", "fd01::9"]);
        put(&mut zone, "ns", "nobody", none(), &["10.1.0.8!"]);
        let external = |name: &str| json!({"type": "ExternalName", "externalName": name});
        put(&mut zone, "ns", "out", external("Example.com"), &[]);
        put(&mut zone, "ns", "alias", external("web.ns.svc.cluster.local"), &[]);
        put(&mut zone, "ns", "round", external("round.ns.svc.cluster.local"), &[]);
        zone
    }

    /// Question, then what is said: records as `type data`, `+` before additional ones.
    fn check(question: &str, want: &str) {
        let (name, kind) = question.split_once(' ').unwrap();
        let question = Query::query(Name::from_ascii(name).unwrap(), kind.parse().unwrap());
        let shown = match answer(&zone(), &question) {
            Answer::Elsewhere => "elsewhere".to_owned(),
            Answer::Ours(reply) => {
                assert!(reply.answers.iter().all(|r| r.ttl == 30));
                // A negative answer is one with the SOA, and only that.
                let negative = reply.answers.is_empty() && reply.code != ResponseCode::ServFail;
                assert_eq!(reply.authorities.len(), usize::from(negative), "{reply:?}");
                let show = |r: &Record| format!("{} {}", r.record_type(), r.data);
                let mut shown: Vec<String> = vec![];
                if reply.code != ResponseCode::NoError {
                    shown.push(format!("{:?}", reply.code));
                }
                shown.extend(reply.answers.iter().map(show));
                shown.extend(reply.additionals.iter().map(|r| format!("+{} {}", r.name, show(r))));
                shown.extend(reply.chase.map(|name| format!("chase {name}")));
                shown.join(", ")
            }
        };
        assert_eq!(shown, want, "{name} {kind}");
    }

    #[test]
    fn services_with_addresses() {
        check("web.ns.svc.cluster.local. A", "A 10.96.0.1");
        check("WEB.ns.svc.Cluster.LOCAL. A", "A 10.96.0.1");
        check("web.ns.svc.cluster.local. AAAA", "AAAA fd96::1");
        check("web.ns.svc.cluster.local. MX", "");
        check("nothing.ns.svc.cluster.local. A", "NXDomain");
        check("web.other.svc.cluster.local. A", "NXDomain");
        let target = "web.ns.svc.cluster.local.";
        let glue = format!("+{target} A 10.96.0.1, +{target} AAAA fd96::1");
        check("_http._tcp.web.ns.svc.cluster.local. SRV", &format!("SRV 0 100 80 {target}, {glue}"));
        check("_dns._udp.web.ns.svc.cluster.local. SRV", &format!("SRV 0 100 53 {target}, {glue}"));
        check("_http._udp.web.ns.svc.cluster.local. SRV", "NXDomain");
        check("_http._tcp.web.ns.svc.cluster.local. A", "");
        check("_tcp.web.ns.svc.cluster.local. SRV", "");
        check("web.ns.svc.cluster.local. SRV", &format!("SRV 0 100 80 {target}, SRV 0 100 53 {target}, {glue}"));
    }

    #[test]
    fn headless_services() {
        check("db.ns.svc.cluster.local. A", "A 10.1.0.2, A 10.1.0.3");
        check("db-0.db.ns.svc.cluster.local. A", "A 10.1.0.2");
        check("db-2.db.ns.svc.cluster.local. A", "NXDomain");
        check(
            "_http._tcp.db.ns.svc.cluster.local. SRV",
            "SRV 0 100 8080 db-0.db.ns.svc.cluster.local., SRV 0 100 8080 db-1.db.ns.svc.cluster.local., \
             +db-0.db.ns.svc.cluster.local. A 10.1.0.2, +db-1.db.ns.svc.cluster.local. A 10.1.0.3",
        );
        check("anon.ns.svc.cluster.local. AAAA", "AAAA fd01::9");
        check("10-1-0-9.anon.ns.svc.cluster.local. A", "A 10.1.0.9");
        check("fd01--9.anon.ns.svc.cluster.local. AAAA", "AAAA fd01::9");
        check("nobody.ns.svc.cluster.local. A", "");
    }

    #[test]
    fn external_names() {
        check("out.ns.svc.cluster.local. CNAME", "CNAME example.com.");
        check("out.ns.svc.cluster.local. A", "CNAME example.com., chase example.com.");
        check("alias.ns.svc.cluster.local. A", "CNAME web.ns.svc.cluster.local., A 10.96.0.1");
        let (name, kind) = ("round.ns.svc.cluster.local.", RecordType::A);
        let round = answer(&zone(), &Query::query(Name::from_ascii(name).unwrap(), kind));
        assert!(matches!(round, Answer::Ours(Reply { code: ResponseCode::ServFail, .. })));
    }

    #[test]
    fn pods_and_the_zone_itself() {
        check("10-1-2-3.ns.pod.cluster.local. A", "A 10.1.2.3");
        check("fd01--3.empty.pod.cluster.local. AAAA", "AAAA fd01::3");
        check("10-1-2-3.other.pod.cluster.local. A", "NXDomain");
        check("nonsense.ns.pod.cluster.local. A", "NXDomain");
        check("dns-version.cluster.local. TXT", "TXT 1.1.0");
        check("cluster.local. NS", "NS ns.dns.cluster.local., +ns.dns.cluster.local. A 10.96.0.10");
        check("ns.dns.cluster.local. A", "A 10.96.0.10");
        for name in ["cluster.local.", "svc.cluster.local.", "ns.svc.cluster.local.", "empty.svc.cluster.local."] {
            check(&format!("{name} A"), "");
        }
        check("other.svc.cluster.local. A", "NXDomain");
        check("x.cluster.local. A", "NXDomain");
        let soa = answer(&zone(), &Query::query(Name::from_ascii("cluster.local.").unwrap(), RecordType::SOA));
        let Answer::Ours(soa) = soa else { panic!("not ours") };
        assert!(soa.answers[0].data.to_string().starts_with("ns.dns.cluster.local. hostmaster.cluster.local. "));
    }

    #[test]
    fn reverse_names_and_those_of_others() {
        check("1.0.96.10.in-addr.arpa. PTR", "PTR web.ns.svc.cluster.local.");
        check("2.0.1.10.in-addr.arpa. PTR", "PTR db-0.db.ns.svc.cluster.local.");
        check("1.0.96.10.in-addr.arpa. A", "");
        let nibbles = "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.6.9.d.f.ip6.arpa.";
        check(&format!("{nibbles} PTR"), "PTR web.ns.svc.cluster.local.");
        check("9.9.96.10.in-addr.arpa. PTR", "NXDomain");
        check("4.0.1.10.in-addr.arpa. PTR", "elsewhere");
        check("96.10.in-addr.arpa. PTR", "elsewhere");
        check("example.com. A", "elsewhere");
        check("cluster.local.example.com. A", "elsewhere");
        check("local. A", "elsewhere");
    }

    #[test]
    fn what_goes_is_forgotten_in_both_directions() {
        let mut zone = zone();
        for name in ["web", "db", "anon", "nobody", "out", "alias", "round"] {
            zone.set_service("ns", name, None);
        }
        assert!(!zone.has_namespace("ns"));
        assert_eq!(zone.names_of("10.96.0.1".parse().unwrap()).count(), 0);
        assert_eq!(zone.names_of("10.1.0.2".parse().unwrap()).count(), 0);
    }
}
