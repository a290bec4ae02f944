//! A machine made of files, with tools that write down what they are asked and do to the files what the kernel would do.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::{Disk, Fc, Host, Iscsi, Secret};

struct Machine {
    dir: tempfile::TempDir,
    host: Host,
}

impl Machine {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let host =
            Host { dev: at("dev"), sys: at("sys"), tools: Some(at("tools")), patience: Duration::from_millis(50) };
        for path in ["dev/disk/by-path", "dev/disk/by-id", "sys/class/scsi_host", "sys/block", "tools"] {
            std::fs::create_dir_all(at(path)).unwrap();
        }
        Self { dir, host }
    }

    /// A tool: a script, which knows the machine's directory as `$M`.
    fn tool(&self, name: &str, script: &str) {
        let (machine, path) = (self.dir.path().display(), self.dir.path().join("tools").join(name));
        let text = format!("#!/bin/sh\nM={machine}\necho \"{name} $*\" >> $M/log\n{script}\n");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn log(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn device(&self, name: &str) -> PathBuf {
        let path = self.host.dev.join(name);
        std::fs::write(&path, "").unwrap();
        path.canonicalize().unwrap()
    }

    fn link(&self, by: &str, name: &str, device: &Path) {
        symlink(device, self.host.dev.join("disk").join(by).join(name)).unwrap();
    }

    /// A multipath device over others.
    fn multipath(&self, name: &str, slaves: &[&str]) -> PathBuf {
        for slave in slaves {
            std::fs::create_dir_all(self.host.sys.join("block").join(name).join("slaves").join(slave)).unwrap();
        }
        self.device(name)
    }

    fn delete_file(&self, device: &str) -> PathBuf {
        let dir = self.host.sys.join("block").join(device).join("device");
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("delete"), "").unwrap();
        dir.join("delete")
    }
}

const IQN: &str = "iqn.2003-01.io.k8s:e2e";

/// Makes a session appear as the kernel shows it, with a disk on it.
const LOG_IN: &str = r#"
case "$*" in
  *"-o show"*) echo "== RECORD"; echo "iface.iscsi_ifacename = default"; echo "iface.transport_name = tcp"; echo "iface.mtu = 0" ;;
  *--login*)
    S=$M/sys/class/iscsi_host/host7/device/session1
    C=$S/connection1:0/iscsi_connection/connection1:0
    mkdir -p $S/iscsi_session/session1 $C $M/sys/class/scsi_host/host7 $S/target7:0:0/7:0:0:2/block/sdb
    echo iqn.2003-01.io.k8s:e2e > $S/iscsi_session/session1/targetname
    for p in "" persistent_; do echo 10.0.0.1 > $C/${p}address; echo 3260 > $C/${p}port; done
    echo > $M/dev/sdb; ln -s $M/dev/sdb "$M/dev/disk/by-path/ip-10.0.0.1:3260-iscsi-iqn.2003-01.io.k8s:e2e-lun-2" ;;
  *--logout*) exit 21 ;;
esac"#;

fn iscsi() -> Iscsi {
    let disk = Iscsi { volume: "pv".into(), iqn: IQN.into(), lun: 2, interface: "default".into(), ..Iscsi::default() };
    disk.at(["10.0.0.1".to_owned()])
}

#[tokio::test]
async fn a_disk_is_logged_in_to_scanned_for_and_logged_out_of() {
    let machine = Machine::new();
    machine.tool("iscsiadm", LOG_IN);
    let disk = Disk::Iscsi(iscsi());
    assert_eq!(disk.place(), Path::new("iface-default/10.0.0.1:3260-iqn.2003-01.io.k8s:e2e-lun-2"));
    let device = disk.attach(&machine.host, &Secret::new()).await.unwrap();
    assert_eq!(device.canonicalize().unwrap(), machine.host.dev.canonicalize().unwrap().join("sdb"));
    let scan = std::fs::read_to_string(machine.host.sys.join("class/scsi_host/host7/scan")).unwrap();
    assert_eq!(scan, "0 0 2", "one disk and no other");
    let record = format!("-m node -p 10.0.0.1:3260 -T {IQN}");
    let discovery = "iscsiadm -m discoverydb -t sendtargets -p 10.0.0.1:3260 -I default";
    assert_eq!(
        machine.log(),
        [
            "iscsiadm -m iface -I default -o show".to_owned(),
            format!("{discovery} -o new"),
            format!("{discovery} --discover"),
            format!("iscsiadm {record} -I default -o update -n node.session.scan -v manual"),
            format!("iscsiadm {record} -I default --login"),
            format!("iscsiadm {record} -o update -n node.startup -v manual"),
        ]
    );
    // Again: the session is there, so that nothing is asked of it.
    disk.attach(&machine.host, &Secret::new()).await.unwrap();
    assert_eq!(machine.log().len(), 7);
    let delete = machine.delete_file("sdb");
    disk.detach(&machine.host, true).await.unwrap();
    assert_eq!(machine.log().len(), 7, "the target has other disks in use");
    disk.detach(&machine.host, false).await.unwrap();
    assert_eq!(std::fs::read_to_string(delete).unwrap(), "1");
    let expected = ["--logout -I default", "-o delete -I default"].map(|end| format!("iscsiadm {record} {end}"));
    assert_eq!(machine.log()[7..], expected, "that there is no session any more is fine");
}

