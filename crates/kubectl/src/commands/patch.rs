//! `kubectl patch`: changes parts of objects.

use machinery::codec::{Limits, yaml};
use machinery::status::go_quote;
use serde_json::Value;

use crate::command::{Command, Invocation};
use crate::error::{Failure, Outcome, os_error};
use crate::flags::{Flag, sets};
use crate::record;
use crate::report::Report;
use crate::resource::helper::{DryRun, JSON_PATCH, MERGE, STRATEGIC, Writing};
use crate::resource::{Builder, Info};

pub static COMMAND: Command = Command {
    name: "patch",
    aliases: &[],
    usage: "(-f FILENAME | TYPE NAME) [-p PATCH|--patch-file FILE]",
    short: "Update fields of a resource",
    flags: &[
        sets::PRINT,
        sets::FILENAME,
        sets::DRY_RUN,
        sets::RECORD,
        sets::LOCAL,
        &[
            sets::field_manager("kubectl-patch"),
            Flag::string("patch", "", "The patch, as JSON or YAML.").short('p'),
            Flag::string("patch-file", "", "File with the patch."),
            Flag::string("subresource", "", "Part of the object to change."),
            Flag::string("type", "strategic", "Kind of patch: json, merge or strategic."),
        ],
    ],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation))),
};

fn read(invocation: &Invocation) -> Outcome<Value> {
    let flags = &invocation.flags;
    let (text, file) = (flags.text("patch"), flags.text("patch-file"));
    if !text.is_empty() && !file.is_empty() {
        return Err(Failure::message("cannot specify --patch and --patch-file together"));
    }
    if text.is_empty() && file.is_empty() {
        return Err(Failure::message("must specify --patch or --patch-file containing the contents of the patch"));
    }
    let bytes = if file.is_empty() {
        text.as_bytes().to_vec()
    } else {
        std::fs::read(invocation.session.environment.path(file)).map_err(|error| {
            Failure::Message(format!("unable to read patch file: {}", os_error("open", file, &error)))
        })?
    };
    // What begins as JSON is left to the server to judge.
    if bytes.trim_ascii_start().starts_with(b"{") && serde_json::from_slice::<Value>(&bytes).is_err() {
        return Ok(Value::String(String::from_utf8_lossy(&bytes).into_owned()));
    }
    let decoded = yaml::decode(&bytes, Limits::default());
    let decoded = decoded.map_err(|error| {
        let why = error.message.trim_start_matches("error converting YAML to JSON: ").to_owned();
        Failure::Message(format!("unable to parse {}: {why}", go_quote(text)))
    })?;
    Ok(decoded.value)
}

async fn run(invocation: &mut Invocation) -> Outcome {
    let writing = Writing::from_flags(&invocation.flags)?;
    let local = invocation.flags.is("local");
    let patch = read(invocation)?;
    let content_type = match invocation.flags.text("type").to_lowercase().as_str() {
        "json" => JSON_PATCH,
        "merge" => MERGE,
        "strategic" | "" => STRATEGIC,
        _ => {
            let given = go_quote(invocation.flags.text("type"));
            return Err(Failure::Message(format!("--type must be one of [json merge strategic], not {given}")));
        }
    };
    if local && !invocation.flags.arguments.is_empty() {
        return Err(Failure::message("cannot specify --local and server resources"));
    }
    if local && writing.dry_run == DryRun::Server {
        return Err(Failure::message("cannot specify --local and --dry-run=server - did you mean --dry-run=client?"));
    }
    let builder = Builder::from_flags(&invocation.session, &invocation.flags)?;
    let found = builder.infos(&invocation.session, &mut invocation.streams).await?;
    let mut errors = found.errors;
    let mut count = 0;
    for info in found.infos {
        count += 1;
        let answer = if local || writing.dry_run == DryRun::Client {
            locally(&info, content_type, patch.clone())
        } else {
            let api = invocation.session.api()?;
            writing.patch(&api, &info, content_type, &patch).await.map_err(|error| match error {
                Failure::Api(error) if error.code == 415 => {
                    let mapping = &info.mapping;
                    Failure::Message(format!(
                        "{content_type} is not supported by {}, Kind={}: {}",
                        mapping.api_version(),
                        mapping.kind,
                        error.message
                    ))
                }
                other => other,
            })
        };
        match answer {
            Ok(mut object) => {
                if let Some(note) = record::patch(invocation).filter(|_| !local && writing.dry_run != DryRun::Client) {
                    let whole = Writing { subresource: String::new(), ..writing.clone() };
                    object = whole.patch(&*invocation.session.api()?, &info, MERGE, &note).await?;
                }
                let done = if object == info.object { "patched (no change)" } else { "patched" };
                // Every object is one document of its own.
                Report::new(invocation, DryRun::No, false)?.say(invocation, &object, done)?;
            }
            Err(error) => errors.push(error),
        }
    }
    Failure::all(errors)?;
    if count == 0 {
        return Err(Failure::message("no objects passed to patch"));
    }
    Ok(())
}

fn locally(info: &Info, content_type: &str, patch: Value) -> Outcome<Value> {
    let mut object = info.object.clone();
    let failed = |error: machinery::patch::PatchError| Failure::Message(error.to_string());
    let mapping = &info.mapping;
    match (content_type, facts::type_of(&mapping.group, &mapping.version, &mapping.kind)) {
        (JSON_PATCH, _) => machinery::patch::json::apply(&mut object, &patch).map_err(failed)?,
        (STRATEGIC, Some(of)) => machinery::patch::strategic::apply(&mut object, patch, of.def()).map_err(failed)?,
        (STRATEGIC, None) => {
            return Err(Failure::Message(format!(
                "strategic merge patch is not supported for {}, Kind={} locally, try --type merge",
                mapping.api_version(),
                mapping.kind
            )));
        }
        _ => machinery::patch::merge::apply(&mut object, patch),
    }
    Ok(object)
}
