//! Addresses and ports of Services: one and two IP families, ranges that users add, and what is given back when.

use std::sync::Arc;

use client::{Client, DeleteOptions, Patch};
use k8s_openapi::api::core::v1::{ConfigMap, Endpoints, Namespace, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::{IPAddress, ServiceCIDR};
use serde_json::{Value, json};

use crate::server::Server;

async fn with(ranges: &[&str]) -> Server {
    Server::start(|config, _| config.service_ranges = ranges.iter().map(|range| (*range).to_owned()).collect()).await
}

fn service(spec: Value) -> Service {
    let mut spec = spec;
    spec["ports"] = spec.get("ports").cloned().unwrap_or_else(|| json!([{"port": 80}]));
    serde_json::from_value(json!({"metadata": {"name": "s", "namespace": "default"}, "spec": spec})).expect("a Service")
}

/// Which families the Service has: policy, families, and the families of its addresses.
fn families(service: &Service) -> Value {
    let spec = service.spec.as_ref().expect("a spec");
    let addresses: Vec<&str> = spec
        .cluster_ips
        .iter()
        .flatten()
        .map(|ip| match ip.as_str() {
            "None" => "None",
            ip if ip.starts_with("10.96.") => "4",
            ip if ip.starts_with("fd96::") => "6",
            other => panic!("{other} is of no range"),
        })
        .collect();
    assert_eq!(spec.cluster_ip, spec.cluster_ips.as_ref().and_then(|ips| ips.first().cloned()));
    json!([spec.ip_family_policy, spec.ip_families, addresses])
}

async fn taken(server: &Server) -> Vec<String> {
    let known = server.admin().list::<IPAddress>("", &Default::default()).await.expect("addresses");
    let names = known.items.into_iter().filter_map(|address| address.metadata.name.clone());
    names.filter(|name| name != "10.96.0.1").collect()
}

#[tokio::test]
async fn a_service_has_an_address_of_each_family_it_asks_for() {
    let server = with(&["10.96.0.0/16", "fd96::/108"]).await;
    let admin = server.admin();
    let cases = [
        (json!({}), json!(["SingleStack", ["IPv4"], ["4"]])),
        (json!({"ipFamilyPolicy": "PreferDualStack"}), json!(["PreferDualStack", ["IPv4", "IPv6"], ["4", "6"]])),
        (json!({"ipFamilyPolicy": "RequireDualStack"}), json!(["RequireDualStack", ["IPv4", "IPv6"], ["4", "6"]])),
        (json!({"ipFamilies": ["IPv6"]}), json!(["SingleStack", ["IPv6"], ["6"]])),
        (json!({"clusterIP": "None"}), json!(["RequireDualStack", ["IPv4", "IPv6"], ["None"]])),
        (
            json!({"clusterIP": "fd96::7", "clusterIPs": ["fd96::7", "10.96.0.7"], "ipFamilyPolicy": "PreferDualStack"}),
            json!(["PreferDualStack", ["IPv6", "IPv4"], ["6", "4"]]),
        ),
    ];
    for (spec, want) in cases {
        let made = admin.create(&service(spec.clone())).await.expect("a Service");
        assert_eq!(families(&made), want, "{spec}");
        let own: Vec<String> = made.spec.expect("a spec").cluster_ips.expect("addresses");
        let mut own: Vec<String> = own.into_iter().filter(|ip| ip != "None").collect();
        own.sort();
        assert_eq!(taken(&server).await, own, "{spec}");
        admin.delete::<Service>("default", "s", &DeleteOptions::default()).await.expect("gone");
        assert_eq!(taken(&server).await, Vec::<String>::new(), "{spec}");
    }
    // The second address comes and goes with the policy, the first one stays.
    let one = admin.create(&service(json!({}))).await.expect("a Service");
    let policy = |policy: &str| Patch::Merge(json!({"spec": {"ipFamilyPolicy": policy}}));
    let two = admin.patch::<Service>("default", "s", &policy("PreferDualStack")).await.expect("upgraded");
    assert_eq!(families(&two), json!(["PreferDualStack", ["IPv4", "IPv6"], ["4", "6"]]));
    assert_eq!(taken(&server).await.len(), 2);
    let again = admin.patch::<Service>("default", "s", &policy("SingleStack")).await.expect("downgraded");
    assert_eq!(again.spec.as_ref().map(|spec| &spec.cluster_ips), one.spec.as_ref().map(|spec| &spec.cluster_ips));
    assert_eq!(taken(&server).await.len(), 1);
    let named = Patch::Merge(json!({"spec": {"type": "ExternalName", "externalName": "a.b"}}));
    let named = admin.patch::<Service>("default", "s", &named).await.expect("a name").spec.expect("a spec");
    assert_eq!((named.cluster_ip, named.cluster_ips, named.ip_families), (None, None, None));
    assert_eq!(taken(&server).await, Vec::<String>::new());
    server.stop().await;
}

/// The texts are those of upstream's server, asked the same.
#[tokio::test]
async fn what_cannot_be_allocated_is_refused_and_takes_nothing() {
    let server = with(&["10.96.0.0/16"]).await;
    let admin = server.admin();
    let outside = "the provided network does not match the current range";
    let cases = [
        (json!({"clusterIP": "1.2.3.4"}), format!("spec.clusterIPs: Invalid value: [\"1.2.3.4\"]: failed to allocate IP 1.2.3.4: {outside}")),
        (json!({"clusterIP": "10.96.0.0"}), format!("spec.clusterIPs: Invalid value: [\"10.96.0.0\"]: failed to allocate IP 10.96.0.0: {outside}")),
        (json!({"clusterIP": "10.96.0.1"}), "spec.clusterIPs: Invalid value: [\"10.96.0.1\"]: failed to allocate IP 10.96.0.1: provided IP is already allocated".into()),
        (json!({"ipFamilyPolicy": "RequireDualStack"}), "spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not configured for dual-stack services".into()),
        (json!({"clusterIPs": ["10.96.0.9"]}), "spec.clusterIPs: Invalid value: [\"10.96.0.9\"]: must be empty when `clusterIP` is not specified".into()),
        (json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 80}]}),
         "spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range. The range of valid ports is 30000-32767".into()),
    ];
    for (spec, want) in cases {
        let refused = admin.create(&service(spec.clone())).await.expect_err("refused").to_string();
        assert_eq!(refused, format!("Service \"s\" is invalid: {want}"));
        assert_eq!(taken(&server).await, Vec::<String>::new(), "{spec}");
    }
    // What validation refuses gives back what was allocated for it.
    let wrong = json!({"sessionAffinity": "Odd", "type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}]});
    admin.create(&service(wrong)).await.expect_err("refused");
    assert_eq!(taken(&server).await, Vec::<String>::new());
    let right = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}]});
    admin.create(&service(right)).await.expect("the port is free");
    server.stop().await;
}

