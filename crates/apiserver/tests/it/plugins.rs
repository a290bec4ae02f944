//! Plug-ins that are off by default, and what the file of settings tells them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use apiserver::admission::Settings;
use bytes::Bytes;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Node, Pod, Service};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use machinery::rest::User;
use serde_json::{Value, json};
use testkit::Https;
use testkit::build::{node, pod};

use crate::server::{Server, post};

fn typed<T: serde::de::DeserializeOwned>(tree: Value) -> T {
    serde_json::from_value(tree).expect("an object of that kind")
}

async fn with(plugins: &str) -> Server {
    Server::start(|config, _| config.admission = Settings::parse(plugins, "").expect("names of plug-ins")).await
}

fn of(spec: Value) -> Pod {
    typed(json!({"metadata": {"name": "web", "namespace": "default"}, "spec": spec}))
}

#[tokio::test]
async fn pods_are_completed_by_plugins_that_are_switched_on() {
    let server = with("AlwaysPullImages,PodNodeSelector,ExtendedResourceToleration").await;
    let admin = server.admin();
    let selector = json!({"metadata": {"annotations": {"scheduler.alpha.kubernetes.io/node-selector": "disk=fast"}}});
    admin.patch::<Namespace>("", "default", &client::Patch::Merge(selector)).await.expect("annotated");
    admin.list::<Namespace>("", &Default::default()).await.expect("settled");
    let wish = json!({"containers": [{"name": "c", "image": "i", "imagePullPolicy": "Never",
        "resources": {"limits": {"example.com/gpu": "1"}}}]});
    let spec = admin.create(&of(wish)).await.expect("a pod").spec.expect("a spec");
    assert_eq!(spec.containers[0].image_pull_policy.as_deref(), Some("Always"));
    assert_eq!(spec.node_selector.expect("a selector")["disk"], "fast");
    let tolerated = spec.tolerations.expect("tolerations");
    assert!(tolerated.iter().any(|toleration| toleration.key.as_deref() == Some("example.com/gpu")));
    let other = json!({"nodeSelector": {"disk": "slow"}, "containers": [{"name": "c", "image": "i"}]});
    let refused = admin.create(&of(other)).await.expect_err("refused").to_string();
    assert_eq!(
        refused,
        "pods \"web\" is forbidden: pod node label selector conflicts with its namespace node label selector"
    );
    server.stop().await;
}

#[tokio::test]
async fn pods_carry_the_topology_of_their_node() {
    let server = Server::default().await;
    let admin = server.admin();
    let mut zoned: Node = node("n1");
    zoned.metadata.labels = Some([("topology.kubernetes.io/zone".to_owned(), "z1".to_owned())].into());
    admin.create(&zoned).await.expect("a node");
    admin.list::<Node>("", &Default::default()).await.expect("settled");
    admin.create(&pod("web")).await.expect("a pod");
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "web"}, "target": {"kind": "Node", "name": "n1"}});
    admin.create_subresource::<Pod, _, Value>("default", "web", "binding", &binding).await.expect("bound");
    let bound: Pod = admin.get("default", "web").await.expect("the pod");
    assert_eq!(bound.metadata.labels.expect("labels")["topology.kubernetes.io/zone"], "z1");
    server.stop().await;
}

#[tokio::test]
async fn one_priority_class_is_the_default() {
    let server = Server::default().await;
    let admin = server.admin();
    let class = |name: &str, number: i64| -> PriorityClass {
        typed(json!({"metadata": {"name": name}, "value": number, "globalDefault": true, "preemptionPolicy": "Never"}))
    };
    admin.create(&class("usual", 7)).await.expect("a class");
    admin.list::<PriorityClass>("", &Default::default()).await.expect("settled");
    let refused = admin.create(&class("other", 9)).await.expect_err("refused").to_string();
    assert!(
        refused.ends_with("PriorityClass usual is already marked as default. Only one default can exist"),
        "{refused}"
    );
    let spec = admin.create(&pod("web")).await.expect("a pod").spec.expect("a spec");
    assert_eq!(
        (spec.priority_class_name.as_deref(), spec.priority, spec.preemption_policy.as_deref()),
        (Some("usual"), Some(7), Some("Never"))
    );
    let own = json!({"priorityClassName": "usual", "preemptionPolicy": "PreemptLowerPriority", "containers": [{"name": "c", "image": "i"}]});
    let refused = admin.create(&of(own)).await.expect_err("refused").to_string();
    assert!(
        refused
            .contains("the string value of PreemptionPolicy (PreemptLowerPriority) must not be provided in pod spec"),
        "{refused}"
    );
    server.stop().await;
}

