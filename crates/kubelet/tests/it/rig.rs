//! A cluster with one real node.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use client::{Client, DeleteOptions};
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kubelet::Config;
use node::cgroups::{Cgroups, Driver, Name};
use node::containerd::Containerd;
use node::cri::{Runtime, v1};
use node::{cni, net, oci, process};
use serde_json::{Value, json};
use testkit::Cluster;
use tokio_util::sync::CancellationToken;

pub const PAUSE: &str = "registry.trireme.local/pause:1";
pub const BUSYBOX: &str = "registry.trireme.local/busybox:1";
pub const NODE: &str = "node-1";
const SOON: Duration = Duration::from_secs(120);

static NEXT: AtomicU32 = AtomicU32::new(0);

pub struct Rig {
    pub cluster: Cluster,
    pub admin: Client,
    pub containerd: Option<Containerd>,
    kubelet: Option<(CancellationToken, tokio::task::JoinHandle<()>)>,
    config: Config,
    cgroup: Name,
    net: net::Net,
    range: net::Network,
    bridge: String,
    pub dir: tempfile::TempDir,
}

impl Rig {
    pub async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    /// With settings of its own.
    pub async fn start_with(adjust: impl FnOnce(&mut Config)) -> Self {
        let _ = tracing_subscriber::fmt()
            .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
            .with_writer(std::io::stderr)
            .try_init();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let third = (std::process::id().wrapping_mul(16) + number) % 256;
        let range: net::Network = format!("198.19.{third}.0/24").parse().unwrap();
        let net = net::Net::open().unwrap();
        net.refuse(range).await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let bridge = format!("tri-k{third}");
        let cgroup = Name::new([format!("trireme-kubelet-{}-{number}", std::process::id())]);
        let config = node::containerd::Config {
            dir: at("containerd"),
            sandbox_image: PAUSE.into(),
            cni_conf_dir: at("cni"),
            cni_bin_dir: cni::plugin_dir().unwrap(),
            registry_dir: at("registries"),
            cgroup_driver: Driver::Cgroupfs,
            snapshotter: node::containerd::snapshotter(dir.path()),
            restrict_oom_score_adj: !process::has_capability(process::CAP_SYS_RESOURCE),
        };
        let (containerd, cluster) = tokio::join!(Containerd::start(config), Cluster::start());
        let containerd = containerd.unwrap();
        containerd.import_bytes(PAUSE, || oci::pause(PAUSE).unwrap()).await.unwrap();
        let applets = [
            "sh", "echo", "cat", "sleep", "ip", "hostname", "true", "false", "nc", "wget", "httpd", "ls", "id", "env",
            "printf", "mkdir", "touch", "rm", "kill", "dd", "seq", "yes", "ln", "tail", "head", "test", "grep",
            "mount",
        ];
        let program = std::fs::read("/bin/busybox").unwrap();
        containerd.import_bytes(BUSYBOX, || oci::busybox(BUSYBOX, program, &applets)).await.unwrap();
        let network = node::cni::Network {
            bridge: bridge.clone(),
            ranges: vec![range.to_string()],
            mtu: None,
            ipam_dir: at("ipam"),
        };
        node::cni::write(&at("cni"), &network).unwrap();
        let mut config = Config {
            cluster_dns: vec!["10.96.0.10".into()],
            cgroup_root: cgroup.clone(),
            pod_pids: Some(1000),
            ..Config::new(NODE, dir.path())
        };
        config.node.addresses = vec!["127.0.0.1".into()];
        config.image_gc.keep = vec![PAUSE.into()];
        // Disks of development machines are fuller than those of nodes.
        config.eviction.thresholds.clear();
        adjust(&mut config);
        let pair = cluster.keys().node_server(NODE, &["127.0.0.1".to_owned()]).unwrap();
        config.serving = Some(kubelet::Serving {
            address: "127.0.0.1:0".parse().unwrap(),
            certificate: tokio::sync::watch::channel(pair).1,
            client_authority: cluster.keys().authority_pem(),
        });
        std::fs::create_dir_all(at("kubelet")).unwrap();
        std::fs::create_dir_all(at("manifests")).unwrap();
        let admin = cluster.in_process();
        let mut rig = Self {
            cluster,
            admin,
            containerd: Some(containerd),
            kubelet: None,
            config,
            cgroup,
            net,
            range,
            bridge,
            dir,
        };
        rig.start_kubelet();
        rig
    }

