//! Certificates of pods, with a signer that a cluster's user would run.

use std::sync::Arc;
use std::time::Duration;

use client::{Client, Patch, WatchParams};
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::PodCertificateRequest;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::rig::{Rig, phase, sh};

const LOOP: &str = "trap 'exit 0' TERM; while :; do sleep 0.1; done";
const TYPES: [&str; 6] = ["RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"];
const HOUR: Duration = Duration::from_secs(3600);

/// Answers every request: denies those to `example.com/deny`, issues to the others. What is said to be old has to be renewed as
/// soon as it is issued.
async fn sign(admin: Client, authority: Arc<pki::Authority>) {
    let mut requests = admin.watch::<PodCertificateRequest>("default", &WatchParams::default()).await.unwrap();
    let mut seen = 0;
    while let Some(event) = requests.next().await {
        let client::Event::Added(request) = event.unwrap() else { continue };
        let condition = |kind: &str, reason: &str, message: &str| {
            let time = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            json!([{"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": time}])
        };
        let status = if request.spec.signer_name == "example.com/deny" {
            json!({"conditions": condition("Denied", "NotForYou", "ask somebody else")})
        } else {
            seen += 1;
            let old = request.spec.signer_name == "example.com/old" && seen == 1;
            let asked = pki::Request::from_der(&request.spec.stub_pkc_s10_request.0).unwrap();
            let annotations = request.spec.unverified_user_annotations.clone().unwrap_or_default();
            let name = annotations.get("example.com/name").cloned().unwrap_or_default();
            // As long as may be, but for the time by which authorities date back.
            let life = Duration::from_secs(request.spec.max_expiration_seconds.unwrap().try_into().unwrap());
            let leaf = pki::Leaf::client(pki::Subject::new(name, []), life - HOUR / 12);
            let since = Timestamp::now() - if old { 2 * HOUR } else { Duration::ZERO };
            let issued = authority.issue(&leaf, &asked.public_key, since).unwrap();
            let time = |time: Timestamp| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            let refresh = issued.not_before + if old { HOUR } else { life / 2 };
            let chain = format!("{}{}", issued.to_pem(), authority.certificate().to_pem());
            json!({
                "conditions": condition("Issued", "Good", ""), "certificateChain": chain,
                "notBefore": time(issued.not_before), "notAfter": time(issued.not_after), "beginRefreshAt": time(refresh),
            })
        };
        let name = request.metadata.name.clone().unwrap();
        let patch = Patch::Merge(json!({"status": status}));
        admin.patch_status::<PodCertificateRequest>("default", &name, &patch).await.unwrap();
    }
}

fn spec(signer: &str, sources: &[Value]) -> Value {
    let mut container = sh("main", LOOP);
    container["volumeMounts"] = json!([{"name": "tls", "mountPath": "/tls"}]);
    let source = |source: &Value| {
        let mut source = source.clone();
        source["signerName"] = json!(signer);
        json!({"podCertificate": source})
    };
    let sources: Vec<Value> = sources.iter().map(source).collect();
    json!({
        "securityContext": {"fsGroup": 4321}, "containers": [container],
        "volumes": [{"name": "tls", "projected": {"sources": sources}}],
    })
}

async fn start() -> (Rig, tokio::task::JoinHandle<()>) {
    let rig = Rig::start().await;
    let key = pki::PrivateKey::generate().unwrap();
    let authority = pki::Authority::new("test", key, Timestamp::now() - 3 * HOUR, 1000 * HOUR).unwrap();
    let signer = tokio::spawn(sign(rig.admin.clone(), Arc::new(authority)));
    (rig, signer)
}

fn volume(rig: &Rig, pod: &Pod) -> std::path::PathBuf {
    let uid = pod.metadata.uid.as_ref().unwrap();
    rig.dir.path().join(format!("kubelet/pods/{uid}/volumes/kubernetes.io~projected/tls"))
}

