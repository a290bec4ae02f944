//! What admission makes of writes, and which it refuses.

use k8s_openapi::api::core::v1::{
    LimitRange, Namespace, Node, PersistentVolumeClaim, Pod, ResourceQuota, ServiceAccount,
};
use machinery::rest::User;
use serde_json::{Value, json};
use testkit::build::{Build as _, BuildPod as _, node, pod};

use crate::server::Server;

fn typed<T: serde::de::DeserializeOwned>(tree: Value) -> T {
    serde_json::from_value(tree).expect("an object of that kind")
}

fn message<T: std::fmt::Debug>(outcome: Result<T, client::Error>) -> String {
    outcome.expect_err("refused").to_string()
}

#[tokio::test]
async fn limit_ranges_fill_in_and_refuse() {
    let server = Server::default().await;
    let admin = server.admin();
    let range = json!({"metadata": {"name": "r", "namespace": "default"}, "spec": {"limits": [
        {"type": "Container", "default": {"cpu": "500m"}, "defaultRequest": {"cpu": "100m"}, "max": {"cpu": "1"}}]}});
    admin.create(&typed::<LimitRange>(range)).await.expect("a limit range");
    admin.list::<LimitRange>("default", &Default::default()).await.expect("settled");
    let made = admin.create(&pod("plain")).await.expect("a pod");
    let resources = made.spec.expect("a spec").containers[0].resources.clone().expect("filled in");
    assert_eq!(resources.limits.expect("limits")["cpu"].0, "500m");
    assert_eq!(resources.requests.expect("requests")["cpu"].0, "100m");
    let big = typed::<Pod>(json!({"metadata": {"name": "big", "namespace": "default"}, "spec": {"containers": [
        {"name": "c", "image": "i", "resources": {"limits": {"cpu": "2"}}}]}}));
    assert_eq!(
        message(admin.create(&big).await),
        "pods \"big\" is forbidden: maximum cpu usage per Container is 1, but limit is 2"
    );
    server.stop().await;
}

#[tokio::test]
async fn quotas_are_exact_however_many_ask_at_once() {
    let server = Server::default().await;
    let admin = server.admin();
    let hard = json!({"pods": "10"});
    let quota = json!({"metadata": {"name": "q", "namespace": "default"}, "spec": {"hard": hard}});
    let quota = admin.create(&typed::<ResourceQuota>(quota)).await.expect("a quota");
    admin.list::<ResourceQuota>("default", &Default::default()).await.expect("settled");
    let counted = ResourceQuota { status: Some(typed(json!({"hard": hard, "used": {"pods": "0"}}))), ..quota };
    admin.update_status(&counted).await.expect("a status");
    admin.list::<ResourceQuota>("default", &Default::default()).await.expect("settled");
    let asked = (0..40).map(|number| {
        let admin = admin.clone();
        async move { admin.create(&pod(&format!("p{number}"))).await }
    });
    let outcomes = futures::future::join_all(asked).await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 10);
    let refused = outcomes.into_iter().find_map(Result::err).expect("a refusal").to_string();
    assert!(refused.ends_with("exceeded quota: q, requested: pods=1, used: pods=10, limited: pods=10"), "{refused}");
    let used: ResourceQuota = admin.get("default", "q").await.expect("the quota");
    assert_eq!(used.status.expect("a status").used.expect("used")["pods"].0, "10");
    assert_eq!(admin.list::<Pod>("default", &Default::default()).await.expect("pods").items.len(), 10);
    server.stop().await;
}

