//! The kernel's settings for connections that it tracks: how many, and how long it remembers them.
//!
//! Connections through a Service are translated by what the kernel remembers of them, so an entry must outlive the silence of a
//! connection that is in use, and dead ones must not fill the table. The values are upstream's. Timeouts are a network
//! namespace's own; the size of the table is the machine's, and is never made smaller, because others may have asked for theirs.

use std::path::Path;

const SETTINGS: &str = "proc/sys/net/netfilter";
const BUCKETS: &str = "sys/module/nf_conntrack/parameters/hashsize";
const PROCESSORS: &str = "sys/devices/system/cpu/online";
/// In seconds, by name.
const TIMEOUTS: [(&str, u64); 2] =
    [("nf_conntrack_tcp_timeout_established", 24 * 3600), ("nf_conntrack_tcp_timeout_close_wait", 3600)];
const ENTRIES_PER_PROCESSOR: u64 = 32 << 10;
const LEAST_ENTRIES: u64 = 128 << 10;
const MOST_ENTRIES: u64 = 1 << 20;

/// Sets all of them, below this root of the file system. What cannot be set is logged, and Services work without it.
pub(crate) fn set(root: &Path) {
    let settings = root.join(SETTINGS);
    for (name, seconds) in TIMEOUTS {
        put(&settings.join(name), seconds, |present| present != seconds);
    }
    let processors = std::fs::read_to_string(root.join(PROCESSORS)).map_or(1, |list| count(&list));
    let entries = (ENTRIES_PER_PROCESSOR * processors).clamp(LEAST_ENTRIES, MOST_ENTRIES);
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
        write(&settings.join(TIMEOUTS[0].0), "432000\n");
        write(&settings.join(TIMEOUTS[1].0), "3600\n");
        write(&settings.join("nf_conntrack_max"), "65536\n");
        write(&buckets, "65536\n");
        set(root.path());
        assert_eq!(read(&settings.join(TIMEOUTS[0].0)), "86400");
        assert_eq!(read(&settings.join(TIMEOUTS[1].0)), "3600\n", "what is right is not written");
        assert_eq!(read(&settings.join("nf_conntrack_max")), "262144");
        assert_eq!(read(&buckets), "65536\n");
        write(&settings.join("nf_conntrack_max"), "500000\n");
        set(root.path());
        assert_eq!(read(&settings.join("nf_conntrack_max")), "500000\n");
    }
}
