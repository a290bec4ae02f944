//! `/metrics/cadvisor`: groups of processes in detail, and the machine, in the families and labels of cAdvisor.

use figures::{Samples, samples};
use node::cgroups::Disk;

use super::{NANOS, at, limits};
use crate::stats::groups::Group;
use crate::stats::types::Interface;

/// The machine as such.
#[derive(Debug, Clone, Copy)]
pub struct Machine {
    pub processors: usize,
    pub memory: u64,
    pub swap: u64,
}

type Value = fn(&Group) -> Option<f64>;
type Family = (&'static str, &'static str, &'static str, Value);

/// A further label of a sample.
pub(super) type Further<'a> = (&'static str, &'a str);

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / NANOS
}

/// Only containers have processes of their own; a group above them would count theirs twice.
fn own(group: &Group, value: u64) -> Option<f64> {
    (!group.name.is_empty()).then_some(value as f64)
}

const PROCESSORS: [Family; 5] = [
    ("container_cpu_user_seconds_total", "counter", "Cumulative user cpu time consumed in seconds.", |one| {
        Some(seconds(one.details.user_nanos))
    }),
    ("container_cpu_system_seconds_total", "counter", "Cumulative system cpu time consumed in seconds.", |one| {
        Some(seconds(one.details.system_nanos))
    }),
    ("container_cpu_cfs_periods_total", "counter", "Number of elapsed enforcement period intervals.", |one| {
        (one.details.periods > 0).then_some(one.details.periods as f64)
    }),
    ("container_cpu_cfs_throttled_periods_total", "counter", "Number of throttled period intervals.", |one| {
        (one.details.periods > 0).then_some(one.details.throttled_periods as f64)
    }),
    (
        "container_cpu_cfs_throttled_seconds_total",
        "counter",
        "Total time duration the container has been throttled.",
        |one| (one.details.periods > 0).then_some(seconds(one.details.throttled_nanos)),
    ),
];

const MEMORY: [Family; 10] = [
    ("container_memory_cache", "gauge", "Number of bytes of page cache memory.", |one| Some(one.details.cache as f64)),
    ("container_memory_rss", "gauge", "Size of RSS in bytes.", |one| Some(one.details.usage.rss as f64)),
    ("container_memory_mapped_file", "gauge", "Size of memory mapped files in bytes.", |one| {
        Some(one.details.mapped_file as f64)
    }),
    ("container_memory_swap", "gauge", "Container swap usage in bytes.", |one| Some(one.details.swap as f64)),
    ("container_memory_failcnt", "counter", "Number of memory usage hits limits", |one| {
        Some(one.details.limit_hits as f64)
    }),
    (
        "container_memory_usage_bytes",
        "gauge",
        "Current memory usage in bytes, including all memory regardless of when it was accessed",
        |one| Some(one.details.usage.memory as f64),
    ),
    ("container_memory_max_usage_bytes", "gauge", "Maximum memory usage recorded in bytes", |one| {
        Some(one.details.max_usage as f64)
    }),
    ("container_memory_working_set_bytes", "gauge", "Current working set in bytes.", |one| {
        Some(one.details.usage.working_set as f64)
    }),
    ("container_memory_total_active_file_bytes", "gauge", "Current total active file in bytes.", |one| {
        Some(one.details.active_file as f64)
    }),
    ("container_memory_total_inactive_file_bytes", "gauge", "Current total inactive file in bytes.", |one| {
        Some(one.details.inactive_file as f64)
    }),
];

const OTHERS: [Family; 9] = [
    ("container_oom_events_total", "counter", "Count of out of memory events observed for the container", |one| {
        Some(one.details.oom_kills as f64)
    }),
    ("container_processes", "gauge", "Number of processes running inside the container.", |one| {
        own(one, one.open.processes)
    }),
    ("container_file_descriptors", "gauge", "Number of open file descriptors for the container.", |one| {
        own(one, one.open.files)
    }),
    ("container_sockets", "gauge", "Number of open sockets for the container.", |one| own(one, one.open.sockets)),
    (
        "container_threads_max",
        "gauge",
        "Maximum number of threads allowed inside the container, infinity if value is zero",
        |one| Some(one.details.most_pids.unwrap_or(0) as f64),
    ),
    ("container_threads", "gauge", "Number of threads running inside the container", |one| {
        Some(one.details.usage.pids as f64)
    }),
    ("container_last_seen", "gauge", "Last time a container was seen by the exporter", |one| {
        Some(one.time.as_second() as f64)
    }),
    ("container_creation_time_seconds", "gauge", "Container creation time since unix epoch in seconds.", |one| {
        Some(one.start_time.as_second() as f64)
    }),
    ("container_start_time_seconds", "gauge", "Start time of the container since unix epoch in seconds.", |one| {
        Some(one.start_time.as_second() as f64)
    }),
];

