//! `kubectl apply view-last-applied` and `set-last-applied`.

use machinery::codec::yaml;
use serde_json::{Value, json};

use super::super::create::LAST_APPLIED;
use crate::command::{Command, Invocation};
use crate::error::{Failure, Outcome};
use crate::flags::{Flag, sets};
use crate::print::json;
use crate::report::Report;
use crate::resource::helper::{DryRun, MERGE, Writing};
use crate::resource::{Builder, Info, arguments};

pub static VIEW: Command = Command {
    name: "view-last-applied",
    aliases: &[],
    usage: "(TYPE [NAME | -l label] | TYPE/NAME | -f FILENAME)",
    short: "View the latest last-applied-configuration annotations of a resource/object",
    flags: &[
        sets::FILENAME,
        sets::SELECTOR,
        sets::ALL,
        &[Flag::string("output", "yaml", "Output format: yaml or json.").short('o')],
    ],
    children: &[],
    run: Some(|invocation| Box::pin(view(invocation))),
};

pub static SET: Command = Command {
    name: "set-last-applied",
    aliases: &[],
    usage: "-f FILENAME",
    short: "Set the last-applied-configuration annotation on a live object to match the contents of a file",
    flags: &[
        sets::PRINT,
        sets::FILENAME,
        sets::DRY_RUN,
        &[Flag::bool("create-annotation", "Make the annotation where it is missing.")],
    ],
    children: &[],
    run: Some(|invocation| Box::pin(set(invocation))),
};

/// What was applied last.
fn remembered(info: &Info) -> Option<Value> {
    let text = machinery::value::at(&info.object, "metadata.annotations")?.get(LAST_APPLIED)?.as_str()?;
    serde_json::from_str(text).ok()
}

async fn infos(invocation: &mut Invocation) -> Outcome<Vec<Info>> {
    let flags = Builder::from_flags(&invocation.session, &invocation.flags)?;
    let builder = Builder { latest: true, ends_at_first: true, enforce_namespace: false, ..flags };
    builder.infos(&invocation.session, &mut invocation.streams).await?.all()
}

async fn view(invocation: &mut Invocation) -> Outcome {
    let output = invocation.flags.text("output").to_owned();
    if !matches!(output.as_str(), "yaml" | "json") {
        if invocation.flags.arguments.is_empty() && invocation.flags.list("filename").is_empty() {
            return Err(Failure::message(crate::resource::arguments::MISSING));
        }
        let text = format!("Unexpected -o output mode: {output}, the flag 'output' must be one of yaml|json");
        return Err(invocation.usage(text));
    }
    for info in infos(invocation).await? {
        let Some(last) = remembered(&info) else { continue };
        let text =
            if output == "json" { json::indented(&last).replace("    ", "  ") + "\n" } else { yaml::encode(&last) };
        invocation.print(&text)?;
    }
    Ok(())
}

/// The annotation of an object as its file has it: `apply` adds an empty map of annotations, this does not.
fn as_it_is(object: &Value) -> String {
    machinery::codec::json::html_safe(&object.to_string()) + "\n"
}

async fn set(invocation: &mut Invocation) -> Outcome {
    let writing = Writing::from_flags(&invocation.flags)?;
    let builder = Builder::from_flags(&invocation.session, &invocation.flags)?;
    if builder.has_no_files() {
        return Err(Failure::message(arguments::MISSING));
    }
    let found = builder.infos(&invocation.session, &mut invocation.streams).await?.all()?;
    let mut report = Report::new(invocation, writing.dry_run, false)?;
    for mut info in found {
        let api = invocation.session.api()?;
        let wanted = Some(Value::from(as_it_is(&info.object)));
        let current = api.get(&info.path()).await?;
        let known = machinery::value::at(&current, "metadata.annotations").and_then(|all| all.get(LAST_APPLIED));
        if known.is_none() && !invocation.flags.is("create-annotation") {
            let name = &info.name;
            return Err(Failure::Message(format!(
                "no last-applied-configuration annotation found on resource: {name}, to create the annotation, run the command with --create-annotation"
            )));
        }
        if known == wanted.as_ref() {
            invocation.say(&format!("set-last-applied {}: no changes required.", info.name))?;
            continue;
        }
        info.refresh(current);
        if writing.dry_run != DryRun::Client {
            let patch = json!({"metadata": {"annotations": {LAST_APPLIED: wanted}}});
            let object = writing.patch(&api, &info, MERGE, &patch).await?;
            info.refresh(object);
        }
        report.say(invocation, &info.object, "configured")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_added_to_what_the_file_has() {
        let object = json!({"kind": "ConfigMap", "metadata": {"name": "<a>"}});
        assert_eq!(as_it_is(&object), "{\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"\\u003ca\\u003e\"}}\n");
    }
}
