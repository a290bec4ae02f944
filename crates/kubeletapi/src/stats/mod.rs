//! What the node, its pods and their containers use: read from the runtime and the kernel when somebody asks.

pub mod groups;
mod machine;
mod rates;
pub mod types;
mod volumes;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use node::cgroups::{Cgroups, Name, Usage};
use node::cri::{Error, Runtime, labels, v1};

use super::pods::Pods;
pub use rates::Rates;
use types::{
    ContainerStats, Cpu, Fs, Interface, Memory, Network, NodeStats, PodReference, PodStats, ProcessStats, RuntimeStats,
    Summary,
};
pub use volumes::{Amount, Persistent, Usage as VolumeUsage, Volumes};

/// Counters nobody asked about for this long are forgotten.
const MEMORY: SignedDuration = SignedDuration::from_mins(10);

/// Where figures come from.
pub struct Stats {
    pub node: String,
    /// Where the node keeps what is its own.
    pub root: PathBuf,
    /// A directory for each pod, by its uid.
    pub pods: PathBuf,
    pub log_dir: PathBuf,
    /// Groups of processes, where there are any.
    pub cgroups: Option<Cgroups>,
    /// The group of all pods.
    pub cgroup_root: Name,
    pub rates: Rates,
    pub volumes: Volumes,
}

impl Stats {
    /// Memory that cannot be had back without pain: of the whole machine, and of all pods together.
    pub fn memory_in_use(&self) -> (Option<u64>, Option<u64>) {
        let whole = self.cgroups.as_ref().and_then(Cgroups::usage_of_root);
        let pods = self.cgroups.as_ref().and_then(|cgroups| cgroups.usage(&self.cgroup_root));
        (whole.map(|usage| usage.working_set), pods.map(|usage| usage.working_set))
    }

    /// Reads everything; `brief` leaves out disks and networks.
    pub async fn summary(
        &self,
        runtime: &dyn Runtime,
        pods: &dyn Pods,
        now: Timestamp,
        brief: bool,
    ) -> Result<Summary, Error> {
        let ready = v1::PodSandboxStateValue { state: v1::PodSandboxState::SandboxReady.into() };
        let running = v1::ContainerStateValue { state: v1::ContainerState::ContainerRunning.into() };
        let (sandboxes, containers, figures) = tokio::try_join!(
            runtime.list_sandboxes(v1::PodSandboxFilter { state: Some(ready), ..Default::default() }),
            runtime.list_containers(v1::ContainerFilter { state: Some(running), ..Default::default() }),
            runtime.container_stats(v1::ContainerStatsFilter::default()),
        )?;
        let figures: HashMap<String, v1::ContainerStats> =
            figures.into_iter().filter_map(|stats| Some((stats.attributes.as_ref()?.id.clone(), stats))).collect();
        // Runtimes learned to report these later than the rest; without them there is no network to show.
        let (networks, images) = match brief {
            true => (Vec::new(), v1::ImageFsInfoResponse::default()),
            false => {
                let (networks, images) =
                    tokio::join!(runtime.sandbox_stats(v1::PodSandboxStatsFilter::default()), runtime.image_fs_info());
                (networks.unwrap_or_default(), images.unwrap_or_default())
            }
        };
        let networks: HashMap<String, v1::LinuxPodSandboxStats> =
            networks.into_iter().filter_map(|stats| Some((stats.attributes?.id, stats.linux?))).collect();
        let image_fs = images.image_filesystems.first().and_then(|usage| runtime_fs(usage, now));
        let known: HashMap<String, Pod> =
            pods.all().into_iter().filter_map(|pod| Some((pod.metadata.uid.clone()?, pod))).collect();
        let mut all = Vec::with_capacity(sandboxes.len());
        for sandbox in &sandboxes {
            let uid = sandbox.labels.get(labels::POD_UID).cloned().unwrap_or_default();
            let mine: Vec<(&v1::Container, Option<&v1::ContainerStats>)> = containers
                .iter()
                .filter(|container| container.pod_sandbox_id == sandbox.id)
                .map(|container| (container, figures.get(&container.id)))
                .collect();
            let cgroup = known.get(&uid).and_then(|pod| pods.cgroup(pod));
            let usage = cgroup.as_ref().and_then(|name| self.cgroups.as_ref()?.usage(name));
            let network = networks.get(&sandbox.id).and_then(|stats| stats.network.as_ref()).and_then(pod_network);
            let own = known.get(&uid).is_some_and(|pod| !rules::pod_spec::is_host_network(pod));
            let network =
                network.or_else(|| cgroup.filter(|_| own && !brief).and_then(|name| self.network(&name, now)));
            let disk = if brief { None } else { image_fs.as_ref() };
            all.push(self.pod(sandbox, &mine, usage, network, disk, now));
        }
        let mut summary = Summary { node: self.machine(&images, image_fs, now, brief), pods: all };
        if !brief {
            self.measure_logs(&mut summary, now).await;
            self.measure_volumes(&mut summary, &known, now).await;
        }
        self.rates.forget_before(now.checked_sub(MEMORY).unwrap_or(Timestamp::MIN));
        Ok(summary)
    }

