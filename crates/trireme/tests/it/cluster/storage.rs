//! Volumes that move between two nodes while everything that has a part in that is killed: what is in them stays what it was, and nothing
//! is left behind. Short as a test, 100 kills as `make soak`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use client::{Client, DeleteOptions, Kind, ListParams};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{CSIDriver, StorageClass, VolumeAttachment};
use serde_json::{Value, json};
use testkit::csi::{Driver, Sidecars, Traits};

use super::dev::{self, Dev, IMAGE};

const DRIVER: &str = "test.csi.trireme.io";

/// Tries until the API takes it: it is killed now and then.
async fn create<K: Kind>(client: &Client, value: Value) {
    let object: K = serde_json::from_value(value).expect("an object");
    persistently("create", async || match client.create(&object).await {
        Err(error) if !error.is_already_exists() => Err(error.to_string()),
        _ => Ok(()),
    })
    .await;
}

async fn delete<K: Kind>(client: &Client, namespace: &str, name: &str) {
    persistently("delete", async || match client.delete::<K>(namespace, name, &DeleteOptions::default()).await {
        Err(error) if !error.is_not_found() => Err(error.to_string()),
        _ => Ok(()),
    })
    .await;
}

async fn persistently(what: &str, mut act: impl AsyncFnMut() -> Result<(), String>) {
    let started = std::time::Instant::now();
    while let Err(error) = act().await {
        assert!(started.elapsed() < dev::PATIENCE, "{what}: {error}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Waits until there is nothing of a kind.
async fn none<K: Kind>(dev: &Dev, client: &Client, namespace: &str, what: &str) {
    persistently(&format!("no {what}; {}", dev.logs()), async || {
        let list = client.list::<K>(namespace, &ListParams::default()).await.map_err(|error| error.to_string())?;
        let names: Vec<_> = list.items.iter().filter_map(|one| one.metadata().name.clone()).collect();
        if names.is_empty() { Ok(()) } else { Err(format!("{names:?}")) }
    })
    .await;
}

/// Every other claim is for a device.
fn is_block(number: usize) -> bool {
    number % 2 == 1
}

/// Finds in its volume what the round before left, and leaves its own; each line of it belongs to one claim and no other.
fn visitor(claim: &str, block: bool, round: usize, node: &str) -> Value {
    let expected: String = (0..round).map(|before| format!("{claim} {before}\n")).collect();
    let files = "touch /data/log; cmp /tmp/expected /data/log || exit 1; echo \"$LINE\" >> /data/log; sync";
    let device = "test -b /dev/xvda || exit 1; head -c 65536 /dev/xvda | tr -d '\\000' | cmp /tmp/expected - || exit 1; \
                  echo \"$LINE\" >> /tmp/expected; dd if=/tmp/expected of=/dev/xvda conv=fsync";
    let script = format!("printf '%s' \"$EXPECTED\" > /tmp/expected; {}", if block { device } else { files });
    let (field, how) = if block { ("volumeDevices", "devicePath") } else { ("volumeMounts", "mountPath") };
    let place = if block { "/dev/xvda" } else { "/data" };
    json!({
        "metadata": {"name": format!("{claim}-{round}"), "namespace": "default"},
        "spec": {
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
            "nodeSelector": {"kubernetes.io/hostname": node},
            "containers": [{
                "name": "main", "image": IMAGE, "imagePullPolicy": "Never", "command": ["sh", "-c", script],
                "env": [{"name": "EXPECTED", "value": expected}, {"name": "LINE", "value": format!("{claim} {round}")}],
                field: [{"name": "data", how: place}],
            }],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}],
        },
    })
}

/// Claims of the default class are directories of nodes. Whichever node has one, it goes with its claim.
async fn directories_go_on_every_node(dev: &Dev, client: &Client) {
    let mut claims = Vec::new();
    for number in [1, 2] {
        let name = format!("directory-{number}");
        let resources = json!({"requests": {"storage": "1Mi"}});
        let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": resources});
        let claim = json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec});
        create::<PersistentVolumeClaim>(client, claim).await;
        create::<Pod>(client, visitor(&name, false, 0, &dev.node(number))).await;
        claims.push(name);
    }
    let mut directories = Vec::new();
    for name in &claims {
        let pod = format!("{name}-0");
        let ended = |pod: &Pod| pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Succeeded"));
        dev.object::<Pod>("default", &pod, "it wrote", ended).await;
        let claim = client.get::<PersistentVolumeClaim>("default", name).await.expect("the claim");
        let volume = claim.spec.and_then(|spec| spec.volume_name).expect("it is bound");
        let volume = client.get::<PersistentVolume>("", &volume).await.expect("its volume");
        let path = volume.spec.and_then(|spec| spec.host_path).expect("a directory").path;
        assert!(Path::new(&path).join("log").exists(), "{path}");
        directories.push(path);
        delete::<Pod>(client, "default", &pod).await;
        delete::<PersistentVolumeClaim>(client, "default", name).await;
    }
    none::<PersistentVolume>(dev, client, "", "volumes").await;
    for path in directories {
        assert!(!Path::new(&path).exists(), "{path} is gone, whoever's it was");
    }
}

