//! Full disks, little memory, large logs, unused images.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kubelet::pressure::thresholds;
use node::cri::{Runtime, v1};
use serde_json::json;

use crate::rig::{BUSYBOX, PAUSE, Rig, condition, phase, sh};

const LOOP: &str = "trap 'exit 0' TERM; while :; do sleep 0.1; done";

fn told(pod: &Pod) -> (String, String) {
    let status = pod.status.clone().unwrap_or_default();
    (status.reason.unwrap_or_default(), status.message.unwrap_or_default())
}

#[tokio::test]
async fn large_logs_are_rotated_and_the_container_writes_on() {
    let rig = Rig::start_with(|config| {
        config.rotation.max_size = 32 << 10;
        config.rotation.max_files = 3;
        config.rotation.interval = Duration::from_millis(300);
    })
    .await;
    rig.pod("chatty", json!({"containers": [sh("main", "while :; do seq 1 500; sleep 0.1; done")]})).await;
    let pod = rig.ready("chatty").await;
    let uid = pod.metadata.uid.clone().unwrap();
    let folder = rig.dir.path().join(format!("logs/default_chatty_{uid}/main"));
    let files = || -> Vec<String> {
        let listing = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        listing.map(|entry| entry.file_name().into_string().unwrap()).collect()
    };
    rig.eventually("the log is rotated and an older one compressed", || {
        let files = files();
        files.iter().any(|name| name.ends_with(".gz")) && files.iter().any(|name| name == "0.log")
    })
    .await;
    let rotated = |files: &[String]| files.iter().filter(|name| name.as_str() != "0.log").cloned().max();
    let before = rotated(&files());
    rig.eventually("it is rotated again", || rotated(&files()) > before).await;
    assert!(files().iter().filter(|name| !name.ends_with(".tmp")).count() <= 4, "{:?}", files());
    rig.stop().await;
}

#[tokio::test]
async fn a_node_without_memory_ends_pods_and_takes_no_more() {
    let rig = Rig::start_with(|config| {
        let hard = [("memory.available".to_owned(), "1000Ti".to_owned())].into();
        let none = thresholds::Settings::new();
        config.eviction.thresholds = thresholds::parse(&hard, &none, &none, &none).unwrap();
        config.eviction.interval = Duration::from_millis(300);
    })
    .await;
    let tolerant = json!([{"operator": "Exists"}]);
    rig.pod("victim", json!({"tolerations": tolerant, "containers": [sh("main", LOOP)]})).await;
    let pod = rig.until("victim", "evicted", |pod| phase(pod) == "Failed").await;
    let (reason, message) = told(&pod);
    assert_eq!(reason, "Evicted");
    assert!(
        message.starts_with("The node was low on resource: memory. Threshold quantity: 1000Ti, available: "),
        "{message}"
    );
    let conditions = pod.status.clone().unwrap().conditions.unwrap();
    let disruption = conditions.iter().find(|c| c.type_ == "DisruptionTarget").unwrap();
    assert_eq!((disruption.status.as_str(), disruption.reason.as_deref()), ("True", Some("TerminationByKubelet")));
    rig.event("victim", "Evicted: The node was low on resource: memory. ").await;
    rig.event(crate::rig::NODE, "EvictionThresholdMet: Attempting to reclaim memory").await;
    let pressed = |node: &k8s_openapi::api::core::v1::Node| {
        let conditions = node.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
        conditions.iter().any(|c| c.type_ == "MemoryPressure" && c.status == "True")
    };
    testkit::object(&rig.admin, "", crate::rig::NODE, "a node under pressure", |node| node.is_some_and(pressed)).await;
    rig.pod("late", json!({"containers": [sh("main", LOOP)]})).await;
    let pod = rig.until("late", "refused", |pod| phase(pod) == "Failed").await;
    let refused = "Pod was rejected: The node had condition: [MemoryPressure]. ";
    assert_eq!(told(&pod), ("Evicted".to_owned(), refused.to_owned()));
    rig.stop().await;
}

#[tokio::test]
async fn pods_that_take_more_of_the_disk_than_they_may_end() {
    let rig = Rig::start_with(|config| {
        config.eviction.interval = Duration::from_millis(300);
        config.volume_stats_period = Duration::ZERO;
    })
    .await;
    let fill = |path: &str| format!("dd if=/dev/zero of={path} bs=1M count=3; {LOOP}");
    let mut volume = sh("main", &fill("/data/file"));
    volume["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    let volumes = json!([{"name": "data", "emptyDir": {"sizeLimit": "1Mi"}}]);
    rig.pod("volume", json!({"containers": [volume], "volumes": volumes})).await;
    let mut layer = sh("main", &fill("/file"));
    layer["resources"] = json!({"limits": {"ephemeral-storage": "1Mi"}});
    rig.pod("layer", json!({"containers": [layer]})).await;
    let pod = rig.until("volume", "evicted", |pod| phase(pod) == "Failed").await;
    let message = "Usage of EmptyDir volume \"data\" exceeds the limit \"1Mi\". ";
    assert_eq!(told(&pod), ("Evicted".to_owned(), message.to_owned()));
    let pod = rig.until("layer", "evicted", |pod| phase(pod) == "Failed").await;
    let message = "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. ";
    assert_eq!(told(&pod), ("Evicted".to_owned(), message.to_owned()));
    rig.stop().await;
}

#[tokio::test]
async fn unused_images_go_when_the_disk_is_full() {
    const UNUSED: &str = "registry.trireme.local/unused:1";
    let mut rig = Rig::start_with(|config| {
        // Any disk is fuller than this.
        config.image_gc.high = 1;
        config.image_gc.low = 0;
        config.image_gc.min_age = Duration::ZERO;
        config.image_gc.keep = vec![PAUSE.into(), BUSYBOX.into()];
    })
    .await;
    rig.pod("user", json!({"containers": [sh("main", LOOP)]})).await;
    assert_eq!(condition(&rig.ready("user").await, "Ready"), Some("True"));
    rig.crash_kubelet().await;
    let program = std::fs::read("/bin/busybox").unwrap();
    let containerd = rig.containerd.as_ref().unwrap();
    containerd.import_bytes(UNUSED, || node::oci::busybox(UNUSED, program, &["unused"])).await.unwrap();
    rig.start_kubelet();
    let runtime = rig.runtime();
    let there = async |name: &str| {
        let spec = v1::ImageSpec { image: name.into(), ..Default::default() };
        runtime.image_status(spec).await.unwrap().is_some()
    };
    let gone = async {
        while there(UNUSED).await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), gone).await.expect("the unused image goes");
    assert!(there(BUSYBOX).await && there(PAUSE).await);
    rig.event(crate::rig::NODE, "FreeDiskSpaceFailed: Insufficient free disk space on the node's image filesystem")
        .await;
    rig.stop().await;
}
