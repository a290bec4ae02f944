//! `trireme check`: what on this machine would keep a server or a node from working well, and what to do about it.
//!
//! Each finding is a pure judgement of something that was read; reading changes nothing but one small file, which measures how long the disk takes.

use std::fmt;
use std::fs::{self, File};
use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::component::Failure;

/// The oldest kernel that is tried out.
const KERNEL: (u32, u32) = (5, 10);
/// Who listens where on a server, and on a node.
const SERVER_PORTS: [(u16, &str); 3] = [(6443, "the API"), (2379, "etcd"), (2380, "etcd's peers")];
const NODE_PORTS: [(u16, &str); 2] = [(10250, "the kubelet"), (10256, "the proxy's health")];
/// How often the disk is asked to be sure.
const SYNCS: usize = 50;

#[derive(Debug, clap::Args)]
pub struct Check {
    /// The data directory, whose disk is measured.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/trireme")]
    data_dir: PathBuf,
    /// This machine runs a node only.
    #[arg(long)]
    agent: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Fine,
    Doubtful,
    Wrong,
}

/// One thing that was looked at.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    what: &'static str,
    verdict: Verdict,
    message: String,
    /// What to do about it.
    remedy: Option<&'static str>,
}

impl Finding {
    fn fine(what: &'static str, message: impl Into<String>) -> Self {
        Self { what, verdict: Verdict::Fine, message: message.into(), remedy: None }
    }

    fn of(what: &'static str, verdict: Verdict, message: impl Into<String>, remedy: &'static str) -> Self {
        Self { what, verdict, message: message.into(), remedy: Some(remedy) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = match self.verdict {
            Verdict::Fine => "ok  ",
            Verdict::Doubtful => "hmm ",
            Verdict::Wrong => "FAIL",
        };
        write!(f, "{mark} {:<12} {}", self.what, self.message)?;
        match self.remedy {
            Some(remedy) => write!(f, "\n                  do: {remedy}"),
            None => Ok(()),
        }
    }
}

/// Looks, says, and fails if something is wrong.
pub fn run(options: &Check) -> Result<(), Failure> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let mut findings = vec![
        kernel(read("/proc/sys/kernel/osrelease").trim()),
        cgroups(Path::new("/sys/fs/cgroup/cgroup.controllers").exists(), &read("/proc/cgroups")),
        modules(&read("/proc/filesystems")),
        swap(&read("/proc/swaps")),
        memory(&read("/proc/meminfo")),
        clock(CLOCK_KEEPERS.iter().any(|path| Path::new(path).exists())),
        disk(&options.data_dir),
    ];
    let programs: &[&'static str] = if options.agent { &NODE_PROGRAMS } else { &["etcd"] };
    let programs = programs.iter().chain(NODE_PROGRAMS.iter().filter(|_| !options.agent));
    findings.extend(programs.map(|&name| program(name, std::env::var_os("PATH").unwrap_or_default().as_os_str())));
    let ports = SERVER_PORTS.iter().filter(|_| !options.agent).chain(&NODE_PORTS);
    findings.extend(ports.map(|&(number, whose)| port(number, whose, is_free(number))));
    let wrong = findings.iter().filter(|finding| finding.verdict == Verdict::Wrong).count();
    for finding in &findings {
        println!("{finding}");
    }
    if wrong > 0 { Err(format!("{wrong} of {} checks failed", findings.len()).into()) } else { Ok(()) }
}

/// What a node runs.
const NODE_PROGRAMS: [&str; 4] = ["containerd", "runc", "nft", "ip"];

fn kernel(release: &str) -> Finding {
    let mut parts = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    match (parts.next(), parts.next()) {
        (Some(major), Some(minor)) if (major, minor) >= KERNEL => Finding::fine("kernel", release),
        _ => Finding::of("kernel", Verdict::Wrong, format!("{release} is older than 5.10"), "install a newer kernel"),
    }
}

fn cgroups(unified: bool, controllers: &str) -> Finding {
    if unified {
        return Finding::fine("cgroups", "version 2");
    }
    let has = |name: &str| controllers.lines().any(|line| line.split_whitespace().next() == Some(name));
    let missing: Vec<&str> = ["cpu", "memory", "pids"].into_iter().filter(|name| !has(name)).collect();
    if missing.is_empty() {
        let remedy =
            "boot with systemd.unified_cgroup_hierarchy=1; version 1 works, and upstream has announced its end";
        return Finding::of("cgroups", Verdict::Doubtful, "version 1", remedy);
    }
    let message = format!("there is no controller for {}", missing.join(", "));
    Finding::of("cgroups", Verdict::Wrong, message, "mount cgroups, or boot with cgroup_enable=memory")
}

fn modules(filesystems: &str) -> Finding {
    if filesystems.lines().any(|line| line.split_whitespace().last() == Some("overlay")) {
        return Finding::fine("overlayfs", "is there");
    }
    Finding::of("overlayfs", Verdict::Doubtful, "is not loaded", "modprobe overlay; without it images take more room")
}

fn swap(swaps: &str) -> Finding {
    if swaps.lines().count() <= 1 {
        return Finding::fine("swap", "is off");
    }
    Finding::of(
        "swap",
        Verdict::Doubtful,
        "is on",
        "swapoff -a, or set failSwapOn and memorySwap of the kubelet as you mean it",
    )
}

fn memory(text: &str) -> Finding {
    let total =
        text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse::<u64>().ok());
    match total.unwrap_or(0) / 1024 {
        less @ 0..512 => {
            Finding::of("memory", Verdict::Wrong, format!("{less} MiB"), "give the machine 512 MiB or more")
        }
        enough => Finding::fine("memory", format!("{enough} MiB")),
    }
}

