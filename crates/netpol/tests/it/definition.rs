//! ClusterNetworkPolicies as custom resources of a real server, whose definition comes and goes.

use std::time::{Duration, Instant};

use client::{Client, DeleteOptions, Gvr, Patch};
use informer::Informers;
use netpol::Kind;
use netpol::cluster_policy::{ClusterNetworkPolicy, DEFINITION};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::agent::{Agent, attach, begin, until};
use crate::cluster::{Left, bridged, on_both_engines_async};

on_both_engines_async!(the_definition_comes_and_goes_and_odd_objects_fail_closed);

/// As the project publishes it, but for what it refuses: the agent has to live with versions that refuse less.
fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {
            "name": DEFINITION, "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/network-policy-api/pull/300"}},
        "spec": {
            "group": "policy.networking.k8s.io", "scope": "Cluster",
            "names": {"kind": "ClusterNetworkPolicy", "listKind": "ClusterNetworkPolicyList", "plural": "clusternetworkpolicies", "singular": "clusternetworkpolicy", "shortNames": ["cnp"]},
            "versions": [{"name": "v1alpha2", "served": true, "storage": true, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    })
}

async fn the_definition_comes_and_goes_and_odd_objects_fail_closed(kind: Kind) {
    let server = testkit::Cluster::start().await;
    let net = bridged(2);
    let _left = Left(&net);
    let api = server.in_process();
    begin(&api).await;
    let agent = Agent::start(&net, server.in_process(), kind);
    let (stop, informers) = (CancellationToken::new(), Informers::new(server.in_process()));
    let stopped = stop.clone();
    let statuses = tokio::spawn(async move { netpol::status::run(&informers, stopped).await });
    attach(&api, &agent, 2).await;
    assert_eq!(net.ask("pod1", "10.1.0.2:80"), "pod0 10.1.0.3", "pods start without the kind");
    let definitions = api.dynamic(&Gvr::new("apiextensions.k8s.io", "v1", "customresourcedefinitions"));
    let made = |name: &str, spec: Value| -> ClusterNetworkPolicy {
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
    };
    let deny = json!({"tier": "Admin", "priority": 1, "subject": {"namespaces": {}},
                      "ingress": [{"action": "Deny", "from": [{"namespaces": {}}]}]});
    for round in 0..2 {
        definitions.create("", &definition()).await.unwrap();
        let limit = Instant::now() + Duration::from_secs(60);
        while let Err(error) = api.create(&made("deny", deny.clone())).await {
            assert!(Instant::now() < limit, "{error}");
            tokio::task::yield_now().await;
        }
        until(|| net.ask("pod1", "10.1.0.2:80"), |said| said == "silence");
        if round == 0 {
            let pass = json!({"spec": {"ingress": [{"action": "Accept", "from": [{"namespaces": {}}]}]}});
            api.patch::<ClusterNetworkPolicy>("", "deny", &Patch::Merge(pass)).await.unwrap();
            until(|| net.ask("pod1", "10.1.0.2:80"), |said| said == "pod0 10.1.0.3");
            // Objects that no version of the kind describes.
            for (name, spec) in [("number", json!(7)), ("text", json!({"ingress": "x", "egress": {"a": []}}))] {
                api.create(&made(name, spec)).await.unwrap();
            }
            let unknown = json!({"tier": "Admin", "priority": 0, "subject": {"namespaces": {}}, "ingress": [{"action": "Deny", "from": [{"planets": {}}]}]});
            api.create(&made("unknown", unknown)).await.unwrap();
            until(|| net.ask("pod1", "10.1.0.2:80"), |said| said == "silence");
            // Each says in its status what was made of it.
            said(&api, "deny", 2, "True", "every rule is enforced as it is written").await;
            said(&api, "unknown", 1, "False", "ingress rule 1 denies everything: it has a peer that cannot be read")
                .await;
            said(
                &api,
                "number",
                1,
                "False",
                "its tier, priority or subject cannot be read: what it denies is denied to all pods",
            )
            .await;
        }
        // With the definition go its objects, and what they said.
        definitions.delete("", DEFINITION, &DeleteOptions::default()).await.unwrap();
        until(|| net.ask("pod1", "10.1.0.2:80"), |said| said == "pod0 10.1.0.3");
        let gone = async || definitions.get("", DEFINITION).await.is_err();
        let limit = Instant::now() + Duration::from_secs(60);
        while !gone().await {
            assert!(Instant::now() < limit, "the definition does not go");
            tokio::task::yield_now().await;
        }
    }
    stop.cancel();
    statuses.await.unwrap();
    server.stop().await;
}

/// Waits until a generation of a policy says this of itself.
async fn said(api: &Client, name: &str, generation: i64, status: &str, message: &str) {
    let wanted = json!([generation, status, message]);
    testkit::object::<ClusterNetworkPolicy>(api, "", name, message, |policy| {
        let condition = policy.map(|policy| policy.status["conditions"][0].clone()).unwrap_or_default();
        json!([condition["observedGeneration"], condition["status"], condition["message"]]) == wanted
    })
    .await;
}
