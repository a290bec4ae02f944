//! The documents against upstream's own.

use serde_json::{Value, json};

use super::*;

fn check(file: &str, body: &[u8]) {
    goldens::document(&format!("discovery/{file}"), &parse(body));
}

fn everything() -> Discovery {
    Discovery::new(built_in(|_, _| true))
}

fn default_on() -> Discovery {
    Discovery::new(built_in(|_, version| version.default_on))
}

fn parse(body: &[u8]) -> Value {
    serde_json::from_slice(body).expect("is JSON")
}

#[test]
fn the_roots_are_upstreams() {
    check("api.json", &everything().api_versions("10.10.10.10:8050"));
    check("apis.json", &everything().group_list());
}

#[test]
fn every_group_is_upstreams() {
    for group in everything().groups().iter().filter(|group| !group.name.is_empty()) {
        check(&format!("apis__{}.json", group.name), &everything().group(&group.name).expect("served"));
    }
}

#[test]
fn every_group_version_is_upstreams() {
    let discovery = everything();
    for group in discovery.groups() {
        for version in &group.versions {
            let file = match &*group.name {
                "" => format!("api__{}.json", version.name),
                name => format!("apis__{name}__{}.json", version.name),
            };
            check(&file, &discovery.resources(&group.name, &version.name).expect("served"));
        }
    }
}

#[test]
fn the_aggregated_document_is_upstreams() {
    let discovery = everything();
    let v2 = discovery.aggregated(Root::Apis, Aggregated::V2);
    check("aggregated_v2.json", &v2.body);
    let mut beta = parse(&discovery.aggregated(Root::Apis, Aggregated::V2beta1).body);
    assert_eq!(beta["apiVersion"], "apidiscovery.k8s.io/v2beta1");
    beta["apiVersion"] = json!("apidiscovery.k8s.io/v2");
    assert_eq!(beta, parse(&v2.body));
}

#[test]
fn the_core_group_is_aggregated_under_its_own_root() {
    let discovery = everything();
    let core = parse(&discovery.aggregated(Root::Api, Aggregated::V2).body);
    assert_eq!(core["items"].as_array().map(Vec::len), Some(1));
    assert_eq!(core["items"][0]["metadata"], json!({}));
    let pods = core["items"][0]["versions"][0]["resources"].as_array().expect("resources");
    let pods = pods.iter().find(|resource| resource["resource"] == "pods").expect("served");
    assert_eq!((&pods["scope"], &pods["shortNames"]), (&json!("Namespaced"), &json!(["po"])));
}

#[test]
fn versions_that_are_off_are_left_out() {
    let discovery = default_on();
    assert!(discovery.group("lifecycle.k8s.io").is_none(), "has alpha versions only");
    assert!(discovery.resources("resource.k8s.io", "v1").is_some());
    assert!(discovery.resources("resource.k8s.io", "v1beta1").is_none());
    assert!(discovery.group("").is_none() && discovery.resources("nothing", "v1").is_none());
    let certificates = parse(&discovery.group("certificates.k8s.io").expect("served"));
    assert_eq!(certificates["versions"], json!([{"groupVersion": "certificates.k8s.io/v1", "version": "v1"}]));
}

#[test]
fn tags_tell_documents_apart() {
    let (all, some) = (everything(), default_on());
    let tag = |discovery: &Discovery| discovery.aggregated(Root::Apis, Aggregated::V2).etag.clone();
    assert_eq!(tag(&all), tag(&everything()));
    assert_ne!(tag(&all), tag(&some));
    assert_eq!(tag(&all).len(), 128);
}
