//! What a container finds in its volumes: contents, modes, owners; and optional objects that come and go.

use std::path::PathBuf;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::inside::{Row, allocatable, check, container, create, make_data};
use crate::rig::{Rig, condition, sh};

const LOOP: &str = "trap 'exit 0' TERM; while :; do sleep 0.1; done";

/// A volume of a source's keys, with a mode for all files or none.
fn volume(name: &str, source: &str, items: &Value, mode: Option<u32>) -> Value {
    let (kind, projected) = source.strip_prefix("projected-").map_or((source, false), |kind| (kind, true));
    let (field, object) = if kind == "secret" { ("secret", "sec") } else { ("configMap", "cm") };
    let key = if kind == "secret" && !projected { "secretName" } else { "name" };
    let mut inner = json!({key: object});
    if !items.is_null() {
        inner["items"] = items.clone();
    }
    let mut outer = if projected {
        json!({"name": name, "projected": {"sources": [{field: inner}]}})
    } else {
        json!({"name": name, field: inner})
    };
    if let Some(mode) = mode {
        outer[if projected { "projected" } else { field }]["defaultMode"] = json!(mode);
    }
    outer
}

/// Collects volumes, a script that shows a file of each, and what it should print.
#[derive(Default)]
struct Shown {
    volumes: Vec<Value>,
    mounts: Vec<Value>,
    script: String,
    prints: String,
}

impl Shown {
    /// Shows mode and content of a file.
    fn show(&mut self, volume: Value, file: &str, prints: &str) {
        let name = volume["name"].as_str().unwrap().to_owned();
        let path = format!("/v/{name}/{file}");
        self.script += &format!("echo {name} $(busybox stat -L -c %a {path}) $(cat {path})\n");
        self.prints += &format!("{name} {prints}\n");
        self.mounts.push(json!({"name": name, "mountPath": format!("/v/{name}")}));
        self.volumes.push(volume);
    }

    fn row(self, name: &'static str, context: &Value, fields: &Value) -> Row {
        let mut fields = fields.clone();
        fields["volumeMounts"] = json!(self.mounts);
        let row = Row::prints(name, container(&self.script, &fields), &self.prints);
        row.with(&json!({"volumes": self.volumes, "securityContext": context}))
    }
}

const SOURCES: [&str; 4] = ["map", "secret", "projected-map", "projected-secret"];

fn data_rows() -> Vec<Row> {
    let mapped = json!([{"key": "data-2", "path": "path/to/data-2"}]);
    let with_mode = json!([{"key": "data-2", "path": "path/to/data-2", "mode": 0o400}]);
    let none = Value::Null;
    let (mut root, mut user, mut group) = (Shown::default(), Shown::default(), Shown::default());
    for source in SOURCES {
        let name = |variant: &str| format!("{source}-{variant}");
        root.show(volume(&name("plain"), source, &none, None), "data-1", "644 value-1");
        root.show(volume(&name("again"), source, &none, None), "data-1", "644 value-1");
        root.show(volume(&name("mode"), source, &none, Some(0o400)), "data-1", "400 value-1");
        root.show(volume(&name("mapped"), source, &mapped, None), "path/to/data-2", "644 value-2");
        root.show(volume(&name("item"), source, &with_mode, None), "path/to/data-2", "400 value-2");
        user.show(volume(&name("plain"), source, &none, None), "data-1", "644 value-1");
        user.show(volume(&name("mapped"), source, &mapped, None), "path/to/data-2", "644 value-2");
        // Readable for the group alone, which is the pod's.
        group.show(volume(&name("mode"), source, &none, Some(0o440)), "data-1", "440 value-1");
    }
    let all = json!({"name": "all", "projected": {"sources": [
        {"configMap": {"name": "cm", "items": [{"key": "data-1", "path": "map"}]}},
        {"secret": {"name": "sec", "items": [{"key": "data-2", "path": "secret"}]}},
        {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}},
    ]}});
    let mounts = json!({"volumeMounts": [
        {"name": "all", "mountPath": "/all"}, {"name": "bytes", "mountPath": "/bytes"},
        {"name": "other", "mountPath": "/other"},
    ]});
    let look = "cat /all/map /all/secret /all/name; echo; busybox wc -w < /all/token; busybox xxd -p /bytes/dump.bin; cat /other/data-1; echo";
    let whole = Row::prints("whole", container(look, &mounts), "value-1value-2whole\n1\ndeadcafebade03fafe\nvalue-1\n");
    let volumes = json!([all, {"name": "bytes", "configMap": {"name": "cm"}}, {"name": "other", "secret": {"secretName": "sec"}}]);
    vec![
        root.row("root", &json!({}), &json!({})),
        user.row("user", &json!({"runAsUser": 1000}), &json!({})),
        group.row("group", &json!({"runAsUser": 1000, "fsGroup": 1001}), &json!({})),
        whole.with(&json!({"volumes": volumes})),
    ]
}

