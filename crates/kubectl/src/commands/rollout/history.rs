//! `kubectl rollout history`: the revisions of a workload, each with its template.

use machinery::status::go_quote;
use machinery::value::text;
use serde_json::Value;

use super::{find, nothing};
use crate::command::{Command, Invocation};
use crate::discovery::query;
use crate::error::{Failure, Outcome};
use crate::flags::{Flag, sets};
use crate::print::tabs::Tabs;
use crate::print::{self, OBJECTS, Printer, Request};
use crate::resource::Info;

pub static COMMAND: Command = Command {
    name: "history",
    aliases: &[],
    usage: "(TYPE NAME | TYPE/NAME) [flags]",
    short: "View rollout history",
    flags: &[
        sets::PRINT,
        sets::FILENAME,
        sets::SELECTOR,
        &[Flag::int("revision", "0", "Show this revision with its template.")],
    ],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation))),
};

/// One revision of a workload.
pub struct Revision {
    pub number: i64,
    /// The ReplicaSet or ControllerRevision that keeps it.
    pub keeper: Value,
}

const REVISION: &str = "deployment.kubernetes.io/revision";
const CAUSE: &str = "kubernetes.io/change-cause";

fn annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    machinery::value::at(object, "metadata.annotations")?.get(name)?.as_str()
}

/// A kind that has no history to show or to go back to.
pub fn no_history(info: &Info, what: &str, who: &str) -> Failure {
    let (kind, group) = (&info.mapping.kind, &info.mapping.group);
    Failure::Message(match kind.as_str() {
        "Pod" | "Job" | "CronJob" | "ReplicaSet" | "ReplicationController" => {
            let of = if group.is_empty() { kind.clone() } else { format!("{kind}.{group}") };
            format!("no {who} has been implemented for {}", go_quote(&of))
        }
        _ => format!("error retrieving {what} for \"{kind}\", no visitor method exists for {{{group} {kind}}}"),
    })
}

/// The revisions that the server still has, the oldest first.
pub async fn revisions(invocation: &Invocation, info: &Info) -> Outcome<Vec<Revision>> {
    let (resource, number): (&str, fn(&Value) -> Option<i64>) = match info.mapping.kind.as_str() {
        "Deployment" => ("replicasets", |keeper| annotation(keeper, REVISION)?.parse().ok()),
        "DaemonSet" | "StatefulSet" => ("controllerrevisions", |keeper| keeper.get("revision")?.as_i64()),
        _ => return Err(no_history(info, "history", "history viewer")),
    };
    let labels = machinery::value::at(&info.object, "spec.selector.matchLabels").and_then(Value::as_object);
    let selector: Vec<String> = labels
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    let path = format!(
        "/apis/apps/v1/namespaces/{}/{resource}{}",
        info.namespace,
        query(&[("labelSelector", &selector.join(","))])
    );
    let list = invocation.session.api()?.get(&path).await?;
    let uid = text(&info.object, "metadata.uid");
    let owned = |keeper: &&Value| {
        machinery::value::list(keeper, "metadata.ownerReferences").iter().any(|owner| text(owner, "uid") == uid)
    };
    let mut revisions: Vec<Revision> = machinery::value::list(&list, "items")
        .iter()
        .filter(owned)
        .filter_map(|keeper| Some(Revision { number: number(keeper)?, keeper: keeper.clone() }))
        .collect();
    revisions.sort_by_key(|revision| revision.number);
    Ok(revisions)
}

/// The template of a revision.
pub fn template(revision: &Revision) -> Value {
    let keeper = &revision.keeper;
    let found =
        machinery::value::at(keeper, "spec.template").or_else(|| machinery::value::at(keeper, "data.spec.template"));
    found.cloned().unwrap_or_default()
}

async fn run(invocation: &mut Invocation) -> Outcome {
    let wanted = invocation.flags.int("revision");
    if wanted < 0 {
        return Err(Failure::Message(format!("revision must be a positive integer: {wanted}")));
    }
    let found = find(invocation).await?;
    if found.infos.is_empty() && found.errors.is_empty() {
        return nothing(invocation);
    }
    let mut errors = found.errors;
    for info in found.infos {
        match show(invocation, &info, wanted).await {
            Ok(text) => invocation.print(&text)?,
            Err(error) => errors.push(error),
        }
    }
    Failure::all(errors)
}

async fn show(invocation: &Invocation, info: &Info, wanted: i64) -> Outcome<String> {
    let revisions = revisions(invocation, info).await?;
    let request = Request { allowed: OBJECTS, typed: true };
    if let Some(mut printer) = Printer::from_flags(&invocation.flags, &invocation.session.environment, &request)? {
        // A template without a format is about the object itself.
        if invocation.flags.text("output").is_empty() {
            return printer.print(&info.object);
        }
        let managed = !printer.omits_managed_fields() || invocation.flags.is("show-managed-fields");
        return structured(&mut printer, info, &revisions, wanted, managed);
    }
    let name = print::name(&info.object);
    if revisions.is_empty() {
        return Ok(format!("{name} \nNo rollout history found.\n"));
    }
    if wanted > 0 {
        let Some(revision) = revisions.iter().find(|revision| revision.number == wanted) else {
            return Err(Failure::message("unable to find the specified revision"));
        };
        let template = with_cause(info, revision);
        return Ok(format!("{name} with revision #{wanted}\n{}\n", describe::pod_template(&template)));
    }
    let mut table = "REVISION\tCHANGE-CAUSE\n".to_owned();
    for revision in &revisions {
        let cause = annotation(&revision.keeper, CAUSE).unwrap_or("<none>");
        table += &format!("{}\t{cause}\n", revision.number);
    }
    Ok(format!("{name} \n{}\n", Tabs::with(0, 2).align(&table)))
}

/// The template of a revision. A Deployment's says why it was made.
fn with_cause(info: &Info, revision: &Revision) -> Value {
    let mut template = template(revision);
    if let Some(cause) = annotation(&revision.keeper, CAUSE).filter(|_| info.mapping.kind == "Deployment") {
        machinery::value::object_mut(&mut template["metadata"], "annotations").insert(CAUSE.to_owned(), cause.into());
    }
    template
}

/// Each revision as an object: a Deployment's are ReplicaSets, others are what they were then.
fn structured(
    printer: &mut Printer,
    info: &Info,
    revisions: &[Revision],
    wanted: i64,
    managed: bool,
) -> Outcome<String> {
    let shown = |revision: &Revision| {
        let mut object = if info.mapping.kind == "Deployment" {
            let mut object = revision.keeper.clone();
            object["kind"] = "ReplicaSet".into();
            object["apiVersion"] = "apps/v1".into();
            object
        } else {
            let mut object = info.object.clone();
            machinery::value::set(&mut object, "spec.template", template(revision));
            machinery::value::remove(&mut object, "spec.template.$patch");
            object
        };
        if !managed {
            print::without_managed_fields(&mut object);
        }
        object
    };
    if wanted > 0 {
        let Some(revision) = revisions.iter().find(|revision| revision.number == wanted) else {
            return Err(Failure::message("unable to find the specified revision"));
        };
        return printer.print(&shown(revision));
    }
    let mut text = String::new();
    for revision in revisions {
        text += &printer.print(&shown(revision))?;
    }
    Ok(text)
}
