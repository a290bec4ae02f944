//! What the quota controller counts is what admission charged.

use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use serde_json::json;

use super::{Rig, pod};

fn used(quota: &ResourceQuota, name: &str) -> String {
    let used = quota.status.as_ref().and_then(|status| status.used.as_ref());
    used.and_then(|used| used.get(name)).map(|amount| amount.0.clone()).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_count_leaves_what_admission_charged() {
    let rig = Rig::start().await;
    let _running = rig.run("resourcequota-controller");
    let hard = json!({"pods": "5", "requests.cpu": "10"});
    rig.create::<ResourceQuota>(json!({"metadata": {"name": "q", "namespace": "default"}, "spec": {"hard": hard}}))
        .await;
    rig.until::<ResourceQuota>("default", "q", "its limits in its status", |quota| used(quota, "pods") == "0").await;
    let containers = json!([{"name": "c", "image": "img", "resources": {"requests": {"cpu": "100m"}}}]);
    let whole = json!({"containers": containers, "resources": {"requests": {"cpu": "2"}}});
    rig.create::<Pod>(pod("whole", json!({}), whole.clone())).await;
    rig.create::<Pod>(pod("other", json!({}), whole.clone())).await;
    rig.until::<ResourceQuota>("default", "q", "two pods", |quota| used(quota, "requests.cpu") == "4").await;
    // Only a count takes back what a pod that is gone used.
    let now = client::DeleteOptions { grace_period_seconds: Some(0), ..client::DeleteOptions::default() };
    rig.client.delete::<Pod>("default", "other", &now).await.expect("it can be deleted");
    let counted = rig.until::<ResourceQuota>("default", "q", "one pod", |quota| used(quota, "pods") == "1").await;
    assert_eq!(used(&counted, "requests.cpu"), "2");

    // A pod that nobody confirms the end of counts no longer once its time is over.
    let mut bound = whole;
    bound["nodeName"] = json!("lost");
    rig.create::<Pod>(pod("lost", json!({}), bound)).await;
    rig.until::<ResourceQuota>("default", "q", "two pods again", |quota| used(quota, "requests.cpu") == "4").await;
    let soon = client::DeleteOptions { grace_period_seconds: Some(1), ..client::DeleteOptions::default() };
    rig.client.delete::<Pod>("default", "lost", &soon).await.expect("it can be deleted");
    rig.until::<ResourceQuota>("default", "q", "one pod again", |quota| used(quota, "requests.cpu") == "2").await;
    assert!(rig.client.get::<Pod>("default", "lost").await.is_ok(), "it is still there");
}
