//! cgroup v2: one tree, whose controllers are handed down level by level.

use std::path::Path;

use super::{Error, Limits, Usage, failed, field, number};

pub(super) fn create(root: &Path, path: &Path) -> Result<(), Error> {
    let mut dir = root.to_owned();
    delegate(&dir)?;
    let count = path.components().count();
    for (index, word) in path.components().enumerate() {
        dir.push(word);
        match std::fs::create_dir(&dir) {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => return Err(failed("make", &dir)(e)),
            _ => {}
        }
        // The last one's children are containers: the runtime hands controllers down to those.
        if index + 1 < count {
            delegate(&dir)?;
        }
    }
    Ok(())
}

/// Hands every controller a group has to the groups below it.
fn delegate(dir: &Path) -> Result<(), Error> {
    let file = dir.join("cgroup.controllers");
    let controllers = std::fs::read_to_string(&file).map_err(failed("read", &file))?;
    let file = dir.join("cgroup.subtree_control");
    for controller in controllers.split_whitespace() {
        // One by one: a controller that cannot be handed down (a real-time task blocks cpu) must not cost the others.
        if let Err(error) = std::fs::write(&file, format!("+{controller}")) {
            tracing::debug!(%error, controller, dir = %dir.display(), "controller not delegated");
        }
    }
    Ok(())
}

pub(super) fn limit(dir: &Path, limits: &Limits) -> Result<(), Error> {
    let set = |file: &str, value: Option<String>| match value {
        Some(value) => {
            let file = dir.join(file);
            std::fs::write(&file, value).map_err(failed("write", &file))
        }
        None => Ok(()),
    };
    let most = |value: i64| if value < 0 { "max".to_owned() } else { value.to_string() };
    set("cpu.weight", limits.cpu_shares.map(|shares| weight(shares).to_string()))?;
    let quota = match (limits.cpu_quota, limits.cpu_period) {
        (Some(quota), period) => Some(format!("{} {}", most(quota), period.unwrap_or(100_000))),
        (None, _) => None,
    };
    set("cpu.max", quota)?;
    set("memory.max", limits.memory.map(most))?;
    set("pids.max", limits.pids.map(most))
}

/// Shares (2 to 262144, customary 1024) as a weight (1 to 10000, customary 100), so that both defaults meet.
pub(super) fn weight(shares: u64) -> u64 {
    match shares {
        0..=2 => 1,
        262_144.. => 10_000,
        _ => {
            let l = (shares as f64).log2();
            let exponent = (l * l + 125.0 * l) / 612.0 - 7.0 / 34.0;
            (10f64.powf(exponent).ceil() as u64).clamp(1, 10_000)
        }
    }
}

pub(super) fn usage(dir: &Path) -> Option<Usage> {
    let read = |file: &str| std::fs::read_to_string(dir.join(file)).unwrap_or_default();
    let stat = read("memory.stat");
    let cpu = std::fs::read_to_string(dir.join("cpu.stat")).ok()?;
    // The root group has no memory.current: its parts stand for it.
    let memory = number(&dir.join("memory.current")).unwrap_or_else(|| field(&stat, "anon") + field(&stat, "file"));
    Some(Usage {
        cpu_nanos: field(&cpu, "usage_usec") * 1000,
        memory,
        working_set: memory.saturating_sub(field(&stat, "inactive_file")),
        rss: field(&stat, "anon"),
        page_faults: field(&stat, "pgfault"),
        major_page_faults: field(&stat, "pgmajfault"),
        pids: number(&dir.join("pids.current")).unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_share_is_the_default_weight() {
        assert_eq!([0, 2, 1024, 262_144, u64::MAX].map(weight), [1, 1, 100, 10_000, 10_000]);
    }

    #[test]
    fn limits_are_written_in_the_kernels_words() {
        let dir = tempfile::tempdir().unwrap();
        let limits = Limits {
            cpu_shares: Some(1024),
            cpu_quota: Some(-1),
            cpu_period: Some(100_000),
            memory: Some(1 << 20),
            pids: Some(-1),
        };
        limit(dir.path(), &limits).unwrap();
        let read = |file: &str| std::fs::read_to_string(dir.path().join(file)).unwrap();
        assert_eq!(
            ["cpu.weight", "cpu.max", "memory.max", "pids.max"].map(read),
            ["100", "max 100000", "1048576", "max"]
        );
    }

    #[test]
    fn usage_is_read_from_the_kernels_files() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("cpu.stat"), "usage_usec 12\nuser_usec 3\n").unwrap();
        std::fs::write(dir.path().join("memory.current"), "100\n").unwrap();
        std::fs::write(dir.path().join("memory.stat"), "anon 40\ninactive_file 30\npgfault 7\n").unwrap();
        let usage = usage(dir.path()).unwrap();
        assert_eq!(
            (usage.cpu_nanos, usage.memory, usage.working_set, usage.rss, usage.page_faults),
            (12_000, 100, 70, 40, 7)
        );
    }
}
