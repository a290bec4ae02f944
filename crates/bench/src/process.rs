//! What a process used and holds, as the kernel counts it.

use crate::Failure;

/// The processor time that a process has used, threads that ended included. The kernel's unit towards programs has been a hundredth
/// of a second for ever; below it the sum is exact.
pub fn cpu_seconds(process: u32) -> Result<f64, Failure> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name in parentheses may hold anything; what follows it is regular.
    let fields: Vec<&str> = stat.rsplit(')').next().ok_or("no stat")?.split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok()).ok_or("no times");
    Ok((ticks(11)? + ticks(12)?) / 100.0)
}

/// What a process keeps in memory: all that is mapped, its own code as well.
pub fn resident_megabytes(process: u32) -> Result<f64, Failure> {
    Ok(status(process, "VmRSS:")? / 1024.0)
}

/// What of it is nobody else's and in no file: its data.
pub fn private_megabytes(process: u32) -> Result<f64, Failure> {
    Ok(status(process, "RssAnon:")? / 1024.0)
}

/// How often its threads were given a core, those that ended left out.
pub fn context_switches(process: u32) -> Result<f64, Failure> {
    let mut all = 0.0;
    for task in std::fs::read_dir(format!("/proc/{process}/task"))? {
        // A thread may end meanwhile.
        let Ok(text) = std::fs::read_to_string(task?.path().join("status")) else { continue };
        all += text.lines().filter(|line| line.contains("ctxt_switches:")).filter_map(number).sum::<f64>();
    }
    Ok(all)
}

/// Bytes that it has had written to disks.
pub fn written_bytes(process: u32) -> Result<f64, Failure> {
    let text = std::fs::read_to_string(format!("/proc/{process}/io"))?;
    let line = text.lines().find(|line| line.starts_with("write_bytes:")).ok_or("no such figure")?;
    number(line).ok_or_else(|| "no figure".into())
}

fn status(process: u32, what: &str) -> Result<f64, Failure> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find(|line| line.starts_with(what)).ok_or("no such figure")?;
    number(line).ok_or_else(|| "no figure".into())
}

/// The number after a line's name.
fn number(line: &str) -> Option<f64> {
    line.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_figures() {
        let own = std::process::id();
        let used = cpu_seconds(own).expect("a time");
        let begun = std::time::Instant::now();
        while cpu_seconds(own).expect("a time") == used {
            assert!(begun.elapsed().as_secs() < 60, "who asks so often uses time");
        }
        assert!(resident_megabytes(own).expect("memory") > private_megabytes(own).expect("memory"));
        assert!(context_switches(own).expect("switches") > 0.0);
        assert!(written_bytes(own).expect("bytes") >= 0.0);
    }
}
