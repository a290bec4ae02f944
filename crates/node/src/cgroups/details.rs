//! Everything the kernel counts of a group, for those who watch nodes closely. [`super::Usage`] is what the kubelet itself needs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{Hierarchy, Usage, field, number};

/// Ticks of a second in which the kernel tells programs processor time, for ever.
const TICKS: u64 = 100;

/// What a cgroup used, in detail.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Details {
    pub usage: Usage,
    /// Processor time in programs.
    pub user_nanos: u64,
    /// Processor time in the kernel.
    pub system_nanos: u64,
    /// Scheduling periods that passed, where there is a limit.
    pub periods: u64,
    /// Periods in which the limit was reached.
    pub throttled_periods: u64,
    /// Time spent waiting for the next period.
    pub throttled_nanos: u64,
    /// Bytes of file caches.
    pub cache: u64,
    /// Bytes of mapped files.
    pub mapped_file: u64,
    pub swap: u64,
    /// Most bytes of memory there ever were.
    pub max_usage: u64,
    /// How often the limit of memory was reached.
    pub limit_hits: u64,
    /// Bytes of file caches in use lately.
    pub active_file: u64,
    /// Bytes of file caches not used lately.
    pub inactive_file: u64,
    /// Processes killed for want of memory.
    pub oom_kills: u64,
    /// Most processes and threads; nothing for no limit.
    pub most_pids: Option<u64>,
    /// What went to and came from disks.
    pub disks: Vec<Disk>,
}

/// Traffic with one disk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Disk {
    /// Its path, as far as it is known.
    pub device: String,
    pub read_bytes: u64,
    pub written_bytes: u64,
    pub reads: u64,
    pub writes: u64,
}

/// What the group at a path below the root of the hierarchy used; nothing when it is not there.
pub(super) fn read(hierarchy: &Hierarchy, path: &Path, usage: Usage) -> Details {
    match hierarchy {
        Hierarchy::V1(trees) => v1(trees, path, usage),
        Hierarchy::V2(root) => v2(&root.join(path), usage),
    }
}

fn v1(trees: &BTreeMap<String, PathBuf>, path: &Path, usage: Usage) -> Details {
    let file = |controller: &str, file: &str| trees.get(controller).map(|root| root.join(path).join(file));
    let text = |controller: &str, name: &str| {
        file(controller, name).and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default()
    };
    let count = |controller: &str, name: &str| file(controller, name).and_then(|path| number(&path));
    let (time, cpu, memory) = (text("cpuacct", "cpuacct.stat"), text("cpu", "cpu.stat"), text("memory", "memory.stat"));
    let ticks = |word: &str| field(&time, word) * (1_000_000_000 / TICKS);
    let mut disks = BTreeMap::new();
    old_disks(&text("blkio", "blkio.throttle.io_service_bytes_recursive"), &mut disks, |disk| {
        (&mut disk.read_bytes, &mut disk.written_bytes)
    });
    old_disks(&text("blkio", "blkio.throttle.io_serviced_recursive"), &mut disks, |disk| {
        (&mut disk.reads, &mut disk.writes)
    });
    Details {
        usage,
        user_nanos: ticks("user"),
        system_nanos: ticks("system"),
        periods: field(&cpu, "nr_periods"),
        throttled_periods: field(&cpu, "nr_throttled"),
        throttled_nanos: field(&cpu, "throttled_time"),
        cache: field(&memory, "total_cache"),
        mapped_file: field(&memory, "total_mapped_file"),
        swap: field(&memory, "total_swap"),
        max_usage: count("memory", "memory.max_usage_in_bytes").unwrap_or(0),
        limit_hits: count("memory", "memory.failcnt").unwrap_or(0),
        active_file: field(&memory, "total_active_file"),
        inactive_file: field(&memory, "total_inactive_file"),
        oom_kills: field(&text("memory", "memory.oom_control"), "oom_kill"),
        most_pids: count("pids", "pids.max"),
        disks: named(disks),
    }
}

fn v2(dir: &Path, usage: Usage) -> Details {
    let text = |file: &str| std::fs::read_to_string(dir.join(file)).unwrap_or_default();
    let (cpu, memory, events) = (text("cpu.stat"), text("memory.stat"), text("memory.events"));
    Details {
        usage,
        user_nanos: field(&cpu, "user_usec") * 1000,
        system_nanos: field(&cpu, "system_usec") * 1000,
        periods: field(&cpu, "nr_periods"),
        throttled_periods: field(&cpu, "nr_throttled"),
        throttled_nanos: field(&cpu, "throttled_usec") * 1000,
        cache: field(&memory, "file"),
        mapped_file: field(&memory, "file_mapped"),
        swap: number(&dir.join("memory.swap.current")).unwrap_or(0),
        max_usage: number(&dir.join("memory.peak")).unwrap_or(0),
        limit_hits: field(&events, "max"),
        active_file: field(&memory, "active_file"),
        inactive_file: field(&memory, "inactive_file"),
        oom_kills: field(&events, "oom_kill"),
        most_pids: number(&dir.join("pids.max")),
        disks: named(new_disks(&text("io.stat"))),
    }
}

