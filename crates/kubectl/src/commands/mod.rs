//! The commands: a file or a folder each, all of one shape. `COMMAND` says its names, flags and children; `run` reads its options from
//! the flags, refuses what does not fit together, and does the work.

mod api_resources;
mod api_versions;
mod apply;
mod auth;
mod autoscale;
mod certificate;
mod cluster_info;
mod config;
mod create;
mod delete;
mod describe;
mod events;
mod explain;
mod expose;
mod get;
mod kustomize;
mod labels;
mod logs;
mod nodes;
mod options;
mod patch;
mod pods;
mod replace;
mod rollout;
mod run;
mod scale;
mod set;
mod version;
mod wait;

use crate::command::Command;

/// `kubectl` itself.
pub static ROOT: Command = Command {
    name: "kubectl",
    aliases: &[],
    usage: "[flags]",
    short: "kubectl controls the Kubernetes cluster manager.",
    flags: &[],
    children: &[
        &labels::ANNOTATE,
        &api_resources::COMMAND,
        &api_versions::COMMAND,
        &apply::COMMAND,
        &auth::COMMAND,
        &autoscale::COMMAND,
        &certificate::COMMAND,
        &cluster_info::COMMAND,
        &config::COMMAND,
        &nodes::cordon::CORDON,
        &create::COMMAND,
        &delete::COMMAND,
        &describe::COMMAND,
        &nodes::drain::COMMAND,
        &events::COMMAND,
        &explain::COMMAND,
        &expose::COMMAND,
        &get::COMMAND,
        &kustomize::COMMAND,
        &labels::LABEL,
        &logs::COMMAND,
        &options::COMMAND,
        &patch::COMMAND,
        &replace::COMMAND,
        &rollout::COMMAND,
        &run::COMMAND,
        &scale::COMMAND,
        &set::COMMAND,
        &nodes::taint::COMMAND,
        &nodes::cordon::UNCORDON,
        &version::COMMAND,
        &wait::COMMAND,
    ],
    run: None,
};
