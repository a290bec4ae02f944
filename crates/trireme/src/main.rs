//! The one binary: parses the command, sets up memory, logging and the runtime, and hands over.

mod agent;
mod cli;
mod cluster;
mod component;
mod data_dir;
mod hollow;
mod image;
mod logging;
mod node;
mod parts;
mod proxy;
mod server;
mod signals;
mod standalone;
mod store;
mod token;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser as _;

use cli::{Cli, Command};
use component::Failure;

/// glibc's arenas bloat under many small, short-lived allocations from several threads.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// After so long without news a start is over, the program's or a pod's.
const QUIET: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    let cli = Cli::parse();
    logging::start(cli.verbose);
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
        Command::Token(command) => runtime().and_then(|runtime| runtime.block_on(token::run(command))),
        Command::HollowNode(options) => runtime().and_then(|runtime| runtime.block_on(hollow::run(*options))),
        Command::Store(command) => store::run(&command).map_err(Into::into),
        Command::Image(command) => image::run(&command),
        Command::Node(command) => runtime().and_then(|runtime| runtime.block_on(node::run(&command))),
        Command::Version => {
            println!("trireme {} (Kubernetes {})", env!("CARGO_PKG_VERSION"), apiserver::version::KUBERNETES);
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

/// As many workers as cores, but at least two, so that one that is busy never holds up the other's timers and sockets.
fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(cores.max(2))
        .max_blocking_threads(32)
        .thread_name("trireme")
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| format!("cannot start the runtime: {error}"))?;
    runtime.spawn(settle());
    Ok(runtime)
}

/// What only a start needed goes, once it is over: the program's own, and later those of pods. A command that ends before never
/// comes here, and where nothing starts nothing is waited for.
async fn settle() {
    loop {
        while tokio::time::timeout(QUIET, ::node::process::burst()).await.is_ok() {}
        if let Err(error) = ::node::process::release_code() {
            tracing::debug!("memory of the start is kept: {error}");
        }
        ::node::process::burst().await;
    }
}
