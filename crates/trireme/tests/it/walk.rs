//! The whole way, as a user goes it: `kubectl apply` to a page that a Service serves, from real containers on a real node.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use testkit::{Server, ServerOptions};
use tokio::process::Command;

const BINARY: &str = env!("CARGO_BIN_EXE_trireme");
const IMAGE: &str = "trireme.local/walk:1";

/// The demonstration of `make up`, with this test's image.
fn manifest() -> String {
    include_str!("../../../../scripts/demo.yaml").replace("trireme.local/hello:1", IMAGE)
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_ends_with_a_page_behind_a_service() {
    let options = ServerOptions { binary: BINARY.into(), arguments: vec!["--node-name=walker".to_owned()] };
    let mut server = Server::start(options).await;
    let archive = server.data_dir().join("images/walk.tar");
    let made = Command::new(BINARY).args(["image", "busybox", "--name", IMAGE]).arg(&archive).status().await;
    assert!(made.is_ok_and(|status| status.success()), "the image is made");
    // Images are imported at start; containers and their runtime outlive this.
    assert!(server.stop().await, "it stops cleanly:\n{}", server.log_text());
    server.spawn();
    server.ready().await;

    let kubectl = server.kubectl();
    testkit::object(&server.client(), "", "walker", "a ready node", is_ready).await;
    kubectl.run_with(&["apply", "-f", "-"], &manifest()).await;
    kubectl.run(&["rollout", "status", "deployment/hello", "--timeout=120s"]).await;

    let address = kubectl.run(&["get", "service", "hello", "-o", "jsonpath={.spec.clusterIP}"]).await;
    let page = page(&address).await;
    assert!(page.starts_with("Hello from hello-"), "{page}");

    // What a user does next.
    let pods = kubectl.run(&["get", "pods", "-l", "app=hello", "-o", "jsonpath={.items[*].metadata.name}"]).await;
    let pod = pods.split_whitespace().next().expect("a pod").to_owned();
    assert_eq!(kubectl.run(&["exec", &pod, "--", "hostname"]).await.trim(), pod);
    let lookup = ["exec", &pod, "--", "nslookup", "hello.default.svc.cluster.local"];
    assert!(kubectl.run(&lookup).await.contains(&address), "cluster DNS answers in a pod");
    assert_eq!(kubectl.run(&["exec", &pod, "--", "sh", "-c", "echo said > /proc/1/fd/1"]).await, "");
    assert_eq!(kubectl.run(&["logs", &pod]).await, "said\n");
    let events = kubectl.run(&["get", "events", "--field-selector", &format!("involvedObject.name={pod}")]).await;
    for reason in ["Scheduled", "Pulled", "Created", "Started"] {
        assert!(events.contains(reason), "{reason} in:\n{events}");
    }

    kubectl.run(&["delete", "deployment/hello", "service/hello", "--wait=true", "--timeout=60s"]).await;
    kubectl.run(&["wait", "--for=delete", "pods", "-l", "app=hello", "--timeout=60s"]).await;
    assert!(server.stop().await, "it stops cleanly:\n{}", server.log_text());
    stop_runtime(&server.data_dir()).await;
}

fn is_ready(node: Option<&Node>) -> bool {
    let conditions = node.and_then(|node| node.status.as_ref()?.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// The page, once the Service's rules are in the kernel: they follow the endpoints by milliseconds.
async fn page(address: &str) -> String {
    let url = format!("http://{address}/");
    let arguments = [
        "--silent",
        "--show-error",
        "--fail",
        "--max-time",
        "5",
        "--retry",
        "20",
        "--retry-connrefused",
        "--retry-delay",
        "1",
        &url,
    ];
    let output = Command::new("curl").args(arguments).output().await.expect("curl");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Containers outlive the server on purpose, and so does their runtime: a test must not leave it behind.
async fn stop_runtime(data_dir: &Path) {
    let file = data_dir.join("agent/containerd/containerd.pid");
    let text = std::fs::read_to_string(&file).expect("the runtime's pid file");
    let pid = text.split_whitespace().next().expect("a pid").to_owned();
    let stopped = Command::new("kill").args(["-TERM", &pid]).status().await;
    assert!(stopped.is_ok_and(|status| status.success()), "the runtime was running");
    let gone = async {
        while Path::new("/proc").join(&pid).exists() {
            // A process that is not our child cannot be waited for.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), gone).await.expect("the runtime stops when asked");
}
