//! `kubectl rollout undo`: back to an earlier revision.

use serde_json::{Value, json};

use super::history::{Revision, no_history, revisions, template};
use super::{find, nothing};
use crate::command::{Command, Invocation};
use crate::error::{Failure, Outcome};
use crate::flags::{Flag, sets};
use crate::report::Report;
use crate::resource::Info;
use crate::resource::helper::{DryRun, JSON_PATCH, STRATEGIC, Writing};

pub static COMMAND: Command = Command {
    name: "undo",
    aliases: &[],
    usage: "(TYPE NAME | TYPE/NAME) [flags]",
    short: "Undo a previous rollout",
    flags: &[
        sets::PRINT,
        sets::FILENAME,
        sets::SELECTOR,
        sets::DRY_RUN,
        &[Flag::int("to-revision", "0", "The revision to go back to; 0 is the last one.")],
    ],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation))),
};

/// Annotations that stay the deployment's own.
const KEPT: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    "deployment.kubernetes.io/revision",
    "deployment.kubernetes.io/revision-history",
    "deployment.kubernetes.io/desired-replicas",
    "deployment.kubernetes.io/max-replicas",
    "deprecated.deployment.rollback.to",
];

async fn run(invocation: &mut Invocation) -> Outcome {
    let found = find(invocation).await?;
    if found.infos.is_empty() && found.errors.is_empty() {
        return nothing(invocation);
    }
    let mut errors = found.errors;
    let writing = Writing::from_flags(&invocation.flags)?;
    for info in found.infos {
        let applied =
            machinery::value::at(&info.object, "metadata.annotations").is_some_and(|all| all.get(KEPT[0]).is_some());
        if applied {
            let (resource, name, annotation) = (&info.mapping.resource, &info.name, KEPT[0]);
            invocation.streams.error(&format!("Warning: resource {resource}/{name} was previously managed with 'kubectl apply'. Rolling back will not update the {annotation} annotation, which may cause unexpected behavior on future 'kubectl apply' operations. Consider using 'kubectl apply' with your previous configuration file instead."));
        }
        match undo(invocation, &writing, &info).await {
            Ok(done) => Report::new(invocation, writing.dry_run, true)?.say(invocation, &info.object, &done)?,
            Err(error) => errors.push(error),
        }
    }
    Failure::all(errors)
}

async fn undo(invocation: &Invocation, writing: &Writing, info: &Info) -> Outcome<String> {
    let wanted = invocation.flags.int("to-revision");
    if wanted < 0 {
        return Err(Failure::Message(format!("unable to find specified revision {wanted} in history")));
    }
    if !matches!(info.mapping.kind.as_str(), "Deployment" | "DaemonSet" | "StatefulSet") {
        return Err(no_history(info, "rollbacker", "rollbacker"));
    }
    let all = revisions(invocation, info).await?;
    let revision = pick(info, &all, wanted)?;
    if writing.dry_run == DryRun::Client {
        let shown = describe::pod_template(&template(revision));
        let deployment = info.mapping.kind == "Deployment";
        return Ok(if deployment { shown } else { format!("will roll back to {shown}") });
    }
    if machinery::value::flag(&info.object, "spec.paused") {
        return Err(Failure::message(
            "you cannot rollback a paused deployment; resume it first with 'kubectl rollout resume' and try again",
        ));
    }
    let template = without_hash(template(revision));
    let current = without_hash(machinery::value::at(&info.object, "spec.template").cloned().unwrap_or_default());
    if current == template {
        return Ok(format!("skipped rollback (current template already matches revision {})", revision.number));
    }
    let failed =
        |error: Failure| Failure::Message(format!("failed restoring revision {}: {}", revision.number, error.bare()));
    let api = invocation.session.api()?;
    if info.mapping.kind == "Deployment" {
        let patch = json!([
            {"op": "replace", "path": "/spec/template", "value": template},
            {"op": "replace", "path": "/metadata/annotations", "value": annotations(info, revision)},
        ]);
        writing.patch(&api, info, JSON_PATCH, &patch).await.map_err(failed)?;
    } else {
        let data = revision.keeper.get("data").cloned().unwrap_or_default();
        writing.patch(&api, info, STRATEGIC, &data).await.map_err(failed)?;
    }
    Ok("rolled back".to_owned())
}

/// The revision that was asked for, or the one before the last.
fn pick<'a>(info: &Info, all: &'a [Revision], wanted: i64) -> Outcome<&'a Revision> {
    if wanted > 0 {
        let found = all.iter().find(|revision| revision.number == wanted);
        return found.ok_or_else(|| Failure::Message(format!("unable to find specified revision {wanted} in history")));
    }
    let deployment = info.mapping.kind == "Deployment";
    match all {
        [.., before, _] => Ok(before),
        _ if deployment => Err(Failure::Message(format!("no rollout history found for deployment \"{}\"", info.name))),
        _ => Err(Failure::message("no last revision to roll back to")),
    }
}

fn without_hash(mut template: Value) -> Value {
    if let Some(Value::Object(labels)) = machinery::value::at_mut(&mut template, "metadata.labels") {
        labels.remove("pod-template-hash");
    }
    template
}

/// The annotations of the revision, and what the deployment keeps of its own.
fn annotations(info: &Info, revision: &Revision) -> Value {
    let of = |object: &Value| {
        machinery::value::at(object, "metadata.annotations").and_then(Value::as_object).cloned().unwrap_or_default()
    };
    let mut kept = of(&info.object);
    kept.retain(|key, _| KEPT.contains(&key.as_str()));
    let theirs = of(&revision.keeper).into_iter().filter(|(key, _)| !KEPT.contains(&key.as_str()));
    kept.extend(theirs);
    Value::Object(kept)
}
