//! One Service in, its part of the transaction out.

use crate::model::{Endpoint, Endpoints, Family, NodeView, ServiceName, ServicePort};
use crate::plan::plan;
use crate::render;
use crate::table::{Owner, Table};
use crate::testing::{endpoint, node, port};

fn table_of(port: &ServicePort, endpoints: &[Endpoint], node: &NodeView) -> Table {
    let name = ServiceName { namespace: "ns".into(), name: "svc".into() };
    let endpoints = Endpoints::from_list(port, endpoints);
    let family = Family::of(port.cluster_ip);
    let contribution = plan(&name, std::slice::from_ref(port), &endpoints, node, family);
    let mut table = Table::new(family);
    table.update([(Owner { created: 0, name }, contribution)]);
    table
}

/// The transaction's lines, without the table's name and the picking chains, which are all alike.
fn check(port: &ServicePort, endpoints: &[Endpoint], want: &str) {
    let table = table_of(port, endpoints, &node("here").build());
    let text = render::update(table.family(), &table.all());
    let picks = |line: &&str| !line.contains("cluster-") && !line.contains("local-") || line.contains("element");
    let got: Vec<String> = text.lines().filter(picks).map(|line| line.replacen(" trireme-proxy", "", 1)).collect();
    let want: Vec<&str> = want.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    assert_eq!(got, want, "\n{}", got.join("\n"));
}

#[test]
fn a_cluster_ip_leads_to_one_of_its_endpoints() {
    check(
        &port("10.96.0.1:80").build(),
        &[endpoint("10.1.0.1:8080").on("here").build(), endpoint("10.1.0.2:8080").build()],
        "add element ip cluster-ips { 10.96.0.1 }
         add element ip hairpin-connections { 10.1.0.1 . 10.1.0.1 }
         add element ip service-ips { 10.96.0.1 . tcp . 80 : goto cluster-tcp-2 }
         add element ip endpoints-tcp { 10.96.0.1 . 80 . 0 : 10.1.0.1 . 8080, 10.96.0.1 . 80 . 1 : 10.1.0.2 . 8080 }",
    );
}

#[test]
fn without_endpoints_every_frontend_is_refused() {
    check(
        &port("10.96.0.1:53").udp().node_port(30_053).external_ip("192.0.2.9").build(),
        &[],
        "add element ip cluster-ips { 10.96.0.1 }
         add element ip no-endpoint-services { 10.96.0.1 . udp . 53 : goto reject-chain, 192.0.2.9 . udp . 53 : goto reject-chain }
         add element ip no-endpoint-nodeports { udp . 30053 : goto reject-chain }",
    );
}

#[test]
fn external_frontends_masquerade_and_use_any_node() {
    check(
        &port("10.96.0.1:80").node_port(30_080).load_balancer("192.0.2.9").build(),
        &[endpoint("10.1.0.2:8080").build()],
        "add element ip cluster-ips { 10.96.0.1 }
         add element ip service-ips { 10.96.0.1 . tcp . 80 : goto cluster-tcp-1, 192.0.2.9 . tcp . 80 : goto external }
         add element ip service-nodeports { tcp . 30080 : goto nodeport-external }
         add element ip via-cluster { 192.0.2.9 . tcp . 80 : goto cluster-tcp-1 }
         add element ip nodeport-via-cluster { tcp . 30080 : goto nodeport-cluster-tcp-1 }
         add element ip endpoints-tcp { 10.96.0.1 . 80 . 0 : 10.1.0.2 . 8080, 192.0.2.9 . 80 . 0 : 10.1.0.2 . 8080 }
         add element ip nodeport-endpoints-tcp { 30080 . 0 : 10.1.0.2 . 8080 }",
    );
}

#[test]
fn external_local_policy_drops_what_has_no_endpoint_here_but_serves_insiders() {
    check(
        &port("10.96.0.1:80").node_port(30_080).external_local().build(),
        &[endpoint("10.1.0.2:8080").on("there").build()],
        "add element ip cluster-ips { 10.96.0.1 }
         add element ip service-ips { 10.96.0.1 . tcp . 80 : goto cluster-tcp-1 }
         add element ip service-nodeports { tcp . 30080 : goto nodeport-external-local }
         add element ip nodeport-via-cluster { tcp . 30080 : goto nodeport-cluster-tcp-1 }
         add element ip no-endpoint-nodeports { tcp . 30080 : drop }
         add element ip endpoints-tcp { 10.96.0.1 . 80 . 0 : 10.1.0.2 . 8080 }
         add element ip nodeport-endpoints-tcp { 30080 . 0 : 10.1.0.2 . 8080 }",
    );
}