    fn pod(
        &self,
        sandbox: &v1::PodSandbox,
        containers: &[(&v1::Container, Option<&v1::ContainerStats>)],
        usage: Option<Usage>,
        network: Option<Network>,
        disk: Option<&Fs>,
        now: Timestamp,
    ) -> PodStats {
        let label = |key: &str| sandbox.labels.get(key).cloned().unwrap_or_default();
        let pod_ref = PodReference {
            name: label(labels::POD_NAME),
            namespace: label(labels::POD_NAMESPACE),
            uid: label(labels::POD_UID),
        };
        let containers: Vec<ContainerStats> =
            containers.iter().map(|(container, stats)| self.container(container, *stats, disk)).collect();
        let cpu = usage.map(|usage| self.cpu(&format!("pod/{}", pod_ref.uid), now, usage.cpu_nanos));
        let memory = usage.map(|usage| memory(&usage, None, now));
        PodStats {
            start_time: nanos(sandbox.created_at),
            cpu: cpu.or_else(|| sum_cpu(&containers)),
            memory: memory.or_else(|| sum_memory(&containers)),
            network,
            volumes: Vec::new(),
            ephemeral_storage: None,
            process_stats: usage.map(|usage| ProcessStats { process_count: usage.pids }),
            pod_ref,
            sandbox: sandbox.id.clone(),
            containers,
        }
    }

    /// The network of a pod, seen from one of its processes, where the runtime does not tell.
    fn network(&self, cgroup: &Name, now: Timestamp) -> Option<Network> {
        let process = self.cgroups.as_ref()?.process(cgroup)?;
        let text = |file: &str| std::fs::read_to_string(format!("/proc/{process}/net/{file}")).unwrap_or_default();
        machine::network(&text("dev"), &text("route"), now)
    }

    fn container(
        &self,
        container: &v1::Container,
        stats: Option<&v1::ContainerStats>,
        disk: Option<&Fs>,
    ) -> ContainerStats {
        let cpu = stats.and_then(|stats| stats.cpu.as_ref()).map(|cpu| {
            let mut read = self.cpu(&container.id, nanos(cpu.timestamp), number(&cpu.usage_core_nano_seconds));
            read.usage_nano_cores = cpu.usage_nano_cores.as_ref().map(|rate| rate.value).or(read.usage_nano_cores);
            read
        });
        let memory = stats.and_then(|stats| stats.memory.as_ref()).map(|memory| Memory {
            time: nanos(memory.timestamp),
            available_bytes: memory.available_bytes.as_ref().map(|bytes| bytes.value),
            working_set_bytes: number(&memory.working_set_bytes),
            usage_bytes: number(&memory.usage_bytes),
            rss_bytes: number(&memory.rss_bytes),
            page_faults: number(&memory.page_faults),
            major_page_faults: number(&memory.major_page_faults),
        });
        let layer = stats.and_then(|stats| stats.writable_layer.as_ref());
        ContainerStats {
            name: container.labels.get(labels::CONTAINER_NAME).cloned().unwrap_or_default(),
            start_time: nanos(container.created_at),
            cpu,
            memory,
            rootfs: disk.zip(layer).map(|(disk, layer)| Fs {
                time: nanos(layer.timestamp),
                used_bytes: number(&layer.used_bytes),
                inodes_used: number(&layer.inodes_used),
                ..disk.clone()
            }),
            logs: None,
            id: container.id.clone(),
            image: container.image.as_ref().map(|image| image.image.clone()).unwrap_or_default(),
            disk: layer.and_then(|layer| layer.fs_id.as_ref()).map(|id| id.mountpoint.clone()).unwrap_or_default(),
        }
    }