fn downward_rows(cpu: &str, memory: &str) -> Vec<Row> {
    let of = |path: &str, container: &str, resource: &str, divisor: &str| json!({"path": path, "resourceFieldRef": {"containerName": container, "resource": resource, "divisor": divisor}});
    let items = json!([
        {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}},
        {"path": "mode", "fieldRef": {"fieldPath": "metadata.namespace"}, "mode": 0o400},
        of("cpu-limit", "main", "limits.cpu", "1m"),
        of("cpu-request", "main", "requests.cpu", "1m"),
        of("memory-limit", "main", "limits.memory", "1"),
        of("memory-request", "main", "requests.memory", "1"),
        of("free-cpu", "free", "limits.cpu", "1m"),
        of("free-memory", "free", "limits.memory", "1"),
    ]);
    let mut shown = Shown::default();
    for source in ["own", "projected"] {
        let volume = |name: String, mode: Option<u32>| {
            let mut inner = json!({"items": items});
            if source == "projected" {
                inner = json!({"sources": [{"downwardAPI": inner}]});
            }
            if let Some(mode) = mode {
                inner["defaultMode"] = json!(mode);
            }
            json!({"name": name, if source == "own" { "downwardAPI" } else { "projected" }: inner})
        };
        for (file, prints) in [
            ("name", "644 downward"),
            ("mode", "400 default"),
            ("cpu-limit", "644 1250"),
            ("cpu-request", "644 250"),
            ("memory-limit", "644 67108864"),
            ("memory-request", "644 33554432"),
            ("free-cpu", &format!("644 {cpu}")),
            ("free-memory", &format!("644 {memory}")),
        ] {
            shown.show(volume(format!("{source}-{file}"), None), file, prints);
        }
        shown.show(volume(format!("{source}-default-mode"), Some(0o400)), "name", "400 downward");
    }
    let limited = json!({"limits": {"cpu": "1250m", "memory": "64Mi"}, "requests": {"cpu": "250m", "memory": "32Mi"}});
    let mut row = shown.row("downward", &json!({}), &json!({"resources": limited}));
    row.spec["containers"].as_array_mut().unwrap().push(sh("free", "true"));
    vec![row]
}

fn empty_rows() -> Vec<Row> {
    let script = "for v in disk memory; do for m in 644 666 777; do \
                  echo written > /v/$v/$m; busybox chmod $m /v/$v/$m; echo $v $(busybox stat -c '%a %u' /v/$v/$m) $(cat /v/$v/$m); done; done; \
                  busybox stat -c %a /v/disk /v/memory; busybox stat -f -c %T /v/memory";
    let mounts = json!({"volumeMounts": [{"name": "disk", "mountPath": "/v/disk"}, {"name": "memory", "mountPath": "/v/memory"}]});
    let volumes = json!([{"name": "disk", "emptyDir": {}}, {"name": "memory", "emptyDir": {"medium": "Memory"}}]);
    let prints = |user: u32| {
        let files: String = ["disk", "memory"]
            .iter()
            .flat_map(|volume| ["644", "666", "777"].map(|mode| format!("{volume} {mode} {user} written\n")))
            .collect();
        format!("{files}777\n1777\ntmpfs\n")
    };
    let row = |name, user: u32| {
        let row = Row::prints(name, container(script, &mounts), &prints(user));
        row.with(&json!({"volumes": volumes, "securityContext": {"runAsUser": user}}))
    };
    vec![row("empty-root", 0), row("empty-user", 1001)]
}

