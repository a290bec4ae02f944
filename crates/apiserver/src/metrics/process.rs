//! What the process uses, under the names that every Prometheus client has for it.

use figures::samples;

/// Clock ticks per second in `/proc`, the same on every Linux.
const TICKS: f64 = 100.0;

/// What the system tells of the process, from the third field on.
fn fields() -> Vec<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The second field is the program's name in parentheses and may hold anything.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.map(|field| field.parse().unwrap_or_default()).collect()
}

/// Writes the figures; what the system does not tell is left out.
pub fn write(text: &mut String) {
    let fields = fields();
    if fields.is_empty() {
        return;
    }
    let number = |at: usize| fields.get(at).copied().unwrap_or_default();
    let help = "Total user and system CPU time spent in seconds.";
    samples(text, "process_cpu_seconds_total", "counter", help).add(&[], (number(11) + number(12)) / TICKS);
    let mut gauge = |name: &str, help: &str, value: f64| {
        samples(text, name, "gauge", help).add(&[], value);
    };
    gauge("process_virtual_memory_bytes", "Virtual memory size in bytes.", number(20));
    let resident = number(21) * rustix::param::page_size() as f64;
    gauge("process_resident_memory_bytes", "Resident memory size in bytes.", resident);
    if let Ok(open) = std::fs::read_dir("/proc/self/fd") {
        gauge("process_open_fds", "Number of open file descriptors.", open.count() as f64);
    }
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    if let Some(limit) = limit {
        gauge("process_max_fds", "Maximum number of open file descriptors.", limit as f64);
    }
    start(text, number(19));
}

/// Writes only since when the process runs.
pub fn write_start(text: &mut String) {
    start(text, fields().get(19).copied().unwrap_or_default());
}

fn start(text: &mut String, ticks: f64) {
    let Some(boot) = boot_time() else { return };
    let help = "Start time of the process since unix epoch in seconds.";
    samples(text, "process_start_time_seconds", "gauge", help).add(&[], boot + ticks / TICKS);
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
