//! The commands: a file or a folder each, all of one shape. `COMMAND` says its names, flags and children; `run` reads its options from
//! the flags, refuses what does not fit together, and does the work.

pub mod alpha;
mod api_resources;
mod api_versions;
mod apply;
mod attach;
mod auth;
mod autoscale;
mod certificate;
mod cluster_info;
pub mod completion;
mod config;
mod cp;
pub mod create;
mod debug;
mod delete;
mod describe;
mod diff;
mod edit;
mod events;
mod exec;
mod explain;
mod expose;
mod get;
mod kuberc;
mod kustomize;
mod labels;
mod logs;
mod nodes;
mod options;
mod overrides;
mod past;
mod patch;
pub mod plugin;
mod pods;
mod port_forward;
mod proxy;
mod raw;
mod replace;
mod rollout;
mod run;
mod scale;
mod set;
mod talk;
mod top;
mod trace;
mod ui;
mod version;
mod wait;
mod why;

use std::time::Duration;

use crate::command::{Command, Invocation};
use crate::error::Outcome;

/// `kubectl` itself.
pub static ROOT: Command = Command {
    name: "kubectl",
    aliases: &[],
    usage: "[flags]",
    short: "kubectl controls the Kubernetes cluster manager.",
    flags: &[],
    children: &[
        &alpha::COMMAND,
        &labels::ANNOTATE,
        &api_resources::COMMAND,
        &api_versions::COMMAND,
        &apply::COMMAND,
        &attach::COMMAND,
        &auth::COMMAND,
        &autoscale::COMMAND,
        &certificate::COMMAND,
        &cluster_info::COMMAND,
        &completion::COMMAND,
        &config::COMMAND,
        &nodes::cordon::CORDON,
        &cp::COMMAND,
        &create::COMMAND,
        &debug::COMMAND,
        &delete::COMMAND,
        &describe::COMMAND,
        &diff::COMMAND,
        &nodes::drain::COMMAND,
        &edit::COMMAND,
        &events::COMMAND,
        &exec::COMMAND,
        &explain::COMMAND,
        &expose::COMMAND,
        &get::COMMAND,
        &past::history::COMMAND,
        &kuberc::COMMAND,
        &kustomize::COMMAND,
        &labels::LABEL,
        &logs::COMMAND,
        &options::COMMAND,
        &patch::COMMAND,
        &plugin::COMMAND,
        &port_forward::COMMAND,
        &proxy::COMMAND,
        &replace::COMMAND,
        &rollout::COMMAND,
        &run::COMMAND,
        &scale::COMMAND,
        &set::COMMAND,
        &nodes::taint::COMMAND,
        &top::COMMAND,
        &trace::COMMAND,
        &ui::COMMAND,
        &nodes::cordon::UNCORDON,
        &past::undo::COMMAND,
        &version::COMMAND,
        &wait::COMMAND,
        &why::COMMAND,
    ],
    run: None,
};

/// Flags that commands must be given.
pub const REQUIRED: [(&str, &[&str]); 8] = [
    ("autoscale", &["max"]),
    ("create clusterrolebinding", &["clusterrole"]),
    ("create cronjob", &["image", "schedule"]),
    ("create deployment", &["image"]),
    ("create service externalname", &["external-name"]),
    ("kuberc set", &["section"]),
    ("run", &["image"]),
    ("scale", &["replicas"]),
];

/// `--pod-running-timeout`.
fn patience(invocation: &Invocation) -> Outcome<Duration> {
    match invocation.flags.duration("pod-running-timeout") {
        Duration::ZERO => Err(invocation.usage("--pod-running-timeout must be higher than zero")),
        patience => Ok(patience),
    }
}

/// Five letters that make a name unlikely to be taken.
fn suffix() -> String {
    let random = ring::rand::generate::<[u8; 5]>(&ring::rand::SystemRandom::new());
    let mut bytes = random.map_or([0; 5], ring::rand::Random::expose).into_iter();
    machinery::names::suffix(|below| usize::from(bytes.next().unwrap_or_default()) % below)
}

/// A number for the name of something temporary.
fn random_number() -> u32 {
    let random = ring::rand::generate::<[u8; 4]>(&ring::rand::SystemRandom::new());
    random.map_or(0, |random| u32::from_be_bytes(random.expose()))
}
