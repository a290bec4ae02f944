//! `kubectl edit`, `kubectl create --edit` and `kubectl apply edit-last-applied`: objects in the user's editor, until what comes
//! out of it is accepted or given up.

mod text;

use std::path::{Path, PathBuf};

use machinery::codec::yaml;
use machinery::status::Reason;
use serde_json::{Value, json};

use super::create::{LAST_APPLIED, remember};
use crate::command::{Command, Environment, Invocation};
use crate::error::{Failure, Outcome};
use crate::flags::{Flag, sets};
use crate::report::Report;
use crate::resource::helper::{DryRun, MERGE, STRATEGIC, Writing};
use crate::resource::{Builder, Info, files};
use crate::{patch, print, program};
use text::Reason as Complaint;

pub static COMMAND: Command = Command {
    name: "edit",
    aliases: &[],
    usage: "(RESOURCE/NAME | -f FILENAME)",
    short: "Edit a resource on the server",
    flags: &[
        sets::PRINT,
        sets::FILENAME,
        sets::VALIDATE,
        sets::SAVE_CONFIG,
        &[
            sets::field_manager("kubectl-edit"),
            Flag::bool("output-patch", "Show the patch."),
            Flag::string("subresource", "", "Part of the object to edit."),
            Flag::bool("windows-line-endings", "End lines as Windows does."),
        ],
    ],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation))),
};

pub static LAST: Command = Command {
    name: "edit-last-applied",
    aliases: &[],
    usage: "(RESOURCE/NAME | -f FILENAME)",
    short: "Edit latest last-applied-configuration annotations of a resource/object",
    flags: &[
        sets::PRINT,
        sets::FILENAME,
        sets::VALIDATE,
        &[
            sets::field_manager("kubectl-client-side-apply"),
            Flag::bool("windows-line-endings", "End lines as Windows does."),
        ],
    ],
    children: &[],
    run: Some(|invocation| Box::pin(edit_last_applied(invocation))),
};

/// What becomes of an object that was edited.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Patch,
    Annotate,
    Create,
}

async fn infos(invocation: &mut Invocation) -> Outcome<Vec<Info>> {
    let builder = Builder {
        latest: true,
        types_mean_all: true,
        validates: false,
        ..Builder::from_flags(&invocation.session, &invocation.flags)?
    };
    builder.infos(&invocation.session, &mut invocation.streams).await?.all()
}

async fn run(invocation: &mut Invocation) -> Outcome {
    let infos = infos(invocation).await?;
    if infos.is_empty() {
        return Err(Failure::message("edit cancelled, no objects found"));
    }
    session(invocation, infos, Mode::Patch).await
}

async fn edit_last_applied(invocation: &mut Invocation) -> Outcome {
    let mut remembered = Vec::new();
    for info in infos(invocation).await? {
        let last = machinery::value::at(&info.object, "metadata.annotations").and_then(|all| all.get(LAST_APPLIED));
        if let Some(last) = last.and_then(Value::as_str) {
            let object = serde_json::from_str(last).map_err(|error| Failure::Message(error.to_string()))?;
            remembered.push(Info { object, ..info });
        }
    }
    if remembered.is_empty() {
        return Err(Failure::message(
            "no last-applied-configuration annotation found on resources, to create the annotation, use command `kubectl apply set-last-applied --create-annotation`",
        ));
    }
    session(invocation, remembered, Mode::Annotate).await
}

/// Objects that are edited before they are made, one after the other.
pub async fn before_create(invocation: &mut Invocation, infos: Vec<Info>) -> Outcome {
    for info in infos {
        session(invocation, vec![info], Mode::Create).await?;
    }
    Ok(())
}

/// What was wrong with what was saved.
#[derive(Default)]
struct Results {
    complaints: Vec<Complaint>,
    retryable: usize,
    missing: usize,
}

