//! Machines that are nodes of a cluster with several servers: agents, with pods that ask each other all the time and write down what comes of it.

use std::path::{Path, PathBuf};
use std::process::Command;

use client::Client;
use devnet::{Machine, Program};
use k8s_openapi::api::core::v1::{Pod, Service, ServiceAccount};
use serde_json::json;
use testkit::{eventually, object};

use super::machines::{BINARY, Host, Machines, signal};

const IMAGE: &str = "trireme.local/faults:1";
/// The disk is the host's and everybody's: how full it is is no reason to end pods.
const KUBELET: &str = "apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
imageGCHighThresholdPercent: 100
evictionHard:
  memory.available: 100Mi
  nodefs.available: 0%
  nodefs.inodesFree: 0%
  imagefs.available: 0%
  imagefs.inodesFree: 0%
";
const SERVE: &str = "mkdir /tmp/www && echo here > /tmp/www/index.html && exec httpd -f -p 8080 -h /tmp/www";

/// A machine with an agent. What runs on it ends with it.
pub struct Node {
    pub machine: Machine,
    program: Program,
    directory: PathBuf,
    cgroup: String,
}

impl Node {
    /// Makes a machine a node; it is not ready yet.
    pub async fn join(machines: &Machines, number: usize, first: &Host, home: &Path) -> Self {
        let machine = machines.machine(number).clone();
        let directory = home.join(&machine.name);
        let data = directory.join("data");
        std::fs::create_dir_all(data.join("images")).expect("a directory");
        std::fs::create_dir_all(directory.join("seen")).expect("a directory");
        let archive = data.join("images/image.tar");
        let made = Command::new(BINARY).args(["image", "busybox", "--name", IMAGE]).arg(&archive).status();
        assert!(made.is_ok_and(|status| status.success()), "the image is made");
        let kubelet = directory.join("kubelet.yaml");
        std::fs::write(&kubelet, KUBELET).expect("a file");
        let cgroup = format!("trireme-test-{}", machine.name);
        let path = |path: &Path| path.display().to_string();
        let arguments = [
            ("--server", machines.url(1)),
            ("--token-file", path(&first.server.data_dir().join("token"))),
            ("--data-dir", path(&data)),
            ("--node-name", machine.name.clone()),
            ("--node-ip", machine.address.to_string()),
            ("--kubelet-config", path(&kubelet)),
            ("--cgroup-root", format!("/{cgroup}")),
        ];
        let arguments = arguments.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
        let arguments = std::iter::once("agent".to_owned()).chain(arguments).collect();
        let program = Program { path: BINARY.into(), arguments, directory: directory.clone() };
        let node = Self { machine, program, directory, cgroup };
        node.start().await;
        node
    }

    pub async fn start(&self) {
        self.program.start(&self.machine).await.expect("the agent starts");
    }

