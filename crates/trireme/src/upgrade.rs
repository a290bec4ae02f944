//! `trireme upgrade`: another version of the binary on this machine, without surprise for what runs on it.
//!
//! The pods of the machine's node go elsewhere first, the new binary is put in place of the old one, the service is started again and looked at until it is
//! well, and the node takes pods again. One that does not become well gives its place back to the old binary. One machine at a time is the administrator's
//! word: whoever upgrades a cluster runs this on one machine after the other, servers first.

use std::path::{Path, PathBuf};
use std::time::Duration;

use client::Client;
use k8s_openapi::api::core::v1::Node;
use node::run;
use rules::pods::is_node_ready;

use crate::component::Failure;
use crate::parts::host_name;
use crate::server::flags::duration;
use crate::standalone::connect;

/// How long a program may take that says its version or starts a service again.
const LIMIT: Duration = Duration::from_secs(120);
/// How often the service is asked whether it is well.
const ASK: Duration = Duration::from_millis(250);
/// What says since when a process runs.
const STARTED: &str = "Started";

/// Options of `trireme upgrade`.
#[derive(Debug, clap::Args)]
pub struct Upgrade {
    /// The new binary.
    #[arg(value_name = "BINARY")]
    binary: PathBuf,
    /// What it takes the place of.
    #[arg(long, value_name = "FILE", default_value = "/usr/local/bin/trireme")]
    program: PathBuf,
    /// Whom to ask whether all is well, and as whom pods are sent elsewhere.
    #[arg(long, value_name = "FILE", env = "KUBECONFIG", default_value = "/var/lib/trireme/admin.kubeconfig")]
    kubeconfig: PathBuf,
    /// This machine's node [default: the host's name].
    #[arg(long, value_name = "NAME")]
    node_name: Option<String>,
    /// Leave the node's pods where they are; containers outlive the process.
    #[arg(long)]
    no_drain: bool,
    /// This machine is a node only: its kubelet is looked at, not the server.
    #[arg(long)]
    agent: bool,
    /// How the service is started again, as a command for sh.
    #[arg(long, value_name = "COMMAND", default_value = "systemctl restart trireme.service")]
    restart: String,
    /// How long it may take to become well.
    #[arg(long, value_name = "DURATION", default_value = "2m0s", value_parser = duration)]
    timeout: Duration,
}

/// Runs the command.
pub async fn run(options: &Upgrade) -> Result<(), Failure> {
    let version = version(&options.binary).await?;
    let client = connect(&options.kubeconfig)?;
    let name = options.node_name.clone().or_else(host_name).ok_or("--node-name is needed")?;
    let node = match client.get::<Node>("", &name).await {
        Ok(_) => Some(name.as_str()),
        Err(error) if error.is_not_found() && !options.agent => None,
        Err(error) => return Err(format!("node {name}: {error}").into()),
    };
    let path = match (options.agent, node) {
        (true, Some(name)) => format!("/api/v1/nodes/{name}/proxy/statusz"),
        _ => "/statusz".to_owned(),
    };
    let before = started(&client, &path).await.ok_or("it is not well now: nothing is changed")?;
    println!("{} becomes {version}", options.program.display());
    let drained = match node.filter(|_| !options.no_drain) {
        Some(name) => {
            kubectl(&options.kubeconfig, &["drain", name, "--ignore-daemonsets", "--delete-emptydir-data", "--force"])
                .await?;
            println!("node {name} is drained");
            Some(name)
        }
        None => None,
    };
    let old = options.program.with_extension("previous");
    std::fs::copy(&options.program, &old).map_err(|error| format!("{}: {error}", options.program.display()))?;
    let new = std::fs::read(&options.binary)?;
    let outcome = async {
        crate::install::replace(&options.program, &new, 0o755)?;
        restart(&options.restart).await?;
        well(&client, &path, &before, node, options.timeout).await
    };
    let outcome = outcome.await;
    if let Err(why) = &outcome {
        eprintln!("{why}; the old binary takes its place again");
        crate::install::replace(&options.program, &std::fs::read(&old)?, 0o755)?;
        // A service that has ended already cannot be told to end; whether it comes back is what counts.
        if let Err(error) = restart(&options.restart).await {
            eprintln!("{error}");
        }
        well(&client, &path, &before, node, options.timeout).await?;
    }
    if let Some(name) = drained {
        kubectl(&options.kubeconfig, &["uncordon", name]).await?;
        println!("node {name} takes pods again");
    }
    outcome?;
    println!("{version} runs; the old binary is {}", old.display());
    Ok(())
}

/// What a binary says it is. One for another machine says nothing.
async fn version(binary: &Path) -> Result<String, Failure> {
    let said = run::output(&binary.to_string_lossy(), &["version"], b"", LIMIT).await;
    let said = said.map_err(|error| format!("{} is no binary for this machine: {error}", binary.display()))?;
    let text = String::from_utf8_lossy(&said).trim().to_owned();
    if text.starts_with("trireme ") { Ok(text) } else { Err(format!("{} is no trireme", binary.display()).into()) }
}

async fn restart(command: &str) -> Result<(), Failure> {
    Ok(run::output("sh", &["-c", command], b"", LIMIT).await.map(drop)?)
}

/// Since when the process runs, if it answers.
async fn started(client: &Client, path: &str) -> Option<String> {
    let page = client.raw(path).await.ok()?;
    let text = String::from_utf8_lossy(&page).into_owned();
    text.lines().find(|line| line.trim_start().starts_with(STARTED)).map(str::to_owned)
}

/// Waits until another process than the one before is ready, and its node, too.
async fn well(client: &Client, path: &str, before: &str, node: Option<&str>, timeout: Duration) -> Result<(), Failure> {
    let is_well = async || {
        let another = started(client, path).await.is_some_and(|now| now != before);
        let ready = another && client.raw("/readyz").await.is_ok();
        match node.filter(|_| ready) {
            None => ready,
            Some(name) => client.get::<Node>("", name).await.is_ok_and(|node| is_node_ready(&node)),
        }
    };
    let waiting = async {
        while !is_well().await {
            tokio::time::sleep(ASK).await;
        }
    };
    tokio::time::timeout(timeout, waiting).await.map_err(|_| format!("it is not well after {timeout:?}").into())
}

async fn kubectl(kubeconfig: &Path, words: &[&str]) -> Result<(), Failure> {
    let arguments = words.iter().map(|word| (*word).to_owned()).collect();
    Ok(crate::kubectl::inside(arguments, kubeconfig).await.map(drop)?)
}
