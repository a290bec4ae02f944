//! `trireme kubectl`, `trireme trace` and others that need no `kubectl` before them, and the binary called as `kubectl`: handed over before anything else is set up, so that it answers at once.

use std::collections::BTreeMap;
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

/// Runs a command of kubectl inside another program, with a kubeconfig beside which it keeps what it remembers of the server. What it said.
pub async fn inside(mut arguments: Vec<String>, kubeconfig: &Path) -> Result<String, String> {
    let home = kubeconfig.parent().unwrap_or(Path::new("/")).display().to_string();
    arguments.push(format!("--kubeconfig={}", kubeconfig.display()));
    // A command runs on one thread and holds what must not leave it.
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        let variables = [("HOME", home.as_str()), ("KUBECTL_APPLYSET", "true")];
        let variables: BTreeMap<String, String> =
            variables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let environment = kubectl::Environment { variables, directory: PathBuf::new(), fallback: None };
        let (streams, out, err) = kubectl::Streams::memory(b"");
        match runtime.block_on(kubectl::run(environment, &arguments, streams)) {
            0 => Ok(out.text()),
            _ => Err(err.text()),
        }
    };
    tokio::task::spawn_blocking(run).await.map_err(|error| error.to_string())?
}

/// The configuration that the server of this machine wrote, for whoever has no other.
fn own_server() -> Option<PathBuf> {
    let directory = std::env::var_os("TRIREME_DATA_DIR").unwrap_or_else(|| ".run".into());
    let path = Path::new(&directory).join("admin.kubeconfig");
    path.exists().then_some(path)
}