#[tokio::test]
async fn node_ports_are_shared_by_protocols_and_kept_by_name() {
    let server = Server::default().await;
    let admin = server.admin();
    let ports = json!([{"name": "tcp", "port": 53, "protocol": "TCP"}, {"name": "udp", "port": 53, "protocol": "UDP"}]);
    let made = admin.create(&service(json!({"type": "NodePort", "ports": ports}))).await.expect("a Service");
    let numbers = |service: &Service| -> Vec<Option<i32>> {
        let spec = service.spec.as_ref().expect("a spec");
        spec.ports.iter().flatten().map(|port| port.node_port).collect()
    };
    let first = numbers(&made);
    assert!(first[0].is_some() && first[0] == first[1], "{first:?}");
    // The same manifest again, with another port: the numbers stay.
    let mut again = service(json!({"type": "NodePort", "ports": [
        {"name": "tcp", "port": 54, "protocol": "TCP"}, {"name": "udp", "port": 54, "protocol": "UDP"},
    ]}));
    again.metadata.resource_version = made.metadata.resource_version;
    let again = admin.update(&again).await.expect("updated");
    assert_eq!(numbers(&again), first);
    let cluster = Patch::Merge(json!({"spec": {"type": "ClusterIP"}}));
    let cluster = admin.patch::<Service>("default", "s", &cluster).await.expect("without ports");
    assert_eq!(numbers(&cluster), [None, None]);
    let mut other = service(json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": first[0]}]}));
    other.metadata.name = Some("other".to_owned());
    admin.create(&other).await.expect("the port is free again");
    server.stop().await;
}

#[tokio::test]
async fn users_add_ranges_when_the_first_is_full() {
    let server = with(&["10.96.0.0/29"]).await;
    let admin = server.admin();
    let numbered = |number: usize| {
        let mut service = service(json!({}));
        service.metadata.name = Some(format!("s{number}"));
        service
    };
    // Of eight addresses, the network's, the broadcast's and that of `kubernetes` are not to be had.
    for number in 0..5 {
        admin.create(&numbered(number)).await.expect("a Service");
    }
    let full = admin.create(&numbered(5)).await.expect_err("full").to_string();
    assert_eq!(full, "Internal error occurred: failed to allocate a serviceIP for Service \"s5\": range is full");
    let more: ServiceCIDR =
        serde_json::from_value(json!({"metadata": {"name": "more"}, "spec": {"cidrs": ["10.97.0.0/24"]}}))
            .expect("a range");
    admin.create(&more).await.expect("a range");
    admin.list::<ServiceCIDR>("", &Default::default()).await.expect("settled");
    let made = admin.create(&numbered(5)).await.expect("a Service").spec.expect("a spec");
    assert!(made.cluster_ip.as_deref().is_some_and(|ip| ip.starts_with("10.97.0.")), "{made:?}");
    server.stop().await;
}

#[tokio::test]
async fn a_cluster_gets_a_second_family() {
    let server = with(&["10.96.0.0/16"]).await;
    let prefer = json!({"ipFamilyPolicy": "PreferDualStack"});
    let made = server.admin().create(&service(prefer)).await.expect("a Service");
    assert_eq!(families(&made), json!(["PreferDualStack", ["IPv4"], ["4"]]));
    let both = ["10.96.0.0/16".to_owned(), "fd96::/108".to_owned()];
    let server = server.restart(|config, _| config.service_ranges = both.to_vec()).await;
    let admin = server.admin();
    let range = admin.get::<ServiceCIDR>("", "kubernetes").await.expect("the server's range");
    assert_eq!(range.spec.and_then(|spec| spec.cidrs), Some(both.to_vec()));
    // A Service that prefers both does not change by itself, nor by a change of something else.
    let label = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    let same = admin.patch::<Service>("default", "s", &label).await.expect("labelled");
    assert_eq!(families(&same), json!(["PreferDualStack", ["IPv4"], ["4"]]));
    let require = Patch::Merge(json!({"spec": {"ipFamilyPolicy": "RequireDualStack"}}));
    let both = admin.patch::<Service>("default", "s", &require).await.expect("upgraded");
    assert_eq!(families(&both), json!(["RequireDualStack", ["IPv4", "IPv6"], ["4", "6"]]));
    server.stop().await;
}

#[tokio::test]
async fn a_dry_run_takes_nothing() {
    let server = with(&["10.96.0.0/16", "fd96::/108"]).await;
    let kubectl = server.kubectl();
    let manifest = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {
        "type": "NodePort", "ipFamilyPolicy": "PreferDualStack", "ports": [{"port": 80}]}});
    let path = server.path("service.json");
    std::fs::write(&path, manifest.to_string()).expect("a file");
    let wanted = "jsonpath={.spec.clusterIPs} {.spec.ports[0].nodePort}";
    let shown = kubectl.run(&["create", "--dry-run=server", "-o", wanted, "-f", &path.to_string_lossy()]).await;
    assert_eq!(shown.trim(), "[\"10.96.0.0\",\"fd96::\"] 32769");
    assert_eq!(taken(&server).await, Vec::<String>::new());
    server.stop().await;
}

