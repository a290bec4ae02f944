//! Images from a real registry, Debian's `docker-registry` on loopback: plain HTTP, mirrors, digests, credentials.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Secret};
use node::cri::{Runtime, v1};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::rig::{BUSYBOX, Rig, sh};

const LOOP: &str = "trap 'exit 0' TERM; while :; do sleep 0.1; done";
/// `user` with the password `secret`, as `htpasswd -B` writes it.
const USERS: &str = "user:$2b$12$VfEyvStelS3B5paXFK6A8uHgnTOKteG2elKLI7gZo1sCndev08G56\n";

struct Registry {
    port: u16,
    _child: Child,
}

impl Registry {
    /// One of its own; with a password or without.
    async fn start(dir: &Path, locked: bool) -> Self {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        std::fs::create_dir_all(dir.join("data")).unwrap();
        std::fs::write(dir.join("users"), USERS).unwrap();
        let auth = if locked {
            format!("auth:\n  htpasswd:\n    realm: test\n    path: {}\n", dir.join("users").display())
        } else {
            String::new()
        };
        let config = format!(
            "version: 0.1\nlog:\n  level: error\nstorage:\n  filesystem:\n    rootdirectory: {}\nhttp:\n  addr: 127.0.0.1:{port}\n{auth}",
            dir.join("data").display()
        );
        std::fs::write(dir.join("config.yml"), config).unwrap();
        let child = Command::new("docker-registry")
            .arg("serve")
            .arg(dir.join("config.yml"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("Debian's docker-registry is installed by scripts/packages");
        let answers = async {
            while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), answers).await.expect("the registry answers");
        Self { port, _child: child }
    }

    fn image(&self, name: &str) -> String {
        format!("127.0.0.1:{}/{name}", self.port)
    }

    /// Puts busybox there under these names, and forgets it here.
    async fn push(&self, rig: &Rig, names: &[&str]) {
        let socket = rig.containerd.as_ref().unwrap().config().socket();
        let ctr = async |arguments: &[&str]| {
            let output = Command::new("ctr")
                .arg("--address")
                .arg(&socket)
                .args(["--namespace", "k8s.io", "images"])
                .args(arguments)
                .output()
                .await
                .unwrap();
            assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        };
        for name in names {
            let image = self.image(name);
            ctr(&["tag", "--force", BUSYBOX, &image]).await;
            ctr(&["push", "--plain-http", "--user", "user:secret", &image]).await;
            ctr(&["rm", &image]).await;
        }
    }
}

/// A pod whose image comes from a registry.
fn pulling(image: &str) -> Value {
    let mut container = sh("main", LOOP);
    container["image"] = json!(image);
    json!({"containers": [container]})
}

fn waits(pod: &Pod) -> Option<(String, String)> {
    let state = pod.status.as_ref()?.container_statuses.as_ref()?.first()?.state.clone()?.waiting?;
    Some((state.reason?, state.message.unwrap_or_default()))
}

#[tokio::test]
async fn images_come_by_tag_by_digest_through_mirrors_and_several_at_once() {
    let rig = Rig::start().await;
    let home = tempfile::tempdir().unwrap();
    let registry = Registry::start(home.path(), false).await;
    registry.push(&rig, &["test/one:1", "test/two:1", "test/three:1"]).await;
    // `mirror.test` does not exist: its images come from the registry, over plain HTTP.
    let hosts = rig.dir.path().join("registries/mirror.test");
    std::fs::create_dir_all(&hosts).unwrap();
    let mirror = format!("[host.\"http://127.0.0.1:{}\"]\n  capabilities = [\"pull\", \"resolve\"]\n", registry.port);
    std::fs::write(hosts.join("hosts.toml"), format!("server = \"https://mirror.test\"\n{mirror}")).unwrap();
    for (pod, image) in [
        ("one", registry.image("test/one:1")),
        ("two", registry.image("test/two:1")),
        ("three", "mirror.test/test/three:1".to_owned()),
    ] {
        rig.pod(pod, pulling(&image)).await;
    }
    for pod in ["one", "two", "three"] {
        rig.ready(pod).await;
        rig.event(pod, "Pulling: Pulling image ").await;
        let pulled = rig.event(pod, "Pulled: Successfully pulled image ").await;
        let (_, rest) = pulled.split_once("\" in ").expect("how long it took");
        assert!(rest.contains(" including waiting). Image size: ") && rest.ends_with(" bytes."), "{pulled}");
        // The hop says the same.
        let (_, size) = rest.split_once("Image size: ").expect("a size");
        let pod = rig.ready(pod).await;
        let hops = hops::about(pod.metadata.uid.as_deref().expect("a uid"));
        let pull = hops.iter().find(|span| span.stage == Some(hops::Stage::Pull)).expect("a pull");
        let said = format!("{} {}.", pull.amount, pull.unit().expect("a unit"));
        assert_eq!((said.as_str(), pull.note.words().as_str(), pull.by), (size, "pulled", "main"));
    }
    let spec = v1::ImageSpec { image: registry.image("test/one:1"), ..Default::default() };
    let digest = rig.runtime().image_status(spec).await.unwrap().unwrap().repo_digests[0].clone();
    assert!(digest.contains("@sha256:"), "{digest}");
    rig.pod("digest", pulling(&digest)).await;
    let pod = rig.ready("digest").await;
    let status = pod.status.unwrap().container_statuses.unwrap().remove(0);
    assert_eq!(status.image_id, digest);
    // Nobody has this one.
    rig.pod("missing", pulling(&registry.image("test/none:1"))).await;
    let pod = rig
        .until("missing", "backing off", |pod| waits(pod).is_some_and(|(reason, _)| reason == "ImagePullBackOff"))
        .await;
    let (_, message) = waits(&pod).unwrap();
    let image = registry.image("test/none:1");
    assert!(message.starts_with(&format!("Back-off pulling image {image:?}: ErrImagePull: ")), "{message}");
    assert!(message.contains("not found"), "{message}");
    rig.stop().await;
}

#[tokio::test]
async fn a_locked_registry_opens_with_a_pull_secret_or_the_nodes_own_file() {
    let rig = Rig::start().await;
    let home = tempfile::tempdir().unwrap();
    let registry = Registry::start(home.path(), true).await;
    registry.push(&rig, &["test/locked:1", "test/other:1"]).await;
    let image = registry.image("test/locked:1");
    rig.pod("nobody", pulling(&image)).await;
    rig.until("nobody", "refused", |pod| waits(pod).is_some_and(|(reason, _)| reason.ends_with("PullBackOff"))).await;
    let auths = json!({"auths": {format!("127.0.0.1:{}", registry.port): {"username": "user", "password": "secret"}}});
    let secret: Secret = serde_json::from_value(json!({
        "metadata": {"name": "key", "namespace": "default"},
        "type": "kubernetes.io/dockerconfigjson",
        "stringData": {".dockerconfigjson": auths.to_string()},
    }))
    .unwrap();
    rig.admin.create(&secret).await.unwrap();
    let mut spec = pulling(&image);
    spec["imagePullSecrets"] = json!([{"name": "key"}]);
    rig.pod("keyholder", spec).await;
    rig.ready("keyholder").await;
    // The image is here now, but not everybody's: who cannot show the key has to ask the registry, which says no.
    rig.pod("thief", pulling(&image)).await;
    rig.until("thief", "refused", |pod| waits(pod).is_some_and(|(reason, _)| reason.ends_with("PullBackOff"))).await;
    let mut never = pulling(&image);
    never["containers"][0]["imagePullPolicy"] = json!("Never");
    rig.pod("never", never).await;
    rig.until("never", "refused", |pod| waits(pod).is_some_and(|(reason, _)| reason == "ErrImageNeverPull")).await;
    let mut again = pulling(&image);
    again["imagePullSecrets"] = json!([{"name": "key"}]);
    rig.pod("again", again).await;
    rig.ready("again").await;
    let present =
        format!("Pulled: Container image {image:?} already present on machine and can be accessed by the pod");
    assert_eq!(rig.event("again", "Pulled: ").await, present);
    std::fs::write(rig.dir.path().join("kubelet/config.json"), auths.to_string()).unwrap();
    rig.pod("trusted", pulling(&registry.image("test/other:1"))).await;
    rig.ready("trusted").await;
    rig.stop().await;
}
