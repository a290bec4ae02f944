//! The kernel's settings for connections that it tracks: how many, and how long it remembers them.
//!
//! Connections through a Service are translated by what the kernel remembers of them, so an entry must outlive the silence of a
//! connection that is in use, and dead ones must not fill the table. The values are upstream's. Timeouts are a network
//! namespace's own; the size of the table is the machine's, and is never made smaller, because others may have asked for theirs.

use std::path::Path;

const SETTINGS: &str = "proc/sys/net/netfilter";
const BUCKETS: &str = "sys/module/nf_conntrack/parameters/hashsize";
const PROCESSORS: &str = "sys/devices/system/cpu/online";
const MOST_ENTRIES: u64 = 1 << 20;

/// What an administrator says of it; a zero leaves a setting as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conntrack {
    /// Entries for each processor.
    pub max_per_core: u64,
    /// Entries at least.
    pub min: u64,
    /// How long an established connection may be silent, in seconds, as all of the following.
    pub tcp_established: u64,
    pub tcp_close_wait: u64,
    /// A connection over UDP that nobody answered.
    pub udp: u64,
    /// One that was answered.
    pub udp_stream: u64,
    /// Whether packets out of a connection's window are let through.
    pub be_liberal: bool,
}

impl Default for Conntrack {
    fn default() -> Self {
        Self {
            max_per_core: 32 << 10,
            min: 128 << 10,
            tcp_established: 24 * 3600,
            tcp_close_wait: 3600,
            udp: 0,
            udp_stream: 0,
            be_liberal: false,
        }
    }
}

/// Sets all of them, below this root of the file system. What cannot be set is logged, and Services work without it.
pub(crate) fn set(root: &Path, wanted: &Conntrack) {
    let settings = root.join(SETTINGS);
    for (name, value) in [
        ("nf_conntrack_tcp_timeout_established", wanted.tcp_established),
        ("nf_conntrack_tcp_timeout_close_wait", wanted.tcp_close_wait),
        ("nf_conntrack_udp_timeout", wanted.udp),
        ("nf_conntrack_udp_timeout_stream", wanted.udp_stream),
        ("nf_conntrack_tcp_be_liberal", wanted.be_liberal.into()),
    ] {
        if value != 0 {
            put(&settings.join(name), value, |present| present != value);
        }
    }
    if wanted.max_per_core == 0 {
        return;
    }
    let processors = std::fs::read_to_string(root.join(PROCESSORS)).map_or(1, |list| count(&list));
    let entries = (wanted.max_per_core * processors).clamp(wanted.min, wanted.min.max(MOST_ENTRIES));
    let size = settings.join("nf_conntrack_max");
    // A network namespace that is not the machine's own can only read it.
    if size.metadata().is_ok_and(|about| !about.permissions().readonly()) {
        put(&size, entries, |present| present < entries);
        put(&root.join(BUCKETS), entries / 4, |present| present < entries / 4);
    }
}

fn put(path: &Path, value: u64, differs: impl Fn(u64) -> bool) {
    let present = std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok());
    if present.is_some_and(|present| !differs(present)) {
        return;
    }
    match std::fs::write(path, value.to_string()) {
        Ok(()) => tracing::info!(setting = %path.display(), value, "set"),
        Err(error) => tracing::warn!(setting = %path.display(), value, %error, "not set"),
    }
}

/// How many processors a list such as `0-3,5` names.
fn count(list: &str) -> u64 {
    let one = |part: &str| -> Option<u64> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(last.parse::<u64>().ok()?.checked_sub(first.parse().ok()?)? + 1)
    };
    list.trim().split(',').filter_map(one).sum::<u64>().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_counted() {
        for (list, many) in [("0", 1), ("0-3\n", 4), ("0-3,5,8-9", 7), ("", 1), ("x", 1)] {
            assert_eq!(count(list), many, "{list}");
        }
    }

    #[test]
    fn timeouts_are_set_and_the_table_grows_and_never_shrinks() {
        let root = tempfile::tempdir().unwrap();
        let (settings, buckets) = (root.path().join(SETTINGS), root.path().join(BUCKETS));
        let write = |path: &Path, text: &str| {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let read = |path: &Path| std::fs::read_to_string(path).unwrap();
        write(&root.path().join(PROCESSORS), "0-7\n");
        write(&settings.join("nf_conntrack_tcp_timeout_established"), "432000\n");
        write(&settings.join("nf_conntrack_tcp_timeout_close_wait"), "3600\n");
        write(&settings.join("nf_conntrack_max"), "65536\n");
        write(&buckets, "65536\n");
        set(root.path(), &Conntrack::default());
        assert_eq!(read(&settings.join("nf_conntrack_tcp_timeout_established")), "86400");
        assert_eq!(
            read(&settings.join("nf_conntrack_tcp_timeout_close_wait")),
            "3600\n",
            "what is right is not written"
        );
        assert_eq!(read(&settings.join("nf_conntrack_max")), "262144");
        assert_eq!(read(&buckets), "65536\n");
        write(&settings.join("nf_conntrack_max"), "500000\n");
        set(root.path(), &Conntrack::default());
        assert_eq!(read(&settings.join("nf_conntrack_max")), "500000\n");
        let udp = settings.join("nf_conntrack_udp_timeout");
        write(&udp, "30\n");
        set(root.path(), &Conntrack { udp: 60, max_per_core: 0, tcp_established: 0, ..Conntrack::default() });
        assert_eq!(read(&udp), "60");
        assert_eq!(read(&settings.join("nf_conntrack_tcp_timeout_established")), "86400", "a zero leaves it as it is");
    }
}
