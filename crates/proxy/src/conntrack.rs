//! Tracked datagram flows that go to an endpoint no longer there, or past a Service that has endpoints now.
//!
//! The kernel decides about a flow's first packet only and remembers the outcome. A connection ends and is made anew;
//! a datagram flow may go on for ever to an address nobody has. So after a change to a UDP Service the table of tracked
//! flows is read once, and what no serving endpoint answers is forgotten. Level-triggered: nothing is remembered
//! between two looks, so flows that went stale while the proxy was down are found as well.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use node::run;
use rules::protocol::Protocol;

use crate::model::{Endpoints, Family, ServicePort};
use crate::plan::Frontend;

const LIMIT: Duration = Duration::from_secs(30);

/// Which endpoints may answer for which UDP frontend.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Serving(BTreeMap<Frontend, BTreeSet<(IpAddr, u16)>>);

impl Serving {
    /// Adds a Service's ports; only UDP counts. Traffic policies and topology do not: a flow keeps the endpoint it has
    /// as long as that one serves.
    pub fn add(&mut self, ports: &[ServicePort], endpoints: &Endpoints) {
        for port in ports.iter().filter(|port| port.protocol == Protocol::Udp) {
            let serving: BTreeSet<_> =
                endpoints.of_port(port).filter(|e| e.serving).map(|e| (e.address, e.port)).collect();
            for ip in port.external.iter().chain([&port.cluster_ip]) {
                self.0.insert(Frontend::Address(*ip, Protocol::Udp, port.port), serving.clone());
            }
            // A node port is matched by its number alone, so without endpoints any flow to that number would be hit.
            if let Some(number) = port.node_port.filter(|_| !serving.is_empty()) {
                self.0.insert(Frontend::NodePort(Protocol::Udp, number), serving);
            }
        }
    }

    /// Whether there is any UDP frontend.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn is_stale(&self, flow: &Flow) -> bool {
        let address = Frontend::Address(flow.to.0, Protocol::Udp, flow.to.1);
        let known = self.0.get(&address).or_else(|| self.0.get(&Frontend::NodePort(Protocol::Udp, flow.to.1)));
        known.is_some_and(|serving| !serving.contains(&flow.answered_by))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Flow {
    from: (IpAddr, u16),
    to: (IpAddr, u16),
    answered_by: (IpAddr, u16),
}

impl Flow {
    /// A line of `conntrack -L`: the original direction first, then the reply.
    fn parse(line: &str) -> Option<Self> {
        let values = |key: &str| -> Vec<&str> {
            line.split_whitespace().filter_map(|word| word.strip_prefix(key)?.strip_prefix('=')).collect()
        };
        let (src, dst, sport, dport) = (values("src"), values("dst"), values("sport"), values("dport"));
        let end = |ips: &[&str], ports: &[&str], at: usize| -> Option<(IpAddr, u16)> {
            Some((ips.get(at)?.parse().ok()?, ports.get(at)?.parse().ok()?))
        };
        Some(Self { from: end(&src, &sport, 0)?, to: end(&dst, &dport, 0)?, answered_by: end(&src, &sport, 1)? })
    }

    fn arguments(&self) -> Vec<String> {
        [
            ("-p", "udp".to_owned()),
            ("-f", family_argument(Family::of(self.to.0)).to_owned()),
            ("--orig-src", self.from.0.to_string()),
            ("--orig-dst", self.to.0.to_string()),
            ("--sport", self.from.1.to_string()),
            ("--dport", self.to.1.to_string()),
        ]
        .into_iter()
        .flat_map(|(flag, value)| [flag.to_owned(), value])
        .collect()
    }
}

fn family_argument(family: Family) -> &'static str {
    match family {
        Family::V4 => "ipv4",
        Family::V6 => "ipv6",
    }
}

/// Forgets every stale flow of one family; says how many there were.
pub async fn clear(serving: &Serving, family: Family) -> Result<usize, run::Error> {
    let list = run::output("conntrack", &["-L", "-p", "udp", "-f", family_argument(family)], b"", LIMIT).await?;
    let list = String::from_utf8_lossy(&list);
    let stale: Vec<Flow> = list.lines().filter_map(Flow::parse).filter(|flow| serving.is_stale(flow)).collect();
    for flow in &stale {
        let mut arguments = vec!["-D".to_owned()];
        arguments.extend(flow.arguments());
        match run::output("conntrack", &arguments, b"", LIMIT).await {
            // It ended by itself in between.
            Err(run::Error::Failed { stderr, .. }) if stderr.contains("0 flow entries") => {}
            other => drop(other?),
        }
    }
    Ok(stale.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{endpoint, port};

    const DNATED: &str = "udp      17 29 src=10.1.0.9 dst=10.96.0.10 sport=4000 dport=53 [UNREPLIED] \
                          src=10.1.0.5 dst=10.1.0.9 sport=5353 dport=4000 mark=0 use=1";

    #[test]
    fn a_flow_is_read_in_both_directions() {
        let flow = Flow::parse(DNATED).unwrap();
        let end = |text: &str| text.parse::<std::net::SocketAddr>().map(|a| (a.ip(), a.port())).unwrap();
        assert_eq!(flow.from, end("10.1.0.9:4000"));
        assert_eq!(flow.to, end("10.96.0.10:53"));
        assert_eq!(flow.answered_by, end("10.1.0.5:5353"));
        assert_eq!(Flow::parse("conntrack v1.4.7 (conntrack-tools): 1 flow entries have been shown."), None);
    }

    #[test]
    fn flows_are_stale_unless_a_serving_endpoint_answers() {
        let check = |port: &ServicePort, list: &[crate::model::Endpoint], line: &str, stale: bool| {
            let mut serving = Serving::default();
            serving.add(std::slice::from_ref(port), &Endpoints::from_list(port, list));
            assert_eq!(serving.is_stale(&Flow::parse(line).unwrap()), stale, "{line}");
        };
        let dns = port("10.96.0.10:53").udp().node_port(30_053);
        let answering = endpoint("10.1.0.5:5353");
        check(&dns.build(), &[answering.build()], DNATED, false);
        check(&dns.build(), &[answering.clone().terminating().build()], DNATED, false);
        check(&dns.build(), &[answering.clone().not_serving().build()], DNATED, true);
        check(&dns.build(), &[], DNATED, true);
        // Sent before there was a Service: it left as it came.
        let past = DNATED.replace("src=10.1.0.5", "src=10.96.0.10").replace("sport=5353", "sport=53");
        check(&dns.build(), &[answering.build()], &past, true);
        let node_port = DNATED.replace("dst=10.96.0.10", "dst=192.0.2.1").replace("dport=53 ", "dport=30053 ");
        check(&dns.build(), &[answering.build()], &node_port, false);
        check(&dns.build(), &[endpoint("10.1.0.6:5353").build()], &node_port, true);
        check(&dns.build(), &[], &node_port, false);
        // Nobody's business.
        check(&dns.build(), &[], &DNATED.replace("10.96.0.10", "10.96.0.11"), false);
    }
}
