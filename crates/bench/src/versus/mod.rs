//! Like with like: the same measure for both sides, in one run.
//!
//! Each stage starts a fresh cluster of ours, measures it, stops it, and does the same with upstream's, so that both have the machine as it is in
//! the same minutes. On both sides run the API server with its store and the controllers; the scheduler runs where pods are to be
//! bound, and on neither side where only the API is asked. No side has a kubelet: nodes are hollow, from `trireme hollow-node` in a process
//! of its own, for both.
//!
//! The client is not ours: the `kube` crate, in this process, which neither side knows. It sends JSON, decodes what it is answered, and has 64
//! requests in flight over 4 connections ([`outside`]); each watcher has a connection of its own, as each client of a cluster has. Upstream's flags are its
//! defaults but for addresses, certificates and a longer allowance of requests for controllers and scheduler, without which its own limits would be measured.
//!
//! What says most is the processor time of the server for an operation, summed over its processes: it hardly depends on who else uses the
//! machine. It includes what controllers do because of the operation, in the run and in the [`AFTERMATH`] after it.

pub mod bind;
mod fan_out;
mod idle;
pub mod outside;
mod requests;
mod sheet;
mod side;
pub mod upstream;

use std::time::Duration;

use crate::{Failure, Options};

use fan_out::Pace;
pub use outside::Outside;
use sheet::Sheet;
use side::Kind;
pub use side::Side;

/// What is counted to a run after its last answer: controllers go on with what it left them.
const AFTERMATH: Duration = Duration::from_secs(2);

/// A fresh cluster on each side, and what is measured of it.
#[derive(Debug, Clone, Copy)]
enum Stage {
    /// Requests, lists, watches, memory; no scheduler.
    Requests,
    /// Nothing happens; then pods come that fit nowhere.
    IdleAndFlood,
    /// Pods are created and bound, on so many nodes.
    Bind(usize),
}

const STAGES: [Stage; 4] = [Stage::Requests, Stage::IdleAndFlood, Stage::Bind(1_000), Stage::Bind(5_000)];

pub async fn run(options: &Options) -> Result<(), Failure> {
    // More than one implementation may be compiled in, and then somebody has to choose.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (mut sheet, mut failures) = (Sheet::default(), Vec::new());
    let mut kinds = vec![Kind::Ours];
    kinds.extend(options.peer_bin.clone().map(Kind::Upstream));
    for stage in STAGES {
        for kind in &kinds {
            let mut side = match Side::start(kind, !matches!(stage, Stage::Requests)).await {
                Ok(side) => side,
                Err(error) => {
                    failures.push(format!("{stage:?} of {kind:?}: {error}"));
                    continue;
                }
            };
            let measured = measure(stage, &side, options, &mut sheet).await;
            if measured.is_err() {
                eprintln!("{}", side.last_words());
            }
            side.stop().await;
            // The others are worth having all the same.
            failures.extend(measured.err().map(|error| format!("{stage:?} of {}: {error}", side.name())));
        }
    }
    sheet.print_ratios();
    if let Some(file) = &options.markdown {
        sheet.write(file, &sheet::Setting::find(options).await?)?;
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("; ").into()) }
}

async fn measure(stage: Stage, side: &Side, options: &Options, sheet: &mut Sheet) -> Result<(), Failure> {
    match stage {
        Stage::Requests => {
            let outside = Outside::connect(side.kubeconfig()).await?;
            requests::measure(side, &outside, options, sheet).await?;
            for watchers in [(500, Pace::Apart), (1_000, Pace::Apart), (500, Pace::AtOnce)] {
                fan_out::measure(side, &outside, watchers, options, sheet).await?;
            }
            Ok(())
        }
        Stage::IdleAndFlood => idle::measure(side, options, sheet).await,
        Stage::Bind(nodes) => bind::measure(side, nodes, options, sheet).await,
    }
}
