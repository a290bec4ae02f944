//! `kubectl top`: what nodes and pods use.

mod live;
mod node;
mod pod;
mod usage;

use crate::command::{Command, Invocation};
use crate::error::{Failure, Outcome};
use crate::flags::Flag;

pub static COMMAND: Command = Command {
    name: "top",
    aliases: &[],
    usage: "[flags]",
    short: "Display resource (CPU/memory) usage",
    flags: &[],
    children: &[&live::COMMAND, &node::COMMAND, &pod::COMMAND],
    run: None,
};

static COMMON: &[Flag] = &[
    Flag::bool("no-headers", "Leave headers out."),
    Flag::bool("show-swap", "Show swap memory, too."),
    Flag::string("sort-by", "", "Sort by cpu or memory."),
    Flag::bool("use-protocol-buffers", "Ask for protocol buffers.").default("true"),
];

/// The one name that may be given.
fn name(invocation: &Invocation) -> Outcome<String> {
    match &invocation.flags.arguments[..] {
        [] => Ok(String::new()),
        [one] => Ok(one.clone()),
        _ => Err(invocation.usage(format_args!("{} {}", invocation.command.name, invocation.command.usage))),
    }
}

fn validate_order(invocation: &Invocation) -> Outcome {
    match invocation.flags.text("sort-by") {
        "" | "cpu" | "memory" => Ok(()),
        _ => Err(Failure::message("--sort-by accepts only cpu or memory")),
    }
}

/// The path of the group that has the figures.
async fn group(invocation: &Invocation) -> Outcome<String> {
    let has = |found: &crate::discovery::Discovery| {
        let group = found.groups.iter().find(|group| group.name == "metrics.k8s.io")?;
        let version = group.versions.iter().find(|version| matches!(version.as_str(), "v1" | "v1beta1"))?;
        Some(format!("/apis/metrics.k8s.io/{version}"))
    };
    let known = invocation.session.discovery().await?;
    if let Some(path) = has(&known) {
        return Ok(path);
    }
    has(&*invocation.session.rediscover().await?).ok_or_else(|| Failure::message("Metrics API not available"))
}