    fn cpu(&self, key: &str, time: Timestamp, total: u64) -> Cpu {
        Cpu { time, usage_nano_cores: self.rates.note(key, time, total), usage_core_nano_seconds: total }
    }

    fn machine(
        &self,
        images: &v1::ImageFsInfoResponse,
        image_fs: Option<Fs>,
        now: Timestamp,
        brief: bool,
    ) -> NodeStats {
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let total = memory_total();
        let whole = self.cgroups.as_ref().and_then(Cgroups::usage_of_root);
        let pods = self.cgroups.as_ref().and_then(|cgroups| cgroups.usage(&self.cgroup_root));
        let start_time = machine::boot_time(&text("/proc/stat"));
        let container_fs = images.container_filesystems.first().and_then(|usage| runtime_fs(usage, now));
        NodeStats {
            node_name: self.node.clone(),
            system_containers: pods
                .map(|usage| ContainerStats {
                    name: "pods".to_owned(),
                    start_time,
                    cpu: Some(self.cpu("pods", now, usage.cpu_nanos)),
                    memory: Some(memory(&usage, Some(total), now)),
                    rootfs: None,
                    logs: None,
                    id: String::new(),
                    image: String::new(),
                    disk: String::new(),
                })
                .into_iter()
                .collect(),
            start_time,
            cpu: whole.map(|usage| self.cpu("node", now, usage.cpu_nanos)),
            memory: whole.map(|usage| memory(&usage, Some(total), now)),
            network: (!brief)
                .then(|| machine::network(&text("/proc/net/dev"), &text("/proc/net/route"), now))
                .flatten(),
            fs: if brief { None } else { fs(&self.root, now) },
            runtime: (!brief).then(|| RuntimeStats { container_fs: container_fs.or(image_fs.clone()), image_fs }),
            rlimit: machine::processes(&text("/proc/sys/kernel/pid_max"), &text("/proc/loadavg"), now),
        }
    }

    /// Adds what volumes take; those on disk that go with the pod count as its own.
    async fn measure_volumes(&self, summary: &mut Summary, known: &HashMap<String, Pod>, now: Timestamp) {
        let pods: Vec<PodReference> = summary.pods.iter().map(|pod| pod.pod_ref.clone()).collect();
        let measured = self.volumes.of(&self.pods, &pods, now).await;
        for (pod, volumes) in summary.pods.iter_mut().zip(measured) {
            let spec = known.get(&pod.pod_ref.uid).and_then(|pod| pod.spec.as_ref());
            for volume in &volumes {
                let mut sources = spec.into_iter().flat_map(|spec| spec.volumes.iter().flatten());
                let own = sources.any(|source| {
                    let on_disk = source
                        .empty_dir
                        .as_ref()
                        .is_some_and(|dir| dir.medium.as_deref().unwrap_or_default().is_empty());
                    source.name == volume.name && (on_disk || source.config_map.is_some())
                });
                if let Some(all) = pod.ephemeral_storage.as_mut().filter(|_| own) {
                    all.used_bytes += volume.fs.used_bytes;
                    all.inodes_used += volume.fs.inodes_used;
                }
            }
            pod.volumes = volumes;
        }
    }

    /// Adds what logs take, and what all of a pod takes of the disk.
    async fn measure_logs(&self, summary: &mut Summary, now: Timestamp) {
        let Some(disk) = fs(&self.log_dir, now) else { return };
        let directories: Vec<Vec<PathBuf>> = summary
            .pods
            .iter()
            .map(|pod| {
                let PodReference { name, namespace, uid } = &pod.pod_ref;
                let directory = self.log_dir.join(format!("{namespace}_{name}_{uid}"));
                pod.containers.iter().map(|container| directory.join(&container.name)).collect()
            })
            .collect();
        let measured = tokio::task::spawn_blocking(move || -> Vec<Vec<(u64, u64)>> {
            directories.iter().map(|pod| pod.iter().map(|directory| size(directory)).collect()).collect()
        });
        let Ok(measured) = measured.await else { return };
        for (pod, sizes) in summary.pods.iter_mut().zip(measured) {
            let mut all = Fs { used_bytes: 0, inodes_used: 0, ..disk.clone() };
            for (container, (bytes, files)) in pod.containers.iter_mut().zip(sizes) {
                container.logs = Some(Fs { used_bytes: bytes, inodes_used: files, ..disk.clone() });
                for part in [&container.logs, &container.rootfs].into_iter().flatten() {
                    all.used_bytes += part.used_bytes;
                    all.inodes_used += part.inodes_used;
                }
            }
            pod.ephemeral_storage = Some(all);
        }
    }
}

