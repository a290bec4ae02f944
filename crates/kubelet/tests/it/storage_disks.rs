//! Disks of storage networks, with tools that do what the system's own would do on a machine that has such networks: the session is made of
//! files, and the disk is a loop device.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use client::Patch;
use k8s_openapi::api::core::v1::Node;
use serde_json::json;

use crate::rig::{NODE, Rig};
use crate::storage::{LOOP, bound, claim, in_use, with_volume};

/// `$M` is the directory of everything, `$DISK` the device.
const ISCSIADM: &str = r#"#!/bin/sh
echo "$*" >> $M/log
case "$*" in
  *"-o show"*) echo "iface.transport_name = tcp" ;;
  *--login*)
    S=$M/sys/class/iscsi_host/host7/device/session1
    C=$S/connection1:0/iscsi_connection/connection1:0
    mkdir -p $S/iscsi_session/session1 $C $M/sys/class/scsi_host/host7 $M/dev/disk/by-path
    echo iqn.2003-01.io.k8s:e2e > $S/iscsi_session/session1/targetname
    for p in "" persistent_; do echo 10.0.0.1 > $C/${p}address; echo 3260 > $C/${p}port; done
    ln -sf $DISK "$M/dev/disk/by-path/ip-10.0.0.1:3260-iscsi-iqn.2003-01.io.k8s:e2e-lun-2" ;;
  *--logout*) rm -r $M/sys/class/iscsi_host $M/dev/disk ;;
esac
"#;

/// A device of 16 MiB, for as long as it is held.
struct Disk(String);

impl Disk {
    fn new(image: &Path) -> Option<Self> {
        std::fs::File::create(image).unwrap().set_len(16 << 20).unwrap();
        let made = Command::new("losetup").args(["--find", "--show"]).arg(image).output().ok()?;
        made.status.success().then(|| Self(String::from_utf8_lossy(&made.stdout).trim().to_owned()))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

fn tool(machine: &Path, disk: &str) {
    let path = machine.join("tools/iscsiadm");
    let text = ISCSIADM.replace("$M", &machine.to_string_lossy()).replace("$DISK", disk);
    // Written elsewhere first: a program that is open for writing cannot be run.
    std::fs::write(machine.join("draft"), text).unwrap();
    std::fs::set_permissions(machine.join("draft"), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::rename(machine.join("draft"), path).unwrap();
}

#[tokio::test]
async fn a_disk_of_a_target_is_formatted_once_shared_by_pods_and_let_go_of_by_the_last() {
    let machine = tempfile::tempdir().unwrap();
    let at = |name: &str| machine.path().join(name);
    for dir in ["tools", "sys/block"] {
        std::fs::create_dir_all(at(dir)).unwrap();
    }
    for (tool, real) in [("blkid", "/usr/sbin/blkid"), ("mkfs.ext4", "/usr/sbin/mkfs.ext4"), ("fsck", "/usr/sbin/fsck")]
    {
        std::os::unix::fs::symlink(real, at("tools").join(tool)).unwrap();
    }
    let Some(disk) = Disk::new(&at("image")) else {
        eprintln!("SKIPPED: no loop devices on this machine, so no disk is mounted");
        return;
    };
    let host =
        disks::Host { dev: at("dev"), sys: at("sys"), tools: Some(at("tools")), patience: Duration::from_secs(5) };
    let mut rig = Rig::start_with(|config| config.disks = host).await;
    rig.eventually_node().await;
    let source = json!({"targetPortal": "10.0.0.1", "iqn": "iqn.2003-01.io.k8s:e2e", "lun": 2, "fsType": "ext4"});
    bound(&rig, "v", json!({"csi": null, "iscsi": source})).await;
    rig.pod("first", with_volume(&format!("echo kept > /data/file; {LOOP}"), claim("v"))).await;
    // Nothing is done with the disk until this node is given it.
    let unique = "kubernetes.io/iscsi/10.0.0.1:iqn.2003-01.io.k8s:e2e:2";
    testkit::object::<Node>(&rig.admin, "", NODE, "a disk in use", |node| in_use(node) == [unique]).await;
    assert!(!rig.dir.path().join("kubelet/plugins/kubernetes.io/iscsi").exists());
    let given = Patch::Merge(json!({"status": {"volumesAttached": [{"name": unique, "devicePath": ""}]}}));
    rig.admin.patch_status::<Node>("", NODE, &given).await.unwrap();
    let missing = "exec: \"iscsiadm\": executable file not found in $PATH";
    rig.event("first", &format!("FailedMount: MountVolume.WaitForAttach failed for volume \"v\" : {missing}")).await;
    tool(machine.path(), &disk.0);
    let first = rig.ready("first").await;
    // The other one asks for the same disk itself, and finds it after the kubelet was killed.
    rig.crash_kubelet().await;
    rig.start_kubelet();
    rig.pod("second", with_volume(&format!("cat /data/file; {LOOP}"), json!({"iscsi": source}))).await;
    let second = rig.ready("second").await;
    rig.eventually("what the first wrote", || rig.log(&second, "main", 0) == "kept\n").await;
    let root = rig.dir.path().join("kubelet");
    let global = root.join("plugins/kubernetes.io/iscsi/iface-default/10.0.0.1:3260-iqn.2003-01.io.k8s:e2e-lun-2");
    let uid = first.metadata.uid.unwrap();
    let published = root.join("pods").join(uid).join("volumes/kubernetes.io~iscsi/v");
    for place in [&global, &published] {
        assert!(node::mounts::is_mounted(place).unwrap(), "{}", place.display());
    }
    let log = || std::fs::read_to_string(at("log")).unwrap();
    assert_eq!(log().matches("--login").count(), 1, "{}", log());
    rig.delete("first").await;
    assert!(!node::mounts::is_mounted(&published).unwrap());
    assert!(node::mounts::is_mounted(&global).unwrap() && !log().contains("--logout"), "another pod has it");
    rig.delete("second").await;
    assert!(!node::mounts::is_mounted(&global).unwrap() && !global.exists());
    assert_eq!(log().matches("--logout").count(), 1, "{}", log());
    testkit::object::<Node>(&rig.admin, "", NODE, "no disk in use", |node| in_use(node).is_empty()).await;
    rig.stop().await;
}

#[tokio::test]
async fn a_disk_that_is_not_there_is_told_and_keeps_nobody_from_going() {
    let machine = tempfile::tempdir().unwrap();
    let at = |name: &str| machine.path().join(name);
    let host = disks::Host { dev: at("dev"), sys: at("sys"), tools: None, patience: Duration::from_secs(1) };
    let rig = Rig::start_with(|config| config.disks = host).await;
    rig.eventually_node().await;
    let fc = json!({"fc": {"targetWWNs": ["50060e801049cfd1"], "lun": 0}});
    rig.pod("p", with_volume(LOOP, fc)).await;
    rig.event("p", "FailedMount: MountVolume.WaitForAttach failed for volume \"data\" : no fc disk found").await;
    rig.pod("other", json!({"containers": [crate::rig::sh("main", LOOP)]})).await;
    rig.ready("other").await;
    rig.delete("p").await;
    rig.stop().await;
}
