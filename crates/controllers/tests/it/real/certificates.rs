//! Bundles that are published, and requests that nobody needs any more.

use std::time::Duration;

use informer::clock;
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::{ClusterTrustBundle, PodCertificateRequest};
use serde_json::json;
use testkit::objects;

use super::Rig;

const SIGNER: &str = "kubernetes.io/kube-apiserver-serving";
const STUB: &str = "MIG6MGICAQAwADBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABObp10IzXQolu7hWF5IkxecqJfasmwuuWlKwzg7J61qdxzZQdxamA7gbTOF186qpcjzm0c8msURKPDGKYbsfaTqgADAKBggqhkjOPQQDAgNIADBFAiEAwuZx9vF5Dg2BkiWl9UB9Kvp+PDazNY7OkmWyZVUMpC4CIFiJoOnAcHVzSgXptbFHKdyHM9M3hV46OyEQRZZhsEbB";

#[tokio::test(flavor = "multi_thread")]
async fn the_servers_authority_is_the_only_bundle_of_its_signer() {
    let rig = Rig::start().await;
    let authority = rig.cluster.keys().authority_pem();
    rig.create::<ClusterTrustBundle>(json!({
        "metadata": {"name": "kubernetes.io:kube-apiserver-serving:old"},
        "spec": {"signerName": SIGNER, "trustBundle": authority},
    }))
    .await;
    rig.create::<ClusterTrustBundle>(json!({"metadata": {"name": "mine"}, "spec": {"trustBundle": authority}})).await;
    let _running = rig.run("kube-apiserver-serving-clustertrustbundle-publisher-controller");
    let of_signer = |bundles: &[std::sync::Arc<ClusterTrustBundle>]| -> Vec<(String, String)> {
        let own = bundles.iter().filter(|bundle| bundle.spec.signer_name.as_deref() == Some(SIGNER));
        own.map(|bundle| (bundle.metadata.name.clone().unwrap_or_default(), bundle.spec.trust_bundle.clone())).collect()
    };
    let published = |bundles: &[std::sync::Arc<ClusterTrustBundle>]| {
        let own = of_signer(bundles);
        own.len() == 1 && own[0].1 == authority && !own[0].0.ends_with(":old")
    };
    let bundles = objects::<ClusterTrustBundle>(&rig.client, "", "the bundle alone", published).await;
    let name = of_signer(&bundles)[0].0.clone();
    let hash = name.strip_prefix("kubernetes.io:kube-apiserver-serving:").expect("the signer's name");
    assert!(hash.len() == 24 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()), "{name}");
    rig.delete::<ClusterTrustBundle>("", &name).await;
    objects::<ClusterTrustBundle>(&rig.client, "", "the bundle again", published).await;
    assert!(rig.client.get::<ClusterTrustBundle>("", "mine").await.is_ok(), "others' bundles are theirs");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_pods_go_a_quarter_of_an_hour_after_they_came() {
    let rig = Rig::start().await;
    let made = rig
        .create::<PodCertificateRequest>(json!({
            "metadata": {"name": "request", "namespace": "default"},
            "spec": {
                "signerName": "example.com/signer", "podName": "p", "podUID": "u", "serviceAccountName": "default",
                "serviceAccountUID": "u", "nodeName": "n", "nodeUID": "u", "stubPKCS10Request": STUB,
            },
        }))
        .await;
    let created: Timestamp = made.metadata.creation_timestamp.expect("a time").0;
    let clock = clock::Fake::at(clock::add(created, Duration::from_secs(14 * 60)));
    let _running = rig.run_at("podcertificaterequest-cleaner-controller", clock.clone());
    // It waits for the request's moment, not for a round: the clock knows how long.
    let sleeps = async {
        loop {
            match clock.next_wake() {
                Some(left) if left <= Duration::from_secs(60) => return left,
                _ => tokio::task::yield_now().await,
            }
        }
    };
    let left = testkit::eventually("somebody waits for the request to expire", sleeps).await;
    assert_eq!(left, Duration::from_secs(60));
    assert!(rig.client.get::<PodCertificateRequest>("default", "request").await.is_ok());
    clock.advance(left);
    rig.gone::<PodCertificateRequest>("default", "request").await;
}