fn sub_path_rows() -> Vec<Row> {
    let volumes = json!([
        {"name": "map", "configMap": {"name": "cm"}},
        {"name": "secret", "secret": {"secretName": "sec"}},
        {"name": "downward", "downwardAPI": {"items": [{"path": "dir/name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
        {"name": "projected", "projected": {"sources": [{"configMap": {"name": "cm"}}]}},
        {"name": "work", "emptyDir": {}},
    ]);
    let mounts = json!({
        "env": [{"name": "WHO", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "volumeMounts": [
            {"name": "map", "mountPath": "/s/map", "subPath": "data-1"},
            {"name": "map", "mountPath": "/etc/resolv.conf", "subPath": "data-2"},
            {"name": "secret", "mountPath": "/s/secret", "subPath": "data-1"},
            {"name": "downward", "mountPath": "/s/downward", "subPath": "dir"},
            {"name": "projected", "mountPath": "/s/projected", "subPath": "data-3"},
            {"name": "work", "mountPath": "/logs", "subPathExpr": "a/$(WHO)"},
            {"name": "work", "mountPath": "/work"},
        ],
    });
    let script = "cat /s/map /etc/resolv.conf /s/secret /s/downward/name /s/projected; echo; echo said > /logs/file; cat /work/a/parts/file";
    let parts = Row::prints("parts", container(script, &mounts), "value-1value-2value-1partsvalue-3\nsaid\n");
    let names: Vec<String> = (0..50).map(|number| format!("v{number}")).collect();
    let many: Vec<Value> = names.iter().map(|name| json!({"name": name, "configMap": {"name": "cm"}})).collect();
    let mounts: Vec<Value> =
        names.iter().map(|name| json!({"name": name, "mountPath": format!("/v/{name}")})).collect();
    let fifty =
        Row::prints("fifty", container("cat /v/*/data-1 | busybox wc -c", &json!({"volumeMounts": mounts})), "350\n");
    vec![parts.with(&json!({"volumes": volumes})), fifty.with(&json!({"volumes": many}))]
}

#[tokio::test]
async fn a_container_finds_what_its_volumes_say() {
    let rig = Rig::start().await;
    make_data(&rig).await;
    // One of the same name elsewhere is not the pod's.
    create(&rig, "", "namespaces", &json!({"metadata": {"name": "other"}})).await;
    let stranger = json!({"metadata": {"name": "sec", "namespace": "other"}, "stringData": {"data-1": "strange"}});
    create(&rig, "", "secrets", &stranger).await;
    let (cpu, memory) = allocatable(&rig).await;
    let rows = [data_rows(), downward_rows(&cpu, &memory), empty_rows(), sub_path_rows()];
    check(&rig, rows.into_iter().flatten().collect()).await;
    rig.stop().await;
}

/// Where the kubelet keeps a volume of a pod.
fn files(rig: &Rig, pod: &Pod, kind: &str, name: &str) -> PathBuf {
    let uid = pod.metadata.uid.as_ref().unwrap();
    rig.dir.path().join(format!("kubelet/pods/{uid}/volumes/kubernetes.io~{kind}/{name}"))
}

/// Objects that a volume may do without come, change and go while the pod runs; its files follow.
#[tokio::test]
async fn volumes_follow_what_they_show() {
    let rig = Rig::start().await;
    let mut volumes = Vec::new();
    for source in SOURCES {
        let kind = if source.ends_with("secret") { "secret" } else { "configMap" };
        let projected = source.starts_with("projected");
        for object in ["stays", "goes", "comes"] {
            let key = if kind == "secret" && !projected { "secretName" } else { "name" };
            let inner = json!({key: object, "optional": true});
            let name = format!("{source}-{object}");
            let volume = if projected {
                json!({"name": name, "projected": {"sources": [{kind: inner}]}})
            } else {
                json!({"name": name, kind: inner})
            };
            volumes.push(volume);
        }
    }
    let data =
        |name: &str, text: &str| json!({"metadata": {"name": name, "namespace": "default"}, "data": {"key": text}});
    // "old" and "new" in base64.
    let secret = |name: &str, new: bool| data(name, if new { "bmV3" } else { "b2xk" });
    let map = |name: &str, new: bool| data(name, if new { "new" } else { "old" });
    for name in ["stays", "goes"] {
        create(&rig, "", "configmaps", &map(name, false)).await;
        create(&rig, "", "secrets", &secret(name, false)).await;
    }
    let names: Vec<String> = volumes.iter().map(|volume| volume["name"].as_str().unwrap().to_owned()).collect();
    let mounts: Vec<Value> =
        names.iter().map(|name| json!({"name": name, "mountPath": format!("/v/{name}")})).collect();
    rig.pod("shows", json!({"containers": [container(LOOP, &json!({"volumeMounts": mounts}))], "volumes": volumes}))
        .await;
    let pod = rig.ready("shows").await;
    assert_eq!(condition(&pod, "Ready"), Some("True"));
    let shown = |rig: &Rig| -> Vec<String> {
        let read = |name: &String| {
            let kind = match name.split('-').next() {
                Some("map") => "configmap",
                Some("secret") => "secret",
                _ => "projected",
            };
            let text = std::fs::read_to_string(files(rig, &pod, kind, name).join("key"));
            format!("{name}={}", text.unwrap_or_else(|_| "none".to_owned()))
        };
        names.iter().map(read).collect()
    };
    let all = |stays: &str, goes: &str, comes: &str| -> Vec<String> {
        let of = |source: &str| {
            [format!("{source}-stays={stays}"), format!("{source}-goes={goes}"), format!("{source}-comes={comes}")]
        };
        SOURCES.into_iter().flat_map(of).collect()
    };
    assert_eq!(shown(&rig), all("old", "old", "none"));
    for (resource, make) in [("configmaps", &map as &dyn Fn(&str, bool) -> Value), ("secrets", &secret)] {
        let calls = rig.admin.dynamic(&client::Gvr::new("", "v1", resource));
        calls.update("default", &make("stays", true), "").await.unwrap();
        calls.delete("default", "goes", &client::DeleteOptions::default()).await.unwrap();
        calls.create("default", &make("comes", true)).await.unwrap();
    }
    rig.eventually("the files follow", || shown(&rig) == all("new", "none", "new")).await;
    rig.stop().await;
}

/// The certificate of an authority that nobody else has.
fn anchor(name: &str) -> String {
    let year = std::time::Duration::from_secs(365 * 86_400);
    let key = pki::PrivateKey::generate().unwrap();
    pki::Authority::new(name, key, jiff::Timestamp::now(), year).unwrap().certificate().to_pem()
}

#[tokio::test]
async fn bundles_of_trust_are_projected() {
    let rig = Rig::start().await;
    let make = async |name: &str, signer: Option<&str>, labels: Value| {
        let spec = json!({"signerName": signer, "trustBundle": anchor(name)});
        let bundle = json!({"metadata": {"name": name, "labels": labels}, "spec": spec});
        create(&rig, "certificates.k8s.io", "clustertrustbundles", &bundle).await;
    };
    make("plain", None, json!({})).await;
    make("example.com:few:a", Some("example.com/few"), json!({"tier": "live"})).await;
    make("example.com:few:b", Some("example.com/few"), json!({})).await;
    for number in 0..101 {
        make(&format!("example.com:many:{number}"), Some("example.com/many"), json!({})).await;
    }
    let mut sources = Vec::new();
    for (name, source, count) in [
        ("by-name", json!({"name": "plain"}), 1),
        ("by-labels", json!({"signerName": "example.com/few", "labelSelector": {"matchLabels": {"tier": "live"}}}), 1),
        ("by-signer", json!({"signerName": "example.com/few", "labelSelector": {}}), 2),
        ("many", json!({"signerName": "example.com/many", "labelSelector": {}}), 101),
        (
            "nobody",
            json!({"signerName": "example.com/nobody", "labelSelector": {"matchLabels": {"a": "b"}}, "optional": true}),
            0,
        ),
        ("unselected", json!({"signerName": "example.com/few", "optional": true}), 0),
    ] {
        let mut source = source;
        source["path"] = json!("anchors.pem");
        let volume = json!({"name": name, "projected": {"sources": [{"clusterTrustBundle": source}]}});
        sources.push((name, volume, count));
    }
    let script: String =
        sources.iter().map(|(name, ..)| format!("echo {name} $(grep -c BEGIN /v/{name}/anchors.pem)\n")).collect();
    let prints: String = sources.iter().map(|(name, _, count)| format!("{name} {count}\n")).collect();
    let mounts: Vec<Value> =
        sources.iter().map(|(name, ..)| json!({"name": name, "mountPath": format!("/v/{name}")})).collect();
    let volumes: Vec<&Value> = sources.iter().map(|(_, volume, _)| volume).collect();
    let all = Row::prints("all", container(&script, &json!({"volumeMounts": mounts})), &prints);
    // What is not there and not optional keeps a pod from starting.
    for (name, source) in [
        ("no-name", json!({"name": "never", "path": "p"})),
        ("no-match", json!({"signerName": "example.com/nobody", "labelSelector": {}, "path": "p"})),
    ] {
        let volume = json!({"name": "v", "projected": {"sources": [{"clusterTrustBundle": source}]}});
        let own = container("true", &json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}]}));
        rig.pod(name, json!({"containers": [own], "volumes": [volume]})).await;
    }
    check(&rig, vec![all.with(&json!({"volumes": volumes}))]).await;
    rig.event("no-name", "FailedMount: MountVolume.SetUp failed for volume \"v\" : ").await;
    rig.event("no-match", "FailedMount: MountVolume.SetUp failed for volume \"v\" : combination of signerName and labelSelector matched zero ClusterTrustBundles").await;
    rig.stop().await;
}