/// The machine's memory in bytes.
pub fn memory_total() -> u64 {
    machine::memory_total(&std::fs::read_to_string("/proc/meminfo").unwrap_or_default())
}

/// The machine's swap in bytes.
pub fn swap_total() -> u64 {
    machine::swap_total(&std::fs::read_to_string("/proc/meminfo").unwrap_or_default())
}

/// Bytes and number of the files right in a directory.
fn size(directory: &Path) -> (u64, u64) {
    let files = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let sizes = files.filter_map(|file| file.metadata().ok()).filter(|file| file.is_file()).map(|file| file.len());
    sizes.fold((0, 0), |(bytes, count), size| (bytes + size, count + 1))
}

fn nanos(nanos: i64) -> Timestamp {
    Timestamp::from_nanosecond(i128::from(nanos)).unwrap_or(Timestamp::UNIX_EPOCH)
}

fn number(value: &Option<v1::UInt64Value>) -> u64 {
    value.as_ref().map_or(0, |value| value.value)
}

fn memory(usage: &Usage, total: Option<u64>, time: Timestamp) -> Memory {
    Memory {
        time,
        available_bytes: total.map(|total| total.saturating_sub(usage.working_set)),
        usage_bytes: usage.memory,
        working_set_bytes: usage.working_set,
        rss_bytes: usage.rss,
        page_faults: usage.page_faults,
        major_page_faults: usage.major_page_faults,
    }
}

fn fs(path: &Path, time: Timestamp) -> Option<Fs> {
    let disk = node::mounts::capacity(path).ok()?;
    Some(Fs {
        time,
        available_bytes: disk.available,
        capacity_bytes: disk.bytes,
        used_bytes: disk.bytes.saturating_sub(disk.available),
        inodes_free: disk.inodes_free,
        inodes: disk.inodes,
        inodes_used: disk.inodes.saturating_sub(disk.inodes_free),
    })
}

fn runtime_fs(usage: &v1::FilesystemUsage, now: Timestamp) -> Option<Fs> {
    let disk = fs(Path::new(&usage.fs_id.as_ref()?.mountpoint), now)?;
    Some(Fs { used_bytes: number(&usage.used_bytes), inodes_used: number(&usage.inodes_used), ..disk })
}

fn pod_network(network: &v1::NetworkUsage) -> Option<Network> {
    let read = |one: &v1::NetworkInterfaceUsage| Interface {
        name: one.name.clone(),
        rx_bytes: number(&one.rx_bytes),
        rx_errors: number(&one.rx_errors),
        tx_bytes: number(&one.tx_bytes),
        tx_errors: number(&one.tx_errors),
        ..Interface::default()
    };
    let main = read(network.default_interface.as_ref()?);
    let others = network.interfaces.iter().map(read).filter(|one| one.name != main.name);
    let interfaces = std::iter::once(main.clone()).chain(others).collect();
    Some(Network { time: nanos(network.timestamp), main, interfaces })
}

/// What containers use together, where the pod has no group of its own to ask.
fn sum_cpu(containers: &[ContainerStats]) -> Option<Cpu> {
    containers.iter().filter_map(|container| container.cpu.clone()).reduce(|a, b| Cpu {
        time: a.time.max(b.time),
        usage_nano_cores: a.usage_nano_cores.zip(b.usage_nano_cores).map(|(a, b)| a + b),
        usage_core_nano_seconds: a.usage_core_nano_seconds + b.usage_core_nano_seconds,
    })
}

fn sum_memory(containers: &[ContainerStats]) -> Option<Memory> {
    containers.iter().filter_map(|container| container.memory.clone()).reduce(|a, b| Memory {
        time: a.time.max(b.time),
        available_bytes: None,
        usage_bytes: a.usage_bytes + b.usage_bytes,
        working_set_bytes: a.working_set_bytes + b.working_set_bytes,
        rss_bytes: a.rss_bytes + b.rss_bytes,
        page_faults: a.page_faults + b.page_faults,
        major_page_faults: a.major_page_faults + b.major_page_faults,
    })
}
