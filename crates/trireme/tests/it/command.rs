//! The commands, as a user types them.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use testkit::{Server, ServerOptions};

fn trireme(arguments: &[&str]) -> (bool, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_trireme")).args(arguments).output().expect("the binary runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout), text(&output.stderr))
}

/// Runs the binary; whether it succeeded, and all that it said.
pub fn run(arguments: &[&str]) -> (bool, String) {
    let (success, stdout, stderr) = trireme(arguments);
    (success, stdout + &stderr)
}

fn options(arguments: &[&str]) -> ServerOptions {
    ServerOptions {
        binary: env!("CARGO_BIN_EXE_trireme").into(),
        arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
    }
}

#[test]
fn help_and_version_say_what_there_is() {
    let (success, stdout, _) = trireme(&["--help"]);
    assert!(success);
    for command in ["server", "store", "scheduler", "controller-manager", "version"] {
        assert!(stdout.contains(command), "{stdout}");
    }
    let (success, stdout, _) = trireme(&["version"]);
    assert!(success && stdout.contains("v1.37"), "{stdout}");
}

#[test]
fn mistakes_are_explained() {
    let cases: &[(&[&str], &str)] = &[
        (&["server"], "--data-dir"),
        (&["server", "--data-dir", "/proc/none"], "cannot use the data directory"),
        (&["server", "--data-dir", "/nonexistent", "--store", "etcd"], "--etcd-servers"),
        (&["store", "check", "--data-dir", "/nonexistent"], "is not a directory"),
        (&["scheduler", "--kubeconfig", "/nonexistent"], "cannot read /nonexistent"),
        (
            &["agent", "--server", "https://127.0.0.1:1", "--data-dir", "/nonexistent", "--token", "x"],
            "not of the form",
        ),
        (&["agent", "--server", "https://127.0.0.1:1", "--data-dir", "/nonexistent"], "give --token"),
        (&["cluster", "--directory", "/nonexistent", "down"], "there is no cluster dev"),
        (&["cluster", "--directory", "/nonexistent", "stop", "dev-1"], "there is no node dev-1"),
        (&["nonsense"], "unrecognized subcommand"),
    ];
    for (arguments, expected) in cases {
        let (success, _, stderr) = trireme(arguments);
        assert!(!success && stderr.contains(expected), "trireme {}: {stderr}", arguments.join(" "));
    }
}

#[tokio::test]
async fn a_server_keeps_its_objects_over_a_clean_stop_a_backup_and_a_restore() {
    let mut server = Server::start(options(&["--disable-agent"])).await;
    let kubectl = server.kubectl();
    kubectl.run(&["create", "configmap", "kept", "--from-literal=k=v"]).await;
    let mode = std::fs::metadata(server.kubeconfig()).expect("a kubeconfig").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(server.stop().await, "{}", server.log_text());

    let data = server.data_dir();
    let data = data.to_str().expect("a path in UTF-8");
    let (success, stdout, stderr) = trireme(&["store", "check", "--data-dir", data]);
    assert!(success && stdout.starts_with("revision "), "{stdout}{stderr}");
    let backup = server.data_dir().with_file_name("backup");
    let backup = backup.to_str().expect("a path in UTF-8");
    let (success, _, stderr) = trireme(&["store", "backup", "--data-dir", data, backup]);
    assert!(success, "{stderr}");
    std::fs::remove_dir_all(server.data_dir().join("store")).expect("the store is gone");
    let (success, _, stderr) = trireme(&["store", "restore", "--data-dir", data, backup]);
    assert!(success, "{stderr}");

    server.spawn();
    server.ready().await;
    assert_eq!(kubectl.run(&["get", "configmap", "kept", "-o", "jsonpath={.data.k}"]).await, "v");
    assert!(server.stop().await, "{}", server.log_text());
}

