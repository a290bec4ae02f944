//! `kubectl diff`: what `apply` would change, shown by a diff of the user's.

use std::path::{Path, PathBuf};

use machinery::codec::yaml;
use machinery::value::text;
use serde_json::Value;

use super::apply;
use super::create::LAST_APPLIED;
use super::past::between;
use crate::command::{Command, Invocation};
use crate::error::{Failure, Outcome};
use crate::flags::{Flag, sets};
use crate::program;
use crate::resource::helper::{DryRun, Writing};
use crate::resource::{Builder, Info};

pub static COMMAND: Command = Command {
    name: "diff",
    aliases: &[],
    usage: "-f FILENAME",
    short: "Diff the live version against a would-be applied version",
    flags: &[
        sets::FILENAME,
        sets::SELECTOR,
        &[
            sets::field_manager("kubectl-client-side-apply"),
            Flag::int("concurrency", "1", "How many objects are compared at once."),
            Flag::bool("force-conflicts", "Take fields that others own."),
            Flag::string("from", "", "Compare how objects were: a revision, a time, or how long ago."),
            Flag::bool("prune", "Show what pruning would delete, too."),
            Flag::array("prune-allowlist", "Kinds to prune, as group/version/kind."),
            Flag::bool("server-side", "Let the server merge."),
            Flag::bool("show-managed-fields", "Compare metadata.managedFields, too."),
            Flag::bool("show-secrets", "Show what Secrets hold."),
            Flag::string("to", "now", "The later moment, with --from."),
        ],
    ],
    children: &[],
    run: Some(|invocation| {
        Box::pin(async move {
            // 1 says that something differs, so whatever goes wrong has another code.
            run(invocation).await.map_err(|failure| match failure {
                Failure::Exit(code) => Failure::Exit(code),
                Failure::WithCode(text, code) => Failure::WithCode(text, code.max(2)),
                other => Failure::WithCode(other.render(), 2),
            })
        })
    }),
};

/// How often an object that keeps changing is tried.
const MOST: usize = 4;

async fn run(invocation: &mut Invocation) -> Outcome {
    if between::asked(invocation) {
        return between::run(invocation).await;
    }
    let flags = &invocation.flags;
    if !flags.arguments.is_empty() {
        return Err(invocation.usage(format_args!("Unexpected args: [{}]", flags.arguments.join(" "))));
    }
    if flags.list("filename").is_empty() && flags.text("kustomize").is_empty() {
        return Err(Failure::message("must specify one of -f and -k"));
    }
    let server = flags.is("server-side");
    if flags.is("force-conflicts") && !server {
        return Err(Failure::message("--force-conflicts only works with --server-side"));
    }
    let mut writing = Writing { dry_run: DryRun::Server, ..Writing::from_flags(flags)? };
    if server && !flags.changed("field-manager") {
        "kubectl".clone_into(&mut writing.manager);
    }
    let builder = Builder::from_flags(&invocation.session, flags)?;
    let selector = builder.label_selector()?;
    let found = builder.infos(&invocation.session, &mut invocation.streams).await?;
    Failure::all(found.errors)?;
    let sides = Sides::new(&invocation.session.environment.variables)?;
    let fits = |info: &Info| {
        let labels = machinery::value::at(&info.object, "metadata.labels").unwrap_or(&Value::Null);
        builder.selector.is_empty() || selector.matches_labels(labels)
    };
    let mut compared = Vec::new();
    for info in found.infos.into_iter().filter(fits) {
        compared.push(compare(invocation, &writing, &sides, info).await?);
    }
    if invocation.flags.is("prune") {
        apply::warn_of_pruning(invocation);
        for (mapping, object) in apply::prunable(invocation, &builder, &compared).await? {
            sides.write(&sides.live, &file_name(&crate::resource::info(&mapping, object.clone(), "")), &object)?;
        }
    }
    show(invocation, &sides)
}

/// Two directories: what is, and what would be. They go when this does.
pub(super) struct Sides {
    pub(super) live: PathBuf,
    pub(super) merged: PathBuf,
}