/// Opens the editor until what is saved is taken, or the user gives up.
async fn session(invocation: &mut Invocation, infos: Vec<Info>, mode: Mode) -> Outcome {
    if mode != Mode::Create {
        known_format(invocation.flags.text("output"))?;
    }
    let as_json = invocation.flags.text("output") == "json";
    let original = shown(&infos, as_json);
    let mut results = Results::default();
    let mut edited = String::new();
    let mut last: Option<PathBuf> = None;
    loop {
        let retried = !results.complaints.is_empty();
        let body = if retried { text::without_leading_comments(&edited) } else { original.clone() };
        let header = if as_json { String::new() } else { text::header(mode == Mode::Annotate, &results.complaints) };
        let mut content = header + &body;
        if invocation.flags.is("windows-line-endings") {
            content = content.replace('\n', "\r\n");
        }
        let file = launch(invocation, &content, if as_json { ".json" } else { ".yaml" });
        let file = file.map_err(|error| preserved(invocation, error, last.as_deref()))?;
        let before = std::mem::take(&mut edited);
        edited = std::fs::read_to_string(&file)?.replace("\r\n", "\n");
        if retried && text::without_comments(&before) == text::without_comments(&edited) {
            let given_up = Failure::message("Edit cancelled, no valid changes were saved.");
            return Err(preserved(invocation, given_up, Some(&file)));
        }
        if let Some(earlier) = last.take() {
            let _ = std::fs::remove_file(earlier);
        }
        if text::without_comments(&original) == text::without_comments(&edited) {
            let _ = std::fs::remove_file(&file);
            invocation.streams.error("Edit cancelled, no changes made.");
            return Ok(());
        }
        if !text::has_lines(&edited) {
            let _ = std::fs::remove_file(&file);
            invocation.streams.error("Edit cancelled, saved file was empty.");
            return Ok(());
        }
        results = Results::default();
        last = Some(file.clone());
        match files::from_text(&invocation.session, edited.as_bytes(), "edited-file").await {
            Err(error) => {
                let first = &infos[0];
                let told = format!("error: {} {:?} is invalid", first.mapping.qualified(), first.name);
                invocation.streams.error(&told);
                let head = format!("The edited file had a syntax error: {}", error.bare());
                results.complaints.push(Complaint { head, other: Vec::new() });
            }
            Ok(updated) => {
                let done = take(invocation, &infos, updated, mode, &mut results).await;
                done.map_err(|error| preserved(invocation, error, Some(&file)))?;
            }
        }
        let shown = file.display().to_string();
        if results.retryable > 0 {
            invocation.streams.error(&format!("You can run `kubectl replace -f {shown}` to try this update again."));
            return Err(Failure::Exit(1));
        }
        if results.missing > 0 {
            invocation.streams.error(&format!("The edits you made on deleted resources have been saved to {shown:?}"));
            return Err(Failure::Exit(1));
        }
        if results.complaints.is_empty() {
            let _ = std::fs::remove_file(&file);
            return Ok(());
        }
    }
}

/// Refuses formats that nobody edits. Before an object is made, `-o` is about what is said of it.
fn known_format(output: &str) -> Outcome {
    if matches!(output.to_lowercase().as_str(), "" | "json" | "yaml" | "kyaml") {
        return Ok(());
    }
    let output = machinery::status::go_quote(output);
    Err(Failure::Message(format!(
        "unable to match a printer suitable for the output format {output}, allowed formats are: json,kyaml,yaml"
    )))
}

/// The objects as the editor shows them; several are a list.
fn shown(infos: &[Info], as_json: bool) -> String {
    let clean = |info: &Info| {
        let mut object = info.object.clone();
        machinery::value::remove(&mut object, "metadata.managedFields");
        object
    };
    let object = match infos {
        [one] => clean(one),
        many => {
            let items: Vec<Value> = many.iter().map(clean).collect();
            json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items})
        }
    };
    if as_json { print::json::indented(&object) + "\n" } else { yaml::encode(&object) }
}

/// Says where the user's work is kept.
fn preserved(invocation: &mut Invocation, error: Failure, file: Option<&Path>) -> Failure {
    if let Some(file) = file.filter(|file| file.exists()) {
        let shown = file.display().to_string();
        invocation.streams.error(&format!("A copy of your changes has been stored to {shown:?}"));
    }
    error
}

/// The user's editor and its arguments, and whether the last of them is a script for a shell.
fn editor(environment: &Environment) -> (Vec<String>, bool) {
    let editor = environment.variable("KUBE_EDITOR").or_else(|| environment.variable("EDITOR")).unwrap_or("vi");
    if !editor.contains(['"', '\'', '\\']) {
        return (editor.split(' ').map(str::to_owned).collect(), false);
    }
    let shell = environment.variable("SHELL").unwrap_or("/bin/bash");
    (vec![shell.to_owned(), "-c".to_owned(), editor.to_owned()], true)
}