#[tokio::test]
async fn names_and_passwords_are_told_and_a_name_of_its_own_has_an_interface_of_its_own() {
    let machine = Machine::new();
    machine.tool("iscsiadm", LOG_IN);
    let initiator = Some("iqn.me".to_owned());
    let disk = Disk::Iscsi(Iscsi { chap_discovery: true, chap_session: true, initiator, ..iscsi() });
    let secret = [("discovery.sendtargets.auth.password", "p1"), ("node.session.auth.username", "u")];
    let secret = secret.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    disk.attach(&machine.host, &secret).await.unwrap();
    let (log, own) = (machine.log(), "10.0.0.1:3260:pv");
    let updates: Vec<&str> = log.iter().filter_map(|line| Some(line.split_once("-o update -n ")?.1)).collect();
    assert_eq!(
        updates,
        [
            "iface.initiatorname -v iqn.me",
            "iface.mtu -v 0",
            "iface.transport_name -v tcp",
            "discovery.sendtargets.auth.authmethod -v CHAP",
            "discovery.sendtargets.auth.password -v p1",
            "node.session.scan -v manual",
            "node.session.auth.authmethod -v CHAP",
            "node.session.auth.username -v u",
            "node.startup -v manual",
        ]
    );
    assert!(log.contains(&format!("iscsiadm -m iface -I {own} -o new")), "{log:?}");
    assert!(log.iter().any(|line| line.ends_with(&format!("-I {own} --login"))), "{log:?}");
    disk.detach(&machine.host, false).await.unwrap();
    assert_eq!(machine.log().last().unwrap(), &format!("iscsiadm -m iface -I {own} -o delete"));
}

#[tokio::test]
async fn what_cannot_be_had_is_told_in_the_words_that_users_know() {
    let machine = Machine::new();
    let disk = Disk::Iscsi(iscsi());
    let attach = async || disk.attach(&machine.host, &Secret::new()).await.unwrap_err();
    assert_eq!(attach().await, "exec: \"iscsiadm\": executable file not found in $PATH");
    machine.tool("iscsiadm", "echo no such iface >&2; exit 6");
    assert_eq!(attach().await, "exit status 6");
    let refuse = r#"case "$*" in *"-o show"*) echo "iface.transport_name = tcp" ;; *--discover*) echo refused >&2; exit 4 ;; esac"#;
    machine.tool("iscsiadm", refuse);
    let begin = "failed to get any path for iscsi disk, last err seen:\niscsi: failed to";
    assert_eq!(
        attach().await,
        format!("{begin} sendtargets to portal 10.0.0.1:3260 output: refused, err exit status 4")
    );
    let refuse =
        r#"case "$*" in *"-o show"*) echo "iface.transport_name = tcp" ;; *--login*) echo denied >&2; exit 24 ;; esac"#;
    machine.tool("iscsiadm", refuse);
    assert_eq!(attach().await, format!("{begin} attach disk: Error: denied (exit status 24)"));
    let log = machine.log();
    assert!(log.last().unwrap().ends_with("-o delete"), "the record of a login that failed goes: {log:?}");
    machine.tool("iscsiadm", &LOG_IN.replace("ln -s", "true"));
    let why = attach().await;
    assert!(why.contains("Timed out waiting for device at path ") && why.ends_with(" after 0s"), "{why}");
    assert_eq!(
        Fc::new(vec![], Some(1), &[]).unwrap_err(),
        "fc: no fc disk information found. failed to make a new mounter"
    );
    let none = Disk::Fc(Fc::new(vec!["50060e801049cfd1".into()], Some(0), &[]).unwrap());
    assert_eq!(none.attach(&machine.host, &Secret::new()).await.unwrap_err(), "no fc disk found");
}