#[tokio::test]
async fn a_deployment_becomes_pods_on_a_node() {
    let mut server = Server::start(options(&["--disable-agent"])).await;
    let kubectl = server.kubectl();
    let node = "---\n{apiVersion: v1, kind: Node, metadata: {name: n1}}";
    kubectl.run_with(&["create", "--validate=false", "-f", "-"], node).await;
    let ready = r#"{"status":{"capacity":{"cpu":"4","memory":"8Gi","pods":"110"},
        "allocatable":{"cpu":"4","memory":"8Gi","pods":"110"},
        "conditions":[{"type":"Ready","status":"True","reason":"KubeletReady","lastHeartbeatTime":null}]}}"#;
    kubectl.run(&["patch", "node", "n1", "--subresource=status", "--type=merge", "-p", ready]).await;
    kubectl.run(&["create", "deployment", "web", "--image=busybox", "--replicas=3"]).await;
    let bound = |pod: &Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.as_deref() == Some("n1"));
    let three = |pods: &[Arc<Pod>]| pods.iter().filter(|pod| bound(pod)).count() == 3;
    testkit::objects::<Pod>(&server.client(), "default", "3 bound pods", three).await;
    kubectl.run(&["delete", "deployment", "web"]).await;
    assert!(server.stop().await, "{}", server.log_text());
}

#[tokio::test]
async fn an_agent_and_a_cluster_know_each_other_before_they_trust_each_other() {
    let mut server = Server::start(options(&["--disable-agent"])).await;
    let address = format!("https://127.0.0.1:{}", server.port());
    let kubeconfig = server.kubeconfig();
    let kubeconfig = kubeconfig.to_str().expect("a path in UTF-8");
    // What joining needs is made right after the start.
    let kubectl = server.kubectl();
    testkit::object::<ConfigMap>(&server.client(), "kube-public", "cluster-info", "an invitation", |map| map.is_some())
        .await;
    let (success, command, stderr) = trireme(&["token", "create", "--kubeconfig", kubeconfig]);
    assert!(success && command.starts_with("trireme agent --server https://"), "{command}{stderr}");
    let token = command.split_whitespace().nth(5).expect("a token").to_owned();
    let (bearer, pin) = token.split_once('@').expect("a token with a pin");
    let (id, secret) = bearer.split_once('.').expect("an id");
    let secrets = kubectl.run(&["get", "secrets", "-n", "kube-system", "--no-headers"]).await;
    assert!(secrets.contains(&format!("bootstrap-token-{id}")), "{secrets}");
    let (success, list, stderr) = trireme(&["token", "list", "--kubeconfig", kubeconfig]);
    assert!(success && list.contains(id) && list.contains("Made by trireme token create."), "{list}{stderr}");
    assert!(
        list.contains("never") && !list.contains(secret),
        "the server's own has no end, and nobody's secret is shown: {list}"
    );
    let mode = std::fs::metadata(server.data_dir().join("token")).expect("the server's token").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let home = tempfile::tempdir().expect("a directory");
    let home = home.path().to_str().expect("a path in UTF-8");
    let join = |token: &str| {
        let (success, _, stderr) =
            trireme(&["agent", "--server", &address, "--data-dir", home, "--node-ip", "127.0.0.1", "--token", token]);
        assert!(!success && !stderr.contains(secret), "{stderr}");
        stderr
    };
    let other = format!("sha256:{}", "0".repeat(64));
    assert!(join(&format!("{bearer}@{other}")).contains("is not the one that the token names"));
    assert!(join(&format!("{id}.{}@{pin}", "x".repeat(16))).contains("does not accept the token"));
    assert!(join(bearer).contains("--ca-file"), "a token without a pin needs the authority");
    let (success, said, stderr) = trireme(&["token", "delete", "--kubeconfig", kubeconfig, bearer]);
    assert!(success && said.contains(id) && !said.contains(secret), "{said}{stderr}");
    let (_, list, _) = trireme(&["token", "list", "--kubeconfig", kubeconfig]);
    assert!(!list.contains(id), "{list}");
    assert!(join(&token).contains("does not accept the token"), "a token that was taken back");
    assert!(server.stop().await, "{}", server.log_text());
}