    pub fn runtime(&self) -> node::cri::Client {
        self.containerd.as_ref().unwrap().client()
    }

    pub fn start_kubelet(&mut self) {
        let stop = CancellationToken::new();
        let runtime: Arc<dyn Runtime> = Arc::new(self.runtime());
        let cgroups = Cgroups::detect(Driver::Cgroupfs).unwrap();
        let client = self.cluster.node_client(NODE);
        let run = kubelet::run(self.config.clone(), client, runtime, Some(cgroups), stop.clone());
        self.kubelet = Some((stop, tokio::spawn(async move { run.await.unwrap() })));
    }

    /// Stops the kubelet as a crash would: between any two instructions.
    pub async fn crash_kubelet(&mut self) {
        if let Some((_, task)) = self.kubelet.take() {
            task.abort();
            let _ = task.await;
        }
    }

    pub async fn pod(&self, name: &str, spec: Value) -> Pod {
        let mut spec = spec;
        spec["nodeName"] = json!(NODE);
        let defaults = [("terminationGracePeriodSeconds", json!(1)), ("automountServiceAccountToken", json!(false))];
        for (key, value) in defaults {
            if spec.get(key).is_none() {
                spec[key] = value;
            }
        }
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default"},
            "spec": spec,
        });
        self.admin.create(&serde_json::from_value::<Pod>(pod).unwrap()).await.unwrap()
    }

    /// Waits until the pod is as wanted, by a watch.
    pub async fn until(&self, name: &str, what: &str, wanted: impl Fn(&Pod) -> bool) -> Pod {
        use futures::StreamExt;
        let params = client::WatchParams { field_selector: format!("metadata.name={name}"), ..Default::default() };
        let mut last = None;
        let wait = async {
            let mut watch = self.admin.watch::<Pod>("default", &params).await.unwrap();
            while let Some(event) = watch.next().await {
                if let client::Event::Added(pod) | client::Event::Modified(pod) = event.unwrap() {
                    last = Some(pod.clone());
                    if wanted(&pod) {
                        return Pod::clone(&pod);
                    }
                }
            }
            panic!("watch ended");
        };
        match tokio::time::timeout(SOON, wait).await {
            Ok(pod) => pod,
            Err(_) => {
                let status = last.map(|pod| serde_json::to_string_pretty(&pod.status).unwrap());
                panic!(
                    "{name} is not {what} in time: {}\nevents: {:#?}",
                    status.unwrap_or_default(),
                    self.events(name).await
                )
            }
        }
    }

    /// Waits until something is so, looking more and more rarely.
    pub async fn eventually(&self, what: &str, wanted: impl Fn() -> bool) {
        let wait = async {
            let mut pause = Duration::from_millis(5);
            while !wanted() {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_millis(200));
            }
        };
        tokio::time::timeout(SOON, wait).await.unwrap_or_else(|_| panic!("{what}: not in time"));
    }

    /// Kills containerd, and waits until another one serves.
    pub async fn crash_containerd(&self) {
        let mut serving = self.containerd.as_ref().unwrap().serving();
        let pid = *serving.borrow();
        let killed = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
        assert!(killed.success());
        let back = serving.wait_for(|now| *now != pid && *now != 0);
        tokio::time::timeout(SOON, back).await.expect("containerd comes back").unwrap();
    }

    /// Waits until the node has registered, with what it has to offer.
    pub async fn eventually_node(&self) {
        testkit::object::<Node>(&self.admin, "", NODE, "a node with a capacity", |node| {
            node.is_some_and(|node| node.status.as_ref().is_some_and(|status| status.allocatable.is_some()))
        })
        .await;
    }

    pub async fn ready(&self, name: &str) -> Pod {
        self.until(name, "ready", |pod| condition(pod, "Ready") == Some("True")).await
    }

    pub async fn delete(&self, name: &str) {
        self.admin.delete::<Pod>("default", name, &DeleteOptions::default()).await.unwrap();
        self.gone(name).await;
    }

    pub async fn gone(&self, name: &str) {
        let mut pause = Duration::from_millis(5);
        let wait = async {
            while !self.admin.get::<Pod>("default", name).await.is_err_and(|e| e.is_not_found()) {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_millis(100));
            }
        };
        if tokio::time::timeout(SOON, wait).await.is_err() {
            let pod = self.admin.get::<Pod>("default", name).await.unwrap();
            panic!("{name} is not gone in time: {}", serde_json::to_string_pretty(&pod).unwrap());
        }
    }

    /// `reason: message` of the pod's events.
    pub async fn events(&self, name: &str) -> Vec<String> {
        let events = self.admin.list::<Event>("default", &Default::default()).await.unwrap().items;
        events
            .iter()
            .filter(|e| e.involved_object.name.as_deref() == Some(name))
            .map(|e| format!("{}: {}", e.reason.clone().unwrap_or_default(), e.message.clone().unwrap_or_default()))
            .collect()
    }

    /// Waits for an event that begins so.
    pub async fn event(&self, name: &str, start: &str) -> String {
        let wait = async {
            loop {
                let events = self.events(name).await;
                if let Some(found) = events.into_iter().find(|e| e.starts_with(start)) {
                    return found;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        match tokio::time::timeout(SOON, wait).await {
            Ok(found) => found,
            Err(_) => panic!("no event {start:?}: {:#?}", self.events(name).await),
        }
    }

    /// A number in a file of a container's cgroup, by the file's name on either version.
    pub fn container_number(&self, pod: &Pod, container: &str, controller: &str, v1: &str, v2: &str) -> i64 {
        let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref()).unwrap();
        let id = statuses.iter().find(|one| one.name == container).and_then(|one| one.container_id.as_ref()).unwrap();
        let class = match pod.status.as_ref().and_then(|status| status.qos_class.as_deref()) {
            Some("Guaranteed") => self.cgroup.clone(),
            _ => self.cgroup.child("burstable"),
        };
        let name = class.child(&format!("pod{}", pod.metadata.uid.as_ref().unwrap()));
        let path = name.path(Driver::Cgroupfs).join(id.trim_start_matches("containerd://"));
        cgroup_number(&path, controller, v1, v2).unwrap()
    }

    /// Likewise of the cgroup that all pods are in.
    pub fn pods_number(&self, controller: &str, v1: &str, v2: &str) -> Option<i64> {
        cgroup_number(&self.cgroup.path(Driver::Cgroupfs), controller, v1, v2)
    }

    /// The log of a container, without times.
    pub fn log(&self, pod: &Pod, container: &str, number: u32) -> String {
        let meta = &pod.metadata;
        let folder = format!("default_{}_{}", meta.name.as_ref().unwrap(), meta.uid.as_ref().unwrap());
        let path = self.dir.path().join("logs").join(folder).join(container).join(format!("{number}.log"));
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.lines().filter_map(|line| line.splitn(4, ' ').nth(3)).map(|line| format!("{line}\n")).collect()
    }

    /// Deletes all pods, stops everything and asserts that nothing is left on the machine.
    pub async fn stop(mut self) {
        for pod in self.admin.list::<Pod>("default", &Default::default()).await.unwrap().items {
            self.delete(pod.metadata.name.as_ref().unwrap()).await;
        }
        let runtime = self.runtime();
        let wait = async {
            while !runtime.list_sandboxes(v1::PodSandboxFilter::default()).await.unwrap().is_empty() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(SOON, wait).await.expect("sandboxes go");
        // The kubelet tidies up after the last container is gone: what is left once it stopped, it would have left for good.
        let empty = |path: &str| std::fs::read_dir(self.dir.path().join(path)).into_iter().flatten().next().is_none();
        self.eventually("volumes and logs go", || empty("kubelet/pods") && empty("logs")).await;
        if let Some((stop, task)) = self.kubelet.take() {
            stop.cancel();
            task.await.unwrap();
        }
        let cgroups = Cgroups::detect(Driver::Cgroupfs).unwrap();
        let left: Vec<String> = ["burstable", "besteffort"]
            .iter()
            .flat_map(|class| cgroups.children(&self.cgroup.child(class)))
            .chain(cgroups.children(&self.cgroup))
            .filter(|name| name.starts_with("pod"))
            .collect();
        assert_eq!(left, [] as [String; 0], "cgroups left");
        let on_disk: Vec<_> = std::fs::read_dir(self.dir.path().join("kubelet/pods")).into_iter().flatten().collect();
        assert!(on_disk.is_empty(), "{on_disk:?}");
        let logs: Vec<_> = std::fs::read_dir(self.dir.path().join("logs")).into_iter().flatten().collect();
        assert!(logs.is_empty(), "{logs:?}");
        self.containerd.take().unwrap().stop().await.unwrap();
        let dir = self.dir.path().canonicalize().unwrap();
        // Its root stays shared, for the kubelet that comes next.
        node::mounts::unmount(&dir.join("kubelet")).unwrap();
        let mounts: Vec<_> = node::mounts::list().unwrap().into_iter().filter(|m| m.target.starts_with(&dir)).collect();
        assert_eq!(mounts, [], "mounts left");
        cgroups.remove(&self.cgroup).await.unwrap();
        self.net.remove_link(&self.bridge).await.unwrap();
        self.net.accept(self.range).await.unwrap();
        // The cluster goes with the rig: a rig that may have to clean up cannot be taken apart.
    }
}

impl Drop for Rig {
    /// A test that failed half-way leaves no process, no mount and no route behind either.
    fn drop(&mut self) {
        if self.containerd.is_none() && !std::thread::panicking() {
            return;
        }
        let dir = self.dir.path().to_string_lossy().into_owned();
        let kill = |pid: &str| {
            let _ = std::process::Command::new("kill").args(["-9", pid]).status();
        };
        for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let command = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
            let own = process.file_name().to_string_lossy().into_owned();
            if String::from_utf8_lossy(&command).contains(&dir) && own != std::process::id().to_string() {
                kill(&own);
            }
        }
        let cgroup = self.cgroup.path(Driver::Cgroupfs);
        for tree in std::fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten() {
            kill_all(&tree.path().join(&cgroup), &kill);
        }
        let _ = node::mounts::unmount_below(&self.dir.path().canonicalize().unwrap_or_default());
        let range = self.range.to_string();
        for arguments in [&["link", "del", &self.bridge][..], &["route", "del", "unreachable", &range]] {
            let _ = std::process::Command::new("ip").args(arguments).status();
        }
    }
}

fn cgroup_number(path: &std::path::Path, controller: &str, v1: &str, v2: &str) -> Option<i64> {
    let root = std::path::Path::new("/sys/fs/cgroup");
    let old = root.join(controller).join(path).join(v1);
    let text = std::fs::read_to_string(&old).or_else(|_| std::fs::read_to_string(root.join(path).join(v2))).ok()?;
    Some(text.split_whitespace().next()?.parse().unwrap_or(-1))
}

fn kill_all(cgroup: &std::path::Path, kill: &dyn Fn(&str)) {
    for entry in std::fs::read_dir(cgroup).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            kill_all(&entry.path(), kill);
        }
    }
    std::fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default().lines().for_each(kill);
}

pub fn condition<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|c| c.type_ == name).map(|c| c.status.as_str())
}

pub fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|s| s.phase.as_deref()).unwrap_or_default()
}

pub fn sh(name: &str, script: &str) -> Value {
    json!({"name": name, "image": BUSYBOX, "command": ["sh", "-c", script]})
}
