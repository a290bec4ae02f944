//! Logs: to standard error, one line each, quiet by default. `RUST_LOG` decides where it is set.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

/// Starts logging, and makes panics part of the log.
pub fn start(verbose: u8) {
    let default = match verbose {
        0 => "info",
        1 => "debug",
        _ => "trace",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(verbose > 0)
        .init();
    // A panic in a task would otherwise be seen only by whoever joins the task.
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let payload = panic.payload();
        let text = payload.downcast_ref::<&str>().copied();
        let message = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
        let thread = std::thread::current().name().unwrap_or_default().to_owned();
        let backtrace = std::backtrace::Backtrace::capture();
        tracing::error!(%thread, %place, "panic: {message}");
        if backtrace.status() == std::backtrace::BacktraceStatus::Captured {
            tracing::error!("{backtrace}");
        }
    }));
}