#[test]
fn internal_local_policy_drops_when_all_endpoints_are_elsewhere() {
    check(
        &port("10.96.0.1:80").internal_local().build(),
        &[endpoint("10.1.0.2:8080").on("there").build()],
        "add element ip cluster-ips { 10.96.0.1 }
         add element ip no-endpoint-services { 10.96.0.1 . tcp . 80 : drop }",
    );
}

#[test]
fn affinity_has_a_set_of_clients_and_a_chain_per_endpoint() {
    check(
        &port("[fd00::1]:80").affinity(600).build(),
        &[endpoint("[fd01::2]:8080").build()],
        "add chain ip6 endpoint/ns/svc/tcp/web/fd01..2/8080
         flush chain ip6 endpoint/ns/svc/tcp/web/fd01..2/8080
         add chain ip6 service/ns/svc/tcp/web
         flush chain ip6 service/ns/svc/tcp/web
         add set ip6 affinity/ns/svc/tcp/web/fd01..2/8080 { type ipv6_addr; size 65535; flags dynamic,timeout; timeout 600s; }
         add rule ip6 endpoint/ns/svc/tcp/web/fd01..2/8080 update @affinity/ns/svc/tcp/web/fd01..2/8080 { ip6 saddr }
         add rule ip6 endpoint/ns/svc/tcp/web/fd01..2/8080 meta l4proto tcp dnat to [fd01::2]:8080
         add rule ip6 service/ns/svc/tcp/web ip6 saddr @affinity/ns/svc/tcp/web/fd01..2/8080 goto endpoint/ns/svc/tcp/web/fd01..2/8080
         add rule ip6 service/ns/svc/tcp/web numgen random mod 1 vmap { 0 : goto endpoint/ns/svc/tcp/web/fd01..2/8080 }
         add element ip6 cluster-ips { fd00::1 }
         add element ip6 service-ips { fd00::1 . tcp . 80 : goto service/ns/svc/tcp/web }",
    );
}

#[test]
fn source_ranges_guard_the_load_balancers_addresses() {
    check(
        &port("10.96.0.1:80").load_balancer("198.51.100.9").source("192.0.2.0/24").source("203.0.113.0/24").build(),
        &[],
        "add chain ip firewall/ns/svc/tcp/web
         flush chain ip firewall/ns/svc/tcp/web
         add rule ip firewall/ns/svc/tcp/web ip saddr != { 192.0.2.0/24, 198.51.100.9, 203.0.113.0/24 } drop
         add element ip cluster-ips { 10.96.0.1 }
         add element ip no-endpoint-services { 10.96.0.1 . tcp . 80 : goto reject-chain, 198.51.100.9 . tcp . 80 : goto reject-chain }
         add element ip firewall-ips { 198.51.100.9 . tcp . 80 : goto firewall/ns/svc/tcp/web }",
    );
}

#[test]
fn an_address_served_on_the_node_itself_is_left_alone() {
    let mut here = node("here").build();
    let dns = port("10.96.0.10:53").udp().build();
    here.served_here.insert(dns.cluster_ip);
    assert!(table_of(&dns, &[], &here).all().is_empty());
}

#[test]
fn picking_falls_back_to_the_first_endpoint() {
    let table = table_of(
        &port("10.96.0.1:80").build(),
        &[endpoint("10.1.0.1:80").build(), endpoint("10.1.0.2:80").build()],
        &node("here").build(),
    );
    let text = render::prepare(Family::V4, &table.all());
    let rules: Vec<&str> = text.lines().filter(|line| line.starts_with("add rule")).collect();
    let rule = |below| {
        format!(
            "add rule ip trireme-proxy cluster-tcp-2 meta l4proto tcp dnat ip to \
             ip daddr . tcp dport . numgen random mod {below} map @endpoints-tcp"
        )
    };
    assert_eq!(rules, [rule(2), rule(1)]);
}
