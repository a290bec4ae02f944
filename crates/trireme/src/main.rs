//! The one binary: parses the command, sets up memory, logging and the runtime, and hands over.

mod agent;
mod backup;
mod certificates;
mod check;
mod cli;
mod cluster;
mod component;
mod config_file;
mod data_dir;
mod documents;
mod etcd;
mod flagz;
mod hollow;
mod image;
mod install;
mod kubeconfig;
mod kubectl;
mod kubelet_root;
mod logging;
mod manifests;
mod memory;
mod netpol;
mod node;
mod notify;
mod parts;
mod proxy;
mod recommend;
mod secrets;
mod server;
mod servers;
mod signals;
mod standalone;
mod store;
mod support;
mod tls;
mod token;
mod upgrade;
mod upstream;

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _};

use cli::{Cli, Command};
use component::Failure;

fn main() -> ExitCode {
    if let Some(code) = kubectl::run() {
        std::process::exit(code);
    }
    let line = match config_file::expanded(std::env::args_os().collect()) {
        Ok(line) => line,
        Err(error) => {
            eprintln!("trireme: {error}");
            return ExitCode::FAILURE;
        }
    };
    let command = Cli::command();
    let upstream::Translated { line, notes, instead } = match upstream::translated(&command, line) {
        Ok(translated) => translated,
        Err(error) => {
            eprintln!("trireme: {error}");
            return ExitCode::FAILURE;
        }
    };
    if let Some(text) = instead {
        println!("{text}");
        return ExitCode::SUCCESS;
    }
    let matches = command.clone().get_matches_from(line);
    flagz::remember(&command, &matches);
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    logging::start(cli.verbose);
    notes.iter().for_each(|note| tracing::info!("{note}"));
    let outcome: Result<(), Failure> = match cli.command {
        Command::Server(options) => {
            runtime().and_then(|runtime| runtime.block_on(server::run(*options)).map_err(Into::into))
        }
        Command::ControllerManager(options) => {
            runtime().and_then(|runtime| runtime.block_on(standalone::controller_manager(*options)))
        }
        Command::Scheduler(options) => runtime().and_then(|runtime| runtime.block_on(standalone::scheduler(*options))),
        Command::Agent(options) => runtime().and_then(|runtime| runtime.block_on(agent::run(*options))),
        Command::Cluster(options) => runtime().and_then(|runtime| runtime.block_on(cluster::run(*options))),
        Command::Proxy(options) => runtime().and_then(|runtime| runtime.block_on(proxy::run(*options))),
        Command::Recommend(options) => runtime().and_then(|runtime| runtime.block_on(recommend::run(options))),
        Command::Netpol(command) => runtime().and_then(|runtime| runtime.block_on(netpol::run(command))),
        Command::Token(command) => runtime().and_then(|runtime| runtime.block_on(token::run(command))),
        Command::Kubeconfig(command) => runtime().and_then(|runtime| runtime.block_on(kubeconfig::run(command))),
        Command::HollowNode(options) => runtime().and_then(|runtime| runtime.block_on(hollow::run(*options))),
        Command::Backup(command) => runtime().and_then(|runtime| runtime.block_on(backup::run(command))),
        Command::Etcd(command) => runtime().and_then(|runtime| runtime.block_on(etcd::run(command))),
        Command::Store(command) => runtime().and_then(|runtime| runtime.block_on(store::run(command))),
        Command::Install(options) => runtime().and_then(|runtime| runtime.block_on(install::install(&options))),
        Command::Uninstall(options) => runtime().and_then(|runtime| runtime.block_on(install::uninstall(&options))),
        Command::Support(options) => runtime().and_then(|runtime| runtime.block_on(support::run(&options))),
        Command::Upgrade(options) => runtime().and_then(|runtime| runtime.block_on(upgrade::run(&options))),
        Command::Check(options) => check::run(&options),
        Command::Secrets(command) => runtime().and_then(|runtime| runtime.block_on(secrets::run(command))),
        Command::Completion(options) => documents::completion(&options),
        Command::Man(options) => documents::man(&options),
        Command::Certificates(command) => certificates::run(&command),
        Command::Image(command) => image::run(&command),
        Command::Node(command) => runtime().and_then(|runtime| runtime.block_on(node::run(&command))),
        // Taken before the command line was read.
        Command::Kubectl { .. }
        | Command::Trace { .. }
        | Command::Top { .. }
        | Command::Ui { .. }
        | Command::Get { .. }
        | Command::Diff { .. }
        | Command::History { .. }
        | Command::Undo { .. } => Ok(()),
        Command::Version => {
            println!("trireme {} (Kubernetes {})", env!("CARGO_PKG_VERSION"), rules::names::VERSION);
            Ok(())
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("trireme: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What everything that stays runs on.
fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    memory::give_back_in_background();
    Ok(threads::start().map_err(|error| format!("cannot start the runtime: {error}"))?)
}
