//! What the process uses, under the names that every Prometheus client has for it.

use std::fmt::Write as _;

/// Clock ticks per second in `/proc`, the same on every Linux.
const TICKS: f64 = 100.0;

/// Writes the figures; what the system does not tell is left out.
pub fn write(text: &mut String) {
    let Ok(stat) = std::fs::read_to_string("/proc/self/stat") else { return };
    // The second field is the program's name in parentheses and may hold anything.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let number = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or_default();
    super::head(text, "process_cpu_seconds_total", "counter", "Total user and system CPU time spent in seconds.");
    let _ = writeln!(text, "process_cpu_seconds_total {}", (number(11) + number(12)) / TICKS);
    super::head(text, "process_virtual_memory_bytes", "gauge", "Virtual memory size in bytes.");
    let _ = writeln!(text, "process_virtual_memory_bytes {}", number(20));
    super::head(text, "process_resident_memory_bytes", "gauge", "Resident memory size in bytes.");
    let _ = writeln!(text, "process_resident_memory_bytes {}", number(21) * rustix::param::page_size() as f64);
    if let Some(boot) = boot_time() {
        let help = "Start time of the process since unix epoch in seconds.";
        super::head(text, "process_start_time_seconds", "gauge", help);
        let _ = writeln!(text, "process_start_time_seconds {}", boot + number(19) / TICKS);
    }
    if let Ok(open) = std::fs::read_dir("/proc/self/fd") {
        super::head(text, "process_open_fds", "gauge", "Number of open file descriptors.");
        let _ = writeln!(text, "process_open_fds {}", open.count());
    }
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    if let Some(limit) = limit {
        super::head(text, "process_max_fds", "gauge", "Maximum number of open file descriptors.");
        let _ = writeln!(text, "process_max_fds {limit}");
    }
}

fn boot_time() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_are_this_process() {
        let mut text = String::new();
        write(&mut text);
        let figure = |name: &str| -> f64 {
            let line = text.lines().find(|line| line.starts_with(name) && !line.starts_with('#'));
            line.and_then(|line| line.rsplit(' ').next()).and_then(|figure| figure.parse().ok()).expect("a figure")
        };
        let now = jiff::Timestamp::now().as_second() as f64;
        assert!((now - figure("process_start_time_seconds ")).abs() < 24.0 * 3600.0);
        assert!(figure("process_resident_memory_bytes ") > 1e6);
        assert!(figure("process_open_fds ") <= figure("process_max_fds "));
    }
}