#[tokio::test]
async fn a_pod_has_keys_of_any_type_with_certificates_of_them() {
    let (rig, signer) = start().await;
    let of_type = |kind: &&str| {
        json!({"keyType": kind, "credentialBundlePath": format!("{kind}.pem"), "keyPath": format!("{kind}.key"),
            "certificateChainPath": format!("{kind}.crt"), "userAnnotations": {"example.com/name": kind}})
    };
    let mut sources: Vec<Value> = TYPES.iter().map(of_type).collect();
    sources[0]["maxExpirationSeconds"] = json!(3600);
    rig.pod("all", spec("example.com/good", &sources)).await;
    let pod = rig.ready("all").await;
    let volume = volume(&rig, &pod);
    for kind in TYPES {
        let read = |end: &str| std::fs::read_to_string(volume.join(format!("{kind}.{end}"))).unwrap();
        let (bundle, key, chain) = (read("pem"), read("key"), read("crt"));
        assert_eq!(bundle, format!("{key}{chain}"), "{kind}");
        assert!(key.starts_with("-----BEGIN PRIVATE KEY-----\n"), "{kind}");
        assert_eq!(pki::certificates_in(&chain).len(), 2, "{kind}");
        let leaf = pki::Certificate::from_pem(&chain).unwrap();
        assert_eq!(leaf.subject.common_name, kind, "what the pod's author says reaches the signer");
        // The others are of types that our own keys cannot have.
        if ["RSA3072", "RSA4096", "ECDSAP256"].contains(&kind) {
            assert_eq!(pki::PrivateKey::from_pem(&key).unwrap().public(), leaf.public_key, "{kind}");
        }
        let life = leaf.not_after.duration_since(leaf.not_before).as_secs();
        assert_eq!(life, if kind == TYPES[0] { 3600 } else { 86_400 }, "{kind}");
        let meta = std::fs::metadata(volume.join(format!("{kind}.key"))).unwrap();
        let (mode, group) = (std::os::unix::fs::MetadataExt::mode(&meta), std::os::unix::fs::MetadataExt::gid(&meta));
        assert_eq!((mode & 0o777, group), (0o640, 4321), "{kind}");
    }
    signer.abort();
    rig.stop().await;
}

#[tokio::test]
async fn a_certificate_is_renewed_in_place_and_a_refusal_keeps_the_pod_waiting() {
    let (rig, signer) = start().await;
    let source = json!({"keyType": "ECDSAP256", "credentialBundlePath": "tls.pem"});
    rig.pod("renewed", spec("example.com/old", std::slice::from_ref(&source))).await;
    let pod = rig.ready("renewed").await;
    let file = volume(&rig, &pod).join("tls.pem");
    let ends = || {
        let bundle = std::fs::read_to_string(&file).unwrap_or_default();
        let leaf = pki::certificates_in(&bundle).into_iter().next()?;
        Some(pki::Certificate::from_der(&leaf).unwrap().not_after)
    };
    let late = Timestamp::now() + 23 * HOUR;
    rig.eventually("the certificate that follows the old one", || ends().is_some_and(|ends| ends > late)).await;
    let requests = rig.admin.list::<PodCertificateRequest>("default", &Default::default()).await.unwrap().items;
    assert_eq!(requests.len(), 2, "one at first, one to renew it");
    assert!(requests.iter().all(|request| request.spec.pod_name == "renewed" && request.spec.node_name == "node-1"));

    rig.pod("denied", spec("example.com/deny", &[source])).await;
    let told = rig.event("denied", "Denied: PodCertificateRequest default/req-").await;
    assert!(told.ends_with(" was denied, reason=\"NotForYou\", message=\"ask somebody else\""), "{told}");
    rig.event(
        "denied",
        "FailedMount: MountVolume.SetUp failed for volume \"tls\" : PodCertificateRequest was permanently denied: \
         reason=\"NotForYou\" message=\"ask somebody else\"",
    )
    .await;
    let denied: Pod = rig.admin.get("default", "denied").await.unwrap();
    assert_eq!(phase(&denied), "Pending");
    signer.abort();
    rig.stop().await;
}
