//! Builders for this crate's tests: `port("10.96.0.1:80").node_port(30000)`, `endpoint("10.1.0.1:80").on("n1")`.

use std::net::SocketAddr;

use rules::protocol::Protocol;

use crate::model::{Endpoint, NodeView, ServicePort};

/// A Service port under construction.
#[derive(Clone)]
pub struct PortBuilder(ServicePort);

pub fn port(address: &str) -> PortBuilder {
    let address: SocketAddr = address.parse().unwrap();
    PortBuilder(ServicePort {
        name: "web".to_owned(),
        protocol: Protocol::Tcp,
        cluster_ip: address.ip(),
        port: address.port(),
        node_port: None,
        external: Vec::new(),
        load_balancer: Vec::new(),
        sources: Vec::new(),
        affinity: None,
        external_local: false,
        internal_local: false,
    })
}

impl PortBuilder {
    pub fn udp(mut self) -> Self {
        self.0.protocol = Protocol::Udp;
        self
    }

    pub fn node_port(mut self, port: u16) -> Self {
        self.0.node_port = Some(port);
        self
    }

    pub fn external_ip(mut self, ip: &str) -> Self {
        self.0.external.push(ip.parse().unwrap());
        self
    }

    pub fn load_balancer(mut self, ip: &str) -> Self {
        self.0.load_balancer.push(ip.parse().unwrap());
        self.external_ip(ip)
    }

    pub fn source(mut self, range: &str) -> Self {
        self.0.sources.push(range.parse().unwrap());
        self
    }

    pub fn affinity(mut self, seconds: u32) -> Self {
        self.0.affinity = Some(seconds);
        self
    }

    pub fn external_local(mut self) -> Self {
        self.0.external_local = true;
        self
    }

    pub fn internal_local(mut self) -> Self {
        self.0.internal_local = true;
        self
    }

    pub fn build(&self) -> ServicePort {
        self.0.clone()
    }
}

/// An endpoint under construction: ready by default.
#[derive(Clone)]
pub struct EndpointBuilder(Endpoint);

pub fn endpoint(address: &str) -> EndpointBuilder {
    let address: SocketAddr = address.parse().unwrap();
    EndpointBuilder(Endpoint {
        address: address.ip(),
        port: address.port(),
        local: false,
        ready: true,
        serving: true,
        terminating: false,
        zones: Default::default(),
        nodes: Default::default(),
    })
}

impl EndpointBuilder {
    pub fn on(mut self, node: &str) -> Self {
        self.0.local = node == "here";
        self
    }

    pub fn terminating(mut self) -> Self {
        (self.0.ready, self.0.terminating) = (false, true);
        self
    }

    pub fn not_serving(mut self) -> Self {
        (self.0.ready, self.0.serving) = (false, false);
        self
    }

    pub fn for_zone(mut self, zone: &str) -> Self {
        self.0.zones.insert(zone.to_owned());
        self
    }

    pub fn for_node(mut self, node: &str) -> Self {
        self.0.nodes.insert(node.to_owned());
        self
    }

    pub fn build(&self) -> Endpoint {
        self.0.clone()
    }
}

/// A node under construction.
pub struct NodeBuilder(NodeView);

pub fn node(name: &str) -> NodeBuilder {
    NodeBuilder(NodeView {
        name: name.to_owned(),
        addresses: vec!["192.0.2.1".parse().unwrap()],
        pod_ranges: vec!["10.1.0.0/16".parse().unwrap()],
        service_ranges: vec!["10.96.0.0/12".parse().unwrap()],
        masquerade_bit: 14,
        ..NodeView::default()
    })
}

impl NodeBuilder {
    pub fn zone(mut self, zone: &str) -> Self {
        self.0.zone = Some(zone.to_owned());
        self
    }

    pub fn build(self) -> NodeView {
        self.0
    }
}

impl crate::model::Endpoints {
    /// These endpoints, all of `port`.
    pub fn from_list(port: &ServicePort, list: &[Endpoint]) -> Self {
        let mut all = Self::default();
        for endpoint in list {
            all.insert((port.name.clone(), port.protocol), endpoint.clone());
        }
        all
    }
}