/// Writes a file and opens it in the editor.
fn launch(invocation: &mut Invocation, content: &str, extension: &str) -> Outcome<PathBuf> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let environment = invocation.session.environment.clone();
    let base = PathBuf::from(environment.variable("TMPDIR").unwrap_or("/tmp"));
    let path = base.join(format!("kubectl-edit-{}{extension}", super::random_number()));
    // It may hold secrets.
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    file.write_all(content.as_bytes())?;
    drop(file);
    let (words, script) = editor(&environment);
    let named = words.join(" ");
    let (program, arguments) = words.split_first().expect("there is always an editor");
    let mut arguments = arguments.to_vec();
    let shown = path.display().to_string();
    match arguments.last_mut().filter(|_| script) {
        // A shell gets the file as a part of its script.
        Some(script) => *script = format!("{script} {shown:?}"),
        None => arguments.push(shown),
    }
    match program::run(&environment, &mut invocation.streams, Path::new(program), &arguments) {
        Ok(0) => Ok(path),
        Err(why) if why.contains("not found") => {
            Err(Failure::Message(format!("unable to launch the editor {named:?}")))
        }
        Ok(_) | Err(_) => Err(Failure::Message(format!("there was a problem with the editor {named:?}"))),
    }
}

/// Takes what was saved: patches, remembers or creates.
async fn take(
    invocation: &mut Invocation,
    originals: &[Info],
    updated: Vec<Info>,
    mode: Mode,
    results: &mut Results,
) -> Outcome {
    let writing = Writing::from_flags(&invocation.flags)?;
    for mut info in updated {
        crate::resource::settle(&mut info, &invocation.session.namespace()?, false)?;
        if invocation.flags.is("save-config") {
            remember(&mut info.object);
        }
        let api = invocation.session.api()?;
        if mode == Mode::Create {
            let made = writing.create(&api, &info).await?;
            Report::new(invocation, DryRun::No, false)?.say(invocation, &made, "created")?;
            continue;
        }
        let uid = |info: &Info| machinery::value::text(&info.object, "metadata.uid").to_owned();
        let Some(original) = originals.iter().find(|original| uid(original) == uid(&info)) else {
            return Err(Failure::Message(format!("no original object found for {}", info.named())));
        };
        let mut before = original.object.clone();
        machinery::value::remove(&mut before, "metadata.managedFields");
        if before == info.object {
            Report::new(invocation, DryRun::No, false)?.say(invocation, &info.object, "skipped")?;
            continue;
        }
        let (content_type, patch) = match mode {
            Mode::Annotate => {
                let text = machinery::codec::json::html_safe(&info.object.to_string()) + "\n";
                (MERGE, json!({"metadata": {"annotations": {LAST_APPLIED: text}}}))
            }
            _ => difference(&info, &before)?,
        };
        if invocation.flags.is("output-patch") {
            invocation.say(&format!("Patch: {patch}"))?;
        }
        match writing.patch(&api, &info, content_type, &patch).await {
            Ok(object) => {
                info.refresh(object);
                Report::new(invocation, DryRun::No, false)?.say(invocation, &info.object, "edited")?;
            }
            Err(error) if mode == Mode::Annotate => return Err(error),
            Err(error) => {
                let line = complain(results, &info, &error);
                invocation.streams.error(&line);
            }
        }
    }
    Ok(())
}

/// The patch from what was to what was saved.
fn difference(info: &Info, before: &Value) -> Outcome<(&'static str, Value)> {
    let same = |path: &str| machinery::value::at(before, path) == machinery::value::at(&info.object, path);
    if !same("apiVersion") || !same("kind") || !same("metadata.name") {
        return Err(Failure::message("At least one of apiVersion, kind and name was changed"));
    }
    Ok(match facts::type_of(&info.mapping.group, &info.mapping.version, &info.mapping.kind) {
        // From a version to itself nothing was removed by others.
        Some(of) => (STRATEGIC, patch::strategic(before, &info.object, before, of.def())),
        None => (MERGE, patch::difference(before, &info.object)),
    })
}

/// Notes what the server had against an object, and says so.
fn complain(results: &mut Results, info: &Info, error: &Failure) -> String {
    let (resource, name) = (info.mapping.qualified(), &info.name);
    match error {
        Failure::Api(status) if status.is(Reason::Invalid) => {
            let causes = status.details.as_ref().map_or(&[][..], |details| &details.causes[..]);
            let other = causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
            results.complaints.push(Complaint { head: format!("{resource} {name:?} was not valid"), other });
            format!("error: {resource} {name:?} is invalid")
        }
        error if error.is_not_found() => {
            results.missing += 1;
            format!("error: {resource} {name:?} could not be found on the server")
        }
        error => {
            results.retryable += 1;
            format!("error: {resource} {name:?} could not be patched: {}", error.bare())
        }
    }
}