impl Sides {
    pub(super) fn new(variables: &std::collections::BTreeMap<String, String>) -> Outcome<Self> {
        let base = variables.get("TMPDIR").filter(|base| !base.is_empty());
        let base = base.map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
        let sides = Self { live: unique(&base, "LIVE-")?, merged: unique(&base, "MERGED-")? };
        Ok(sides)
    }

    pub(super) fn write(&self, side: &Path, name: &str, object: &Value) -> Outcome {
        let text = if object.is_null() { String::new() } else { yaml::encode(object) };
        Ok(std::fs::write(side.join(name), text)?)
    }
}

impl Drop for Sides {
    fn drop(&mut self) {
        for side in [&self.live, &self.merged] {
            // What is left behind is in the directory for temporary files.
            let _ = std::fs::remove_dir_all(side);
        }
    }
}

/// A new directory that nobody else has.
fn unique(base: &Path, prefix: &str) -> Outcome<PathBuf> {
    use std::os::unix::fs::DirBuilderExt as _;
    loop {
        let path = base.join(format!("{prefix}{}", super::random_number()));
        match std::fs::DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                let shown = path.display().to_string();
                return Err(Failure::Message(crate::error::os_error("mkdir", &shown, &error)));
            }
        }
    }
}

pub(super) fn file_name(info: &Info) -> String {
    let mapping = &info.mapping;
    let group = if mapping.group.is_empty() { String::new() } else { format!("{}.", mapping.group) };
    format!("{group}{}.{}.{}.{}", mapping.version, mapping.kind, info.namespace, info.name)
}

/// Writes both versions of an object; the object as it is, for pruning.
async fn compare(invocation: &mut Invocation, writing: &Writing, sides: &Sides, info: Info) -> Outcome<Info> {
    if info.name.is_empty() {
        return Err(Failure::message("resource name may not be empty"));
    }
    let api = invocation.session.api()?;
    let mut tries = 0;
    let (live, merged) = loop {
        tries += 1;
        let live = match api.get(&info.path()).await {
            Ok(object) => object,
            Err(error) if error.is_not_found() => Value::Null,
            Err(error) => return Err(error),
        };
        match merged(invocation, writing, &info, &live, tries < MOST).await {
            Ok(merged) => break (live, merged),
            Err(error) if error.is(machinery::status::Reason::Conflict) && tries < MOST => {}
            Err(error) => return Err(error),
        }
    };
    if !text(&live, "metadata.deletionTimestamp").is_empty() {
        let name = info.name.clone();
        invocation
            .streams
            .error(&format!("Warning: Detected changes to resource {name} which is currently being deleted."));
    }
    let (mut from, mut to) = (live.clone(), merged);
    if !invocation.flags.is("show-managed-fields") {
        for object in [&mut from, &mut to] {
            machinery::value::remove(object, "metadata.managedFields");
        }
    }
    let masked = !invocation.flags.is("show-secrets") && info.mapping.kind == "Secret" && info.mapping.version == "v1";
    if masked {
        mask(&mut from, &mut to);
    }
    let name = file_name(&info);
    if from.is_null() && masked {
        // Upstream hides what is in nothing, too, and writes what is left of it.
        std::fs::write(sides.live.join(&name), "null\n")?;
    } else {
        sides.write(&sides.live, &name, &from)?;
    }
    sides.write(&sides.merged, &name, &to)?;
    Ok(Info { object: live, ..info })
}

