//! Clients, charts and operators as users have them, unmodified and from their registries, against the real binary.
//!
//! The programs are in `clients/`; what they need is installed by `scripts/clients`. `make test` runs the quick ones, and says so where the
//! registries cannot be reached; `make clients` runs all, and none may be missing.

mod helm;
mod operator;
mod s3;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use testkit::{Server, ServerOptions};
use tokio::process::Command;

/// Longer than the slowest, ansible, takes on a busy machine.
const DEADLINE: Duration = Duration::from_secs(300);

/// Where this repository's own programs are.
fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients").canonicalize().expect("the programs")
}

/// Where `scripts/clients` put others' programs, if this one is among them. With `TRIREME_CLIENTS` all have to be there.
fn installed(program: &str) -> Option<PathBuf> {
    let wanted = std::env::var_os("TRIREME_CLIENTS");
    let folder = wanted.as_ref().map_or_else(
        || Path::new(env!("CARGO_TARGET_TMPDIR")).join("../clients"),
        |folder| Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder),
    );
    let path = folder.join(program);
    if path.exists() {
        return Some(path);
    }
    assert!(wanted.is_none(), "{} is not installed", path.display());
    eprintln!("SKIPPED: {program} is not installed; `make clients` installs and runs all clients");
    None
}

async fn server() -> Server {
    Server::start(ServerOptions {
        binary: env!("CARGO_BIN_EXE_trireme").into(),
        arguments: vec!["--disable-agent".to_owned()],
    })
    .await
}

/// Runs a program that must succeed; what it printed.
async fn run(server: &Server, program: &Path, arguments: &[&str]) -> String {
    let output = output(server, program, arguments).await;
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{} {arguments:?}:\n{stdout}{stderr}", program.display());
    stdout.into_owned()
}

/// Runs a program with a home of its own and the administrator's kubeconfig.
async fn output(server: &Server, program: &Path, arguments: &[&str]) -> std::process::Output {
    let home = server.data_dir().with_file_name("home");
    std::fs::create_dir_all(&home).expect("a home");
    let run = Command::new(program)
        .args(arguments)
        .current_dir(programs())
        .env("KUBECONFIG", server.kubeconfig())
        .env("HOME", &home)
        .env("ANSIBLE_PYTHON_INTERPRETER", program.with_file_name("python"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let ended = tokio::time::timeout(DEADLINE, run).await;
    ended.unwrap_or_else(|_| panic!("{} {arguments:?} did not end", program.display())).expect("the program runs")
}

/// Runs a scenario in Python against a server of its own; it prints a line after each step. `set` is the set of packages that it is in.
async fn python(script: &str, set: &str, steps: &[&str]) {
    let (Some(_), Some(python)) = (installed(set), installed("venv/bin/python")) else { return };
    let server = server().await;
    let printed = run(&server, &python, &[&format!("python/{script}.py")]).await;
    assert_eq!(printed.lines().collect::<Vec<_>>(), steps);
}

#[tokio::test]
async fn kopf_runs_an_operator_that_waits_for_its_definition() {
    python("kopf_client", "quick", &["created", "updated", "deleted", "stopped"]).await;
}

#[tokio::test]
async fn kr8s_works_unmodified() {
    python("kr8s_client", "quick", &["definition", "objects", "watch", "patches", "refusals", "deletion"]).await;
}

#[tokio::test]
async fn lightkube_works_unmodified() {
    let steps = ["definition", "objects", "apply", "subresources", "refusals", "deletion"];
    python("lightkube_client", "quick", &steps).await;
}

#[tokio::test]
async fn the_official_python_client_works_on_custom_resources() {
    python("kubernetes_client", "all", &["definition", "dynamic", "custom objects", "watch", "deletion"]).await;
}

#[tokio::test]
async fn kubernetes_asyncio_works_unmodified() {
    python("kubernetes_asyncio_client", "all", &["definition", "custom objects", "dynamic"]).await;
}

#[tokio::test]
async fn ansible_works_unmodified() {
    if installed("all").is_none() {
        return;
    }
    let Some(ansible) = installed("venv/bin/ansible-playbook") else { return };
    let server = server().await;
    let printed = run(&server, &ansible, &["-i", "localhost,", "-c", "local", "ansible/playbook.yml"]).await;
    assert!(printed.contains("ok=10 "), "{printed}");
}

#[tokio::test]
async fn client_node_works_unmodified() {
    let Some(modules) = installed("node/node_modules") else { return };
    let server = server().await;
    // Node.js looks for packages beside the script.
    let script = modules.with_file_name("client.mjs");
    std::fs::copy(programs().join("node/client.mjs"), &script).expect("the script");
    let definition = programs().join("crd.yaml");
    let arguments = [&*script.to_string_lossy(), &*definition.to_string_lossy()];
    let printed = run(&server, Path::new("node"), &arguments).await;
    assert_eq!(printed.lines().collect::<Vec<_>>(), ["definition", "objects", "informer", "refusals"]);
}
