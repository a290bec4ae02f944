//! A load balancer for bare metal: Services of type LoadBalancer get the nodes' own addresses.
//!
//! Every node's proxy answers at a load balancer's addresses, so all that is missing without a cloud is somebody who says
//! which addresses those are. A port of a node belongs to one Service: the older one keeps it, the other waits and says
//! so. With `externalTrafficPolicy: Local` only nodes with a ready endpoint are named. Services that ask for another
//! load balancer by its class are left alone.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use informer::{Action, EventType, Informer, Informers, Key, Reconciler, Recorder, WorkQueue, feed};
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::model::{Family, Protocol, ServiceName};

/// Nodes with this label take no traffic from outside.
const EXCLUDED_LABEL: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// The one key there is: who gets which port is one decision about all Services.
const ALL: &str = "all";

/// What a Service of type LoadBalancer gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Assignment {
    /// These addresses, in order.
    Addresses(Vec<IpAddr>),
    /// None, and why.
    Waits(String),
}

/// Decides for all Services at once.
pub fn assign<'a>(
    services: impl IntoIterator<Item = &'a Service>,
    nodes: impl IntoIterator<Item = &'a Node>,
    slices: impl IntoIterator<Item = &'a EndpointSlice>,
    reserved: &BTreeSet<(Protocol, u16)>,
) -> BTreeMap<ServiceName, Assignment> {
    let nodes: Vec<(&str, Vec<IpAddr>)> = nodes.into_iter().filter_map(addresses).collect();
    let mut hosts = HashMap::<ServiceName, HashSet<&str>>::new();
    for slice in slices {
        let Some(name) = ServiceName::of_slice(slice) else { continue };
        let ready =
            slice.endpoints.iter().flatten().filter(|e| e.conditions.as_ref().is_none_or(|c| c.ready != Some(false)));
        hosts.entry(name).or_default().extend(ready.filter_map(|e| e.node_name.as_deref()));
    }
    let mut wanting: Vec<(i64, ServiceName, &Service)> = services
        .into_iter()
        .filter(|service| wants(service))
        .filter_map(|service| {
            let created = service.metadata.creation_timestamp.as_ref().map_or(i64::MAX, |t| t.0.as_second());
            Some((created, ServiceName::of(service)?, service))
        })
        .collect();
    wanting.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));

    let mut taken = BTreeMap::<(Protocol, u16), ServiceName>::new();
    let mut decided = BTreeMap::new();
    for (_, name, service) in wanting {
        let ports = ports(service);
        if let Some((protocol, port)) = ports.iter().find(|port| reserved.contains(port)) {
            decided.insert(name, Assignment::Waits(format!("port {port}/{protocol} is the node's own")));
            continue;
        }
        if let Some((port, owner)) = ports.iter().find_map(|port| Some((port, taken.get(port)?))) {
            let why = format!("port {}/{} is taken by {owner}", port.1, port.0);
            decided.insert(name, Assignment::Waits(why));
            continue;
        }
        taken.extend(ports.into_iter().map(|port| (port, name.clone())));
        let spec = service.spec.as_ref();
        let local = spec.is_some_and(|spec| spec.external_traffic_policy.as_deref() == Some("Local"));
        let here = |node: &str| !local || hosts.get(&name).is_some_and(|hosts| hosts.contains(node));
        let families: Vec<Family> = spec
            .and_then(|spec| spec.ip_families.as_ref())
            .map(|families| families.iter().map(|f| if f == "IPv6" { Family::V6 } else { Family::V4 }).collect())
            .unwrap_or_else(|| vec![Family::V4]);
        let of_family = |family: Family| {
            let usable = nodes.iter().filter(|(node, _)| here(node)).flat_map(|(_, addresses)| addresses.iter());
            usable.copied().filter(move |ip| Family::of(*ip) == family).collect::<BTreeSet<_>>()
        };
        let found: Vec<IpAddr> = families.into_iter().flat_map(of_family).collect();
        decided.insert(name, Assignment::Addresses(found));
    }
    decided
}

fn wants(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    service.metadata.deletion_timestamp.is_none()
        && spec.is_some_and(|s| s.type_.as_deref() == Some("LoadBalancer") && s.load_balancer_class.is_none())
}

