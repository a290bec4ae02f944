//! `kubectl cordon` and `uncordon`.

use super::{find, set_unschedulable};
use crate::command::{Command, Invocation};
use crate::error::Outcome;
use crate::flags::sets;

pub static CORDON: Command = Command {
    name: "cordon",
    aliases: &[],
    usage: "NODE",
    short: "Mark node as unschedulable",
    flags: &[sets::DRY_RUN, sets::SELECTOR],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation, true))),
};

pub static UNCORDON: Command = Command {
    name: "uncordon",
    aliases: &[],
    usage: "NODE",
    short: "Mark node as schedulable",
    flags: &[sets::DRY_RUN, sets::SELECTOR],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation, false))),
};

async fn run(invocation: &mut Invocation, wanted: bool) -> Outcome {
    let usage = if wanted { "cordon NODE" } else { "uncordon NODE" };
    let infos = find(invocation, usage).await?;
    set_unschedulable(invocation, &infos, wanted).await
}
