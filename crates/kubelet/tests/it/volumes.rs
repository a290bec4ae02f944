//! What containers are shown of their pod, and read from it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use client::Patch;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use serde_json::{Value, json};

use crate::inside::container;
use crate::rig::{BUSYBOX, Rig, phase, sh};

const LOOP: &str = "trap 'exit 0' TERM; while :; do sleep 0.1; done";
/// What is to be seen at once is seen long before anybody who looks once a minute would have seen it.
const AT_ONCE: Duration = Duration::from_secs(20);

fn data_dir(volume: &Path) -> PathBuf {
    std::fs::read_link(volume.join("..data")).unwrap()
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

#[tokio::test]
async fn files_follow_labels_annotations_and_objects_at_once() {
    let rig = Rig::start().await;
    let meta = |name: &str| json!({"name": name, "namespace": "default"});
    let map: ConfigMap = serde_json::from_value(json!({"metadata": meta("map"), "data": {"key": "one"}})).unwrap();
    let secret: Secret =
        serde_json::from_value(json!({"metadata": meta("secret"), "stringData": {"key": "one"}})).unwrap();
    rig.admin.create(&map).await.unwrap();
    rig.admin.create(&secret).await.unwrap();
    let labels = json!({"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}});
    let annotations = json!({"path": "annotations", "fieldRef": {"fieldPath": "metadata.annotations"}});
    let mut container = sh("main", LOOP);
    container["volumeMounts"] = json!([
        {"name": "down", "mountPath": "/down"},
        {"name": "down", "mountPath": "/fixed", "subPath": "labels"},
        {"name": "all", "mountPath": "/all"},
    ]);
    let sources = json!([
        {"downwardAPI": {"items": [annotations]}}, {"configMap": {"name": "map"}},
        {"secret": {"name": "secret", "items": [{"key": "key", "path": "secret"}]}},
    ]);
    let volumes = json!([
        {"name": "down", "downwardAPI": {"items": [labels]}}, {"name": "all", "projected": {"sources": sources}},
    ]);
    rig.pod("shows", json!({"containers": [container], "volumes": volumes})).await;
    let pod = rig.ready("shows").await;
    let dir = rig.dir.path().join("kubelet/pods").join(pod.metadata.uid.clone().unwrap());
    let (down, all) =
        (dir.join("volumes/kubernetes.io~downward-api/down"), dir.join("volumes/kubernetes.io~projected/all"));
    let fixed = dir.join("volume-subpaths/down/main/1");
    assert_eq!(text(&down.join("labels")), "");
    let (before, begun) = (data_dir(&down), Instant::now());
    let patch = json!({"metadata": {"labels": {"a": "1"}, "annotations": {"b": "2"}}});
    rig.admin.patch::<Pod>("default", "shows", &Patch::Merge(patch)).await.unwrap();
    rig.eventually("labels", || text(&down.join("labels")) == "a=\"1\"").await;
    rig.eventually("annotations", || text(&all.join("annotations")).contains("b=\"2\"")).await;
    let patch = json!({"data": {"key": "two"}});
    rig.admin.patch::<ConfigMap>("default", "map", &Patch::Merge(patch)).await.unwrap();
    rig.eventually("the map", || text(&all.join("key")) == "two").await;
    let patch = json!({"stringData": {"key": "two"}});
    rig.admin.patch::<Secret>("default", "secret", &Patch::Merge(patch)).await.unwrap();
    rig.eventually("the secret", || text(&all.join("secret")) == "two").await;
    assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
    // One link was moved; the directory before it is gone, and what is shown by sub path stays as it was.
    assert_eq!(std::fs::read_link(down.join("labels")).unwrap(), Path::new("..data/labels"));
    assert_ne!(data_dir(&down), before);
    assert!(!down.join(before).exists());
    assert_eq!(text(&fixed), "");
    rig.stop().await;
}

#[tokio::test]
async fn variables_are_read_from_a_file_that_an_earlier_container_wrote() {
    let rig = Rig::start().await;
    let spec = |key: &str, optional: bool| {
        let mut first = sh("first", "printf \"# made here\\nGREETING='hello \\n there'\\n\" > /data/vars");
        let mut main = sh("main", "echo \"[$GREETING]\"; env | grep -c GREETING");
        for container in [&mut first, &mut main] {
            container["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
        }
        let reference = json!({"volumeName": "data", "path": "vars", "key": key, "optional": optional});
        main["env"] = json!([{"name": "GREETING", "valueFrom": {"fileKeyRef": reference}}]);
        let volumes = json!([{"name": "data", "emptyDir": {}}]);
        json!({"restartPolicy": "Never", "initContainers": [first], "containers": [main], "volumes": volumes})
    };
    rig.pod("reads", spec("GREETING", false)).await;
    rig.pod("may", spec("NONE", true)).await;
    rig.pod("must", spec("NONE", false)).await;
    let reads = rig.until("reads", "done", |pod| phase(pod) == "Succeeded").await;
    assert_eq!(rig.log(&reads, "main", 0), "[hello \n there]\n1\n");
    let may = rig.until("may", "done", |pod| phase(pod) == "Failed").await;
    assert_eq!(rig.log(&may, "main", 0), "[]\n0\n", "an optional key that is missing is no variable");
    let waiting = |pod: &Pod| {
        let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
        statuses.iter().find(|status| status.name == "main")?.state.clone()?.waiting
    };
    let is_refused =
        |pod: &Pod| waiting(pod).is_some_and(|w| w.reason.as_deref() == Some("CreateContainerConfigError"));
    let must = rig.until("must", "refused", is_refused).await;
    let message = waiting(&must).unwrap().message.unwrap();
    assert!(message.starts_with("environment variable key \"NONE\" not found in file \"/"), "{message}");
    rig.event("must", &format!("Failed: Error: {message}")).await;
    rig.stop().await;
}

#[tokio::test]
async fn an_image_is_a_volume_that_can_be_read_and_not_written() {
    let rig = Rig::start().await;
    let mut main = sh("main", "ls /image/bin/sh /tools/cat; touch /image/new || echo refused; sleep 3600 & wait");
    main["volumeMounts"] = json!([
        {"name": "image", "mountPath": "/image"}, {"name": "image", "mountPath": "/tools", "subPath": "bin"},
    ]);
    let volumes = |reference: &str, policy: &str| json!([{"name": "image", "image": {"reference": reference, "pullPolicy": policy}}]);
    rig.pod("image", json!({"containers": [main.clone()], "volumes": volumes(BUSYBOX, "IfNotPresent")})).await;
    rig.pod("none", json!({"containers": [main], "volumes": volumes("registry.trireme.local/none:1", "Never")})).await;
    let pod = rig.ready("image").await;
    rig.eventually("what it sees", || rig.log(&pod, "main", 0).contains("refused")).await;
    let log = rig.log(&pod, "main", 0);
    // What it says and what it complains of are two streams, which nobody puts in order.
    let said = |line: &str| log.lines().any(|said| said == line);
    assert!(["/image/bin/sh", "/tools/cat", "refused"].into_iter().all(said), "{log}");
    let waiting = |pod: &Pod| {
        let status = pod.status.as_ref()?.container_statuses.as_ref()?.first()?.state.clone()?;
        status.waiting?.reason
    };
    rig.until("none", "without its image", |pod| waiting(pod).as_deref() == Some("ErrImageNeverPull")).await;
    let views = || {
        let socket = rig.dir.path().join("containerd/containerd.sock");
        let listed = std::process::Command::new("ctr")
            .args(["--address", &socket.to_string_lossy(), "--namespace", "k8s.io", "snapshots", "list"])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&listed.stdout).into_owned();
        text.lines().filter(|line| line.starts_with("trireme-")).count()
    };
    // containerd that mounts images itself needs no view.
    let shown = rig.dir.path().join(format!("kubelet/pods/{}/volumes", pod.metadata.uid.clone().unwrap()));
    assert_eq!(views(), usize::from(shown.join("kubernetes.io~image").exists()));
    rig.delete("image").await;
    rig.eventually("the view is released", || views() == 0).await;
    rig.stop().await;
}

/// What a storage driver's manifest mounts from the node is there, and what the driver puts there the kubelet can see.
#[tokio::test]
async fn drivers_find_the_kubelets_directories() {
    let rig = Rig::start().await;
    let root = rig.dir.path().join("kubelet");
    let names = ["plugins", "plugins_registry", "pods"];
    let volumes: Vec<Value> = names
        .iter()
        .map(|name| json!({"name": name.replace('_', "-"), "hostPath": {"path": root.join(name), "type": "Directory"}}))
        .collect();
    let mounts: Vec<Value> =
        names.iter().map(|name| json!({"name": name.replace('_', "-"), "mountPath": format!("/{name}")})).collect();
    let script = "mkdir /plugins/example.com && touch /plugins/example.com/csi.sock /plugins_registry/example.com.sock";
    let spec = json!({"restartPolicy": "Never", "volumes": volumes,
        "containers": [container(script, &json!({"volumeMounts": mounts}))]});
    rig.pod("driver", spec).await;
    rig.until("driver", "done", |pod| phase(pod) == "Succeeded").await;
    for socket in ["plugins/example.com/csi.sock", "plugins_registry/example.com.sock"] {
        assert!(root.join(socket).exists(), "{socket}");
    }
    rig.stop().await;
}

#[tokio::test]
async fn a_share_that_cannot_be_mounted_says_why_and_leaves_nothing() {
    let rig = Rig::start().await;
    let share = json!({"name": "share", "nfs": {"server": "127.0.0.1", "path": "/none"}});
    let mut container = sh("main", "true");
    container["volumeMounts"] = json!([{"name": "share", "mountPath": "/data"}]);
    let pod = rig.pod("shared", json!({"containers": [container], "volumes": [share]})).await;
    let why = rig.event("shared", "FailedMount: MountVolume.SetUp failed for volume \"share\" : mount failed: ").await;
    assert!(why.contains("\nMounting command: mount\nMounting arguments: -t nfs 127.0.0.1:/none "), "{why}");
    let dir = rig.dir.path().join("kubelet/pods").join(pod.metadata.uid.clone().unwrap());
    // The next try has its directory while it lasts.
    let share = dir.join("volumes/kubernetes.io~nfs/share");
    rig.eventually("nothing is left between two tries", || !share.exists()).await;
    rig.delete("shared").await;
    rig.eventually("nothing is left", || !dir.exists()).await;
    rig.stop().await;
}