/// Deletes an object, and waits for the one that takes its place.
async fn comes_back<K: client::Kind>(admin: &Client, namespace: &str, name: &str) -> Arc<K> {
    let old = admin.get::<K>(namespace, name).await.expect("the object").metadata().uid.clone();
    admin.delete::<K>(namespace, name, &DeleteOptions::default()).await.expect("deleted");
    let is_new = |now: Option<&K>| now.is_some_and(|now| now.metadata().uid != old);
    testkit::object::<K>(admin, namespace, name, name, is_new).await.expect("another one")
}

/// Whatever of what the cluster stands on somebody deletes: it comes back, and nobody restarted anything.
#[tokio::test]
async fn what_the_cluster_stands_on_comes_back() {
    let server = Server::start(|config, _| config.advertise = [192, 0, 2, 1].into()).await;
    let admin = server.admin();
    let before: Service = admin.get("default", "kubernetes").await.expect("the Service");
    let after = comes_back::<Service>(&admin, "default", "kubernetes").await;
    assert_eq!(after.spec, before.spec);
    let managers = ["get", "service", "kubernetes", "-o", "jsonpath={.metadata.managedFields[*].manager}"];
    let managers = server.kubectl().output(&managers, "").await.stdout;
    assert_eq!(managers, "kube-apiserver", "what the server writes passes the gates like everybody's");
    testkit::object::<IPAddress>(&admin, "", "10.96.0.1", "its address", |address| address.is_some()).await;
    comes_back::<Endpoints>(&admin, "default", "kubernetes").await;
    comes_back::<EndpointSlice>(&admin, "default", "kubernetes").await;
    comes_back::<ConfigMap>(&admin, "kube-system", "kube-apiserver-legacy-service-account-token-tracking").await;
    // A namespace goes when its finalizer is taken away, which is a controller's to do.
    let at = "/api/v1/namespaces/kube-node-lease";
    let mut last = server.send(http::Method::DELETE, at, &[], "").await.json();
    let uid = last["metadata"]["uid"].as_str().map(str::to_owned);
    last["spec"]["finalizers"] = json!([]);
    assert_eq!(server.put(&format!("{at}/finalize"), &last).await.status, 200);
    let is_new = |now: Option<&Namespace>| now.is_some_and(|now| now.metadata.uid != uid);
    testkit::object::<Namespace>(&admin, "", "kube-node-lease", "the namespace", is_new).await;
    // Endpoints that do not name this server are none of its Service's.
    let empty = Patch::Merge(json!({"endpoints": []}));
    admin.patch::<EndpointSlice>("default", "kubernetes", &empty).await.expect("emptied");
    let named = |slice: Option<&EndpointSlice>| {
        slice.is_some_and(|slice| slice.endpoints.iter().flatten().any(|endpoint| endpoint.addresses == ["192.0.2.1"]))
    };
    testkit::object::<EndpointSlice>(&admin, "default", "kubernetes", "the endpoint", named).await;
    server.stop().await;
}
