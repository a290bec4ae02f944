//! `kubectl rollout pause`, `resume` and `restart`.

use machinery::status::go_quote;
use serde_json::{Value, json};

use super::{find, nothing};
use crate::command::{Command, Invocation};
use crate::error::{Failure, Outcome};
use crate::flags::sets;
use crate::report::Report;
use crate::resource::Info;
use crate::resource::helper::{DryRun, STRATEGIC, Writing};

pub static PAUSE: Command = Command {
    name: "pause",
    aliases: &[],
    usage: "RESOURCE",
    short: "Mark the provided resource as paused",
    flags: &[sets::PRINT, sets::FILENAME, sets::SELECTOR, &[sets::field_manager("kubectl-rollout")]],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation, "paused", pause))),
};

pub static RESUME: Command = Command {
    name: "resume",
    aliases: &[],
    usage: "RESOURCE",
    short: "Resume a paused resource",
    flags: &[sets::PRINT, sets::FILENAME, sets::SELECTOR, &[sets::field_manager("kubectl-rollout")]],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation, "resumed", resume))),
};

pub static RESTART: Command = Command {
    name: "restart",
    aliases: &[],
    usage: "RESOURCE",
    short: "Restart a resource",
    flags: &[sets::PRINT, sets::FILENAME, sets::SELECTOR, &[sets::field_manager("kubectl-rollout")]],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation, "restarted", restart))),
};

/// What is said where a restart would change nothing.
const AGAIN: &str =
    "if restart has already been triggered within the past second, please wait before attempting to trigger another";

fn pause(info: &Info) -> Result<Value, String> {
    if info.mapping.kind != "Deployment" {
        return Err("pausing is not supported".to_owned());
    }
    if machinery::value::flag(&info.object, "spec.paused") {
        return Err("is already paused".to_owned());
    }
    Ok(json!({"spec": {"paused": true}}))
}

fn resume(info: &Info) -> Result<Value, String> {
    if info.mapping.kind != "Deployment" {
        return Err("resuming is not supported".to_owned());
    }
    if !machinery::value::flag(&info.object, "spec.paused") {
        return Err("is not paused".to_owned());
    }
    Ok(json!({"spec": {"paused": null}}))
}

fn restart(info: &Info) -> Result<Value, String> {
    if !matches!(info.mapping.kind.as_str(), "Deployment" | "DaemonSet" | "StatefulSet") {
        return Err("restarting is not supported".to_owned());
    }
    if machinery::value::flag(&info.object, "spec.paused") {
        return Err("can't restart paused deployment (run rollout resume first)".to_owned());
    }
    let now = machinery::time::format(jiff::Timestamp::now());
    let before = machinery::value::at(&info.object, "spec.template.metadata.annotations");
    if before.and_then(|all| all.get("kubectl.kubernetes.io/restartedAt")).is_some_and(|then| *then == *now) {
        return Err(AGAIN.to_owned());
    }
    let annotations = json!({"kubectl.kubernetes.io/restartedAt": now});
    Ok(json!({"spec": {"template": {"metadata": {"annotations": annotations}}}}))
}

async fn run(invocation: &mut Invocation, done: &str, plan: fn(&Info) -> Result<Value, String>) -> Outcome {
    let found = find(invocation).await?;
    let mut errors = found.errors;
    if found.infos.is_empty() && errors.is_empty() {
        return nothing(invocation);
    }
    let writing = Writing::from_flags(&invocation.flags)?;
    for mut info in found.infos {
        let patch = match plan(&info) {
            Ok(patch) => patch,
            Err(why) if why == AGAIN => {
                errors.push(Failure::Message(format!("failed to create patch for {}: {why}", info.name)));
                continue;
            }
            Err(why) => {
                errors.push(Failure::Message(format!(
                    "error: {} {} {why}",
                    info.mapping.qualified(),
                    go_quote(&info.name)
                )));
                continue;
            }
        };
        let api = invocation.session.api()?;
        match writing.patch(&api, &info, STRATEGIC, &patch).await {
            Ok(object) => {
                info.refresh(object);
                Report::new(invocation, DryRun::No, true)?.say(invocation, &info.object, done)?;
            }
            Err(error) => errors.push(Failure::Message(format!("failed to patch: {}", error.bare()))),
        }
    }
    Failure::all(errors)
}
