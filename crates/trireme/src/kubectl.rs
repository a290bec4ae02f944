//! `trireme kubectl`, `trireme trace` and others that need no `kubectl` before them, and the binary called as `kubectl`: handed over before anything else is set up, so that it answers at once.

use std::path::{Path, PathBuf};

/// What is asked of kubectl without its name: what upstream's has not, or not like this.
const SHORT: [&str; 6] = ["trace", "ui", "get", "diff", "history", "undo"];

/// The exit code, where kubectl was asked for.
pub fn run() -> Option<i32> {
    let mut arguments = std::env::args_os();
    let program = arguments.next().unwrap_or_default();
    if Path::new(&program).file_name().is_some_and(|name| name == "kubectl") {
        return Some(kubectl::main(arguments, own_server()));
    }
    let first = arguments.next()?;
    if first == "kubectl" {
        return Some(kubectl::main(arguments, own_server()));
    }
    if first == "top" {
        return Some(kubectl::main(["top".into(), "live".into()].into_iter().chain(arguments), own_server()));
    }
    SHORT
        .iter()
        .any(|short| first == *short)
        .then(|| kubectl::main(std::iter::once(first).chain(arguments), own_server()))
}

/// The configuration that the server of this machine wrote, for whoever has no other.
fn own_server() -> Option<PathBuf> {
    let directory = std::env::var_os("TRIREME_DATA_DIR").unwrap_or_else(|| ".run".into());
    let path = Path::new(&directory).join("admin.kubeconfig");
    path.exists().then_some(path)
}
