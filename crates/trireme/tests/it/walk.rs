//! The whole way, as a user goes it: `kubectl apply` to a page that a Service serves, from real containers on a real node.

use testkit::eventually;

use crate::node::{BINARY, Machine};

const IMAGE: &str = "trireme.local/walk:1";

/// The demonstration of `make up`, with this test's image.
fn manifest() -> String {
    include_str!("../../../../scripts/demo.yaml").replace("trireme.local/hello:1", IMAGE)
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_ends_with_a_page_behind_a_service() {
    let machine = Machine::start("walker", IMAGE).await;
    let kubectl = machine.server.kubectl();
    kubectl.run_with(&["apply", "-f", "-"], &manifest()).await;
    kubectl.run(&["rollout", "status", "deployment/hello", "--timeout=120s"]).await;

    let address = kubectl.run(&["get", "service", "hello", "-o", "jsonpath={.spec.clusterIP}"]).await;
    let page = page(&machine, &address).await;
    assert!(page.starts_with("Hello from hello-"), "{page}");

    // Which way it went: every hop of the server's, under the name that it has for good.
    let uid = kubectl.run(&["get", "deployment", "hello", "-o", "jsonpath={.metadata.uid}"]).await;
    let path = format!("/debug/hops?uid={uid}");
    let trail: serde_json::Value = serde_json::from_str(&kubectl.run(&["get", "--raw", &path]).await).expect("hops");
    let spans = trail["hops"].as_array().expect("a list");
    let mut hops: Vec<(u64, &str)> = spans
        .iter()
        .map(|span| (span["hop"].as_u64().expect("a number"), span["name"].as_str().expect("a name")))
        .collect();
    hops.sort_unstable();
    hops.dedup();
    let expected: Vec<(u64, &str)> =
        hops::Hop::ALL[1..].iter().map(|hop| (u64::from(hop.number()), hop.name())).collect();
    assert_eq!(hops, expected, "the first hop is the client's own");
    let stages: Vec<&str> = spans.iter().filter_map(|span| span["stage"].as_str()).collect();
    for stage in ["schedule", "bind", "sandbox", "create-container", "start-container", "status"] {
        assert!(stages.contains(&stage), "{stage} in {stages:?}");
    }
    waterfall(&machine).await;
    let refused = kubectl.fail(&["get", "--raw", &path, "--as=somebody"]).await;
    assert!(refused.contains("Forbidden"), "{refused}");

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

    // Files in and out, a container beside a running one, and what everything uses.
    let (there, back) = (machine.server.data_dir().join("there"), machine.server.data_dir().join("back"));
    std::fs::write(&there, "copied").expect("a file");
    kubectl.run(&["cp", &there.to_string_lossy(), &format!("{pod}:/tmp/copy")]).await;
    kubectl.run(&["cp", &format!("{pod}:/tmp/copy"), &back.to_string_lossy()]).await;
    assert_eq!(std::fs::read_to_string(&back).expect("the copy"), "copied");
    let image = format!("--image={IMAGE}");
    kubectl.run(&["debug", &pod, &image, "--container=look", "--", "sh", "-c", "echo looked"]).await;
    let looked = [
        "wait",
        &format!("pod/{pod}"),
        "--timeout=120s",
        "--for=jsonpath={.status.ephemeralContainerStatuses[0].state.terminated.exitCode}=0",
    ];
    kubectl.run(&looked).await;
    assert_eq!(kubectl.run(&["logs", &pod, "-c", "look"]).await, "looked\n");
    let figures = kubectl.run(&["get", "--raw", "/api/v1/nodes/walker/proxy/metrics/resource"]).await;
    for name in ["node_cpu_usage_seconds_total", "node_memory_working_set_bytes"] {
        assert!(figures.lines().any(|line| line.starts_with(name)), "{name} in:\n{figures}");
    }
    for name in ["container_cpu_usage_seconds_total", "container_memory_working_set_bytes"] {
        let own = |line: &str| line.starts_with(name) && line.contains(&format!("pod=\"{pod}\""));
        assert!(figures.lines().any(own), "{name} of {pod} in:\n{figures}");
    }
    let summary = kubectl.run(&["get", "--raw", "/api/v1/nodes/walker/proxy/stats/summary"]).await;
    let summary: serde_json::Value = serde_json::from_str(&summary).expect("a document");
    let of_pod = summary["pods"].as_array().and_then(|pods| pods.iter().find(|one| one["podRef"]["name"] == *pod));
    assert!(of_pod.is_some_and(|one| one["memory"]["workingSetBytes"].as_u64() > Some(0)), "{summary:#}");

    uses(&machine, &pod).await;

    kubectl.run(&["delete", "deployment/hello", "service/hello", "--wait=true", "--timeout=60s"]).await;
    kubectl.run(&["wait", "--for=delete", "pods", "-l", "app=hello", "--timeout=60s"]).await;
    machine.clean().await;
}

/// `trireme trace`, for people and for programs.
async fn waterfall(machine: &Machine) {
    let drawn = trace(machine, &["deployment/hello"]).await;
    for part in
        ["deployment/hello\n", "└ replicaset/hello-", "  └ pod/hello-", "on walker", "sandbox", "start-container"]
    {
        assert!(drawn.contains(part), "{part} in:\n{drawn}");
    }
    assert!(drawn.contains("The longest part"), "{drawn}");
    let told = trace(machine, &["deployment/hello", "-o", "json", "--all"]).await;
    let told: serde_json::Value = serde_json::from_str(&told).expect("a document");
    let spans = told["spans"].as_array().expect("spans");
    let pods = told["objects"].as_array().expect("objects").iter().filter(|one| one["node"] == "walker").count();
    let of = |stage: &str| spans.iter().filter(|span| span["stage"] == stage).count();
    // Each pod once, although its node and the server are one process and both were asked.
    assert_eq!((of("sandbox"), of("pod"), of("queue") >= pods), (pods, pods, true), "{told:#}");
    let seconds = |field: &str| told[field].as_f64().expect("seconds");
    assert!(seconds("accounted") <= seconds("seconds"), "{told:#}");
    let controllers: Vec<&str> =
        spans.iter().filter(|span| span["hop"] == 9).filter_map(|span| span["by"].as_str()).collect();
    assert!(
        controllers.contains(&"deployment-controller") && controllers.contains(&"replicaset-controller"),
        "{controllers:?}"
    );
}

async fn trace(machine: &Machine, arguments: &[&str]) -> String {
    let mut command = machine.server.command(BINARY);
    command.arg("trace").args(arguments).arg("--kubeconfig").arg(machine.server.kubeconfig());
    let output = command.output().await.expect("the binary runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// `trireme top`: what the control plane itself costs, nodes and pods; the second picture has rates.
async fn live(machine: &Machine, pod: &str) {
    let mut command = machine.server.command(BINARY);
    command.args(["top", "--count=2", "--interval=1s", "--kubeconfig"]).arg(machine.server.kubeconfig());
    let output = command.output().await.expect("the binary runs");
    let pictures = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{pictures}{}", String::from_utf8_lossy(&output.stderr));
    let last = pictures.rsplit("control plane: ").next().expect("a picture");
    for part in ["m CPU, ", " requests/s", "NODE ", "walker ", "NAMESPACE ", pod] {
        assert!(last.contains(part), "{part} in:\n{pictures}");
    }
    assert_eq!(pictures.matches("control plane: ").count(), 2, "{pictures}");
}

/// `kubectl top`, and the group that it asks, until somebody's metrics-server takes it over.
async fn uses(machine: &Machine, pod: &str) {
    let kubectl = &machine.server.kubectl();
    let node = kubectl.run(&["top", "node", "--no-headers"]).await;
    let columns: Vec<&str> = node.split_whitespace().collect();
    assert!(columns[0] == "walker" && columns[1].ends_with('m') && columns[3].ends_with("Mi"), "{node}");
    let pods = kubectl.run(&["top", "pod", "-l", "app=hello", "--containers", "--no-headers"]).await;
    let own = pods.lines().find(|line| line.split_whitespace().next() == Some(pod));
    assert!(own.is_some_and(|line| line.trim_end().ends_with("Mi")), "{pod} in:\n{pods}");
    live(machine, pod).await;
    let nobody = kubectl.fail(&["top", "pod", "nobody"]).await;
    assert!(nobody.contains("pods \"nobody\" not found"), "{nobody}");
    assert!(kubectl.run(&["api-resources", "--api-group=metrics.k8s.io"]).await.contains("PodMetrics"));
    let table = kubectl.run(&["get", "nodes.metrics.k8s.io"]).await;
    assert!(table.starts_with("NAME") && table.contains("WINDOW") && table.contains("walker"), "{table}");
    let service = ["get", "apiservice", "v1beta1.metrics.k8s.io", "-o"];
    let available = [&service[..], &["jsonpath={.status.conditions[0].reason}"]].concat();
    assert_eq!(kubectl.run(&available).await, "Local");

    let taken = r#"{"spec": {"service": {"namespace": "default", "name": "gone"}, "insecureSkipTLSVerify": true}}"#;
    kubectl.run(&["patch", "apiservice", "v1beta1.metrics.k8s.io", "--type=merge", "-p", taken]).await;
    let refused = kubectl.fail(&["get", "--raw", "/apis/metrics.k8s.io/v1beta1/nodes"]).await;
    assert!(refused.contains("unable to handle the request"), "another server has the group now: {refused}");
    kubectl.run(&["delete", "apiservice", "v1beta1.metrics.k8s.io"]).await;
    let answers = async { while !kubectl.output(&["top", "node"], "").await.stdout.contains("walker") {} };
    eventually("the group is this server's again", answers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_and_services_have_an_address_of_each_family() {
    let ranges = ["--service-cluster-ip-range=10.96.0.0/16,fd96::/108", "--cluster-cidr=10.244.0.0/16,fd44::/56"];
    let machine = Machine::start_with("both", IMAGE, &ranges).await;
    let kubectl = machine.server.kubectl();
    kubectl.run_with(&["apply", "-f", "-"], &manifest()).await;
    let both = r#"{"spec": {"ipFamilyPolicy": "RequireDualStack"}}"#;
    kubectl.run(&["patch", "service", "hello", "-p", both]).await;
    kubectl.run(&["rollout", "status", "deployment/hello", "--timeout=120s"]).await;
    let pods = kubectl.run(&["get", "pods", "-l", "app=hello", "-o", "jsonpath={.items[0].metadata.name}"]).await;
    let addresses = kubectl.run(&["get", "pod", &pods, "-o", "jsonpath={.status.podIPs[*].ip}"]).await;
    assert!(addresses.starts_with("10.244.0.") && addresses.contains(" fd44:"), "{addresses}");
    let slices = ["get", "endpointslices", "-l", "kubernetes.io/service-name=hello", "-o"];
    let slices = kubectl.run(&[&slices[..], &["jsonpath={.items[*].addressType}"]].concat()).await;
    let mut families: Vec<&str> = slices.split_whitespace().collect();
    families.sort_unstable();
    assert_eq!(families, ["IPv4", "IPv6"]);
    let ips = kubectl.run(&["get", "service", "hello", "-o", "jsonpath={.spec.clusterIPs[*]}"]).await;
    let ips: Vec<&str> = ips.split_whitespace().collect();
    let [v4, v6] = ips[..] else { panic!("two addresses in {ips:?}") };
    let name = "hello.default.svc.cluster.local";
    let looked_up = kubectl.run(&["exec", &pods, "--", "nslookup", name]).await;
    assert!(looked_up.contains(v4) && looked_up.contains(v6), "{looked_up}");
    for host in [v4.to_owned(), format!("[{v6}]")] {
        // Until the rules of a new address are in the kernel it is refused.
        let fetch = format!("until timeout 2 wget -q -O - http://{host}/; do sleep 0.1; done");
        let page = kubectl.run(&["exec", &pods, "--", "sh", "-c", &fetch]).await;
        assert!(page.starts_with("Hello from hello-"), "{host}: {page}");
    }
    machine.clean().await;
}

/// The page, once the Service's rules are in the kernel: they follow the endpoints by milliseconds.
async fn page(machine: &Machine, address: &str) -> String {
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
    let output = machine.server.command("curl").args(arguments).output().await.expect("curl");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
