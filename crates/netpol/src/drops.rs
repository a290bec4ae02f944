//! Which packets that were kept back are worth an Event, and what it says. Pure: somebody who tries a thousand times a second is told of once a minute.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use crate::flow::Verdict;
use crate::model::Direction;
use crate::telling::Told;
use rules::protocol::Protocol;

/// The reason of such Events.
pub const REASON: &str = "NetworkPolicyDenied";
/// So long nothing more is said of the same two ends and port.
const QUIET: Duration = Duration::from_secs(60);
/// So many of them are remembered. While all of them are fresh, others are only counted.
const REMEMBERED: usize = 1_024;

type Attempt = (Direction, IpAddr, IpAddr, Option<(Protocol, u16)>);

/// What was told lately.
#[derive(Debug, Default)]
pub struct Sample(HashMap<Attempt, Duration>);

impl Sample {
    /// Whether this one is to be told.
    pub fn takes(&mut self, verdict: &Verdict, now: Duration) -> bool {
        let attempt = (verdict.direction, verdict.from, verdict.to, verdict.port);
        if verdict.allowed || self.0.get(&attempt).is_some_and(|told| now < *told + QUIET) {
            return false;
        }
        if self.0.len() >= REMEMBERED {
            self.0.retain(|_, told| now < *told + QUIET);
        }
        let room = self.0.len() < REMEMBERED;
        if room {
            self.0.insert(attempt, now);
        }
        room
    }
}

/// What the Event says.
pub fn message(verdict: &Verdict, told: &Told) -> String {
    let direction = if verdict.direction == Direction::Ingress { "ingress" } else { "egress" };
    let end = |name: &str, ip: IpAddr| match name.parse::<IpAddr>() {
        Ok(_) => name.to_owned(),
        Err(_) => format!("{name} ({ip})"),
    };
    let port = verdict.port.map(|(protocol, port)| format!(" port {port}/{}", protocol.as_str())).unwrap_or_default();
    let policies: Vec<String> = told.policies.iter().map(ToString::to_string).collect();
    let why = match policies.is_empty() {
        // They were deleted since.
        true => "no policy isolates it any more".to_owned(),
        // One of the cluster's denies, those of namespaces isolate.
        false if told.policies.iter().any(|policy| policy.namespace.is_empty()) => {
            format!("denied by ClusterNetworkPolicy {}", policies.join(", "))
        }
        false => format!("isolated by {}", policies.join(", ")),
    };
    let (from, to) = (end(&told.from, verdict.from), end(&told.to, verdict.to));
    format!("Denied {direction} from {from} to {to}{port}: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::PolicyName;

    fn denied(port: u16) -> Verdict {
        Verdict {
            direction: Direction::Ingress,
            allowed: false,
            from: "10.0.0.1".parse().unwrap(),
            to: "10.0.0.2".parse().unwrap(),
            port: Some((Protocol::Tcp, port)),
        }
    }

    #[test]
    fn an_attempt_is_told_once_in_a_while_and_a_scan_of_ports_is_not_remembered_for_ever() {
        let mut sample = Sample::default();
        let at = Duration::from_secs;
        assert!(sample.takes(&denied(80), at(0)));
        assert!(!sample.takes(&denied(80), at(59)) && sample.takes(&denied(81), at(59)));
        assert!(sample.takes(&denied(80), at(60)));
        assert!(!sample.takes(&Verdict { allowed: true, ..denied(9) }, at(60)));
        let scanned = (1_000..60_000).filter(|port| sample.takes(&denied(*port), at(61))).count();
        assert_eq!((scanned, sample.0.len()), (REMEMBERED - 2, REMEMBERED));
        assert!(sample.takes(&denied(7), at(200)), "what is old makes room");
    }

    #[test]
    fn it_says_who_whom_and_by_which_policy() {
        let policies = vec![PolicyName { namespace: "default".into(), name: "deny".into() }];
        let told = Told { from: "10.0.0.1".into(), to: "default/web".into(), policies };
        assert_eq!(
            message(&denied(80), &told),
            "Denied ingress from 10.0.0.1 to default/web (10.0.0.2) port 80/TCP: isolated by default/deny"
        );
        let told = Told { policies: vec![PolicyName { namespace: String::new(), name: "all".into() }], ..told };
        let said = message(&denied(80), &told);
        assert!(said.ends_with(": denied by ClusterNetworkPolicy all"), "{said}");
    }
}
