//! The kubelet's own API as users meet it: a real kubectl, through the API server, to real containers.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::Command;

use crate::rig::{NODE, Rig, sh};

const SOON: Duration = Duration::from_secs(30);
const LOOP: &str = "trap 'exit 0' TERM; while :; do sleep 0.1; done";

/// What a command said, both outputs, and its exit code.
async fn run(mut command: Command, input: &[u8]) -> (String, String, i32) {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let exchange = async {
        stdin.write_all(input).await.ok();
        drop(stdin);
        child.wait_with_output().await.unwrap()
    };
    let output = tokio::time::timeout(SOON, exchange).await.expect("the command ends");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.code().unwrap_or(-1))
}

/// Waits until a command has said something, answers, and reads on to its end.
async fn converse(mut command: Command, until: &str, answer: &[u8]) -> String {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut said = Vec::new();
    let exchange = async {
        while !String::from_utf8_lossy(&said).contains(until) {
            assert_ne!(stdout.read_buf(&mut said).await.unwrap(), 0, "it ended: {}", String::from_utf8_lossy(&said));
        }
        stdin.write_all(answer).await.unwrap();
        stdout.read_to_end(&mut said).await.unwrap();
    };
    let ended = tokio::time::timeout(SOON, exchange).await;
    let said = String::from_utf8_lossy(&said).into_owned();
    ended.unwrap_or_else(|_| panic!("the command does not end: {said:?}"));
    said
}

impl Rig {
    fn kubectl(&self, websockets: bool, arguments: &[&str]) -> Command {
        let mut command = Command::new("kubectl");
        command.args(arguments).env("KUBECONFIG", self.cluster.kubeconfig()).env("HOME", self.dir.path());
        for variable in ["KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "KUBECTL_PORT_FORWARD_WEBSOCKETS"] {
            command.env(variable, websockets.to_string());
        }
        command
    }

    pub async fn get(&self, path: &str) -> String {
        let path = format!("/api/v1/nodes/{NODE}/proxy/{path}");
        let (out, err, code) = run(self.kubectl(true, &["get", "--raw", &path]), b"").await;
        assert_eq!(code, 0, "{path}: {err}");
        out
    }
}

