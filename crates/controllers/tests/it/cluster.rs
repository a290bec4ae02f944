//! The smaller loops of a cluster: tokens, ranges of addresses, bootstrap signatures, what nodes are told.

use std::sync::Arc;
use std::time::Duration;

use controllers::TokenSigner;
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{
    ConfigMap, Node, PersistentVolume, PersistentVolumeClaim, Pod, ResourceQuota, Secret, ServiceAccount,
};
use k8s_openapi::api::networking::v1::{IPAddress, ServiceCIDR};
use serde_json::{Value, json};

use crate::api::Faults;
use crate::world::World;

/// A token that anybody can read.
pub struct Plain;

impl TokenSigner for Plain {
    fn sign(&self, claims: &Value) -> Result<String, String> {
        Ok(claims.to_string())
    }
}

#[tokio::test(start_paused = true)]
async fn the_secret_of_an_account_is_filled_and_goes_with_the_account() {
    let mut world = World::with("serviceaccount-token-controller", Faults::default());
    world.tokens = Some(Arc::new(Plain));
    world.restart();
    let secret = json!({
        "metadata": {"name": "robot-token", "annotations": {"kubernetes.io/service-account.name": "robot"}},
        "type": "kubernetes.io/service-account-token",
    });
    world.put::<ServiceAccount>(json!({"metadata": {"name": "robot"}, "secrets": [{"name": "robot-token"}]}));
    world.put::<Secret>(secret.clone());
    world.settle().await;
    let filled = world.get::<Secret>("default", "robot-token").expect("the secret is there").data.unwrap_or_default();
    assert_eq!(filled["namespace"].0, b"default");
    assert_eq!(filled["ca.crt"].0, b"certificates");
    let claims: Value = serde_json::from_slice(&filled["token"].0).expect("claims");
    assert_eq!(claims["sub"], "system:serviceaccount:default:robot");
    assert_eq!(claims["kubernetes.io/serviceaccount/secret.name"], "robot-token");

    world.delete::<Secret>("default", "robot-token", "Background");
    world.settle().await;
    let account = world.get::<ServiceAccount>("default", "robot").expect("the account is there");
    assert!(account.secrets.is_none_or(|secrets| secrets.is_empty()), "it no longer lists what is gone");

    world.put::<Secret>(secret);
    world.settle().await;
    world.delete::<ServiceAccount>("default", "robot", "Background");
    world.settle().await;
    assert!(world.get::<Secret>("default", "robot-token").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_range_of_addresses_is_ready_and_goes_when_nobody_uses_it() {
    let world = World::with("service-cidr-controller", Faults::default());
    world.put::<ServiceCIDR>(json!({"metadata": {"name": "more"}, "spec": {"cidrs": ["10.50.0.0/16"]}}));
    world.settle().await;
    let ready = |world: &World| {
        let status = world.get::<ServiceCIDR>("", "more").and_then(|range| range.status).unwrap_or_default();
        let condition = status.conditions.unwrap_or_default().swap_remove(0);
        (condition.status, condition.reason, condition.message)
    };
    assert_eq!(ready(&world).2, "Kubernetes Service CIDR is ready");
    world.put::<IPAddress>(json!({
        "metadata": {"name": "10.50.0.7", "labels": {"ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"}},
    }));
    world.delete::<ServiceCIDR>("", "more", "Background");
    world.pass(Duration::from_secs(30)).await;
    let (status, reason, message) = ready(&world);
    assert_eq!((status.as_str(), reason.as_str()), ("False", "Terminating"));
    assert_eq!(
        message,
        "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR"
    );
    world.delete::<IPAddress>("", "10.50.0.7", "Background");
    world.pass(Duration::from_secs(30)).await;
    assert!(world.get::<ServiceCIDR>("", "more").is_none());
}

#[tokio::test(start_paused = true)]
async fn bootstrap_tokens_sign_until_they_expire_and_are_removed() {
    let world = World::with("bootstrap-signer-controller,token-cleaner-controller", Faults::default());
    world.put::<ConfigMap>(
        json!({"metadata": {"name": "cluster-info", "namespace": "kube-public"}, "data": {"kubeconfig": "text"}}),
    );
    // "abcdef", "secret", "true" and "2026-01-01T01:00:00Z" in base64.
    world.put::<Secret>(json!({
        "metadata": {"name": "bootstrap-token-abcdef", "namespace": "kube-system"},
        "type": "bootstrap.kubernetes.io/token",
        "data": {"token-id": "YWJjZGVm", "token-secret": "c2VjcmV0", "usage-bootstrap-signing": "dHJ1ZQ==",
                 "expiration": "MjAyNi0wMS0wMVQwMTowMDowMFo="},
    }));
    world.settle().await;
    let data = |world: &World| {
        world.get::<ConfigMap>("kube-public", "cluster-info").and_then(|map| map.data).unwrap_or_default()
    };
    assert!(data(&world)["jws-kubeconfig-abcdef"].starts_with("eyJhbGciOiJIUzI1NiIs"), "{:?}", data(&world));
    world.pass(Duration::from_secs(2 * 3600)).await;
    assert!(world.get::<Secret>("kube-system", "bootstrap-token-abcdef").is_none());
    assert_eq!(data(&world).keys().collect::<Vec<_>>(), ["kubeconfig"]);
}

#[tokio::test(start_paused = true)]
async fn nodes_are_told_for_how_long_they_may_keep_secrets() {
    let world = World::with("ttl-controller", Faults::default());
    world.nodes(3);
    world.settle().await;
    let told = |name: &str| {
        let annotations = world.get::<Node>("", name).and_then(|node| node.metadata.annotations).unwrap_or_default();
        annotations.get("node.alpha.kubernetes.io/ttl").cloned().unwrap_or_default()
    };
    assert_eq!(told("n0"), "0");
    for number in 3..101 {
        world.put::<Node>(json!({"metadata": {"name": format!("n{number}")}}));
    }
    world.pass(Duration::from_secs(5)).await;
    assert_eq!((told("n0"), told("n100")), ("15".to_owned(), "15".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_claim_on_a_directory_grows_when_asked_to() {
    let world =
        World::with("local-path-provisioner-controller,persistentvolume-expander-controller", Faults::default());
    let claim = world.put::<PersistentVolumeClaim>(json!({
        "metadata": {"name": "data"},
        "spec": {"volumeName": "pvc-1", "storageClassName": "local-path", "resources": {"requests": {"storage": "1Gi"}}},
    }));
    world.put::<PersistentVolume>(json!({
        "metadata": {"name": "pvc-1", "annotations": {"pv.kubernetes.io/provisioned-by": "trireme.io/local-path"}},
        "spec": {"capacity": {"storage": "1Gi"}, "claimRef": {"namespace": "default", "name": "data", "uid": claim["metadata"]["uid"]}},
    }));
    world.edit::<PersistentVolumeClaim>("default", "data", |claim| {
        claim["status"] = json!({"phase": "Bound", "capacity": {"storage": "1Gi"}});
    });
    world.settle().await;
    world.edit::<PersistentVolumeClaim>("default", "data", |claim| {
        claim["spec"]["resources"]["requests"]["storage"] = json!("5Gi");
    });
    world.settle().await;
    let status =
        world.get::<PersistentVolumeClaim>("default", "data").and_then(|claim| claim.status).expect("a status");
    assert_eq!(status.capacity.unwrap_or_default()["storage"].0, "5Gi");
    let volume = world.get::<PersistentVolume>("", "pvc-1").and_then(|volume| volume.spec).expect("a volume");
    assert_eq!(volume.capacity.unwrap_or_default()["storage"].0, "5Gi");
}

#[tokio::test(start_paused = true)]
async fn a_quota_counts_whatever_it_names_and_notices_when_that_goes() {
    let world = World::start();
    let hard = json!({"secrets": "5", "count/deployments.apps": "3", "count/nothing.example.com": "1"});
    world.put::<ResourceQuota>(json!({"metadata": {"name": "all"}, "spec": {"hard": hard}}));
    world.put::<Secret>(json!({"metadata": {"name": "one"}}));
    world.put::<Deployment>(crate::workloads::deployment("web", 0, "v0"));
    world.put::<Deployment>(crate::workloads::deployment("api", 0, "v0"));
    world.settle().await;
    let used = || {
        let quota = world.get::<ResourceQuota>("default", "all").expect("the quota is there");
        let used = quota.status.and_then(|status| status.used).unwrap_or_default();
        used.into_iter().map(|(name, amount)| format!("{name}={}", amount.0)).collect::<Vec<_>>()
    };
    assert_eq!(used(), ["count/deployments.apps=2", "count/nothing.example.com=0", "secrets=1"]);
    world.delete::<Deployment>("default", "web", "Background");
    world.delete::<Secret>("default", "one", "Background");
    world.settle().await;
    assert_eq!(used(), ["count/deployments.apps=1", "count/nothing.example.com=0", "secrets=0"]);
}

#[tokio::test(start_paused = true)]
async fn a_charge_stands_until_its_object_can_have_come_and_no_longer() {
    let world = World::with("resourcequota-controller", Faults::default());
    world.put::<ResourceQuota>(json!({"metadata": {"name": "two"}, "spec": {"hard": {"pods": "2"}}}));
    world.settle().await;
    let used = || {
        let quota = world.get::<ResourceQuota>("default", "two").expect("the quota is there");
        quota.status.and_then(|status| status.used).unwrap_or_default()["pods"].0.clone()
    };
    let charge = |pods: &str| {
        world.edit::<ResourceQuota>("default", "two", |quota| quota["status"]["used"]["pods"] = json!(pods));
    };
    charge("1");
    world.pass(Duration::from_millis(500)).await;
    assert_eq!(used(), "1", "the pod that was charged for is not stored yet");
    world.put::<Pod>(json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}));
    world.settle().await;
    assert_eq!(used(), "1");
    charge("2");
    world.pass(Duration::from_secs(3)).await;
    assert_eq!(used(), "1", "the second pod was never stored");
}

#[tokio::test(start_paused = true)]
async fn a_policy_hears_what_cannot_be_right_once_per_change() {
    let world = World::with("validatingadmissionpolicy-status-controller", Faults::default());
    let policy = |expression: &str| {
        json!({"metadata": {"name": "replicas"}, "spec": {
            "matchConstraints": {"resourceRules": [
                {"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"], "operations": ["CREATE"]}]},
            "validations": [{"expression": expression}]}})
    };
    world.put::<ValidatingAdmissionPolicy>(policy("object.spec.replica > 1"));
    world.settle().await;
    let status = |world: &World| {
        let policy = world.get::<ValidatingAdmissionPolicy>("", "replicas").expect("the policy is there");
        (policy.metadata.generation, policy.status.expect("a status"))
    };
    let (generation, seen) = status(&world);
    assert_eq!(seen.observed_generation, generation);
    let warnings = seen.type_checking.and_then(|checked| checked.expression_warnings).unwrap_or_default();
    assert_eq!(warnings.len(), 1);
    assert_eq!(warnings[0].field_ref, "spec.validations[0].expression");
    assert!(
        warnings[0].warning.starts_with("apps/v1, Kind=Deployment: ERROR: <input>:1:12: undefined field 'replica'")
    );
    world.edit::<ValidatingAdmissionPolicy>("", "replicas", |old| {
        old["spec"] = policy("object.spec.replicas > 1")["spec"].clone()
    });
    world.settle().await;
    let (generation, seen) = status(&world);
    assert_eq!(seen.observed_generation, generation);
    assert!(seen.type_checking.and_then(|checked| checked.expression_warnings).unwrap_or_default().is_empty());
}
