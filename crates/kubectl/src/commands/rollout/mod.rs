//! `kubectl rollout`: follows, stops, repeats and takes back changes of workloads.

mod change;
mod history;
mod status;
mod undo;

use crate::command::{Command, Invocation};
use crate::error::{Failure, Outcome};
use crate::resource::{Builder, Found};

pub static COMMAND: Command = Command {
    name: "rollout",
    aliases: &[],
    usage: "SUBCOMMAND",
    short: "Manage the rollout of a resource",
    flags: &[],
    children: &[&history::COMMAND, &change::PAUSE, &change::RESTART, &change::RESUME, &status::COMMAND, &undo::COMMAND],
    run: None,
};

/// The workloads that a subcommand is about.
async fn find(invocation: &mut Invocation) -> Outcome<Found> {
    let mut builder = Builder::from_flags(&invocation.session, &invocation.flags)?;
    if builder.arguments.is_empty() && builder.has_no_files() {
        return Err(Failure::message("required resource not specified"));
    }
    builder.types_mean_all = true;
    builder.latest = true;
    builder.infos(&invocation.session, &mut invocation.streams).await
}

/// Said where a selector found nothing.
fn nothing(invocation: &mut Invocation) -> Outcome {
    let namespace = invocation.session.namespace()?;
    invocation.streams.error(&format!("No resources found in {namespace} namespace."));
    Ok(())
}
