//! `make bench`: figures of this build as JSON lines, alone and beside upstream's.
//!
//! Part `versus` compares: the same outside client for both sides, the same components on both ([`versus`] says more). The other parts say what one
//! part of ours does alone. Their client is ours, over TLS and HTTP/2, and shares the machine with the server; it sends bodies
//! that were encoded beforehand and does not decode answers, so that it measures the server and not itself.

mod attachments;
mod controllers;
mod custom;
mod flood;
mod gauntlet;
mod history;
mod kubectl;
mod load;
mod million;
mod netpol;
mod node;
mod options;
mod page;
mod parts;
mod pods;
mod process;
mod report;
mod scheduler;
mod server;
mod servers;
mod services;
mod stalls;
mod storage;
mod usage;
mod versus;
mod watches;
mod wire;

use clap::Parser as _;
use client::{Client, Config};
use testkit::ServerOptions;

use options::Options;

/// As the program itself has it: what is measured in this process is to cost what it costs there.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Where the figures come from.
pub struct Target {
    /// One client is one connection.
    clients: Vec<Client>,
    config: Config,
    /// Whose memory can be read; none for another server.
    process: Option<u32>,
    /// Whose server it is, where both sides are measured.
    side: &'static str,
    scale: f64,
}

/// Connections of the load. One would make HTTP/2's framing of a single connection the limit.
const CONNECTIONS: usize = 8;

impl Target {
    fn new(kubeconfig: &std::path::Path, process: Option<u32>, scale: f64) -> Result<Self, Failure> {
        let config = Config::from_kubeconfig(kubeconfig)?;
        let clients: Result<_, _> = (0..CONNECTIONS).map(|_| Client::https(config.clone())).collect();
        Ok(Self { clients: clients?, config, process, side: "trireme", scale })
    }

    /// The same of somebody else.
    fn of(self, side: &'static str) -> Self {
        Self { side, ..self }
    }

    fn client(&self) -> &Client {
        &self.clients[0]
    }

    fn scaled(&self, count: usize) -> usize {
        // At least enough for a percentile to mean something.
        ((count as f64 * self.scale) as usize).max(100)
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    parts::run(&Options::parse()).await
}

fn binary() -> std::path::PathBuf {
    // `make bench` builds both into one directory.
    std::env::current_exe().expect("a program knows where it is").with_file_name("trireme")
}

fn start(arguments: &[&str]) -> ServerOptions {
    ServerOptions { binary: binary(), arguments: arguments.iter().map(|&argument| argument.to_owned()).collect() }
}
