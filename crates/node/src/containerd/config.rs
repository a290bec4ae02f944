//! The configuration of our own containerd: `config.toml`, written by a pure function of a few settings.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use crate::cgroups::Driver;

/// Where everything is and how the machine is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Holds `root/`, `state/`, the socket, the pid file, the log and the configuration.
    pub dir: PathBuf,
    /// The image of every sandbox's first process.
    pub sandbox_image: String,
    /// Where CNI configuration is looked for.
    pub cni_conf_dir: PathBuf,
    /// Where CNI plugins are.
    pub cni_bin_dir: PathBuf,
    /// Registry settings: one folder per registry with a `hosts.toml`.
    pub registry_dir: PathBuf,
    pub cgroup_driver: Driver,
    /// `overlayfs`, or `native` where overlay mounts are not possible.
    pub snapshotter: &'static str,
    /// Set where root lacks CAP_SYS_RESOURCE: no process may then get a lower OOM score than its parent's.
    pub restrict_oom_score_adj: bool,
}

impl Config {
    /// The socket to speak CRI on.
    pub fn socket(&self) -> PathBuf {
        self.dir.join("containerd.sock")
    }

    pub fn root(&self) -> PathBuf {
        self.dir.join("root")
    }

    pub fn state(&self) -> PathBuf {
        self.dir.join("state")
    }

    /// The configuration file itself.
    pub fn file(&self) -> PathBuf {
        self.dir.join("config.toml")
    }

    pub(super) fn pid_file(&self) -> PathBuf {
        self.dir.join("containerd.pid")
    }

    pub(super) fn log_file(&self) -> PathBuf {
        self.dir.join("containerd.log")
    }

    /// What it logged before the log was set aside.
    pub(super) fn old_log_file(&self) -> PathBuf {
        self.dir.join("containerd.log.1")
    }

    /// Which archives were imported.
    pub(super) fn imported_dir(&self) -> PathBuf {
        self.dir.join("imported")
    }

    /// The text of `config.toml`, version 2: read by containerd 1.3 to 2.x.
    pub fn toml(&self) -> String {
        let mut out = String::from("# Written by trireme at every start.\nversion = 2\n");
        let mut line = |text: std::fmt::Arguments<'_>| {
            out.write_fmt(text).expect("a String takes every write");
            out.push('\n');
        };
        line(format_args!("root = {}", quote(&self.root())));
        line(format_args!("state = {}", quote(&self.state())));
        // What nobody uses costs start-up time, and one of these makes directories outside our own.
        line(format_args!(
            "disabled_plugins = [{}]",
            [
                "io.containerd.internal.v1.opt",
                "io.containerd.internal.v1.restart",
                "io.containerd.internal.v1.tracing",
                "io.containerd.snapshotter.v1.aufs",
                "io.containerd.snapshotter.v1.blockfile",
                "io.containerd.snapshotter.v1.btrfs",
                "io.containerd.snapshotter.v1.devmapper",
                "io.containerd.snapshotter.v1.zfs",
                "io.containerd.tracing.processor.v1.otlp",
            ]
            .map(|plugin| format!("{plugin:?}"))
            .join(", ")
        ));
        line(format_args!("[grpc]\naddress = {}", quote(&self.socket())));
        line(format_args!("[debug]\nlevel = \"warn\""));
        line(format_args!("[plugins.\"io.containerd.grpc.v1.cri\"]"));
        line(format_args!("sandbox_image = {:?}", self.sandbox_image));
        line(format_args!("restrict_oom_score_adj = {}", self.restrict_oom_score_adj));
        line(format_args!("stream_server_address = \"127.0.0.1\"\nstream_server_port = \"0\""));
        line(format_args!("tolerate_missing_hugetlb_controller = true"));
        // As containerd 2 has it by default: a pod without any capability may listen at port 443 of its own network, and ping.
        line(format_args!("enable_unprivileged_ports = true\nenable_unprivileged_icmp = true"));
        // Network namespaces lie with everything else of ours, and not among those of the whole machine.
        line(format_args!("netns_mounts_under_state_dir = true"));
        line(format_args!("[plugins.\"io.containerd.grpc.v1.cri\".cni]"));
        line(format_args!("bin_dir = {}\nconf_dir = {}", quote(&self.cni_bin_dir), quote(&self.cni_conf_dir)));
        line(format_args!("max_conf_num = 1"));
        line(format_args!("[plugins.\"io.containerd.grpc.v1.cri\".containerd]"));
        line(format_args!("snapshotter = {:?}\ndefault_runtime_name = \"runc\"", self.snapshotter));
        line(format_args!("[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]"));
        line(format_args!("runtime_type = \"io.containerd.runc.v2\""));
        line(format_args!("[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc.options]"));
        line(format_args!("SystemdCgroup = {}", self.cgroup_driver == Driver::Systemd));
        line(format_args!("[plugins.\"io.containerd.grpc.v1.cri\".registry]"));
        line(format_args!("config_path = {}", quote(&self.registry_dir)));
        out
    }
}

/// A TOML basic string. Rust's debug form escapes the same characters the same way for paths a file system can hold.
fn quote(path: &Path) -> String {
    format!("{:?}", path.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_says_where_and_how() {
        let config = Config {
            dir: "/d".into(),
            sandbox_image: "pause:1".into(),
            cni_conf_dir: "/c".into(),
            cni_bin_dir: "/b".into(),
            registry_dir: "/r".into(),
            cgroup_driver: Driver::Systemd,
            snapshotter: "native",
            restrict_oom_score_adj: true,
        };
        let toml = config.toml();
        for line in [
            "root = \"/d/root\"",
            "state = \"/d/state\"",
            "address = \"/d/containerd.sock\"",
            "sandbox_image = \"pause:1\"",
            "restrict_oom_score_adj = true",
            "enable_unprivileged_ports = true",
            "enable_unprivileged_icmp = true",
            "SystemdCgroup = true",
            "snapshotter = \"native\"",
            "conf_dir = \"/c\"",
            "config_path = \"/r\"",
        ] {
            assert!(toml.lines().any(|l| l == line), "{line} in\n{toml}");
        }
    }
}
