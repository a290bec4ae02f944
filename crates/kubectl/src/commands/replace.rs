//! `kubectl replace`: puts objects in the place of others.

use serde_json::{Value, json};

use super::create::{LAST_APPLIED, remember};
use super::delete::cascade;
use crate::command::{Command, Invocation};
use crate::error::{Failure, Outcome};
use crate::flags::{Flag, sets};
use crate::record;
use crate::report::Report;
use crate::resource::helper::{DryRun, Writing};
use crate::resource::{Builder, Info};

pub static COMMAND: Command = Command {
    name: "replace",
    aliases: &[],
    usage: "-f FILENAME",
    short: "Replace a resource by file name or stdin",
    flags: &[
        sets::PRINT,
        sets::FILENAME,
        sets::DRY_RUN,
        sets::RECORD,
        sets::VALIDATE,
        sets::SAVE_CONFIG,
        &[
            sets::field_manager("kubectl-replace"),
            Flag::string("cascade", "background", "What becomes of dependents.").or_bare("background"),
            Flag::bool("force", "Delete the objects and create them anew."),
            Flag::int("grace-period", "-1", "Seconds that a pod gets to end; negative is the pod's own."),
            Flag::string("raw", "", "Path on the server to put the file to."),
            Flag::string("subresource", "", "Part of the object to replace."),
            Flag::duration("timeout", "0s", "How long to wait for an end."),
            Flag::bool("wait", "Wait until what is deleted is gone."),
        ],
    ],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation))),
};

async fn run(invocation: &mut Invocation) -> Outcome {
    let flags = &invocation.flags;
    cascade(flags)?;
    let writing = Writing::from_flags(flags)?;
    let force = flags.is("force");
    if flags.int("grace-period") >= 0 && !force {
        return Err(Failure::message("--grace-period must have --force specified"));
    }
    if flags.nanos("timeout") != 0 && !force {
        return Err(Failure::message("--timeout must have --force specified"));
    }
    if force && writing.dry_run != DryRun::No {
        return Err(Failure::message("--dry-run can not be used when --force is set"));
    }
    if flags.list("filename").is_empty() && flags.text("kustomize").is_empty() {
        return Err(Failure::message("must specify one of -f and -k"));
    }
    if let Some(path) = super::raw::wanted(flags)? {
        return super::raw::send(invocation, http::Method::PUT, &path).await;
    }
    // Arguments mean nothing to it.
    let builder = Builder { arguments: Vec::new(), ..Builder::from_flags(&invocation.session, flags)? };
    let found = builder.infos(&invocation.session, &mut invocation.streams).await?;
    let mut errors = found.errors;
    let mut report = Report::new(invocation, writing.dry_run, false)?;
    if found.infos.is_empty() && errors.is_empty() {
        return Err(Failure::message("no objects passed to replace"));
    }
    if force {
        delete(invocation, &writing, &found.infos).await?;
    }
    for mut info in found.infos {
        annotate(invocation, &mut info.object);
        record::note(invocation, &mut info.object);
        if writing.dry_run == DryRun::Client {
            report.say(invocation, &info.object, "replaced")?;
            continue;
        }
        let api = invocation.session.api()?;
        let answer = if force { writing.create(&api, &info).await } else { put(invocation, &writing, &info).await };
        match answer {
            Ok(object) => report.say(invocation, &object, "replaced")?,
            Err(error) => {
                // What is made anew is told as it is.
                errors.push(if force { error } else { error.about("replacing", &info.source) });
            }
        }
    }
    Failure::all(errors)
}

/// Replaces an object, whichever version of it the file was made from, unless the file says one.
async fn put(invocation: &Invocation, writing: &Writing, info: &Info) -> Outcome<Value> {
    let api = invocation.session.api()?;
    let mut object = info.object.clone();
    // Some kinds are replaced only by who says which version was seen. What cannot be read is left to the server to refuse.
    if info.resource_version().is_empty()
        && !info.name.is_empty()
        && let Ok(current) = api.get(&info.mapping.path(&info.namespace, &info.name, &writing.subresource)).await
    {
        let version = machinery::value::text(&current, "metadata.resourceVersion").to_owned();
        machinery::value::set(&mut object, "metadata.resourceVersion", version);
    }
    writing.replace(&api, info, &object).await
}

/// The annotation of `apply` follows where it is, or where it is asked for.
fn annotate(invocation: &Invocation, object: &mut Value) {
    let there = machinery::value::at(object, "metadata.annotations").is_some_and(|all| all.get(LAST_APPLIED).is_some());
    if there || invocation.flags.is("save-config") {
        remember(object);
    }
}

/// Deletes what is to be made anew, and waits until it is gone. No grace at all becomes a second: nothing is forced.
async fn delete(invocation: &mut Invocation, writing: &Writing, infos: &[Info]) -> Outcome {
    let policy = cascade(&invocation.flags)?;
    let mut options = json!({"propagationPolicy": policy});
    let grace = invocation.flags.int("grace-period");
    if grace >= 0 {
        options["gracePeriodSeconds"] = grace.max(1).into();
    }
    let mut gone = Vec::new();
    for info in infos {
        let api = invocation.session.api()?;
        match writing.delete(&api, info, &options).await {
            Ok(answer) => {
                let place =
                    if info.mapping.namespaced { format!(" from {} namespace", info.namespace) } else { String::new() };
                let line = format!("{} \"{}\" deleted{place}", info.mapping.kind_name(), info.name);
                invocation.say(&line)?;
                gone.push((info.clone(), machinery::value::text(&answer, "metadata.uid").to_owned()));
            }
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error.about("deleting", &info.source)),
        }
    }
    super::wait::until_gone(&invocation.session, &gone, invocation.flags.duration("timeout")).await
}
