use super::*;
use serde_json::{Value, json};

fn pod(spec: Value) -> Pod {
    serde_json::from_value(json!({"spec": spec})).expect("a pod")
}

#[test]
fn a_node_reaches_what_its_pods_refer_to() {
    let mut graph = Graph::default();
    let spec = json!({
        "nodeName": "n1", "serviceAccountName": "default",
        "imagePullSecrets": [{"name": "pull"}],
        "containers": [{"name": "c", "envFrom": [{"configMapRef": {"name": "env"}}],
            "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "key", "key": "k"}}}]}],
        "ephemeralContainers": [{"name": "d", "envFrom": [{"secretRef": {"name": "debug"}}]}],
        "volumes": [
            {"name": "s", "secret": {"secretName": "vol"}},
            {"name": "c", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "e", "ephemeral": {"volumeClaimTemplate": {}}},
            {"name": "p", "projected": {"sources": [{"secret": {"name": "proj"}}, {"configMap": {"name": "root"}}]}},
        ],
    });
    graph.set_pod("a", "web", &pod(spec));
    let reached = [
        (Kind::ServiceAccount, "default"),
        (Kind::Secret, "pull"),
        (Kind::Secret, "key"),
        (Kind::Secret, "debug"),
        (Kind::Secret, "vol"),
        (Kind::Secret, "proj"),
        (Kind::ConfigMap, "env"),
        (Kind::ConfigMap, "root"),
        (Kind::Claim, "data"),
        (Kind::Claim, "web-e"),
    ];
    for (kind, name) in reached {
        assert!(graph.reaches("n1", kind, "a", name), "{kind:?} {name}");
        assert!(!graph.reaches("n2", kind, "a", name) && !graph.reaches("n1", kind, "b", name), "{kind:?} {name}");
    }
    assert!(!graph.reaches("n1", Kind::ConfigMap, "a", "vol"));
    graph.remove_pod("a", "web");
    assert!(reached.iter().all(|(kind, name)| !graph.reaches("n1", *kind, "a", name)));
    assert!(graph.nodes.is_empty());
}

#[test]
fn a_volume_opens_its_secrets_through_its_claim() {
    let mut graph = Graph::default();
    let volume = json!({"spec": {
        "claimRef": {"namespace": "a", "name": "data"},
        "csi": {"driver": "d", "volumeHandle": "h",
            "nodePublishSecretRef": {"namespace": "s", "name": "publish"},
            "controllerPublishSecretRef": {"namespace": "s", "name": "controller"}},
    }});
    graph.set_volume("pv", &serde_json::from_value(volume).expect("a volume"));
    assert!(!graph.uses("n1", "pv"));
    let claim = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]);
    graph.set_pod("a", "web", &pod(json!({"nodeName": "n1", "volumes": claim})));
    assert!(graph.uses("n1", "pv") && graph.reaches("n1", Kind::Secret, "s", "publish"));
    assert!(!graph.reaches("n1", Kind::Secret, "s", "controller"));
    graph.remove_volume("pv");
    assert!(!graph.uses("n1", "pv") && !graph.reaches("n1", Kind::Secret, "s", "publish"));
}

#[test]
fn mirror_pods_and_unscheduled_pods_open_nothing() {
    let mut graph = Graph::default();
    let volumes = json!([{"name": "s", "secret": {"secretName": "vol"}}]);
    let mirror = json!({"metadata": {"annotations": {MIRROR: "x"}}, "spec": {"nodeName": "n1", "volumes": volumes}});
    graph.set_pod("a", "mirror", &serde_json::from_value(mirror).expect("a pod"));
    graph.set_pod("a", "waiting", &pod(json!({"volumes": volumes})));
    assert!(!graph.reaches("n1", Kind::Secret, "a", "vol"));
}
