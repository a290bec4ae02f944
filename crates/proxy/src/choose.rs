//! Which endpoints of a Service port this node may use.
//!
//! Ready endpoints come first; when there is none, those that terminate but still serve stand in, so that the last
//! pods of a rolling update take traffic until their successors are there. Topology hints narrow the cluster-wide
//! list only when every ready endpoint carries them and at least one is meant for this node: half-written hints must
//! never hide endpoints.

use crate::model::{Endpoint, NodeView, ServicePort};

/// The endpoints a node uses for one Service port.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Chosen<'a> {
    /// For traffic that may go to any node; empty if there is no such traffic.
    pub cluster: Vec<&'a Endpoint>,
    /// For traffic that must stay on this node; empty if there is no such traffic.
    pub local: Vec<&'a Endpoint>,
    /// Whether the Service has a usable endpoint anywhere, reachable from here or not.
    pub anywhere: bool,
}

impl<'a> Chosen<'a> {
    /// Every endpoint in either list, each once.
    pub fn reachable(&self) -> impl Iterator<Item = &'a Endpoint> {
        let only_local = self.local.iter().filter(|e| !self.cluster.iter().any(|c| std::ptr::eq(*c, **e)));
        self.cluster.iter().chain(only_local).copied()
    }
}

/// Hints that count on this node.
#[derive(Clone, Copy)]
enum Topology {
    Any,
    SameNode,
    SameZone,
}

/// Chooses among all `endpoints` of `port`.
pub fn choose<'a>(port: &ServicePort, endpoints: impl Iterator<Item = &'a Endpoint>, node: &NodeView) -> Chosen<'a> {
    let all: Vec<&Endpoint> = endpoints.collect();
    let mut chosen =
        Chosen { anywhere: all.iter().any(|e| e.ready || e.is_serving_terminating()), ..Chosen::default() };
    if port.uses_cluster_endpoints() {
        let topology = topology(&all, node);
        let near = |e: &Endpoint| match topology {
            Topology::Any => true,
            Topology::SameNode => e.nodes.contains(&node.name),
            Topology::SameZone => node.zone.as_ref().is_some_and(|zone| e.zones.contains(zone)),
        };
        chosen.cluster = all.iter().copied().filter(|e| e.ready && near(e)).collect();
        if chosen.cluster.is_empty() {
            chosen.cluster = all.iter().copied().filter(|e| e.is_serving_terminating()).collect();
        }
    }
    if port.uses_local_endpoints() {
        chosen.local = all.iter().copied().filter(|e| e.local && e.ready).collect();
        if chosen.local.is_empty() {
            chosen.local = all.iter().copied().filter(|e| e.local && e.is_serving_terminating()).collect();
        }
    }
    chosen
}

fn topology(all: &[&Endpoint], node: &NodeView) -> Topology {
    let ready = || all.iter().filter(|e| e.ready);
    if ready().next().is_none() {
        return Topology::Any;
    }
    if ready().all(|e| !e.nodes.is_empty()) && ready().any(|e| e.nodes.contains(&node.name)) {
        return Topology::SameNode;
    }
    match &node.zone {
        Some(zone) if ready().all(|e| !e.zones.is_empty()) && ready().any(|e| e.zones.contains(zone)) => {
            Topology::SameZone
        }
        _ => Topology::Any,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{endpoint, node, port};

    /// Letters of the endpoints in the cluster-wide list, then of those in the local one.
    fn check(port: &ServicePort, endpoints: &[Endpoint], want: (&str, &str, bool)) {
        let node = node("here").zone("z1").build();
        let chosen = choose(port, endpoints.iter(), &node);
        let letters = |list: &[&Endpoint]| -> String {
            list.iter().map(|e| (b'a' + endpoints.iter().position(|x| x == *e).unwrap() as u8) as char).collect()
        };
        assert_eq!((letters(&chosen.cluster).as_str(), letters(&chosen.local).as_str(), chosen.anywhere), want);
    }

    #[test]
    fn ready_endpoints_come_first_and_terminating_ones_stand_in() {
        let port = port("10.96.0.1:80").build();
        let ready = endpoint("10.1.0.1:80");
        let last = endpoint("10.1.0.2:80").terminating();
        let dead = endpoint("10.1.0.3:80").not_serving();
        check(&port, &[ready.build(), last.build(), dead.build()], ("a", "", true));
        check(&port, &[last.build(), dead.build()], ("a", "", true));
        check(&port, &[dead.build()], ("", "", false));
        check(&port, &[], ("", "", false));
    }

    #[test]
    fn local_policy_keeps_to_this_node_and_falls_back_by_itself() {
        let port = port("10.96.0.1:80").node_port(30_000).external_local().build();
        let far = endpoint("10.1.0.1:80").on("there").build();
        let near = endpoint("10.1.0.2:80").on("here");
        check(&port, &[far.clone(), near.build()], ("ab", "b", true));
        check(&port, &[far.clone(), near.terminating().build()], ("a", "b", true));
        check(&port, &[far], ("a", "", true));
    }

    #[test]
    fn internal_local_policy_needs_no_cluster_list() {
        let port = port("10.96.0.1:80").internal_local().build();
        let far = endpoint("10.1.0.1:80").on("there").build();
        check(&port, &[far], ("", "", true));
    }

    #[test]
    fn hints_count_only_when_all_ready_endpoints_have_them_and_one_is_for_us() {
        let port = port("10.96.0.1:80").build();
        let z1 = endpoint("10.1.0.1:80").for_zone("z1");
        let z2 = endpoint("10.1.0.2:80").for_zone("z2");
        let none = endpoint("10.1.0.3:80").build();
        check(&port, &[z1.build(), z2.build()], ("a", "", true));
        check(&port, &[z1.build(), z2.build(), none], ("abc", "", true));
        check(&port, &[z2.build()], ("a", "", true));
        let mine = z2.clone().for_node("here");
        let theirs = z1.for_node("there");
        check(&port, &[mine.build(), theirs.build()], ("a", "", true));
        check(&port, &[theirs.build(), z2.for_node("there").build()], ("a", "", true));
    }
}