#[tokio::test]
async fn events_come_only_so_fast() {
    let server = Server::start(|config, directory| {
        let path = directory.join("admission.yaml");
        let text = "{apiVersion: apiserver.config.k8s.io/v1, kind: AdmissionConfiguration, plugins: [{name: EventRateLimit, \
                    configuration: {limits: [{type: Namespace, qps: 1, burst: 3}]}}]}";
        std::fs::write(&path, text).expect("a file");
        config.admission = Settings::parse("EventRateLimit", "").expect("names of plug-ins");
        config.admission.configure(&path).expect("settings");
        // The clock stands still, so that nothing is filled up again meanwhile.
        let now = jiff::Timestamp::now();
        config.clock = Arc::new(move || now);
    })
    .await;
    let admin = server.admin();
    let event = |name: &str| -> Event {
        typed(
            json!({"metadata": {"name": name, "namespace": "default"}, "involvedObject": {"kind": "Pod", "namespace": "default", "name": "web"},
            "reason": "Testing", "message": "m", "type": "Normal", "source": {"component": "test"}}),
        )
    };
    for number in 0..3 {
        admin.create(&event(&format!("e{number}"))).await.expect("within the limit");
    }
    let refused = admin.create(&event("e3")).await.expect_err("refused");
    assert_eq!(
        (refused.code(), refused.to_string().as_str()),
        (Some(429), "Too many requests: limit reached on type Namespace for key default")
    );
    server.stop().await;
}

#[tokio::test]
async fn images_are_judged_by_somebody_else_ephemeral_ones_too() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = asked.clone();
    let judge = Https::start(|_| {
        move |request: http::Request<Bytes>| {
            counter.fetch_add(1, Ordering::Relaxed);
            let mut review: Value = serde_json::from_slice(request.body()).expect("a review");
            let images = review["spec"]["containers"].as_array().cloned().unwrap_or_default();
            let is_bad = |container: &Value| container["image"].as_str().is_some_and(|image| image.contains("bad"));
            let bad = images.iter().any(is_bad);
            review["status"] = json!({"allowed": !bad, "reason": if bad { "it is bad" } else { "" }});
            http::Response::new(Bytes::from(review.to_string()))
        }
    })
    .await;
    let server = Server::start(|config, directory| {
        std::fs::write(directory.join("judge.kubeconfig"), judge.kubeconfig("/images")).expect("a file");
        let path = directory.join("admission.yaml");
        let text = "{apiVersion: apiserver.config.k8s.io/v1, kind: AdmissionConfiguration, plugins: [{name: ImagePolicyWebhook, \
                    configuration: {imagePolicy: {kubeConfigFile: judge.kubeconfig, allowTTL: 60}}}]}";
        std::fs::write(&path, text).expect("a file");
        config.admission = Settings::parse("ImagePolicyWebhook", "").expect("names of plug-ins");
        config.admission.configure(&path).expect("settings");
    })
    .await;
    let admin = server.admin();
    let running = |name: &str, image: &str| -> Pod {
        typed(
            json!({"metadata": {"name": name, "namespace": "default"}, "spec": {"containers": [{"name": "c", "image": image}]}}),
        )
    };
    admin.create(&running("good", "good:1")).await.expect("allowed");
    admin.create(&running("again", "good:1")).await.expect("allowed");
    assert_eq!(asked.load(Ordering::Relaxed), 1, "the answer is remembered");
    let refused = admin.create(&running("bad", "bad:1")).await.expect_err("refused").to_string();
    assert_eq!(refused, "pods \"bad\" is forbidden: image policy webhook backend denied one or more images: it is bad");
    let debug = server.kubectl().output(&["debug", "good", "--image=bad:2"], "").await;
    assert!(debug.stderr.contains("denied one or more images: it is bad"), "{}", debug.stderr);
    server.stop().await;
}