#[tokio::test]
async fn disks_of_fibre_channel_are_found_by_their_names_and_through_all_paths() {
    let machine = Machine::new();
    for tool in ["multipath", "blockdev"] {
        machine.tool(tool, "");
    }
    let sdc = machine.device("sdc");
    std::fs::create_dir_all(machine.host.sys.join("class/scsi_host/host3")).unwrap();
    machine.link("by-path", "pci-0000:41:00.0-fc-0x50060e801049cfd1-lun-0", &sdc);
    let disk = Disk::Fc(Fc::new(vec!["50060e801049cfd1".into()], Some(0), &[]).unwrap());
    assert_eq!(disk.place(), Path::new("50060e801049cfd1-lun-0"));
    let attach = async |disk: &Disk| disk.attach(&machine.host, &Secret::new()).await;
    assert_eq!(attach(&disk).await.unwrap(), sdc);
    let scan = machine.host.sys.join("class/scsi_host/host3/scan");
    assert_eq!(std::fs::read_to_string(&scan).unwrap(), "- - -", "there may be more paths");
    let other = Disk::Fc(Fc::new(vec!["50060e801049cfd1".into()], Some(1), &[]).unwrap());
    assert!(attach(&other).await.is_err(), "another disk of the same port");
    let by_id = Disk::Fc(Fc::new(vec![], None, &["3600508b4 001".into()]).unwrap());
    machine.link("by-id", "scsi-3600508b4_001", &sdc);
    assert_eq!(attach(&by_id).await.unwrap(), sdc);
    let dm = machine.multipath("dm-1", &["sdc", "sdd"]);
    assert_eq!(attach(&disk).await.unwrap().canonicalize().unwrap(), dm);
    let deletes = [machine.delete_file("sdc"), machine.delete_file("sdd")];
    disk.detach(&machine.host, false).await.unwrap();
    for delete in deletes {
        assert_eq!(std::fs::read_to_string(delete).unwrap(), "1");
    }
    let dev = machine.host.dev.display();
    let flushed = ["sdc", "sdd"].map(|device| format!("blockdev --flushbufs {dev}/{device}"));
    assert_eq!(machine.log(), [vec![format!("multipath -f {dev}/dm-1")], flushed.to_vec()].concat());
}

#[test]
fn names_that_are_paths_are_refused() {
    assert_eq!(Disk::Iscsi(iscsi()).refused(), None);
    for portal in ["../..", "a/b:1"] {
        assert!(Disk::Iscsi(iscsi().at([portal.to_owned()])).refused().is_some(), "{portal}");
    }
    assert!(Disk::Fc(Fc::new(vec![], None, &["../x".into()]).unwrap()).refused().is_some());
}

/// An image shown as a device, for as long as it is held.
struct Loop(String);

impl Loop {
    fn new(image: &Path) -> Option<Self> {
        let shown = std::process::Command::new("losetup").args(["--find", "--show"]).arg(image).output().ok()?;
        shown.status.success().then(|| Self(String::from_utf8_lossy(&shown.stdout).trim().to_owned()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = std::process::Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[tokio::test]
async fn a_disk_with_nothing_on_it_gets_a_file_system_and_one_with_something_keeps_it() {
    let dir = tempfile::tempdir().unwrap();
    let (image, target) = (dir.path().join("image"), dir.path().join("target"));
    std::fs::create_dir(&target).unwrap();
    std::fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
    let Some(device) = Loop::new(&image) else {
        eprintln!("SKIPPED: no loop devices on this machine, so no disk is formatted");
        return;
    };
    let (host, disk) = (Host::default(), Path::new(&device.0));
    let why = host.mount(disk, &target, "", &["ro".to_owned()]).await.unwrap_err();
    assert_eq!(why, format!("cannot mount unformatted disk {} as we are manipulating it in read-only mode", device.0));
    let why = host.mount(disk, &target, "nosuch", &[]).await.unwrap_err();
    assert!(why.contains("errcode:(exec: \"mkfs.nosuch\": executable file not found in $PATH)"), "{why}");
    host.mount(disk, &target, "", &[]).await.unwrap();
    std::fs::write(target.join("file"), "kept").unwrap();
    node::mounts::unmount(&target).unwrap();
    host.mount(disk, &target, "ext4", &["ro".to_owned()]).await.unwrap();
    assert_eq!(std::fs::read_to_string(target.join("file")).unwrap(), "kept");
    node::mounts::unmount(&target).unwrap();
    let missing = Path::new("/dev/no-such-disk");
    let why = host.mount(missing, &target, "", &[]).await.unwrap_err();
    assert!(why.contains("/dev/no-such-disk"), "{why}");
}