fn ports(service: &Service) -> Vec<(Protocol, u16)> {
    let ports = service.spec.iter().flat_map(|spec| &spec.ports).flatten();
    ports.filter_map(|p| Some((Protocol::parse(p.protocol.as_deref())?, u16::try_from(p.port).ok()?))).collect()
}

/// A ready node's addresses for the outside: its external ones, in families that have any, else its internal ones.
fn addresses(node: &Node) -> Option<(&str, Vec<IpAddr>)> {
    let excluded = node.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(EXCLUDED_LABEL));
    let status = node.status.as_ref()?;
    let ready = status.conditions.iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True");
    if excluded || !ready {
        return None;
    }
    let of = |kind: &str, family: Family| -> Vec<IpAddr> {
        let all = status.addresses.iter().flatten().filter(|a| a.type_ == kind);
        all.filter_map(|a| a.address.parse().ok()).filter(|ip| Family::of(*ip) == family).collect()
    };
    let best = |family| {
        Some(of("ExternalIP", family)).filter(|ips| !ips.is_empty()).unwrap_or_else(|| of("InternalIP", family))
    };
    Some((node.metadata.name.as_deref()?, Family::ALL.into_iter().flat_map(best).collect()))
}

fn present(service: &Service) -> Vec<IpAddr> {
    let ingress = service.status.iter().flat_map(|s| &s.load_balancer).flat_map(|lb| &lb.ingress).flatten();
    ingress.filter_map(|i| i.ip.as_ref()?.parse().ok()).collect()
}

struct Balancer {
    services: Informer<Service>,
    nodes: Informer<Node>,
    slices: Informer<EndpointSlice>,
    client: client::Client,
    recorder: Recorder,
    reserved: BTreeSet<(Protocol, u16)>,
}

impl Reconciler for Balancer {
    type Error = client::Error;

    async fn reconcile(&self, _: &Key) -> Result<Action, client::Error> {
        let (services, nodes, slices) = (self.services.list(), self.nodes.list(), self.slices.list());
        let decided = assign(
            services.iter().map(Arc::as_ref),
            nodes.iter().map(Arc::as_ref),
            slices.iter().map(Arc::as_ref),
            &self.reserved,
        );
        let mut failed = Ok(Action::Done);
        for service in &services {
            let Some(assignment) = ServiceName::of(service).and_then(|name| decided.get(&name)) else { continue };
            if let Err(error) = self.write(service, assignment).await
                && !error.is_not_found()
            {
                failed = Err(error);
            }
        }
        failed
    }
}

impl Balancer {
    async fn write(&self, service: &Service, assignment: &Assignment) -> Result<(), client::Error> {
        let wanted = match assignment {
            Assignment::Addresses(addresses) => addresses.as_slice(),
            Assignment::Waits(why) => {
                let message = format!("Error syncing load balancer: {why}");
                self.recorder.event(service, EventType::Warning, "SyncLoadBalancerFailed", message);
                &[]
            }
        };
        if present(service) == wanted {
            return Ok(());
        }
        let ingress: Vec<_> = wanted.iter().map(|ip| json!({"ip": ip, "ipMode": "VIP"})).collect();
        let patch = client::Patch::Merge(json!({"status": {"loadBalancer": {"ingress": ingress}}}));
        let meta = &service.metadata;
        let (namespace, name) =
            (meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default());
        self.client.patch_status::<Service>(namespace, name, &patch).await.map(drop)
    }
}

