//! `trireme kubectl`, `trireme trace`, `trireme ui`, and the binary called as `kubectl`: handed over before anything else is set up, so that it answers at once.

use std::path::{Path, PathBuf};

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
    let own = first == "trace" || first == "ui";
    own.then(|| kubectl::main(std::iter::once(first).chain(arguments), own_server()))
}

/// The configuration that the server of this machine wrote, for whoever has no other.
fn own_server() -> Option<PathBuf> {
    let directory = std::env::var_os("TRIREME_DATA_DIR").unwrap_or_else(|| ".run".into());
    let path = Path::new(&directory).join("admin.kubeconfig");
    path.exists().then_some(path)
}