#[tokio::test]
async fn what_a_resizer_allocates_is_charged_when_it_says_so() {
    let server = Server::default().await;
    let admin = server.admin();
    let claim = json!({"metadata": {"name": "c", "namespace": "default"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    admin.create(&typed::<PersistentVolumeClaim>(claim)).await.expect("a claim");
    let hard = json!({"requests.storage": "3Gi"});
    let quota = json!({"metadata": {"name": "q", "namespace": "default"}, "spec": {"hard": hard}});
    let quota = admin.create(&typed::<ResourceQuota>(quota)).await.expect("a quota");
    let status = typed(json!({"hard": hard, "used": {"requests.storage": "1Gi"}}));
    admin.update_status(&ResourceQuota { status: Some(status), ..quota }).await.expect("a status");
    admin.list::<ResourceQuota>("default", &Default::default()).await.expect("settled");
    let allocate = async |size: &str| {
        let patch = client::Patch::Merge(json!({"status": {"allocatedResources": {"storage": size}}}));
        admin.patch_status::<PersistentVolumeClaim>("default", "c", &patch).await
    };
    let used = async || {
        let quota: ResourceQuota = admin.get("default", "q").await.expect("the quota");
        quota.status.expect("a status").used.expect("used")["requests.storage"].0.clone()
    };
    allocate("2Gi").await.expect("there is room");
    assert_eq!(used().await, "2Gi");
    let refused = message(allocate("4Gi").await);
    let why =
        "exceeded quota: q, requested: requests.storage=2Gi, used: requests.storage=2Gi, limited: requests.storage=3Gi";
    assert!(refused.ends_with(why), "{refused}");
    let phase = client::Patch::Merge(json!({"status": {"phase": "Bound"}}));
    admin.patch_status::<PersistentVolumeClaim>("default", "c", &phase).await.expect("nothing more is used");
    assert_eq!(used().await, "2Gi");
    server.stop().await;
}

#[tokio::test]
async fn pod_security_refuses_and_warns() {
    let server = Server::default().await;
    let admin = server.admin();
    let space = json!({"metadata": {"name": "safe", "labels": {
        "pod-security.kubernetes.io/enforce": "baseline", "pod-security.kubernetes.io/warn": "restricted"}}});
    admin.create(&typed::<Namespace>(space)).await.expect("a namespace");
    admin
        .create(&typed::<ServiceAccount>(json!({"metadata": {"name": "default", "namespace": "safe"}})))
        .await
        .expect("an account");
    admin.list::<ServiceAccount>("safe", &Default::default()).await.expect("settled");
    let mut privileged = pod("root").in_namespace("safe");
    let container = &mut privileged.spec.as_mut().expect("a spec").containers[0];
    container.security_context = Some(typed(json!({"privileged": true})));
    let name = container.name.clone();
    assert_eq!(
        message(admin.create(&privileged).await),
        format!(
            "pods \"root\" is forbidden: violates PodSecurity \"baseline:latest\": privileged (container {name:?} must not set securityContext.privileged=true)"
        )
    );
    let kubectl = server.kubectl();
    let made = kubectl.output(&["run", "plain", "--image=i", "-n", "safe"], "").await;
    assert!(made.success, "{}", made.stderr);
    assert!(made.stderr.starts_with("Warning: would violate PodSecurity \"restricted:latest\": allowPrivilegeEscalation != false (container \"plain\""), "{}", made.stderr);
    // An ephemeral container is no way around.
    let debug = kubectl.output(&["debug", "plain", "-n", "safe", "--image=i", "--profile=sysadmin"], "").await;
    assert!(debug.stderr.contains("violates PodSecurity \"baseline:latest\""), "{}", debug.stderr);
    let odd = kubectl
        .fail(&["label", "namespace", "safe", "--overwrite", "pod-security.kubernetes.io/enforce=nonsense"])
        .await;
    assert!(odd.contains("must be one of privileged, baseline, restricted"), "{odd}");
    server.stop().await;
}

#[tokio::test]
async fn a_node_writes_only_what_is_its_own() {
    let server = Server::default().await;
    let admin = server.admin();
    for name in ["n1", "n2"] {
        admin.create(&node(name)).await.expect("a node");
    }
    let web = admin.create(&pod("web").on("n2")).await.expect("a pod");
    let n1 = server.as_user(User::new("system:node:n1", ["system:nodes"]));
    assert!(message(n1.create(&pod("mine").on("n1")).await).contains("node \"n1\" can only create mirror pods"));
    assert!(
        message(n1.update_status(&web).await)
            .contains("node \"n1\" can only update pod status for pods with spec.nodeName set to itself")
    );
    assert!(
        message(n1.delete::<Pod>("default", "web", &Default::default()).await)
            .contains("can only delete pods with spec.nodeName set to itself")
    );
    let mut own: Node = n1.get("", "n1").await.expect("itself");
    own.metadata.labels = Some([("node-restriction.kubernetes.io/secret".to_owned(), "yes".to_owned())].into());
    assert!(
        message(n1.update(&own).await)
            .contains("is not allowed to modify labels: node-restriction.kubernetes.io/secret")
    );
    own.metadata.labels = None;
    own.metadata.owner_references =
        Some(vec![typed(json!({"apiVersion": "v1", "kind": "Node", "name": "n2", "uid": "x"}))]);
    assert!(message(n1.update(&own).await).contains("is not allowed to modify ownerReferences"));
    let other: Node = admin.get("", "n2").await.expect("the other");
    assert!(message(n1.update(&other).await).contains("node \"n1\" is not allowed to modify node \"n2\""));
    let token = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": ["x"]}});
    let refused = n1.create_subresource::<ServiceAccount, _, Value>("default", "default", "token", &token).await;
    // The authorizer speaks first: no pod of this account runs on the node.
    assert!(message(refused).contains("no relationship found between node 'n1' and this object"));
    server.stop().await;
}

#[tokio::test]
async fn classes_and_protections_are_filled_in() {
    let server = Server::default().await;
    let admin = server.admin();
    let class = json!({"metadata": {"name": "fast", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}, "provisioner": "example.com/p"});
    admin.create(&typed::<k8s_openapi::api::storage::v1::StorageClass>(class)).await.expect("a class");
    admin.list::<k8s_openapi::api::storage::v1::StorageClass>("", &Default::default()).await.expect("settled");
    let claim = json!({"metadata": {"name": "c", "namespace": "default"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let made = admin.create(&typed::<PersistentVolumeClaim>(claim)).await.expect("a claim");
    assert_eq!(made.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref()), Some("fast"));
    assert_eq!(made.metadata.finalizers.as_deref(), Some(&["kubernetes.io/pvc-protection".to_owned()][..]));
    let bound = PersistentVolumeClaim { status: Some(typed(json!({"phase": "Bound"}))), ..made };
    let mut bigger = admin.update_status(&bound).await.expect("a status");
    let requests =
        bigger.spec.as_mut().and_then(|spec| spec.resources.as_mut()).and_then(|resources| resources.requests.as_mut());
    requests.expect("requests").insert("storage".to_owned(), typed(json!("2Gi")));
    let refused = message(admin.update(&bigger).await);
    assert!(refused.ends_with("the storageclass that provisions the pvc must support resize"), "{refused}");
    let fresh = admin.create(&node("fresh")).await.expect("a node");
    let taints = fresh.spec.and_then(|spec| spec.taints).expect("tainted");
    assert_eq!((taints[0].key.as_str(), taints[0].effect.as_str()), ("node.kubernetes.io/not-ready", "NoSchedule"));
    server.stop().await;
}