/// Gives addresses to Services until told to end. One in the whole cluster does so at a time.
pub async fn run(reserved: BTreeSet<(Protocol, u16)>, informers: &Informers, shutdown: CancellationToken) {
    let queue = WorkQueue::new("service-lb", informers.clock().clone());
    let key = || [Key::cluster(ALL)];
    let (services, nodes, slices) =
        (informers.of::<Service>(), informers.of::<Node>(), informers.of::<EndpointSlice>());
    feed(&services, &queue, move |change| {
        let balanced = |service: Option<&Arc<Service>>| service.is_some_and(|service| wants(service));
        key().into_iter().filter(|_| balanced(change.before()) || balanced(change.after())).collect::<Vec<_>>()
    });
    feed(&nodes, &queue, move |change| {
        // Most changes to Nodes are heartbeats.
        let changed =
            change.before().and_then(|node| addresses(node)) != change.after().and_then(|node| addresses(node));
        key().into_iter().filter(|_| changed).collect::<Vec<_>>()
    });
    feed(&slices, &queue, move |_| key());
    tokio::select! {
        () = async { services.synced().await; nodes.synced().await; slices.synced().await } => {}
        () = shutdown.cancelled() => return,
    }
    let client = informers.client().clone();
    let recorder = Recorder::new(client.clone(), "service-controller", None, informers.clock().clone());
    let balancer = Balancer { services, nodes, slices, client, recorder, reserved };
    informer::run("service-lb", Arc::new(balancer), queue, 1, shutdown).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn service(name: &str, second: u8, more: Value) -> Service {
        let mut spec = json!({"type": "LoadBalancer", "ports": [{"port": 80}]});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let created = format!("2026-01-01T00:00:0{second}Z");
        let meta = json!({"namespace": "ns", "name": name, "creationTimestamp": created});
        serde_json::from_value(json!({"metadata": meta, "spec": spec})).unwrap()
    }

    fn node(name: &str, addresses: Value, ready: &str, labels: Value) -> Node {
        let status = json!({"conditions": [{"type": "Ready", "status": ready}], "addresses": addresses});
        serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}, "status": status})).unwrap()
    }

    fn nodes() -> Vec<Node> {
        let internal = |ip: &str| json!([{"type": "InternalIP", "address": ip}]);
        let both = json!([{"type": "InternalIP", "address": "10.0.0.2"}, {"type": "ExternalIP", "address": "192.0.2.2"},
                          {"type": "InternalIP", "address": "fd00::2"}]);
        vec![
            node("a", internal("10.0.0.1"), "True", json!({})),
            node("b", both, "True", json!({})),
            node("c", internal("10.0.0.3"), "False", json!({})),
            node("d", internal("10.0.0.4"), "True", json!({EXCLUDED_LABEL: ""})),
        ]
    }

    /// `name: addresses` or `name: why not`, one per line.
    fn check(services: &[Service], slices: &[EndpointSlice], want: &[&str]) {
        let reserved = BTreeSet::from([(Protocol::Tcp, 6443)]);
        let said: Vec<String> = assign(services, &nodes(), slices, &reserved)
            .into_iter()
            .map(|(name, assignment)| match assignment {
                Assignment::Addresses(ips) => format!("{}: {ips:?}", name.name),
                Assignment::Waits(why) => format!("{}: {why}", name.name),
            })
            .collect();
        assert_eq!(said, want);
    }

    #[test]
    fn services_get_the_addresses_of_ready_nodes() {
        check(&[service("web", 0, json!({}))], &[], &["web: [10.0.0.1, 192.0.2.2]"]);
        let dual = json!({"ipFamilies": ["IPv6", "IPv4"]});
        check(&[service("web", 0, dual)], &[], &["web: [fd00::2, 10.0.0.1, 192.0.2.2]"]);
        check(&[service("web", 0, json!({"type": "NodePort"}))], &[], &[]);
        check(&[service("web", 0, json!({"loadBalancerClass": "example.com/other"}))], &[], &[]);
    }

    #[test]
    fn a_port_belongs_to_the_older_service() {
        let old = service("old", 1, json!({}));
        let new = service("new", 2, json!({}));
        let udp = service("udp", 3, json!({"ports": [{"port": 80, "protocol": "UDP"}]}));
        let own = service("own", 0, json!({"ports": [{"port": 6443}]}));
        check(
            &[new, old, udp, own],
            &[],
            &[
                "new: port 80/tcp is taken by ns/old",
                "old: [10.0.0.1, 192.0.2.2]",
                "own: port 6443/tcp is the node's own",
                "udp: [10.0.0.1, 192.0.2.2]",
            ],
        );
    }

    #[test]
    fn local_policy_names_only_nodes_with_endpoints() {
        let slice = json!({
            "metadata": {"namespace": "ns", "name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.1.0.1"], "nodeName": "a"},
                          {"addresses": ["10.1.0.2"], "nodeName": "b", "conditions": {"ready": false}}],
        });
        let web = service("web", 0, json!({"externalTrafficPolicy": "Local"}));
        check(std::slice::from_ref(&web), &[serde_json::from_value(slice).unwrap()], &["web: [10.0.0.1]"]);
        check(&[web], &[], &["web: []"]);
    }
}
