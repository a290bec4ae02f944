//! What the machine is and has, read from the kernel's files.

use std::path::Path;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Machine {
    pub processors: i64,
    pub memory: i64,
    /// Memory that can be had without pain, in bytes.
    pub memory_available: i64,
    /// The disk pods write to, in bytes.
    pub disk: i64,
    /// What is left of it.
    pub disk_available: i64,
    pub inodes: i64,
    /// What is left of them.
    pub inodes_free: i64,
    /// Processes there can be, and are.
    pub processes: (i64, i64),
    /// Huge pages: size in bytes, and how many bytes of them.
    pub hugepages: Vec<(i64, i64)>,
    /// `/etc/machine-id`
    pub machine_id: String,
    pub system_uuid: String,
    /// A new one at every boot.
    pub boot_id: String,
    pub kernel: String,
    pub os_image: String,
}

impl Machine {
    /// Reads it. `root` is where pods write to.
    pub fn read(root: &Path) -> Self {
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let memory = text("/proc/meminfo");
        let disk = node::mounts::capacity(root).unwrap_or_default();
        let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let machine_id = text("/etc/machine-id");
        let system_uuid = text("/sys/class/dmi/id/product_uuid");
        let running =
            text("/proc/loadavg").split_whitespace().nth(3).and_then(|pair| pair.split('/').nth(1)?.parse().ok());
        Self {
            processors: std::thread::available_parallelism().map_or(1, |n| n.get() as i64),
            memory: meminfo(&memory, "MemTotal"),
            memory_available: meminfo(&memory, "MemAvailable"),
            disk: signed(disk.bytes),
            disk_available: signed(disk.available),
            inodes: signed(disk.inodes),
            inodes_free: signed(disk.inodes_free),
            processes: (most_processes(text), running.unwrap_or(0)),
            hugepages: hugepages(),
            system_uuid: if system_uuid.is_empty() { machine_id.clone() } else { system_uuid },
            machine_id,
            boot_id: text("/proc/sys/kernel/random/boot_id"),
            kernel: text("/proc/sys/kernel/osrelease"),
            os_image: os_name(&text("/etc/os-release")),
        }
    }
}

/// Both of the kernel's limits hold; zero when neither can be read.
fn most_processes(text: impl Fn(&str) -> String) -> i64 {
    let files = ["/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"];
    files.into_iter().filter_map(|file| text(file).parse().ok()).min().unwrap_or(0)
}

/// A line of `/proc/meminfo`, in bytes.
fn meminfo(text: &str, name: &str) -> i64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kib: i64 = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0);
    kib * 1024
}

fn os_name(text: &str) -> String {
    let line = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    line.map_or("Linux".to_owned(), |name| name.trim_matches('"').to_owned())
}

fn hugepages() -> Vec<(i64, i64)> {
    let listing = std::fs::read_dir("/sys/kernel/mm/hugepages").into_iter().flatten().flatten();
    let mut sizes: Vec<(i64, i64)> = listing
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let kib: i64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
            let count: i64 = std::fs::read_to_string(entry.path().join("nr_hugepages")).ok()?.trim().parse().ok()?;
            Some((kib * 1024, kib * 1024 * count))
        })
        .collect();
    sizes.sort_unstable();
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_read() {
        assert_eq!(meminfo("MemTotal:  2048 kB\nMemAvailable: 1 kB\n", "MemTotal"), 2 << 20);
        assert_eq!(meminfo("", "MemTotal"), 0);
        let limits = |file: &str| if file.ends_with("threads-max") { "100" } else { "32768" }.to_owned();
        assert_eq!(most_processes(limits), 100);
        assert_eq!(os_name("NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 12\"\n"), "Debian GNU/Linux 12");
        let machine = Machine::read(Path::new("/"));
        assert!(machine.processors > 0 && machine.memory > 0 && machine.disk > 0 && !machine.kernel.is_empty());
    }
}