/// Kills a process, and waits until it is dead: one that is dying looks as if it were running to whoever starts it again.
async fn kill(pid: &str) {
    let killed = Command::new("kill").args(["-KILL", pid]).status();
    assert!(killed.is_ok_and(|status| status.success()), "process {pid} was there");
    persistently("it is dead", async || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let dead = stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'));
        if dead { Ok(()) } else { Err(stat) }
    })
    .await;
}

/// One of everything that has a part in a volume's way, in turn.
async fn kill_something(dev: &Dev, drivers: &mut [Driver; 2], round: usize) {
    let node = u8::try_from(round % 2 + 1).expect("one or two");
    match round % 3 {
        0 => {
            kill(&dev.pid(node)).await;
            dev.trireme(&["start", &dev.node(node)]);
        }
        1 => drivers[round % 2].revive(),
        _ => {
            let file = dev.data(node).join("agent/containerd/containerd.pid");
            let text = std::fs::read_to_string(file).expect("a pid file");
            kill(text.split_whitespace().next().expect("a pid")).await;
        }
    }
}

fn root(dev: &Dev, number: u8) -> PathBuf {
    dev.data(number).join("agent/kubelet")
}

/// Directories and mounts of volumes below a kubelet's root.
fn leftovers(root: &Path) -> BTreeSet<PathBuf> {
    let below = |dir: PathBuf| std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let staged = below(root.join("plugins/kubernetes.io/csi").join(DRIVER));
    let devices = root.join("plugins/kubernetes.io/csi/volumeDevices");
    let staged = staged.chain(below(devices.join("staging"))).chain(below(devices.join("publish")));
    let kinds = ["volumes/kubernetes.io~csi", "volumeDevices/kubernetes.io~csi"];
    let published = below(root.join("pods")).flat_map(|pod| kinds.map(|kind| below(pod.join(kind)))).flatten();
    let mounts = node::mounts::list().expect("the mount table").into_iter().map(|mount| mount.target);
    let mounts = mounts.filter(|target| target.starts_with(root) && target.to_string_lossy().contains("csi"));
    staged.chain(published).chain(mounts).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn soak_volumes_move_between_nodes_while_everything_is_killed() {
    let (claims, rounds) = if std::env::var_os("TRIREME_SOAK").is_some() { (6, 100) } else { (2, 3) };
    let dev = Dev::stored(2);
    let client = dev.client();
    directories_go_on_every_node(&dev, &client).await;
    let first = Driver::start(&root(&dev, 1), &dev.directory().join("d1"), DRIVER, &dev.node(1), Traits::default());
    let second = first.beside(&root(&dev, 2), &dev.directory().join("d2"), &dev.node(2));
    let mut drivers = [first, second];
    for driver in &drivers {
        driver.registered().await.expect("the kubelet takes it");
    }
    let sidecars = Sidecars::start(&client, &drivers[0]).await;
    create::<CSIDriver>(&client, json!({"metadata": {"name": DRIVER}, "spec": {"attachRequired": true}})).await;
    create::<StorageClass>(&client, json!({"metadata": {"name": "test"}, "provisioner": DRIVER})).await;
    let names: Vec<String> = (0..claims).map(|number| format!("claim-{number}")).collect();
    for (number, name) in names.iter().enumerate() {
        let spec = json!({
            "accessModes": ["ReadWriteOnce"], "storageClassName": "test",
            "volumeMode": if is_block(number) { "Block" } else { "Filesystem" },
            "resources": {"requests": {"storage": "16Mi"}},
        });
        let claim = json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec});
        create::<PersistentVolumeClaim>(&client, claim).await;
    }
    for round in 0..rounds {
        println!("--- round {round}");
        for (number, name) in names.iter().enumerate() {
            let node = dev.node(u8::try_from((round + number) % 2 + 1).expect("one or two"));
            create::<Pod>(&client, visitor(name, is_block(number), round, &node)).await;
        }
        kill_something(&dev, &mut drivers, round).await;
        for name in &names {
            let pod = format!("{name}-{round}");
            let ended = |pod: &Pod| {
                let phase = pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
                assert_ne!(phase, "Failed", "{pod:?}");
                phase == "Succeeded"
            };
            dev.object::<Pod>("default", &pod, &format!("{pod} found what it should"), ended).await;
            // Nobody waits until it is gone: the next one wants its volume on the other node.
            delete::<Pod>(&client, "default", &pod).await;
        }
    }
    for name in &names {
        delete::<PersistentVolumeClaim>(&client, "default", name).await;
    }
    none::<Pod>(&dev, &client, "default", "pods").await;
    none::<PersistentVolume>(&dev, &client, "", "volumes").await;
    none::<VolumeAttachment>(&dev, &client, "", "attachments").await;
    for driver in &drivers {
        assert_eq!((driver.broken_promises(), driver.in_use()), (vec![], vec![]));
    }
    assert_eq!((drivers[0].volumes(), drivers[0].devices()), (vec![], vec![]));
    for number in [1, 2] {
        assert_eq!(leftovers(&root(&dev, number)), BTreeSet::new(), "node {number}");
    }
    drop(sidecars);
}