/// What the server would make of it.
async fn merged(invocation: &Invocation, writing: &Writing, info: &Info, live: &Value, locked: bool) -> Outcome<Value> {
    let api = invocation.session.api()?;
    if invocation.flags.is("server-side") {
        return writing.apply(&api, info, &info.object, invocation.flags.is("force-conflicts")).await;
    }
    if live.is_null() {
        return writing.create(&api, info).await;
    }
    // What is remembered of an apply is no difference that anybody looks for.
    let mut modified = info.object.clone();
    machinery::value::set_default(&mut modified, "metadata.annotations", Value::Object(serde_json::Map::new()));
    if let Some(Value::Object(all)) = machinery::value::at_mut(&mut modified, "metadata.annotations") {
        all.remove(LAST_APPLIED);
    }
    let original = machinery::value::at(live, "metadata.annotations").and_then(|all| all.get(LAST_APPLIED));
    let original: Value =
        original.and_then(Value::as_str).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let (content_type, mut patch) = apply::plan(info, &original, &modified, live);
    if patch.as_object().is_some_and(serde_json::Map::is_empty) {
        return Ok(live.clone());
    }
    if locked {
        machinery::value::set(&mut patch, "metadata.resourceVersion", text(live, "metadata.resourceVersion"));
    }
    writing.patch(&api, info, content_type, &patch).await
}

/// Hides what a Secret holds, but not whether it changed.
pub(super) fn mask(from: &mut Value, to: &mut Value) {
    const SAME: &str = "***";
    let before = from.get("data").and_then(Value::as_object).cloned().unwrap_or_default();
    let after = to.get("data").and_then(Value::as_object).cloned().unwrap_or_default();
    let hide = |object: &mut Value, other: &serde_json::Map<String, Value>, changed: &str| {
        let Some(Value::Object(data)) = object.get_mut("data") else { return };
        for (key, value) in data.iter_mut() {
            let differs = other.get(key).is_some_and(|other| other != value);
            *value = if differs { changed } else { SAME }.into();
        }
    };
    hide(from, &after, "*** (before)");
    hide(to, &before, "*** (after)");
}

/// The program that compares, and its arguments before the two directories or after them.
fn differ(external: Option<&str>, live: &str, merged: &str) -> (String, Vec<String>) {
    let Some(external) = external else {
        return ("diff".to_owned(), ["-u", "-N", live, merged].map(str::to_owned).to_vec());
    };
    let mut words = external.split(' ');
    let program = words.next().unwrap_or_default().to_owned();
    let plain = |word: &&str| {
        !word.is_empty() && word.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '='))
    };
    let mut arguments = vec![live.to_owned(), merged.to_owned()];
    arguments.extend(words.filter(plain).map(str::to_owned));
    (program, arguments)
}

pub(super) fn show(invocation: &mut Invocation, sides: &Sides) -> Outcome {
    let environment = invocation.session.environment.clone();
    let shown = |path: &Path| path.display().to_string();
    let external = environment.variable("KUBECTL_EXTERNAL_DIFF");
    let (program, arguments) = differ(external, &shown(&sides.live), &shown(&sides.merged));
    match program::run(&environment, &mut invocation.streams, Path::new(&program), &arguments) {
        Ok(0) => Ok(()),
        Ok(1) => Err(Failure::Exit(1)),
        Ok(code) => Err(Failure::Message(format!("failed to run {program:?}: exit status {code}"))),
        Err(why) => {
            let why = why.trim_start_matches(&format!("exec: {program:?}: "));
            Err(Failure::Message(format!("failed to run {program:?}: {why}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_show_only_that_they_changed() {
        let mut from = json!({"data": {"a": "1", "b": "2", "c": "3"}});
        let mut to = json!({"data": {"a": "1", "b": "4", "d": "5"}});
        mask(&mut from, &mut to);
        assert_eq!(from, json!({"data": {"a": "***", "b": "*** (before)", "c": "***"}}));
        assert_eq!(to, json!({"data": {"a": "***", "b": "*** (after)", "d": "***"}}));
    }

    #[test]
    fn another_program_gets_plain_arguments_only() {
        let own = |list: &[&str]| list.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        assert_eq!(differ(None, "l", "m"), ("diff".to_owned(), own(&["-u", "-N", "l", "m"])));
        assert_eq!(
            differ(Some("colordiff -N -u ;rm"), "l", "m"),
            ("colordiff".to_owned(), own(&["l", "m", "-N", "-u"]))
        );
    }
}