#[tokio::test]
async fn logs_are_shown_followed_and_refused() {
    let rig = Rig::start().await;
    rig.pod("one", json!({"containers": [sh("main", "echo a; echo b >&2; echo c; cat /go; sleep 1; echo last")], "restartPolicy": "Never"}))
        .await;
    rig.pod("none", json!({"containers": [{"name": "main", "image": "registry.trireme.local/absent:1", "imagePullPolicy": "Never"}]}))
        .await;
    rig.ready("one").await;
    let (out, err, code) = run(rig.kubectl(true, &["logs", "-f", "one"]), b"").await;
    assert_eq!(code, 0, "{err}");
    // Output and errors are two pipes: each is in order, the one to the other is not.
    assert!(out.contains("a\n") && out.contains("b\n") && out.ends_with("last\n"), "{out}");
    let (out, _, _) = run(rig.kubectl(true, &["logs", "one", "--tail=1"]), b"").await;
    assert_eq!(out, "last\n");
    let (out, _, _) = run(rig.kubectl(true, &["logs", "one", "--timestamps", "--limit-bytes=4"]), b"").await;
    assert_eq!(out.len(), 4);
    let (_, err, code) = run(rig.kubectl(true, &["logs", "one", "--previous"]), b"").await;
    assert!(code != 0 && err.contains(r#"previous terminated container "main" in pod "one" not found"#), "{err}");
    let waiting = |pod: &k8s_openapi::api::core::v1::Pod| {
        serde_json::to_value(pod).unwrap()["status"]["containerStatuses"][0]["state"]["waiting"].is_object()
    };
    rig.until("none", "waiting", waiting).await;
    let (_, err, code) = run(rig.kubectl(true, &["logs", "none"]), b"").await;
    assert!(code != 0 && err.contains(r#"container "main" in pod "none" is waiting to start: "#), "{err}");
    rig.stop().await;
}

#[tokio::test]
async fn commands_run_in_containers_over_websockets_and_spdy() {
    let rig = Rig::start().await;
    let mut reader = sh("reader", "echo ready; while read line; do echo got $line; done; echo end");
    reader["stdin"] = json!(true);
    reader["stdinOnce"] = json!(true);
    rig.pod("one", json!({"containers": [sh("main", LOOP), reader], "restartPolicy": "Never"})).await;
    rig.ready("one").await;
    let megabyte: Vec<u8> = (0..1 << 20).map(|n: u32| (n % 251) as u8).collect();
    let file = rig.dir.path().join("file");
    std::fs::write(&file, &megabyte).unwrap();
    let (from, to, back) = (file.to_str().unwrap(), "one:/tmp/file", rig.dir.path().join("back"));
    run(rig.kubectl(true, &["exec", "one", "-c", "main", "--", "mkdir", "-p", "/tmp"]), b"").await;
    run(
        rig.kubectl(true, &["exec", "one", "-c", "main", "--", "/bin/busybox", "ln", "-s", "/bin/busybox", "/bin/tar"]),
        b"",
    )
    .await;
    for websockets in [true, false] {
        let exec =
            |arguments: &[&'static str]| rig.kubectl(websockets, &[&["exec", "-c", "main"][..], arguments].concat());
        let (out, err, code) = run(exec(&["one", "--", "sh", "-c", "echo out; echo err >&2; exit 3"]), b"").await;
        assert_eq!((out.as_str(), code), ("out\n", 3), "{err}");
        assert!(err.starts_with("err\n") && err.contains("exit code 3"), "{err}");
        // Without the end of its input the command would never end.
        let (out, err, code) = run(exec(&["-i", "one", "--", "cat"]), &megabyte).await;
        assert_eq!((out == String::from_utf8_lossy(&megabyte), code), (true, 0), "{err}");
        let command = format!(
            "KUBECTL_REMOTE_COMMAND_WEBSOCKETS={websockets} kubectl --kubeconfig {} exec -c main -it one -- sh -c 'echo typed; cat; echo end'",
            rig.cluster.kubeconfig().display()
        );
        let mut terminal = Command::new("script");
        terminal.args(["-qec", &command, "/dev/null"]).env("HOME", rig.dir.path());
        let out = converse(terminal, "typed", b"hello\n\x04").await;
        assert!(out.contains("hello\r\n") && out.contains("end\r\n"), "{out:?}");
        let (_, err, code) = run(rig.kubectl(websockets, &["cp", from, to, "-c", "main"]), b"").await;
        assert_eq!(code, 0, "{err}");
        let (_, err, code) = run(rig.kubectl(websockets, &["cp", to, back.to_str().unwrap(), "-c", "main"]), b"").await;
        assert_eq!(code, 0, "{err}");
        assert!(std::fs::read(&back).unwrap() == megabyte);
        std::fs::remove_file(&back).unwrap();
        let (_, err, code) = run(exec(&["one", "--", "/absent"]), b"").await;
        assert!(code != 0 && err.contains("no such file"), "{err}");
    }
    let (out, err, code) = run(rig.kubectl(true, &["attach", "-i", "-c", "reader", "one"]), b"x\n").await;
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("got x\n") && out.ends_with("end\n"), "{out}");
    let reader_ended = |pod: &k8s_openapi::api::core::v1::Pod| {
        let pod = serde_json::to_value(pod).unwrap();
        let mut statuses = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
        statuses.any(|status| status["name"] == "reader" && status["state"]["terminated"].is_object())
    };
    rig.until("one", "the end of the reader", reader_ended).await;
    let (_, err, _) = run(rig.kubectl(true, &["exec", "-c", "reader", "one", "--", "true"]), b"").await;
    assert!(err.contains("container not found (\"reader\")"), "{err}");
    rig.stop().await;
}

#[tokio::test]
async fn ports_are_forwarded_through_tunnels_and_spdy() {
    let rig = Rig::start().await;
    let mut container = sh("main", "nc -ll -p 8080 -e echo served");
    // Ready means that it listens.
    container["readinessProbe"] = json!({"tcpSocket": {"port": 8080}, "periodSeconds": 1});
    rig.pod("one", json!({"containers": [container]})).await;
    rig.ready("one").await;
    for websockets in [true, false] {
        let mut command = rig.kubectl(websockets, &["port-forward", "pod/one", ":8080", "--address=127.0.0.1"]);
        let mut child = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = tokio::time::timeout(SOON, lines.next_line()).await.expect("a line").unwrap().unwrap();
        let port: u16 = line.split(" -> ").next().unwrap().rsplit(':').next().unwrap().parse().unwrap();
        for _ in 0..2 {
            let answer = async {
                let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                let mut answer = String::new();
                stream.read_to_string(&mut answer).await.unwrap();
                answer
            };
            assert_eq!(tokio::time::timeout(SOON, answer).await.expect("an answer"), "served\n");
        }
        child.kill().await.unwrap();
    }
    rig.stop().await;
}

#[tokio::test]
async fn pods_figures_and_health_are_served() {
    let rig = Rig::start().await;
    rig.pod("one", json!({"containers": [sh("main", LOOP)]})).await;
    let pod = rig.ready("one").await;
    assert_eq!(rig.get("healthz").await, "ok");
    assert_eq!(rig.get("healthz/syncloop").await, "ok");
    let all = "[+]ping ok\n[+]log ok\n[+]syncloop excluded: ok\nhealthz check passed\n";
    assert_eq!(rig.get("healthz?verbose&exclude=syncloop").await, all);
    let outcome = "kubernetes_healthcheck{name=\"ping\",type=\"healthz\"} 1";
    assert!(rig.get("metrics/slis").await.lines().any(|line| line == outcome));
    let pods: Value = serde_json::from_str(&rig.get("pods").await).unwrap();
    assert_eq!(pods["items"][0]["metadata"]["name"], "one");
    let running: Value = serde_json::from_str(&rig.get("runningpods/").await).unwrap();
    assert_eq!(running["items"][0]["spec"]["containers"][0]["name"], "main");
    let summary: Value = serde_json::from_str(&rig.get("stats/summary").await).unwrap();
    let stats = &summary["pods"][0];
    assert_eq!(stats["podRef"]["uid"], json!(pod.metadata.uid));
    for (figure, place) in [
        ("cpu", stats["containers"][0]["cpu"]["usageCoreNanoSeconds"].as_u64()),
        ("memory", stats["containers"][0]["memory"]["workingSetBytes"].as_u64()),
        ("pod cpu", stats["cpu"]["usageCoreNanoSeconds"].as_u64()),
        ("node fs", summary["node"]["fs"]["capacityBytes"].as_u64()),
        ("image fs", summary["node"]["runtime"]["imageFs"]["capacityBytes"].as_u64()),
        ("node memory", summary["node"]["memory"]["workingSetBytes"].as_u64()),
    ] {
        assert!(place.is_some_and(|figure| figure > 0), "{figure} in {summary:#}");
    }
    let resource = rig.get("metrics/resource").await;
    let labels = "{container=\"main\",namespace=\"default\",pod=\"one\"}";
    assert!(resource.contains(&format!("container_cpu_usage_seconds_total{labels} ")), "{resource}");
    assert!(resource.contains("resource_scrape_error 0"), "{resource}");
    let cadvisor = rig.get("metrics/cadvisor").await;
    let has = |text: &str, name: &str, parts: &[&str]| {
        let mut lines = text.lines().filter(|line| line.starts_with(name));
        assert!(lines.any(|line| parts.iter().all(|part| line.contains(part))), "{name} with {parts:?} in\n{text}");
    };
    let of_pod = ["namespace=\"default\"", "pod=\"one\""];
    let of_main =
        [&of_pod[..], &["container=\"main\"", "image=\"registry.trireme.local/busybox:1\"", "id=\"/"]].concat();
    for name in [
        "container_cpu_usage_seconds_total{",
        "container_memory_working_set_bytes{",
        "container_memory_usage_bytes{",
        "container_memory_rss{",
        "container_memory_cache{",
        "container_fs_usage_bytes{",
        "container_threads{",
        "container_oom_events_total{",
        "container_spec_cpu_shares{",
    ] {
        has(&cadvisor, name, &of_main);
    }
    has(&cadvisor, "container_network_receive_bytes_total{", &[&of_pod[..], &["interface=\"eth0\""]].concat());
    has(&cadvisor, "container_memory_working_set_bytes{", &[&of_pod[..], &["container=\"\"", "name=\"\""]].concat());
    has(&cadvisor, "container_cpu_usage_seconds_total{", &["id=\"/\""]);
    let own = rig.get("metrics").await;
    for name in [
        "kubelet_running_pods 1",
        "kubelet_desired_pods{static=\"\"} 1",
        "kubelet_active_pods{static=\"\"} 1",
        "kubelet_active_pods{static=\"true\"} 0",
        "kubelet_mirror_pods 0",
        "kubelet_running_containers{container_state=\"running\"} 1",
        "kubelet_started_pods_total 1",
        "kubelet_started_containers_total{container_type=\"container\"} 1",
        "kubelet_pod_start_duration_seconds_count 1",
        "kubelet_pod_start_total_duration_seconds_count 1",
        "kubelet_pod_worker_duration_seconds_bucket{operation_type=\"create\"",
        "kubelet_pod_status_sync_duration_seconds_count",
        "kubelet_pleg_relist_duration_seconds_count",
        "kubelet_run_podsandbox_duration_seconds_count{runtime_handler=\"\"} 1",
        "kubelet_cgroup_manager_duration_seconds_count{operation_type=\"create\"}",
        "kubelet_runtime_operations_total{operation_type=\"create_container\"} 1",
    ] {
        has(&own, name, &[]);
    }
    rig.pod("crashed", json!({"restartPolicy": "Never", "containers": [sh("main", "exit 139")]})).await;
    let ended =
        "kubelet_terminated_containers_total{container_type=\"container\",exit_code=\"139\",reason=\"Error\"} 1";
    testkit::eventually("its end is counted", async {
        while !rig.get("metrics").await.lines().any(|line| line == ended) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    // The machine's own logs need a permission of their own.
    let lines = rig.get("logs/").await;
    assert!(lines.starts_with("<!doctype html>\n") && lines.ends_with("</pre>\n"), "{lines}");
    assert!(rig.get("statusz").await.contains("\nBinary version: 1.37\n"));
    assert!(rig.get("flagz").await.contains(" flagz\nWarning: "));
    let configz: Value = serde_json::from_str(&rig.get("configz").await).unwrap();
    assert_eq!(configz["kubeletconfig"]["kind"], "KubeletConfiguration");
    rig.stop().await;
}
