//! What an administrator does on the second day: manifests in a directory, Secrets sealed, another authority.

use std::path::Path;
use std::time::Duration;

use client::{Client, Config};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use serde_json::json;
use testkit::{Server, ServerOptions};
use tokio::process::Command;

const BINARY: &str = env!("CARGO_BIN_EXE_trireme");

async fn server() -> Server {
    Server::start(ServerOptions { binary: BINARY.into(), arguments: vec!["--disable-agent".to_owned()] }).await
}

/// Runs a command on a server's data directory. Whether it succeeded, and what it said.
async fn run(server: &Server, words: &str) -> (bool, String) {
    let mut command = Command::new(BINARY);
    command.args(words.split(' ')).arg("--data-dir").arg(server.data_dir());
    let output = command.output().await.expect("the binary");
    (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

async fn again(server: &mut Server) {
    assert!(server.stop().await, "{}", server.log_text());
    server.spawn();
    server.ready().await;
}

async fn until(what: &str, server: &Server, mut met: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !met().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let late = tokio::time::timeout(Duration::from_secs(60), waiting).await;
    assert!(late.is_ok(), "{what}: {}", server.log_text());
}

fn value(map: &ConfigMap) -> Option<&str> {
    map.data.as_ref()?.get("v").map(String::as_str)
}

#[tokio::test(flavor = "multi_thread")]
async fn manifests_are_applied_followed_and_pruned() {
    let mut server = server().await;
    let (client, directory) = (server.client(), server.data_dir().join("manifests"));
    let map = |name: &str, value: &str| {
        format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{v: {value}}}\n")
    };
    let file = directory.join("Some_maps.yaml");
    let get = async |name: &str| client.get::<ConfigMap>("default", name).await;
    let is = async |name: &str, want: &str| get(name).await.is_ok_and(|map| value(&map) == Some(want));
    until("the directory is there", &server, async || directory.is_dir()).await;
    std::fs::write(&file, map("one", "first") + &map("two", "first")).expect("a file");
    until("both are made", &server, async || is("one", "first").await && is("two", "first").await).await;
    std::fs::write(&file, map("one", "second")).expect("a file");
    until("what changed is changed", &server, async || is("one", "second").await).await;
    until("what is not there any more goes", &server, async || get("two").await.is_err_and(|e| e.is_not_found())).await;
    // A custom object before its definition waits for it.
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "ships.harbour.example"},
        "spec": {"group": "harbour.example", "names": {"kind": "Ship", "plural": "ships"}, "scope": "Namespaced",
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    std::fs::write(
        directory.join("a.json"),
        json!({"apiVersion": "harbour.example/v1", "kind": "Ship",
        "metadata": {"name": "argo"}})
        .to_string(),
    )
    .expect("a file");
    std::fs::write(directory.join("b.json"), crd.to_string()).expect("a file");
    let ship = "/apis/harbour.example/v1/namespaces/default/ships/argo";
    until("the object follows its definition", &server, async || client.raw(ship).await.is_ok()).await;
    // What is skipped is not applied, and a file that goes leaves what it made.
    std::fs::write(directory.join("later.yaml.skip"), "").expect("a file");
    std::fs::write(directory.join("later.yaml"), map("later", "x")).expect("a file");
    std::fs::remove_file(&file).expect("it was there");
    std::fs::write(directory.join("last.yaml"), map("last", "x")).expect("a file");
    until("the last one is made", &server, async || is("last", "x").await).await;
    assert!(get("later").await.is_err_and(|error| error.is_not_found()));
    assert!(is("one", "second").await, "it stays");
    // After a start everything is as it was.
    again(&mut server).await;
    let client = server.client();
    assert_eq!(value(&client.get::<ConfigMap>("default", "last").await.expect("a map")), Some("x"));
}

/// Whether a text is anywhere in a store's files.
fn in_store(directory: &Path, text: &str) -> bool {
    let mut pending = vec![directory.join("store")];
    while let Some(path) = pending.pop() {
        if path.is_dir() {
            pending.extend(std::fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
        } else if std::fs::read(&path)
            .is_ok_and(|bytes| bytes.windows(text.len()).any(|window| window == text.as_bytes()))
        {
            return true;
        }
    }
    false
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_sealed_by_command() {
    let mut server = server().await;
    let secret = |name: &str, text: &str| -> Secret {
        serde_json::from_value(json!({"metadata": {"name": name, "namespace": "default"}, "stringData": {"k": text}}))
            .expect("a secret")
    };
    let read = async |client: &Client, name: &str| {
        let found = client.get::<Secret>("default", name).await.expect("a secret");
        let data = found.data.unwrap_or_default();
        (String::from_utf8_lossy(&data["k"].0).into_owned(), found.metadata.resource_version.unwrap_or_default())
    };
    server.client().create(&secret("old", "plainly-old")).await.expect("a secret");
    // Bytes are in the store as they are, or as base64 of their object; either tells.
    let (refused, said) = run(&server, "secrets encrypt rotate").await;
    assert!(!refused && said.contains("`trireme secrets encrypt enable` makes it"), "{said}");
    let (enabled, said) = run(&server, "secrets encrypt enable").await;
    assert!(enabled && said.contains("seals and opens"), "{said}");
    let (twice, _) = run(&server, "secrets encrypt enable").await;
    assert!(!twice, "a key is not overwritten");
    again(&mut server).await;
    let client = server.client();
    let before = read(&client, "old").await;
    let (sealed, said) = run(&server, "secrets encrypt reencrypt").await;
    assert!(sealed && said.contains("Secrets are sealed with key-"), "{said}");
    let after = read(&client, "old").await;
    assert_eq!(after.0, "plainly-old");
    assert_ne!(before.1, after.1, "it was written");
    client.create(&secret("new", "plainly-new-and-only-sealed")).await.expect("a secret");
    let (rotated, said) = run(&server, "secrets encrypt rotate").await;
    assert!(rotated && said.matches("opens\n").count() == 2, "{said}");
    let (dropped, said) = run(&server, "secrets encrypt reencrypt --drop-old-keys").await;
    assert!(dropped && said.contains("1 older keys are gone"), "{said}");
    let (_, said) = run(&server, "secrets encrypt status").await;
    assert_eq!(said.matches("opens").count(), 1, "{said}");
    // The one key that is left opens everything, after a start, too.
    again(&mut server).await;
    let client = server.client();
    assert_eq!(read(&client, "old").await.0, "plainly-old");
    assert_eq!(read(&client, "new").await.0, "plainly-new-and-only-sealed");
    let encoded = "cGxhaW5seS1uZXctYW5kLW9ubHktc2VhbGVk";
    assert!(!in_store(&server.data_dir(), encoded) && !in_store(&server.data_dir(), "plainly-new-and-only-sealed"));
}

/// Asks with a kubeconfig that somebody kept.
async fn works(text: &str) -> bool {
    let folder = tempfile::tempdir().expect("a directory");
    let file = folder.path().join("config");
    std::fs::write(&file, text).expect("a file");
    let client = Client::https(Config::from_kubeconfig(&file).expect("a kubeconfig")).expect("a client");
    client.get::<Namespace>("", "default").await.is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn another_authority_follows_without_anybody_being_refused() {
    let mut server = server().await;
    let kubeconfig = |server: &Server| std::fs::read_to_string(server.kubeconfig()).expect("a kubeconfig");
    let authority = || std::fs::read_to_string(server.data_dir().join("pki/ca.crt")).expect("an authority");
    let (old_authority, first) = (authority(), kubeconfig(&server));
    let (early, said) = run(&server, "certificates rotate-ca finish").await;
    assert!(!early && said.contains("it has not begun"), "{said}");
    let (begun, said) = run(&server, "certificates rotate-ca begin").await;
    assert!(begun && said.contains("Both are believed then"), "{said}");
    again(&mut server).await;
    let both = kubeconfig(&server);
    assert!(works(&first).await && works(&both).await && first != both);
    let (switched, said) = run(&server, "certificates rotate-ca switch").await;
    assert!(switched, "{said}");
    again(&mut server).await;
    assert!(works(&both).await, "who learned of both is believed, and believes");
    assert!(!works(&first).await, "who did not does not know the server");
    let published = async |server: &Server| {
        let map = server.client().get::<ConfigMap>("default", "kube-root-ca.crt").await.ok()?;
        Some(map.data?.get("ca.crt")?.matches("BEGIN CERTIFICATE").count())
    };
    until("pods are told of both", &server, async || published(&server).await == Some(2)).await;
    let last = kubeconfig(&server);
    let (finished, said) = run(&server, "certificates rotate-ca finish").await;
    assert!(finished, "{said}");
    again(&mut server).await;
    assert!(works(&last).await && works(&kubeconfig(&server)).await);
    assert!(!works(&both).await, "what the old one signed is worth nothing any more");
    until("pods are told of one", &server, async || published(&server).await == Some(1)).await;
    assert_ne!(std::fs::read_to_string(server.data_dir().join("pki/ca.crt")).expect("an authority"), old_authority);
    let (_, said) = run(&server, "certificates rotate-ca").await;
    assert!(said.contains("One authority signs"), "{said}");
}

/// A server that a small supervisor starts again whenever it ends, as a service manager does.
struct Supervised {
    folder: tempfile::TempDir,
    _supervisor: tokio::process::Child,
}

impl Supervised {
    async fn start() -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        let port = testkit::free_port();
        // What helps debuggers is most of it, and would be copied four times.
        let program = folder.path().join("trireme");
        let stripped = Command::new("strip").arg("-o").arg(&program).arg(BINARY).status().await;
        assert!(stripped.is_ok_and(|status| status.success()), "strip (Debian: binutils)");
        let script = format!(
            "cd {}; while [ ! -e stop ]; do ./trireme server --data-dir data --disable-agent --bind-address 127.0.0.1 --https-port {port} \
             >>log 2>&1 & echo $! >pid; wait $!; sleep 0.2; done",
            folder.path().display()
        );
        let supervisor = Command::new("sh").args(["-c", &script]).kill_on_drop(true).spawn().expect("sh");
        Self { folder, _supervisor: supervisor }
    }

    async fn upgrade(&self, binary: &Path) -> (bool, String) {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        let output = Command::new(BINARY)
            .arg("upgrade")
            .arg(binary)
            .args(["--program", &path("trireme"), "--kubeconfig", &path("data/admin.kubeconfig"), "--timeout=40s"])
            .args(["--node-name", "none", "--restart", &format!("kill $(cat {})", path("pid"))])
            .output()
            .await
            .expect("the binary");
        (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        let _ = std::fs::write(self.folder.path().join("stop"), "");
        let _ = std::process::Command::new("sh")
            .args(["-c", &format!("kill $(cat {}/pid)", self.folder.path().display())])
            .status();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_binary_takes_the_place_of_one_and_gives_it_back_if_it_is_not_well() {
    let server = Supervised::start().await;
    let log = || std::fs::read_to_string(server.folder.path().join("log")).unwrap_or_default();
    let client = async || {
        let config = Config::from_kubeconfig(server.folder.path().join("data/admin.kubeconfig")).ok()?;
        let client = Client::https(config).ok()?;
        client.raw("/readyz").await.ok().map(|_| client)
    };
    let ready = async {
        while client().await.is_none() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(60), ready).await.is_ok(), "{}", log());
    // The same program with something behind it is another file.
    let new = server.folder.path().join("new");
    let mut bytes = std::fs::read(server.folder.path().join("trireme")).expect("the binary");
    bytes.extend_from_slice(b"another");
    std::fs::write(&new, &bytes).expect("a file");
    std::fs::set_permissions(&new, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("a mode");
    let (done, said) = server.upgrade(&new).await;
    assert!(done && said.contains(" runs; the old binary is "), "{said}{}", log());
    assert_eq!(std::fs::read(server.folder.path().join("trireme")).expect("a file"), bytes);
    // One that says its version and does nothing else gives the place back.
    let broken = server.folder.path().join("broken");
    std::fs::write(&broken, "#!/bin/sh\n[ \"$1\" = version ] && echo trireme 9\n").expect("a file");
    std::fs::set_permissions(&broken, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("a mode");
    let (done, said) = server.upgrade(&broken).await;
    assert!(!done && said.contains("the old binary takes its place again"), "{said}");
    assert_eq!(std::fs::read(server.folder.path().join("trireme")).expect("a file"), bytes);
    assert!(client().await.is_some(), "{}", log());
    let (done, said) = server.upgrade(Path::new("/bin/true")).await;
    assert!(!done && said.contains("/bin/true is no trireme"), "{said}");
}