#[tokio::test]
async fn owners_are_set_by_those_who_may_delete() {
    let server = with("OwnerReferencesPermissionEnforcement").await;
    let admin = server.admin();
    let role = json!({"metadata": {"name": "editor"}, "rules": [{"apiGroups": [""], "resources": ["services"], "verbs": ["get", "create", "update"]}]});
    let binding = json!({"metadata": {"name": "jane"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "editor"},
        "subjects": [{"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}]});
    admin.create(&typed::<k8s_openapi::api::rbac::v1::ClusterRole>(role)).await.expect("a role");
    admin.create(&typed::<k8s_openapi::api::rbac::v1::ClusterRoleBinding>(binding)).await.expect("a binding");
    admin.list::<Namespace>("", &Default::default()).await.expect("settled");
    let jane = server.as_user(User::new("jane", ["system:authenticated"]));
    let service = json!({"metadata": {"name": "s", "namespace": "default"}, "spec": {"ports": [{"port": 80}]}});
    let mut made = jane.create(&typed::<Service>(service)).await.expect("a service");
    made.metadata.owner_references =
        Some(vec![typed(json!({"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}))]);
    let refused = jane.update(&made).await.expect_err("refused").to_string();
    assert!(refused.contains("cannot set an ownerRef on a resource you can't delete"), "{refused}");
    admin.update(&made).await.expect("an administrator may");
    server.stop().await;
}

#[tokio::test]
async fn namespaces_come_when_they_are_used_or_must_be_there() {
    let server = with("NamespaceAutoProvision,NamespaceExists").await;
    let admin = server.admin();
    let map = |namespace: &str| -> ConfigMap { typed(json!({"metadata": {"name": "m", "namespace": namespace}})) };
    admin.create(&map("made")).await.expect("a namespace is made for it");
    let made: Namespace = admin.get("", "made").await.expect("the namespace");
    assert_eq!(made.status.and_then(|status| status.phase).as_deref(), Some("Active"));
    assert_eq!(made.metadata.labels.expect("labels")["kubernetes.io/metadata.name"], "made");
    server.stop().await;
    // Without the check for namespaces that go, the other one still wants them to be there.
    let server = Server::start(|config, _| {
        config.admission = Settings::parse("NamespaceExists", "NamespaceLifecycle").expect("names of plug-ins");
    })
    .await;
    let refused = server.admin().create(&map("nowhere")).await.expect_err("refused");
    assert_eq!((refused.code(), refused.to_string().as_str()), (Some(404), "namespaces \"nowhere\" not found"));
    server.stop().await;
}

#[tokio::test]
async fn everything_is_denied_where_somebody_wants_that() {
    // The first objects are there already.
    let server = Server::default().await;
    let server = server
        .restart(|config, _| {
            config.admission = Settings::parse("AlwaysAdmit,AlwaysDeny", "").expect("names of plug-ins");
        })
        .await;
    let admin = server.admin();
    let refused = admin.create(&pod("web")).await.expect_err("refused").to_string();
    assert_eq!(refused, "pods \"web\" is forbidden: admission control is denying all modifications");
    let kept =
        admin.delete::<Namespace>("", "kube-public", &Default::default()).await.expect_err("refused").to_string();
    assert_eq!(kept, "namespaces \"kube-public\" is forbidden: this namespace may not be deleted");
    admin.list::<Pod>("default", &Default::default()).await.expect("nobody is kept from reading");
    server.stop().await;
}

#[tokio::test]
async fn pods_insist_on_nodes_and_not_on_zones() {
    let server = with("LimitPodHardAntiAffinityTopology").await;
    let admin = server.admin();
    let apart = |key: &str| {
        let term = json!({"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": key});
        of(json!({"containers": [{"name": "c", "image": "i"}],
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}))
    };
    let refused = admin.create(&apart("topology.kubernetes.io/zone")).await.expect_err("refused").to_string();
    assert_eq!(
        refused,
        "pods \"web\" is forbidden: affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey topology.kubernetes.io/zone but only key kubernetes.io/hostname is allowed"
    );
    admin.create(&apart("kubernetes.io/hostname")).await.expect("a pod");
    server.stop().await;
}

#[tokio::test]
async fn pods_tolerate_what_their_namespace_says() {
    let server = Server::start(|config, directory| {
        let path = directory.join("admission.yaml");
        let text = "{apiVersion: apiserver.config.k8s.io/v1, kind: AdmissionConfiguration, plugins: [{name: PodTolerationRestriction, \
                    configuration: {default: [{key: d, operator: Exists}], whitelist: [{operator: Exists}]}}]}";
        std::fs::write(&path, text).expect("a file");
        config.admission = Settings::parse("PodTolerationRestriction", "").expect("names of plug-ins");
        config.admission.configure(&path).expect("settings");
    })
    .await;
    let admin = server.admin();
    let keys = |pod: Pod| -> Vec<String> {
        let tolerations = pod.spec.expect("a spec").tolerations.unwrap_or_default();
        tolerations.into_iter().filter_map(|toleration| toleration.key).collect()
    };
    let made = admin.create(&pod("plain")).await.expect("a pod");
    let away = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
    assert_eq!(keys(made), [away[0], away[1], "d"]);
    let asking = json!({"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]});
    let made = admin.create(&of(asking)).await.expect("a pod");
    assert_eq!(keys(made), [away[0], away[1], "d", "node.kubernetes.io/memory-pressure"]);
    let annotations = json!({"metadata": {"annotations": {
        "scheduler.alpha.kubernetes.io/defaultTolerations": "",
        "scheduler.alpha.kubernetes.io/tolerationsWhitelist": "[{\"key\": \"own\", \"operator\": \"Exists\"}]"}}});
    admin.patch::<Namespace>("", "default", &client::Patch::Merge(annotations)).await.expect("annotated");
    admin.list::<Namespace>("", &Default::default()).await.expect("settled");
    let refused = admin.create(&pod("foreign")).await.expect_err("refused");
    assert_eq!(
        (refused.code(), refused.to_string().as_str()),
        (
            Some(500),
            "pod tolerations (possibly merged with namespace default tolerations) conflict with its namespace whitelist"
        )
    );
    server.stop().await;
}

#[tokio::test]
async fn running_pods_change_only_as_their_node_can_follow() {
    let server = Server::default().await;
    let admin = server.admin();
    let mut small = admin.create(&node("n1")).await.expect("a node");
    small.status = Some(typed(json!({"allocatable": {"cpu": "1", "memory": "1Gi"}})));
    let small = admin.update_status(&small).await.expect("a status");
    let asks = |cpu: &str| json!({"requests": {"cpu": cpu, "memory": "1Mi"}});
    let running = |name: &str, whole: Value| -> Pod {
        typed(json!({"metadata": {"name": name, "namespace": "default"},
            "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i", "resources": asks("100m")}], "resources": whole}}))
    };
    let plain = admin.create(&running("plain", json!(null))).await.expect("a pod");
    let whole = admin.create(&running("whole", asks("200m"))).await.expect("a pod");
    let resize = async |pod: &Pod, container: Value, all: Option<Value>| {
        let mut pod = pod.clone();
        let spec = pod.spec.as_mut().expect("a spec");
        spec.containers[0].resources = Some(typed(container));
        spec.resources = all.map(typed);
        let name = pod.metadata.name.clone().expect("a name");
        admin.update_subresource::<Pod, _, Pod>("default", &name, "resize", &pod).await
    };
    let refused = resize(&plain, asks("2500m"), None).await.expect_err("refused").to_string();
    assert_eq!(
        refused,
        "pods \"plain\" is forbidden: node didn't have enough allocatable resources: cpu, requested: 2500, allocatable: 1000"
    );
    resize(&plain, asks("500m"), None).await.expect("there is room");
    let refused = resize(&whole, asks("100m"), Some(asks("300m"))).await.expect_err("refused").to_string();
    assert_eq!(
        refused,
        "pods \"whole\" is forbidden: pod update requires features InPlacePodLevelResourcesVerticalScaling which are not available on node \"n1\""
    );
    let mut able = small;
    able.status.as_mut().expect("a status").declared_features =
        Some(vec!["InPlacePodLevelResourcesVerticalScaling".to_owned()]);
    admin.update_status(&able).await.expect("a status");
    admin.list::<Node>("", &Default::default()).await.expect("settled");
    resize(&whole, asks("100m"), Some(asks("300m"))).await.expect("its kubelet can");
    server.stop().await;
}

#[tokio::test]
async fn trust_is_said_by_those_who_may_attest() {
    let server = Server::default().await;
    let admin = server.admin();
    let role = json!({"metadata": {"name": "bundles"}, "rules": [{"apiGroups": ["certificates.k8s.io"], "resources": ["clustertrustbundles"], "verbs": ["*"]}]});
    let binding = json!({"metadata": {"name": "jane"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "bundles"},
        "subjects": [{"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}]});
    admin.create(&typed::<k8s_openapi::api::rbac::v1::ClusterRole>(role)).await.expect("a role");
    admin.create(&typed::<k8s_openapi::api::rbac::v1::ClusterRoleBinding>(binding)).await.expect("a binding");
    let jane = server.as_user(User::new("jane", []));
    let bundle = |name: &str, signer: Value| {
        json!({"apiVersion": "certificates.k8s.io/v1", "kind": "ClusterTrustBundle", "metadata": {"name": name},
            "spec": {"signerName": signer, "trustBundle": server.keys.authority_pem()}})
    };
    let put = async |client: &client::Client, tree: Value| {
        post(client, "/apis/certificates.k8s.io/v1/clustertrustbundles", tree).await.map(|_| ())
    };
    assert_eq!(put(&jane, bundle("plain", json!(null))).await, Ok(()), "a bundle of no signer is whoever may write it");
    let refused = put(&jane, bundle("example.com:s:1", json!("example.com/s"))).await.expect_err("refused");
    assert_eq!(
        refused,
        "clustertrustbundles.certificates.k8s.io \"example.com:s:1\" is forbidden: user not permitted to attest for signerName \"example.com/s\""
    );
    assert_eq!(put(&admin, bundle("example.com:s:1", json!("example.com/s"))).await, Ok(()));
    server.stop().await;
}

#[tokio::test]
async fn the_systems_priority_classes_stay() {
    let server = Server::default().await;
    let kept = server.admin().delete::<PriorityClass>("", "system-node-critical", &Default::default()).await;
    assert_eq!(
        kept.expect_err("refused").to_string(),
        "priorityclasses.scheduling.k8s.io \"system-node-critical\" is forbidden: this is a system priority class and cannot be deleted"
    );
    server.stop().await;
}