pub fn render(groups: &[Group], machine: Machine) -> String {
    let mut text = String::new();
    let mut family =
        samples(&mut text, "container_cpu_usage_seconds_total", "counter", "Cumulative cpu time consumed in seconds.");
    for group in groups {
        sample(&mut family, group, &[("cpu", "total")], seconds(group.details.usage.cpu_nanos));
    }
    for (name, kind, help, value) in PROCESSORS.into_iter().chain(MEMORY).chain(OTHERS) {
        let mut family = samples(&mut text, name, kind, help);
        for group in groups {
            if let Some(value) = value(group) {
                sample(&mut family, group, &[], value);
            }
        }
    }
    faults(&mut text, groups);
    disks(&mut text, groups);
    networks(&mut text, groups);
    limits::render(&mut text, groups);
    let machine_wide = [
        ("machine_cpu_cores", "Number of logical CPU cores.", machine.processors as f64),
        ("machine_memory_bytes", "Amount of memory installed on the machine.", machine.memory as f64),
        ("machine_swap_bytes", "Amount of swap memory available on the machine.", machine.swap as f64),
    ];
    for (name, help, value) in machine_wide {
        samples(&mut text, name, "gauge", help).add(&[], value);
    }
    text
}

/// A sample of a group, with labels in the order of the alphabet.
pub(super) fn sample(family: &mut Samples<'_>, group: &Group, further: &[Further<'_>], value: f64) {
    let mut labels = vec![
        ("container", group.container.as_str()),
        ("id", &group.id),
        ("image", &group.image),
        ("name", &group.name),
        ("namespace", &group.namespace),
        ("pod", &group.pod),
    ];
    labels.extend(further);
    labels.sort_unstable();
    family.add_at(&labels, value, at(group.time));
}

