//! Who a verdict is about, and which policies it follows from.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use informer::{EventType, Informer, Informers, Recorder};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;

use crate::cluster_policy::{ClusterNetworkPolicy, ClusterPolicy};
use crate::definition::cluster_policies;
use crate::drops::{self, Sample};
use crate::explain::{End, World, explain};
use crate::figures::VERDICTS;
use crate::flow::{Reader, Verdict, Verdicts};
use crate::model::{Direction, NodeFacts, PodFacts, Policy, PolicyName, namespace};

/// The index of pods by their addresses.
const BY_ADDRESS: &str = "address";

/// What is known of pods and policies.
#[derive(Clone)]
pub struct Known {
    pub(crate) policies: Informer<NetworkPolicy>,
    pub(crate) cluster: Informer<ClusterNetworkPolicy>,
    pub(crate) namespaces: Informer<Namespace>,
    pub(crate) pods: Informer<Pod>,
    informers: Informers,
}

/// A verdict with names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// A pod's name and namespace, or the address.
    pub from: String,
    pub to: String,
    /// Those that allow the connection, or else those that isolate the pod.
    pub policies: Vec<PolicyName>,
}

impl Known {
    pub fn new(informers: &Informers) -> Self {
        let known = Self {
            policies: informers.of(),
            cluster: cluster_policies(informers),
            namespaces: informers.of(),
            pods: informers.of(),
            informers: informers.clone(),
        };
        known.pods.add_index(BY_ADDRESS, |pod| {
            let addresses = PodFacts::of(pod, &[]).map(|facts| facts.addresses).unwrap_or_default();
            addresses.iter().map(ToString::to_string).collect()
        });
        known
    }

    pub async fn synced(&self) {
        self.policies.synced().await;
        self.cluster.synced().await;
        self.namespaces.synced().await;
        self.pods.synced().await;
    }

    /// Nodes, which are watched from the first time on that somebody asks for them: few policies speak of any.
    pub(crate) fn nodes(&self) -> Informer<Node> {
        self.informers.of()
    }

    /// The pod that has an address.
    fn pod(&self, ip: IpAddr) -> Option<(Arc<Pod>, PodFacts)> {
        let owners = self.pods.by_index(BY_ADDRESS, &ip.to_string());
        let known = owners.into_iter().filter_map(|pod| PodFacts::of(&pod, &[]).map(|facts| (pod, facts)));
        known.max_by_key(|(_, facts)| facts.created)
    }

    fn end(&self, ip: IpAddr) -> (String, End) {
        let youngest = self.pod(ip).map(|(_, facts)| facts);
        let name = youngest.as_ref().map(|facts| format!("{}/{}", facts.alike.namespace, facts.name));
        let end = End { addresses: vec![ip], alike: youngest.map(|facts| facts.alike) };
        (name.unwrap_or_else(|| ip.to_string()), end)
    }

    pub fn tell(&self, verdict: &Verdict) -> Told {
        let ((from, source), (to, target)) = (self.end(verdict.from), self.end(verdict.to));
        let own = match verdict.direction {
            Direction::Ingress => &target,
            Direction::Egress | Direction::Node => &source,
        };
        let of_pod = own.alike.as_ref().map(|alike| self.policies.by_namespace(&alike.namespace)).unwrap_or_default();
        let policies: Vec<Policy> =
            of_pod.iter().filter_map(|policy: &Arc<NetworkPolicy>| Policy::of(policy)).collect();
        let namespaces: BTreeMap<_, _> = [&source, &target]
            .into_iter()
            .filter_map(|end| self.namespaces.get(&informer::Key::cluster(&end.alike.as_ref()?.namespace)))
            .filter_map(|found| namespace(&found))
            .collect();
        let cluster: Vec<ClusterPolicy> = self.cluster.list().iter().filter_map(|p| ClusterPolicy::of(p)).collect();
        // Most rules do not speak of nodes.
        let nodes: BTreeMap<String, NodeFacts> = match cluster.iter().any(|policy| policy.nodes().next().is_some()) {
            true => {
                self.nodes().list().iter().filter_map(|n| Some((n.metadata.name.clone()?, NodeFacts::of(n)))).collect()
            }
            false => BTreeMap::new(),
        };
        let world = World { policies: &policies, cluster: &cluster, namespaces: &namespaces, nodes: &nodes };
        let said = explain(world, &source, &target, verdict.port);
        let side = if verdict.direction == Direction::Ingress { said.ingress } else { said.egress };
        Told { from, to, policies: side.policies() }
    }
}

/// Counts verdicts by policy and writes some of them into Events, for as long as it is asked. Where the kernel keeps no log of them nothing is
/// counted.
pub(crate) async fn count(known: Known, recorder: Recorder) {
    known.synced().await;
    let mut sample = Sample::default();
    let begun = Instant::now();
    let counted = async {
        let mut verdicts = Verdicts::open(Reader::Counter).await?;
        loop {
            for verdict in verdicts.next().await? {
                let told = known.tell(&verdict);
                let direction = if verdict.direction == Direction::Ingress { "ingress" } else { "egress" };
                let outcome = if verdict.allowed { "allowed" } else { "denied" };
                for policy in &told.policies {
                    VERDICTS.increment(&[&policy.namespace, &policy.name, direction, outcome]);
                }
                let isolated = if verdict.direction == Direction::Ingress { verdict.to } else { verdict.from };
                if !verdict.allowed
                    && let Some((pod, _)) = known.pod(isolated)
                    && sample.takes(&verdict, begun.elapsed())
                {
                    recorder.event(&*pod, EventType::Warning, drops::REASON, drops::message(&verdict, &told));
                }
            }
        }
    };
    let Err(error): std::io::Result<std::convert::Infallible> = counted.await;
    tracing::warn!(%error, "verdicts of network policies are not counted");
}
