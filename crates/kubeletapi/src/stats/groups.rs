//! The groups of processes of this node as cAdvisor tells of them: the machine, the pods' classes, each pod, its sandbox, its
//! containers. What the kernel counts is read when somebody asks.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use node::cgroups::{Cgroups, Details};
use node::cri::v1::LinuxContainerResources;
use rules::pod_spec as spec;

use super::types::{ContainerStats, Fs, Network, PodStats, Summary};
use super::{Pods, Stats, machine};

#[derive(Debug, Clone)]
pub struct Group {
    /// Its path below the root of the hierarchy, with a leading slash.
    pub id: String,
    /// The container's name in its pod; empty for groups that are no containers.
    pub container: String,
    pub image: String,
    /// The runtime's id of the container or sandbox.
    pub name: String,
    pub namespace: String,
    pub pod: String,
    /// When it was made.
    pub start_time: Timestamp,
    /// When it was looked at.
    pub time: Timestamp,
    pub details: Details,
    /// What a container was given.
    pub limits: Option<LinuxContainerResources>,
    /// What it wrote beside its volumes, and where that is.
    pub rootfs: Option<(String, Fs)>,
    /// The network, of sandboxes that have one of their own and of the machine.
    pub network: Option<Network>,
    /// What its processes have open.
    pub open: Open,
}

/// Processes and what they have open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Open {
    pub processes: u64,
    pub files: u64,
    pub sockets: u64,
}

/// A pod whose groups are wanted.
struct Wanted {
    stats: PodStats,
    cgroup: Option<node::cgroups::Name>,
    /// By name.
    containers: HashMap<String, Known>,
    own_network: bool,
}

/// What the pod's specification says of a container.
struct Known {
    /// As people know it: the runtime knows the image's digest.
    image: Option<String>,
    limits: LinuxContainerResources,
}

impl Stats {
    /// All groups; nothing on a machine without control groups.
    pub async fn groups(&self, summary: &Summary, pods: &dyn Pods, now: Timestamp) -> Vec<Group> {
        let Some(cgroups) = self.cgroups.clone() else { return Vec::new() };
        let known = pods.all();
        let wanted: Vec<Wanted> = summary
            .pods
            .iter()
            .map(|stats| {
                let pod = known.iter().find(|pod| pod.metadata.uid.as_ref() == Some(&stats.pod_ref.uid));
                Wanted {
                    stats: stats.clone(),
                    cgroup: pod.and_then(|pod| pods.cgroup(pod)),
                    containers: pod.map(|pod| containers(pods, pod)).unwrap_or_default(),
                    own_network: pod.is_some_and(|pod| !spec::is_host_network(pod)),
                }
            })
            .collect();
        let (root, boot) = (self.cgroup_root.clone(), summary.node.start_time);
        let classes = [root.clone(), root.child("burstable"), root.child("besteffort")];
        // Hundreds of small files, which may have to wait for the kernel's locks.
        let read = tokio::task::spawn_blocking(move || {
            let mut groups = Vec::new();
            let machine = cgroups.details(Path::new("")).map(|details| Group {
                network: network_of("/proc", now),
                ..plain("/".to_owned(), details, boot, now)
            });
            groups.extend(machine);
            for class in classes {
                let path = class.path(cgroups.driver());
                groups.extend(cgroups.details(&path).map(|details| plain(id(&path), details, boot, now)));
            }
            let disks = node::mounts::list().unwrap_or_default();
            for pod in wanted {
                of_pod(&cgroups, &pod, &disks, now, &mut groups);
            }
            groups
        });
        read.await.unwrap_or_default()
    }
}

fn containers(pods: &dyn Pods, pod: &Pod) -> HashMap<String, Known> {
    let known = |container: &Container| Known { image: container.image.clone(), limits: pods.limits(pod, container) };
    spec::members(pod).map(|member| (member.container.name.clone(), known(&member.container))).collect()
}

fn plain(id: String, details: Details, start_time: Timestamp, time: Timestamp) -> Group {
    Group {
        id,
        container: String::new(),
        image: String::new(),
        name: String::new(),
        namespace: String::new(),
        pod: String::new(),
        start_time,
        time,
        details,
        limits: None,
        rootfs: None,
        network: None,
        open: Open::default(),
    }
}

fn id(path: &Path) -> String {
    format!("/{}", path.display())
}

fn of_pod(cgroups: &Cgroups, wanted: &Wanted, disks: &[node::mounts::Mount], now: Timestamp, out: &mut Vec<Group>) {
    let Some(name) = &wanted.cgroup else { return };
    let stats = &wanted.stats;
    let of_group = |path: &PathBuf, start_time: Timestamp| {
        let details = cgroups.details(path)?;
        let (namespace, pod) = (stats.pod_ref.namespace.clone(), stats.pod_ref.name.clone());
        Some(Group { namespace, pod, ..plain(id(path), details, start_time, now) })
    };
    out.extend(of_group(&name.path(cgroups.driver()), stats.start_time));
    if let Some(path) = cgroups.of_container(name, &stats.sandbox)
        && let Some(group) = of_group(&path, stats.start_time)
    {
        let processes = cgroups.processes(&path);
        let first = processes.first().filter(|_| wanted.own_network);
        out.push(Group {
            name: stats.sandbox.clone(),
            network: first.and_then(|id| network_of(&format!("/proc/{id}"), now)),
            open: open(&processes),
            ..group
        });
    }
    for container in &stats.containers {
        let Some(path) = cgroups.of_container(name, &container.id) else { continue };
        let Some(group) = of_group(&path, container.start_time) else { continue };
        let known = wanted.containers.get(&container.name);
        out.push(Group {
            container: container.name.clone(),
            image: known.and_then(|known| known.image.as_ref()).unwrap_or(&container.image).clone(),
            limits: known.map(|known| known.limits.clone()),
            name: container.id.clone(),
            rootfs: rootfs(container, disks),
            open: open(&cgroups.processes(&path)),
            ..group
        });
    }
}

/// What a container wrote, and the device that is on.
fn rootfs(container: &ContainerStats, disks: &[node::mounts::Mount]) -> Option<(String, Fs)> {
    let fs = container.rootfs.clone()?;
    let below = |mount: &&node::mounts::Mount| Path::new(&container.disk).starts_with(&mount.target);
    let mount = disks.iter().filter(below).max_by_key(|mount| mount.target.as_os_str().len());
    Some((mount.map(|mount| mount.source.clone()).unwrap_or_default(), fs))
}

fn network_of(process: &str, now: Timestamp) -> Option<Network> {
    let text = |file: &str| std::fs::read_to_string(format!("{process}/net/{file}")).unwrap_or_default();
    machine::network(&text("dev"), &text("route"), now)
}

fn open(processes: &[i32]) -> Open {
    let mut open = Open { processes: processes.len() as u64, ..Open::default() };
    for id in processes {
        for file in std::fs::read_dir(format!("/proc/{id}/fd")).into_iter().flatten().flatten() {
            open.files += 1;
            let target = std::fs::read_link(file.path()).unwrap_or_default();
            open.sockets += u64::from(target.to_string_lossy().starts_with("socket:"));
        }
    }
    open
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_has_open_is_counted() {
        let own = i32::try_from(std::process::id()).unwrap();
        let before = open(&[own]);
        let _socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let _file = std::fs::File::open("/dev/null").unwrap();
        let after = open(&[own]);
        // Other tests of this process open and close files meanwhile.
        assert!(before.processes == 1 && after.files > 2 && after.sockets >= 1, "{before:?} {after:?}");
        assert_eq!(open(&[]), Open::default());
    }
}