fn faults(text: &mut String, groups: &[Group]) {
    let mut family =
        samples(text, "container_memory_failures_total", "counter", "Cumulative count of memory allocation failures.");
    for group in groups {
        let usage = &group.details.usage;
        for (kind, count) in [("pgfault", usage.page_faults), ("pgmajfault", usage.major_page_faults)] {
            let labels: [Further<'_>; 2] = [("failure_type", kind), ("scope", "hierarchy")];
            sample(&mut family, group, &labels, count as f64);
        }
    }
}

fn disks(text: &mut String, groups: &[Group]) {
    type Count = fn(&Disk) -> u64;
    let traffic: [(&'static str, &str, Count); 4] = [
        ("container_fs_reads_bytes_total", "Cumulative count of bytes read", |disk| disk.read_bytes),
        ("container_fs_reads_total", "Cumulative count of reads completed", |disk| disk.reads),
        ("container_fs_writes_bytes_total", "Cumulative count of bytes written", |disk| disk.written_bytes),
        ("container_fs_writes_total", "Cumulative count of writes completed", |disk| disk.writes),
    ];
    for (name, help, count) in traffic {
        let mut family = samples(text, name, "counter", help);
        for group in groups {
            for disk in &group.details.disks {
                sample(&mut family, group, &[("device", &disk.device)], count(disk) as f64);
            }
        }
    }
    type Room = fn(&crate::stats::types::Fs) -> u64;
    let rooms: [(&'static str, &str, Room); 4] = [
        ("container_fs_inodes_free", "Number of available Inodes", |fs| fs.inodes_free),
        ("container_fs_inodes_total", "Number of Inodes", |fs| fs.inodes),
        (
            "container_fs_limit_bytes",
            "Number of bytes that can be consumed by the container on this filesystem.",
            |fs| fs.capacity_bytes,
        ),
        ("container_fs_usage_bytes", "Number of bytes that are consumed by the container on this filesystem.", |fs| {
            fs.used_bytes
        }),
    ];
    for (name, help, room) in rooms {
        let mut family = samples(text, name, "gauge", help);
        for group in groups {
            if let Some((device, fs)) = &group.rootfs {
                sample(&mut family, group, &[("device", device)], room(fs) as f64);
            }
        }
    }
}

fn networks(text: &mut String, groups: &[Group]) {
    type Count = fn(&Interface) -> u64;
    let families: [(&'static str, &str, Count); 8] = [
        ("container_network_receive_bytes_total", "Cumulative count of bytes received", |one| one.rx_bytes),
        ("container_network_receive_packets_total", "Cumulative count of packets received", |one| one.rx_packets),
        (
            "container_network_receive_packets_dropped_total",
            "Cumulative count of packets dropped while receiving",
            |one| one.rx_dropped,
        ),
        ("container_network_receive_errors_total", "Cumulative count of errors encountered while receiving", |one| {
            one.rx_errors
        }),
        ("container_network_transmit_bytes_total", "Cumulative count of bytes transmitted", |one| one.tx_bytes),
        ("container_network_transmit_packets_total", "Cumulative count of packets transmitted", |one| one.tx_packets),
        (
            "container_network_transmit_packets_dropped_total",
            "Cumulative count of packets dropped while transmitting",
            |one| one.tx_dropped,
        ),
        (
            "container_network_transmit_errors_total",
            "Cumulative count of errors encountered while transmitting",
            |one| one.tx_errors,
        ),
    ];
    for (name, help, count) in families {
        let mut family = samples(text, name, "counter", help);
        for group in groups {
            for interface in group.network.iter().flat_map(|network| &network.interfaces) {
                sample(&mut family, group, &[("interface", &interface.name)], count(interface) as f64);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::groups::Open;
    use crate::stats::types::{Fs, Network};
    use jiff::Timestamp;
    use node::cgroups::{Details, Usage};
    use node::cri::v1::LinuxContainerResources;

    fn group(container: &str, name: &str) -> Group {
        let time = Timestamp::from_second(1000).unwrap();
        let usage = Usage { cpu_nanos: 1_500_000_000, rss: 10, working_set: 20, page_faults: 3, ..Usage::default() };
        let disk = Disk { device: "/dev/a".into(), read_bytes: 4096, ..Disk::default() };
        let eth0 = Interface { name: "eth0".into(), rx_bytes: 7, rx_packets: 2, ..Interface::default() };
        let fs = Fs {
            time,
            available_bytes: 1,
            capacity_bytes: 2,
            used_bytes: 3,
            inodes_free: 4,
            inodes: 5,
            inodes_used: 6,
        };
        Group {
            id: format!("/kubepods/podu/{name}"),
            container: container.into(),
            image: if container.is_empty() { String::new() } else { "i".into() },
            name: name.into(),
            namespace: "n".into(),
            pod: "p".into(),
            start_time: time,
            time,
            details: Details {
                usage,
                periods: 4,
                throttled_periods: 1,
                oom_kills: 2,
                disks: vec![disk],
                ..Details::default()
            },
            limits: None,
            rootfs: (!container.is_empty()).then(|| ("/dev/a".to_owned(), fs)),
            network: container.is_empty().then(|| Network { time, main: eth0.clone(), interfaces: vec![eth0] }),
            open: Open { processes: 1, files: 5, sockets: 2 },
        }
    }

    #[test]
    fn every_group_is_told_with_all_of_its_names() {
        let limits = LinuxContainerResources {
            cpu_period: 100_000,
            cpu_quota: 50_000,
            cpu_shares: 512,
            memory_limit_in_bytes: 1 << 20,
            ..LinuxContainerResources::default()
        };
        let groups = [Group { limits: Some(limits), ..group("c", "id") }, group("", "sandbox")];
        let text = render(&groups, Machine { processors: 2, memory: 1024, swap: 0 });
        let names = "image=\"i\",name=\"id\",namespace=\"n\",pod=\"p\"";
        let id = "id=\"/kubepods/podu/id\"";
        let sandbox = "container=\"\",id=\"/kubepods/podu/sandbox\",image=\"\",interface=\"eth0\",name=\"sandbox\"";
        for line in [
            format!("container_cpu_usage_seconds_total{{container=\"c\",cpu=\"total\",{id},{names}}} 1.5 1000000"),
            format!("container_cpu_cfs_throttled_periods_total{{container=\"c\",{id},{names}}} 1 1000000"),
            format!("container_memory_rss{{container=\"c\",{id},{names}}} 10 1000000"),
            format!("container_memory_working_set_bytes{{container=\"c\",{id},{names}}} 20 1000000"),
            format!("container_oom_events_total{{container=\"c\",{id},{names}}} 2 1000000"),
            format!("container_file_descriptors{{container=\"c\",{id},{names}}} 5 1000000"),
            format!("container_fs_usage_bytes{{container=\"c\",device=\"/dev/a\",{id},{names}}} 3 1000000"),
            format!("container_fs_reads_bytes_total{{container=\"c\",device=\"/dev/a\",{id},{names}}} 4096 1000000"),
            format!(
                "container_memory_failures_total{{container=\"c\",failure_type=\"pgfault\",{id},{names},scope=\"hierarchy\"}} 3 1000000"
            ),
            format!("container_spec_cpu_quota{{container=\"c\",{id},{names}}} 50000 1000000"),
            format!("container_spec_cpu_shares{{container=\"c\",{id},{names}}} 512 1000000"),
            format!("container_spec_memory_limit_bytes{{container=\"c\",{id},{names}}} 1.048576e+06 1000000"),
            format!("container_network_receive_bytes_total{{{sandbox},namespace=\"n\",pod=\"p\"}} 7 1000000"),
            format!("container_network_receive_packets_total{{{sandbox},namespace=\"n\",pod=\"p\"}} 2 1000000"),
            "machine_cpu_cores 2".to_owned(),
        ] {
            assert!(text.lines().any(|known| known == line), "{line} in\n{text}");
        }
    }
}