    pub async fn signal(&self, name: &str) {
        signal(&self.program.running().expect("the agent runs").pid().to_string(), name).await;
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.program.log()).unwrap_or_default()
    }

    /// A pod that serves, and one that asks it through a Service, without end.
    pub async fn deploy(&self, client: &Client) {
        let name = &self.machine.name;
        object::<ServiceAccount>(client, "default", "default", "an account", |account| account.is_some()).await;
        let (web, ports) = (format!("web-{name}"), json!([{"port": 80, "targetPort": 8080}]));
        let spec = json!({"selector": {"app": web}, "ports": ports});
        let service: Service =
            serde_json::from_value(json!({"metadata": {"name": web, "namespace": "default"}, "spec": spec}))
                .expect("a Service");
        let service = client.create(&service).await.expect("created");
        let address = service.spec.and_then(|spec| spec.cluster_ip).expect("an address");
        client.create(&self.pod(&web, SERVE)).await.expect("created");
        let ask = format!(
            "while :; do if printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 5 {address} 80 | grep -q here; then it=ok; else it=FAIL; fi; \
             echo \"$(cut -d' ' -f1 /proc/uptime) $it\" >> /seen/log; sleep 0.2; done"
        );
        client.create(&self.pod(&format!("ask-{name}"), &ask)).await.expect("created");
    }

    fn pod(&self, name: &str, command: &str) -> Pod {
        let container = json!({
            "name": "main", "image": IMAGE, "imagePullPolicy": "Never", "command": ["sh", "-c", command],
            "volumeMounts": [{"name": "seen", "mountPath": "/seen"}],
        });
        let volume = json!({"name": "seen", "hostPath": {"path": self.directory.join("seen")}});
        let spec = json!({
            "nodeName": self.machine.name, "terminationGracePeriodSeconds": 1, "containers": [container], "volumes": [volume],
        });
        let metadata = json!({"name": name, "namespace": "default", "labels": {"app": name}});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("a Pod")
    }

    /// What the pod that asks has written down: when, and whether it was answered.
    pub fn asked(&self) -> Vec<(f64, bool)> {
        let text = std::fs::read_to_string(self.directory.join("seen/log")).unwrap_or_default();
        let line = |line: &str| {
            let (time, it) = line.split_once(' ')?;
            Some((time.parse().ok()?, it == "ok"))
        };
        text.lines().filter_map(line).collect()
    }

    /// Waits until so many more questions were answered.
    pub async fn answers(&self, more: usize) {
        let wanted = self.asked().len() + more;
        eventually(&format!("pods of {} are asked", self.machine.name), async {
            while self.asked().len() < wanted || !self.asked().iter().rev().take(more).all(|(_, answered)| *answered) {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        })
        .await;
    }

    /// The containers of its pods, and how often each was started again.
    pub async fn containers(&self, client: &Client) -> Vec<(String, String, i32)> {
        let mut all = Vec::new();
        for kind in ["web", "ask"] {
            let name = format!("{kind}-{}", self.machine.name);
            let what = format!("{name} runs");
            let pod = object::<Pod>(client, "default", &name, &what, |pod| pod.is_some_and(is_ready)).await;
            let pod = pod.expect("a pod");
            let statuses = pod.status.iter().flat_map(|status| &status.container_statuses).flatten();
            all.extend(
                statuses.map(|one| (name.clone(), one.container_id.clone().unwrap_or_default(), one.restart_count)),
            );
        }
        all
    }

    /// Makes a pod and waits until it runs: the agent hears of what it is to do, and says what it did.
    pub async fn works(&self, client: &Client) {
        let name = format!("last-{}", self.machine.name);
        client.create(&self.pod(&name, SERVE)).await.expect("created");
        object::<Pod>(client, "default", &name, &format!("{name} runs"), |pod| pod.is_some_and(is_ready)).await;
    }

    /// Ends everything on it.
    fn clean(&self) {
        let run = |program: &str, arguments: &[&str]| Command::new(program).args(arguments).output();
        if let Some(process) = self.program.running() {
            let _ = run("kill", &["-KILL", &process.pid().to_string()]);
        }
        let (place, data) = (format!("--net=/run/netns/{}", self.machine.namespace), self.directory.join("data"));
        let group = format!("/{}", self.cgroup);
        let data = data.display().to_string();
        let cleaned = run("nsenter", &[&place, BINARY, "node", "clean", "--cgroup-root", &group, "--data-dir", &data]);
        if let Ok(output) = cleaned.as_ref()
            && !output.status.success()
        {
            eprintln!("{}: {}", self.machine.name, String::from_utf8_lossy(&output.stderr));
        }
        // Empty by now, in every hierarchy that there is.
        for hierarchy in std::fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten() {
            let own = hierarchy.path().join(&self.cgroup);
            let _ = run("find", &[&own.display().to_string(), "-depth", "-type", "d", "-exec", "rmdir", "{}", ";"]);
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.clean();
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| &status.conditions).flatten();
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
