//! cgroup v1: the same path once in the tree of every controller.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{Error, Limits, Usage, failed, field, number};

/// The controllers whose limits a pod's group sets; the runtime makes the other trees' directories as it needs them.
const LIMITED: [&str; 3] = ["cpu", "memory", "pids"];

/// The controllers a hierarchy carries: among the options of its file system.
pub(super) fn controllers_of(mountinfo: &str, target: &Path) -> Vec<String> {
    let known = [
        "blkio",
        "cpu",
        "cpuacct",
        "cpuset",
        "devices",
        "freezer",
        "hugetlb",
        "memory",
        "net_cls",
        "net_prio",
        "perf_event",
        "pids",
        "rdma",
    ];
    mountinfo
        .lines()
        .filter_map(|line| line.split_once(" - "))
        .filter(|(left, _)| left.split(' ').nth(4).is_some_and(|path| Path::new(path) == target))
        .flat_map(|(_, right)| right.rsplit(' ').next().unwrap_or_default().split(','))
        .filter(|option| known.contains(option) || option.starts_with("name="))
        .map(str::to_owned)
        .collect()
}

pub(super) fn create(trees: &BTreeMap<String, PathBuf>, path: &Path) -> Result<(), Error> {
    for root in LIMITED.iter().filter_map(|controller| trees.get(*controller)) {
        let dir = root.join(path);
        std::fs::create_dir_all(&dir).map_err(failed("make", &dir))?;
    }
    Ok(())
}

pub(super) fn limit(trees: &BTreeMap<String, PathBuf>, path: &Path, limits: &Limits) -> Result<(), Error> {
    let set = |controller: &str, file: &str, value: Option<String>| match (trees.get(controller), value) {
        (Some(root), Some(value)) => {
            let file = root.join(path).join(file);
            std::fs::write(&file, value).map_err(failed("write", &file))
        }
        _ => Ok(()),
    };
    set("cpu", "cpu.shares", limits.cpu_shares.map(|shares| shares.to_string()))?;
    set("cpu", "cpu.cfs_period_us", limits.cpu_period.map(|period| period.to_string()))?;
    set("cpu", "cpu.cfs_quota_us", limits.cpu_quota.map(|quota| quota.max(-1).to_string()))?;
    set("memory", "memory.limit_in_bytes", limits.memory.map(|bytes| bytes.max(-1).to_string()))?;
    set("pids", "pids.max", limits.pids.map(|count| if count < 0 { "max".to_owned() } else { count.to_string() }))
}

pub(super) fn usage(trees: &BTreeMap<String, PathBuf>, path: &Path) -> Option<Usage> {
    let file = |controller: &str, file: &str| trees.get(controller).map(|root| root.join(path).join(file));
    let read = |controller: &str, name: &str| file(controller, name).and_then(|path| number(&path));
    let memory = read("memory", "memory.usage_in_bytes")?;
    let stat = file("memory", "memory.stat").and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
    Some(Usage {
        cpu_nanos: read("cpuacct", "cpuacct.usage").unwrap_or(0),
        memory,
        working_set: memory.saturating_sub(field(&stat, "total_inactive_file")),
        rss: field(&stat, "total_rss"),
        page_faults: field(&stat, "total_pgfault"),
        major_page_faults: field(&stat, "total_pgmajfault"),
        pids: read("pids", "pids.current").unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_are_read_from_the_mounts_options() {
        let info = "1 2 0:1 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                    1 2 0:2 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n";
        assert_eq!(controllers_of(info, Path::new("/sys/fs/cgroup/cpu,cpuacct")), ["cpu", "cpuacct"]);
        assert_eq!(controllers_of(info, Path::new("/sys/fs/cgroup/systemd")), ["name=systemd"]);
    }
}
