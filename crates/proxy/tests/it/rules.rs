//! Objects for these tests, and the rules they make.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use proxy::rules::{Changed, Rules};
use proxy::{NodeView, ServiceName};
use serde_json::{Value, json};

use crate::apply::Rules as _;
use crate::net::Net;

/// The node of [`Net`].
pub fn node() -> NodeView {
    NodeView {
        name: "node".into(),
        addresses: vec!["192.0.2.1".parse().unwrap()],
        pod_ranges: vec!["10.1.0.0/16".parse().unwrap(), "fd01::/64".parse().unwrap()],
        service_ranges: vec!["10.96.0.0/12".parse().unwrap(), "fd96::/108".parse().unwrap()],
        masquerade_bit: 14,
        ..NodeView::default()
    }
}

/// Services and slices by name, the rules they make, and the kernel that has them.
pub struct Cluster<'n> {
    net: &'n Net,
    pub rules: Rules,
    pub objects: BTreeMap<String, (Service, Vec<EndpointSlice>)>,
}

impl<'n> Cluster<'n> {
    pub fn new(net: &'n Net) -> Self {
        Self::on(net, node())
    }

    /// Rules for another node than the usual one.
    pub fn on(net: &'n Net, node: NodeView) -> Self {
        let rules = Rules::new(node);
        net.nft(&rules.replacement());
        Self { net, rules, objects: BTreeMap::new() }
    }

    /// Creates or replaces a Service: `spec`, and endpoints as `address@node`, with `~zone` if it is meant for a zone, with `!`
    /// if it is terminating and with `?` if it is not ready.
    pub fn set(&mut self, name: &str, spec: Value, endpoints: &[&str]) {
        self.objects.insert(name.to_owned(), objects(name, &spec, endpoints));
        self.sync(&[name]);
    }

    /// Adds a slice with ports of its own and one endpoint on this node.
    pub fn add_slice(&mut self, name: &str, slice: &str, ports: &Value, address: &str) {
        let slice = serde_json::from_value(json!({
            "metadata": {"namespace": "ns", "name": format!("{name}-{slice}"), "labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4", "ports": ports,
            "endpoints": [{"addresses": [address], "nodeName": "node", "conditions": {"ready": true}}],
        }));
        self.objects.get_mut(name).unwrap().1.push(slice.unwrap());
        self.sync(&[name]);
    }

    pub fn remove(&mut self, name: &str) {
        self.objects.remove(name);
        self.sync(&[name]);
    }

    fn sync(&mut self, names: &[&str]) {
        let changed: Vec<Changed<'_>> = names.iter().map(|name| changed(name, self.objects.get(*name))).collect();
        let transaction = self.rules.update(&changed);
        self.net.apply(&transaction);
    }
}

pub fn changed<'a>(name: &str, now: Option<&'a (Service, Vec<EndpointSlice>)>) -> Changed<'a> {
    Changed {
        name: ServiceName { namespace: "ns".into(), name: name.into() },
        service: now.map(|(service, _)| service),
        slices: now.iter().flat_map(|(_, slices)| slices).collect(),
    }
}

pub fn objects(name: &str, spec: &Value, endpoints: &[&str]) -> (Service, Vec<EndpointSlice>) {
    let ingress = spec.get("ingress").cloned().unwrap_or(json!([]));
    let service = json!({
        "metadata": {"namespace": "ns", "name": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": spec, "status": {"loadBalancer": {"ingress": ingress}},
    });
    let ports: Vec<Value> = spec["ports"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| json!({"name": p.get("name").cloned().unwrap_or(json!("")), "protocol": p.get("protocol"), "port": p["targetPort"]}))
        .collect();
    let slice = |kind: &str| -> EndpointSlice {
        let own = endpoints.iter().filter(|e| e.contains(':') == (kind == "IPv6"));
        let own = own.map(|e| {
            let (terminating, unready) = (e.ends_with('!'), e.ends_with('?'));
            let (address, rest) = e.trim_end_matches(['!', '?']).split_once('@').unwrap();
            let (node, zone) = rest.split_once('~').unwrap_or((rest, ""));
            let zones: Vec<Value> = (!zone.is_empty()).then(|| json!({"name": zone})).into_iter().collect();
            json!({"addresses": [address], "nodeName": node, "hints": {"forZones": zones},
                   "conditions": {"ready": !terminating && !unready, "serving": !unready, "terminating": terminating}})
        });
        serde_json::from_value(json!({
            "metadata": {"namespace": "ns", "name": format!("{name}-{kind}"), "labels": {"kubernetes.io/service-name": name}},
            "addressType": kind, "endpoints": own.collect::<Vec<_>>(), "ports": ports,
        }))
        .unwrap()
    };
    (serde_json::from_value(service).unwrap(), vec![slice("IPv4"), slice("IPv6")])
}
