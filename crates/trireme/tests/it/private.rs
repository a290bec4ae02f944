//! What other users of the machine can reach in a data directory: nothing.

use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Pod, Secret};
use serde_json::json;
use testkit::{Server, ServerOptions};
use tokio::process::Command;

use crate::node::{BINARY, Machine};

const IMAGE: &str = "trireme.local/private:1";

fn mode(path: &Path) -> u32 {
    path.symlink_metadata().map_or(0, |found| found.permissions().mode() & 0o777)
}

/// What somebody else can list, read or write below a directory, whose names they can guess.
pub fn open_to_others(root: &Path) -> Vec<(PathBuf, u32)> {
    let (mut open, mut pending) = (Vec::new(), vec![root.to_owned()]);
    while let Some(path) = pending.pop() {
        // A link has no rights of its own, and things go while a node lives.
        let Ok(found) = path.symlink_metadata() else { continue };
        let (kind, mode) = (found.file_type(), mode(&path));
        let wrong = match (kind.is_dir(), kind.is_symlink()) {
            (_, true) => 0,
            (true, _) => mode & 0o066,
            // The group of containerd's socket is its owner's.
            (false, _) if kind.is_socket() => mode & 0o007,
            (false, _) => mode & 0o077,
        };
        if wrong != 0 {
            open.push((path.clone(), mode));
        }
        if kind.is_dir() && mode & 0o011 != 0 {
            pending.extend(std::fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
        }
    }
    open
}

/// Leaves a tree as open as `umask 022` would, without following links.
fn loosen(root: &Path) {
    let mut pending = vec![root.to_owned()];
    while let Some(path) = pending.pop() {
        let found = path.symlink_metadata().expect("nobody else is here");
        if found.file_type().is_symlink() {
            continue;
        }
        let more = if found.is_dir() { 0o055 } else { 0o044 };
        let loose = std::fs::Permissions::from_mode(mode(&path) | more);
        std::fs::set_permissions(&path, loose).expect("the tree is ours");
        if found.is_dir() {
            pending.extend(std::fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
        }
    }
}

#[tokio::test]
async fn others_reach_nothing_of_a_server_not_even_of_one_that_was_open_before() {
    let options = ServerOptions { binary: BINARY.into(), arguments: vec!["--disable-agent".to_owned()] };
    let mut server = Server::start(options).await;
    let data = server.data_dir();
    assert_eq!(mode(&data), 0o700);
    assert_eq!(open_to_others(&data), []);
    assert!(server.stop().await, "it stops cleanly:\n{}", server.log_text());
    std::fs::write(data.join("log"), "what `make up` writes").expect("a log");
    loosen(&data);
    assert!(open_to_others(&data).iter().any(|(path, _)| path.starts_with(data.join("store"))), "it is open now");
    server.spawn();
    server.ready().await;
    // Everything, and not only what the directories above do not hide already.
    let mut all = vec![data.clone()];
    while let Some(path) = all.pop() {
        assert_eq!(mode(&path) & 0o077, 0, "{}", path.display());
        all.extend(std::fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
    }
    assert!(server.stop().await, "it stops cleanly:\n{}", server.log_text());
    let backup = data.with_file_name("backup");
    let command = Command::new(BINARY).args(["store", "backup", "--data-dir"]).arg(&data).arg(&backup).output().await;
    assert!(command.is_ok_and(|output| output.status.success()));
    let restored = data.with_file_name("restored");
    let command = Command::new(BINARY).args(["store", "restore", "--data-dir"]).arg(&restored).arg(&backup).output();
    assert!(command.await.is_ok_and(|output| output.status.success()));
    assert_eq!((mode(&backup), open_to_others(&restored.join("store"))), (0o600, Vec::new()));
}

/// The pod's process is nobody's in particular, so that what volumes allow is seen, and writes what it could read.
#[tokio::test(flavor = "multi_thread")]
async fn others_reach_nothing_of_a_node_and_its_pods_have_their_volumes() {
    let mut machine = Machine::start("private", IMAGE).await;
    let client = machine.server.client();
    let secret: Secret = serde_json::from_value(json!({
        "metadata": {"name": "password", "namespace": "default"}, "stringData": {"word": "sesame"},
    }))
    .expect("a Secret");
    client.create(&secret).await.expect("the Secret");
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "reader", "namespace": "default"},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "securityContext": {"runAsUser": 12345, "runAsGroup": 12345},
            "containers": [{
                "name": "main", "image": IMAGE,
                "command": ["sh", "-c", "cat /secret/word /etc/hosts > /scratch/copy && cat /scratch/copy > /dev/termination-log \
                    && echo > /scratch/done; trap 'exit 0' TERM; sleep 86400 & wait"],
                "readinessProbe": {"periodSeconds": 1, "exec": {"command": ["test", "-f", "/scratch/done"]}},
                "volumeMounts": [
                    {"name": "secret", "mountPath": "/secret"}, {"name": "scratch", "mountPath": "/scratch"},
                ],
            }],
            "volumes": [{"name": "secret", "secret": {"secretName": "password"}}, {"name": "scratch", "emptyDir": {}}],
        },
    }))
    .expect("a Pod");
    client.create(&pod).await.expect("the Pod");
    let ready = |pod: Option<&Pod>| pod.is_some_and(crate::node::pod_ready);
    testkit::object(&client, "default", "reader", "a pod that reads and writes its volumes", ready).await;
    let data = machine.server.data_dir();
    assert_eq!(mode(&data), 0o711, "the way to containers' file systems");
    assert_eq!(open_to_others(&data), []);
    assert!(machine.server.stop().await, "it stops cleanly:\n{}", machine.server.log_text());
    for name in ["", "store", "agent", "agent/kubelet", "agent/logs", "agent/containerd", "agent/containerd/root"] {
        std::fs::set_permissions(data.join(name), std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    }
    assert_ne!(open_to_others(&data), [], "it is open now");
    machine.server.spawn();
    machine.server.ready().await;
    machine.node_ready("private").await;
    assert_eq!(open_to_others(&data), []);
    client.delete::<Pod>("default", "reader", &Default::default()).await.map(drop).expect("deleted");
    testkit::objects::<Pod>(&client, "default", "no pods", <[_]>::is_empty).await;
    machine.clean().await;
}