/// What those leave behind who keep the clock right.
const CLOCK_KEEPERS: [&str; 4] =
    ["/run/systemd/timesync/synchronized", "/run/chrony/chronyd.pid", "/run/ntpd.pid", "/run/openntpd.pid"];

fn clock(kept: bool) -> Finding {
    if kept {
        return Finding::fine("clock", "is kept right");
    }
    let remedy =
        "install chrony or systemd-timesyncd: certificates and leases of several machines need clocks that agree";
    Finding::of("clock", Verdict::Doubtful, "nobody seems to keep it right", remedy)
}

fn disk(data_dir: &Path) -> Finding {
    let existing = data_dir.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("/"));
    match syncs(existing) {
        Ok(times) => judged(&times),
        Err(error) => {
            let message = format!("{}: {error}", existing.display());
            Finding::of("disk", Verdict::Wrong, message, "choose a data directory that can be written to")
        }
    }
}

/// How long the disk takes to be sure of 2 KiB, again and again; the shortest first.
fn syncs(directory: &Path) -> std::io::Result<Vec<Duration>> {
    let path = directory.join(format!(".trireme-check-{}", std::process::id()));
    let measure = || {
        let mut file = File::create(&path)?;
        let mut times = Vec::with_capacity(SYNCS);
        for _ in 0..SYNCS {
            file.write_all(&[0; 2048])?;
            let begun = Instant::now();
            file.sync_data()?;
            times.push(begun.elapsed());
        }
        times.sort();
        Ok(times)
    };
    let times = measure();
    let _ = fs::remove_file(&path);
    times
}

fn judged(times: &[Duration]) -> Finding {
    let at = |part: usize| times.get(times.len() * part / 100).or(times.last()).copied().unwrap_or_default();
    let (middle, late) = (at(50), at(99));
    let message = format!("a write is sure after {middle:.1?}, one in a hundred after {late:.1?}");
    // etcd's own advice is that a hundredth of them take no longer than 10 ms.
    match late {
        late if late <= Duration::from_millis(10) => Finding::fine("disk", message),
        late if late <= Duration::from_millis(100) => {
            Finding::of("disk", Verdict::Doubtful, message, "an SSD; etcd wants a hundredth of them within 10 ms")
        }
        _ => Finding::of(
            "disk",
            Verdict::Wrong,
            message,
            "another disk: leases of several servers would not hold on this one",
        ),
    }
}

fn program(name: &'static str, path: &std::ffi::OsStr) -> Finding {
    let found = std::env::split_paths(path).map(|directory| directory.join(name)).find(|file| file.is_file());
    match found {
        Some(file) => Finding::fine(name, file.display().to_string()),
        None if name == "etcd" => {
            Finding::of(name, Verdict::Doubtful, "is not installed", "apt-get install etcd-server, for several servers")
        }
        None => Finding::of(
            name,
            Verdict::Wrong,
            "is not installed",
            "apt-get install containerd runc containernetworking-plugins nftables iproute2",
        ),
    }
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok()
}

fn port(number: u16, whose: &'static str, free: bool) -> Finding {
    if free {
        return Finding::fine("port", format!("{number} is free, for {whose}"));
    }
    let message = format!("{number}, for {whose}, is taken");
    Finding::of("port", Verdict::Doubtful, message, "fine if that is Trireme; otherwise see who it is with `ss -ltnp`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_judged() {
        use Verdict::{Doubtful, Fine, Wrong};
        let verdict = |finding: Finding| finding.verdict;
        for (release, expect) in [("6.1.0-18-amd64", Fine), ("5.10.0", Fine), ("4.19.0", Wrong), ("", Wrong)] {
            assert_eq!(verdict(kernel(release)), expect, "{release}");
        }
        assert_eq!(verdict(cgroups(true, "")), Fine);
        assert_eq!(verdict(cgroups(false, "cpu 1 1 1\nmemory 2 1 1\npids 3 1 1\n")), Doubtful);
        assert_eq!(verdict(cgroups(false, "cpu 1 1 1\n")), Wrong);
        assert_eq!(verdict(modules("nodev\toverlay\n")), Fine);
        assert_eq!(verdict(swap("Filename\n/swap file 1 0 -2\n")), Doubtful);
        assert_eq!(verdict(memory("MemTotal: 262144 kB\n")), Wrong);
        assert_eq!(verdict(memory("MemTotal: 2097152 kB\n")), Fine);
        assert_eq!(verdict(clock(true)), Fine);
        assert_eq!(verdict(clock(false)), Doubtful);
        for (milliseconds, expect) in [(1, Fine), (50, Doubtful), (500, Wrong)] {
            assert_eq!(verdict(judged(&[Duration::from_millis(milliseconds)])), expect, "{milliseconds}");
        }
        assert_eq!(verdict(port(6443, "the API", false)), Doubtful);
        assert_eq!(verdict(program("runc", "/nowhere".as_ref())), Wrong);
    }

    #[test]
    fn what_is_wrong_says_what_to_do() {
        let text = kernel("4.19.0").to_string();
        assert!(text.starts_with("FAIL kernel") && text.contains("do: install a newer kernel"), "{text}");
    }

    #[test]
    fn the_disk_is_measured_and_left_as_it_was() {
        let directory = tempfile::tempdir().expect("a directory");
        assert_eq!(syncs(directory.path()).expect("a measurement").len(), SYNCS);
        assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 0);
    }
}
