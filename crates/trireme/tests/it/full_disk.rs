//! A disk without room, for real: the store lies on a small file system in a mount namespace of the server's own.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use client::Client;
use k8s_openapi::api::core::v1::ConfigMap;
use testkit::build::config_map;
use testkit::{Server, ServerOptions, eventually};

use crate::node::BINARY;

/// A program that starts the server with 8 MiB for its store. Process ids stay what they are: every step becomes the next.
fn with_small_store(directory: &Path) -> PathBuf {
    let path = directory.join("small");
    let script = format!(
        "#!/bin/sh\nset -e\n[ -n \"$SMALL\" ] || SMALL=1 exec unshare --mount --propagation private \"$0\" \"$@\"\n\
         mkdir -p \"$3/store\"\nmount -t tmpfs -o size=8m tmpfs \"$3/store\"\nexec {BINARY} \"$@\"\n"
    );
    std::fs::write(&path, script).expect("a script");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("it can be run");
    path
}

async fn create(client: &Client, name: &str) -> Result<(), client::Error> {
    client.create(&config_map(name, "key", "value")).await.map(drop)
}

async fn until(what: &str, mut met: impl AsyncFnMut() -> bool) {
    eventually(what, async {
        while !met().await {
            // Nobody announces that a file system has room.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_seen_in_readyz_and_in_the_log_until_there_is_room() {
    let directory = tempfile::tempdir().expect("a directory");
    let arguments = ["--disable-agent", "--disable-controller-manager", "--disable-scheduler"].map(str::to_owned);
    let options = ServerOptions { binary: with_small_store(directory.path()), arguments: arguments.to_vec() };
    let server = Server::start(options).await;
    let client = server.client();
    // The server's own mounts, seen through its process.
    let root = PathBuf::from(format!("/proc/{}/root", server.id().expect("a running server")));
    let store = root.join(server.data_dir().strip_prefix("/").expect("an absolute path")).join("store");
    let filler = store.join("filler");
    for round in 0..2 {
        create(&client, &format!("before-{round}")).await.expect("there is room");
        // It ends with an error, for want of room.
        let copied = std::io::copy(
            &mut std::io::Read::take(std::io::repeat(0), 64 << 20),
            &mut std::fs::File::create(&filler).expect("a file"),
        );
        assert!(copied.is_err(), "the file system is larger than it should be");
        // What is written is small, and the last page of the log may still have room for some.
        let mut made = 0;
        until("a refused write", async || {
            made += 1;
            let outcome = create(&client, &format!("full-{round}-{made}")).await;
            assert!(outcome.as_ref().err().is_none_or(|error| error.code() == Some(503)), "{outcome:?}");
            outcome.is_err()
        })
        .await;
        let ready = client.raw("/readyz").await.expect_err("a server that cannot write is not ready");
        assert!(ready.to_string().contains("[-]etcd failed"), "{ready}");
        let check = client.raw("/readyz/etcd").await.expect_err("nor is this check");
        assert!(check.to_string().contains("No space left on device"), "{check}");
        assert!(client.raw("/livez").await.is_ok(), "a restart would not help");
        assert!(client.get::<ConfigMap>("default", &format!("before-{round}")).await.is_ok(), "reads go on");
        std::fs::remove_file(&filler).expect("the filler");
        until("a ready server", async || client.raw("/readyz").await.is_ok()).await;
        create(&client, &format!("after-{round}")).await.expect("there is room again");
        let log = server.log_text();
        assert_eq!(log.matches("the store cannot write").count(), round + 1, "said once:\n{log}");
        assert_eq!(log.matches("the store can write again").count(), round + 1, "said once:\n{log}");
    }
}
