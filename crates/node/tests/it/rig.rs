//! A containerd with a pod network and images in a directory that vanishes with the test.

use std::sync::atomic::{AtomicU32, Ordering};

use node::cgroups::{Cgroups, Driver, Name};
use node::cni::{self, Network};
use node::containerd::{Config, Containerd};
use node::cri::{Runtime, v1};
use node::{net, oci, process};

pub const PAUSE: &str = "registry.trireme.local/pause:1";
pub const BUSYBOX: &str = "registry.trireme.local/busybox:1";

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A range that is unreachable as long as the test runs, also if it fails half-way: nothing sent there leaves the machine.
struct Refused(net::Network);

impl Drop for Refused {
    fn drop(&mut self) {
        let range = self.0.to_string();
        let _ = std::process::Command::new("ip").args(["route", "del", "unreachable", &range]).status();
    }
}

pub struct Rig {
    pub containerd: Containerd,
    pub config: Config,
    pub cgroup: Name,
    pub net: net::Net,
    pub range: net::Network,
    _refused: Refused,
    pub bridge: String,
    pub dir: tempfile::TempDir,
}

impl Rig {
    pub async fn start() -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = tempfile::tempdir().unwrap();
        // Of a range for measurements, which no network has, a /24 per test and process, as far as 256 of them last.
        let third = (std::process::id().wrapping_mul(8) + number) % 256;
        let range: net::Network = format!("198.19.{third}.0/24").parse().unwrap();
        let net = net::Net::open().unwrap();
        net.refuse(range).await.unwrap();
        let _refused = Refused(range);
        let config = config(dir.path());
        let bridge = format!("tri-t{third}");
        let network = Network {
            bridge: bridge.clone(),
            ranges: vec![range.to_string()],
            mtu: None,
            ipam_dir: dir.path().join("ipam"),
        };
        cni::write(&config.cni_conf_dir, &network).unwrap();
        let containerd = Containerd::start(config.clone()).await.unwrap();
        containerd.import_bytes(PAUSE, || oci::pause(PAUSE).unwrap()).await.unwrap();
        let cgroup = Name::new([format!("trireme-it-{}-{number}", std::process::id())]);
        Self { containerd, config, cgroup, net, range, _refused, bridge, dir }
    }

    /// Removes every sandbox, then everything the test made, and asserts that nothing is left.
    pub async fn stop(self) {
        let runtime = self.containerd.client();
        for sandbox in runtime.list_sandboxes(v1::PodSandboxFilter::default()).await.unwrap() {
            runtime.stop_sandbox(&sandbox.id).await.unwrap();
            runtime.remove_sandbox(&sandbox.id).await.unwrap();
        }
        self.containerd.stop().await.unwrap();
        let cgroups = Cgroups::detect(Driver::Cgroupfs).unwrap();
        cgroups.remove(&self.cgroup).await.unwrap();
        let dir = self.dir.path().canonicalize().unwrap();
        let leases: Vec<_> = std::fs::read_dir(dir.join("ipam/trireme"))
            .into_iter()
            .flatten()
            .flatten()
            .map(|e| e.file_name().to_string_lossy().into_owned())
            .filter(|name| name.starts_with("198."))
            .collect();
        assert_eq!(leases, [] as [String; 0], "addresses still leased");
        let left: Vec<_> = node::mounts::list().unwrap().into_iter().filter(|m| m.target.starts_with(&dir)).collect();
        assert_eq!(left, [], "mounts left");
        self.net.remove_link(&self.bridge).await.unwrap();
    }

    pub fn sandbox(&self, name: &str) -> v1::PodSandboxConfig {
        v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: name.into(),
                uid: format!("uid-{name}"),
                namespace: "default".into(),
                attempt: 0,
            }),
            hostname: name.into(),
            log_directory: self.dir.path().join("logs").join(name).to_string_lossy().into_owned(),
            linux: Some(v1::LinuxPodSandboxConfig {
                cgroup_parent: self.cgroup.parent_for_runtime(Driver::Cgroupfs),
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    pub fn shell(&self, name: &str, script: &str) -> v1::ContainerConfig {
        v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name: name.into(), attempt: 0 }),
            image: Some(v1::ImageSpec { image: BUSYBOX.into(), ..Default::default() }),
            command: ["sh", "-c", script].map(str::to_owned).to_vec(),
            log_path: format!("{name}.log"),
            linux: Some(v1::LinuxContainerConfig::default()),
            ..Default::default()
        }
    }
}

pub fn config(dir: &std::path::Path) -> Config {
    Config {
        dir: dir.join("containerd"),
        sandbox_image: PAUSE.into(),
        cni_conf_dir: dir.join("cni"),
        cni_bin_dir: cni::plugin_dir().unwrap(),
        registry_dir: dir.join("registries"),
        cgroup_driver: Driver::Cgroupfs,
        snapshotter: node::containerd::snapshotter(dir),
        restrict_oom_score_adj: !process::has_capability(process::CAP_SYS_RESOURCE),
    }
}

pub fn busybox() -> Vec<u8> {
    let program = std::fs::read("/bin/busybox").unwrap();
    oci::busybox(BUSYBOX, program, &["sh", "echo", "cat", "sleep", "ip", "hostname", "true"])
}