/// Lines of `8:0 Read 123`.
fn old_disks(text: &str, disks: &mut BTreeMap<String, Disk>, place: fn(&mut Disk) -> (&mut u64, &mut u64)) {
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (Some(number), Some(kind), Some(value)) = (words.next(), words.next(), words.next()) else { continue };
        let (read, written) = place(disks.entry(number.to_owned()).or_default());
        match (kind, value.parse()) {
            ("Read", Ok(value)) => *read = value,
            ("Write", Ok(value)) => *written = value,
            _ => {}
        }
    }
}

/// Lines of `8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0`.
fn new_disks(text: &str) -> BTreeMap<String, Disk> {
    let disk = |line: &str| {
        let mut words = line.split_whitespace();
        let number = words.next()?.to_owned();
        let mut disk = Disk::default();
        for (key, value) in words.filter_map(|word| word.split_once('=')) {
            let value = value.parse().unwrap_or(0);
            match key {
                "rbytes" => disk.read_bytes = value,
                "wbytes" => disk.written_bytes = value,
                "rios" => disk.reads = value,
                "wios" => disk.writes = value,
                _ => {}
            }
        }
        Some((number, disk))
    };
    text.lines().filter_map(disk).collect()
}

/// Puts the paths of devices in the place of their numbers.
fn named(disks: BTreeMap<String, Disk>) -> Vec<Disk> {
    let name = |number: &str| {
        let link = std::fs::read_link(format!("/sys/dev/block/{number}")).ok();
        let name = link.as_ref().and_then(|link| link.file_name()).map(|name| name.to_string_lossy().into_owned());
        name.map_or_else(|| number.to_owned(), |name| format!("/dev/{name}"))
    };
    disks.into_iter().map(|(number, disk)| Disk { device: name(&number), ..disk }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::create_dir_all(dir.path().join(name).parent().unwrap()).unwrap();
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        dir
    }

    #[test]
    fn both_interfaces_say_the_same_in_their_own_words() {
        let old = tree(&[
            ("cpuacct/p/cpuacct.stat", "user 200\nsystem 100\n"),
            ("cpu/p/cpu.stat", "nr_periods 7\nnr_throttled 3\nthrottled_time 5000000\n"),
            (
                "memory/p/memory.stat",
                "cache 1\ntotal_cache 10\ntotal_mapped_file 4\ntotal_swap 2\ntotal_active_file 6\ntotal_inactive_file 5\n",
            ),
            ("memory/p/memory.max_usage_in_bytes", "99\n"),
            ("memory/p/memory.failcnt", "8\n"),
            ("memory/p/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n"),
            ("pids/p/pids.max", "64\n"),
            ("blkio/p/blkio.throttle.io_service_bytes_recursive", "999:1 Read 11\n999:1 Write 12\nTotal 23\n"),
            ("blkio/p/blkio.throttle.io_serviced_recursive", "999:1 Read 1\n999:1 Write 2\nTotal 3\n"),
        ]);
        let trees = ["cpuacct", "cpu", "memory", "pids", "blkio"];
        let trees = trees.into_iter().map(|name| (name.to_owned(), old.path().join(name))).collect();
        let new = tree(&[
            (
                "p/cpu.stat",
                "usage_usec 3000000\nuser_usec 2000000\nsystem_usec 1000000\nnr_periods 7\nnr_throttled 3\nthrottled_usec 5000\n",
            ),
            ("p/memory.stat", "file 10\nfile_mapped 4\nactive_file 6\ninactive_file 5\n"),
            ("p/memory.swap.current", "2\n"),
            ("p/memory.peak", "99\n"),
            ("p/memory.events", "low 0\nmax 8\noom_kill 1\n"),
            ("p/pids.max", "64\n"),
            ("p/io.stat", "999:1 rbytes=11 wbytes=12 rios=1 wios=2 dbytes=0 dios=0\n"),
        ]);
        let expect = Details {
            user_nanos: 2_000_000_000,
            system_nanos: 1_000_000_000,
            periods: 7,
            throttled_periods: 3,
            throttled_nanos: 5_000_000,
            cache: 10,
            mapped_file: 4,
            swap: 2,
            max_usage: 99,
            limit_hits: 8,
            active_file: 6,
            inactive_file: 5,
            oom_kills: 1,
            most_pids: Some(64),
            disks: vec![Disk { device: "999:1".into(), read_bytes: 11, written_bytes: 12, reads: 1, writes: 2 }],
            ..Details::default()
        };
        assert_eq!(read(&Hierarchy::V1(trees), Path::new("p"), Usage::default()), expect);
        assert_eq!(read(&Hierarchy::V2(new.path().to_owned()), Path::new("p"), Usage::default()), expect);
    }
}
