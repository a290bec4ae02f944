//! `kubectl label` and `kubectl annotate`: the same work on two maps of the metadata.

use machinery::names;
use machinery::status::go_quote;
use serde_json::{Map, Value, json};

use crate::command::{Command, Invocation};
use crate::error::{Failure, Outcome};
use crate::flags::{Flag, sets};
use crate::record;
use crate::report::Report;
use crate::resource::Builder;
use crate::resource::helper::{DryRun, MERGE, Writing};

static COMMON: &[Flag] = &[
    Flag::bool("list", "Show what is there."),
    Flag::bool("overwrite", "Change values that are there."),
    Flag::string("resource-version", "", "Change only this version of the object."),
];

pub static LABEL: Command = Command {
    name: "label",
    aliases: &[],
    usage: "[--overwrite] (-f FILENAME | TYPE NAME) KEY_1=VAL_1 ... KEY_N=VAL_N [--resource-version=version]",
    short: "Update the labels on a resource",
    flags: &[
        sets::PRINT,
        sets::FILENAME,
        sets::SELECTOR,
        sets::FIELD_SELECTOR,
        sets::ALL_NAMESPACES,
        sets::ALL,
        sets::LOCAL,
        sets::DRY_RUN,
        sets::RECORD,
        COMMON,
        &[sets::field_manager("kubectl-label")],
    ],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation, &LABELS))),
};

pub static ANNOTATE: Command = Command {
    name: "annotate",
    aliases: &[],
    usage: "[--overwrite] (-f FILENAME | TYPE NAME) KEY_1=VAL_1 ... KEY_N=VAL_N [--resource-version=version]",
    short: "Update the annotations on a resource",
    flags: &[
        sets::PRINT,
        sets::FILENAME_DEEP,
        sets::SELECTOR,
        sets::FIELD_SELECTOR,
        sets::ALL_NAMESPACES,
        sets::ALL,
        sets::LOCAL,
        sets::DRY_RUN,
        sets::RECORD,
        COMMON,
        &[sets::field_manager("kubectl-annotate")],
    ],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation, &ANNOTATIONS))),
};

/// What differs between the two.
struct What {
    field: &'static str,
    one: &'static str,
    file: &'static str,
}

const LABELS: What = What { field: "labels", one: "label", file: "pod" };
const ANNOTATIONS: What = What { field: "annotations", one: "annotation", file: "rsrc" };

#[derive(Debug, Default, PartialEq, Eq)]
struct Changes {
    set: Vec<(String, String)>,
    remove: Vec<String>,
}

/// Resources come first, changes after them.
fn split(arguments: &[String], one: &str) -> Result<(Vec<String>, Vec<String>), String> {
    let is_change =
        |word: &String| word.contains('=') && !word.starts_with('=') || (word.ends_with('-') && word.len() > 1);
    let at = arguments.iter().position(is_change).unwrap_or(arguments.len());
    let (resources, changes) = arguments.split_at(at);
    if let Some(late) = changes.iter().find(|word| !is_change(word)) {
        let _ = late;
        return Err(format!("all resources must be specified before {one} changes: {late}"));
    }
    Ok((resources.to_vec(), changes.to_vec()))
}

fn parse(words: &[String], what: &What) -> Result<Changes, String> {
    let mut changes = Changes::default();
    let label = what.one == "label";
    for word in words {
        match word.split_once('=') {
            Some((_, value)) if label && value.contains('=') => return Err(format!("invalid label spec: {word}")),
            Some((key, value)) => {
                let wrong = if label { names::is_label_value(value) } else { names::is_label_value("") };
                if !wrong.is_empty() {
                    return Err(format!("invalid label value: {}: {}", go_quote(word), wrong.join(";")));
                }
                changes.set.push((key.to_owned(), value.to_owned()));
            }
            None => changes.remove.push(word.trim_end_matches('-').to_owned()),
        }
    }
    let both: Vec<&str> = changes
        .remove
        .iter()
        .filter(|key| changes.set.iter().any(|(set, _)| set == *key))
        .map(String::as_str)
        .collect();
    if both.is_empty() {
        return Ok(changes);
    }
    Err(if label {
        "can not both modify and remove a label in the same command".to_owned()
    } else {
        format!("can not both modify and remove the following annotation(s) in the same command: {}", both.join(", "))
    })
}

fn validate(invocation: &Invocation, what: &What, resources: &[String], changes: &Changes) -> Outcome {
    let flags = &invocation.flags;
    let no_files = flags.list("filename").is_empty() && flags.text("kustomize").is_empty();
    let problem = if flags.is("list") && !flags.text("output").is_empty() {
        "--list and --output may not be specified together".to_owned()
    } else if flags.is("all") && !flags.text("selector").is_empty() {
        "cannot set --all and --selector at the same time".to_owned()
    } else if flags.is("all") && !flags.text("field-selector").is_empty() {
        "cannot set --all and --field-selector at the same time".to_owned()
    } else if flags.is("local") && DryRun::from_flags(flags)? == DryRun::Server {
        "cannot specify --local and --dry-run=server - did you mean --dry-run=client?".to_owned()
    } else if flags.is("local") && !resources.is_empty() {
        format!("can only use local files by -f {0}.yaml or --filename={0}.json when --local=true is set", what.file)
    } else if flags.is("local") && no_files {
        format!("one or more files must be specified as -f {0}.yaml or --filename={0}.json", what.file)
    } else if !flags.is("local") && resources.is_empty() && no_files {
        "one or more resources must be specified as <resource> <name> or <resource>/<name>".to_owned()
    } else if changes.set.is_empty() && changes.remove.is_empty() && !flags.is("list") {
        format!("at least one {} update is required", what.one)
    } else {
        return Ok(());
    };
    Err(Failure::Message(problem))
}

async fn run(invocation: &mut Invocation, what: &'static What) -> Outcome {
    let (resources, words) = split(&invocation.flags.arguments, what.one).map_err(Failure::Message)?;
    let changes = parse(&words, what).map_err(Failure::Message)?;
    validate(invocation, what, &resources, &changes)?;
    let writing = Writing::from_flags(&invocation.flags)?;
    let local = invocation.flags.is("local");
    let mut builder = Builder { latest: true, ..Builder::from_flags(&invocation.session, &invocation.flags)? };
    builder.arguments = resources;
    let found = builder.infos(&invocation.session, &mut invocation.streams).await?;
    let mut errors = found.errors;
    let version = invocation.flags.text("resource-version").to_owned();
    if !found.singular && !version.is_empty() {
        return Err(Failure::message("--resource-version may only be used with a single resource"));
    }
    let list = invocation.flags.is("list");
    for mut info in found.infos {
        let path = format!("metadata.{}", what.field);
        let before: Map<String, Value> =
            machinery::value::at(&info.object, &path).and_then(Value::as_object).cloned().unwrap_or_default();
        if !list && writing.dry_run == DryRun::No && !local && what.one == "label" {
            for key in changes.remove.iter().filter(|key| !before.contains_key(*key)) {
                invocation.say(&format!("label {} not found.", go_quote(key)))?;
            }
        }
        let (after, done) = match change(&before, &changes, invocation.flags.is("overwrite"), what) {
            Ok(changed) => changed,
            Err(mut wrong) => {
                errors.append(&mut wrong);
                continue;
            }
        };
        if list {
            show(invocation, &info, found.singular, &after, what)?;
            continue;
        }
        if after != before {
            if !local && writing.dry_run != DryRun::Client {
                let mut patch = json!({"metadata": {what.field: difference(&before, &after)}});
                record::note(invocation, &mut patch);
                if !version.is_empty() {
                    patch["metadata"]["resourceVersion"] = version.as_str().into();
                }
                let api = invocation.session.api()?;
                match writing.patch(&api, &info, MERGE, &patch).await {
                    Ok(object) => info.refresh(object),
                    Err(error) => {
                        errors.push(error);
                        continue;
                    }
                }
            } else {
                machinery::value::set(&mut info.object, &path, Value::Object(after));
            }
        }
        // Every object is one document of its own.
        Report::new(invocation, writing.dry_run, false)?.say(invocation, &info.object, done)?;
    }
    Failure::all(errors)
}

fn show(
    invocation: &mut Invocation,
    info: &crate::resource::Info,
    one: bool,
    map: &Map<String, Value>,
    what: &What,
) -> Outcome {
    if !one {
        let mapping = &info.mapping;
        invocation.say(&format!("Listing {} for {}.{}/{}:", what.field, mapping.kind, mapping.group, info.name))?;
    }
    let indent = if one { "" } else { " " };
    for (key, value) in map {
        invocation.say(&format!("{indent}{key}={}", value.as_str().unwrap_or_default()))?;
    }
    Ok(())
}

type Changed = (Map<String, Value>, &'static str);

/// The map afterwards, and what is said of it.
fn change(
    before: &Map<String, Value>,
    changes: &Changes,
    overwrite: bool,
    what: &What,
) -> Result<Changed, Vec<Failure>> {
    if !overwrite {
        let taken: Vec<(&str, &str)> = changes
            .set
            .iter()
            .filter_map(|(key, value)| {
                let known = before.get(key)?.as_str()?;
                (known != value).then_some((key.as_str(), known))
            })
            .collect();
        if !taken.is_empty() && what.one == "label" {
            let wrong = |(key, known): &(&str, &str)| {
                Failure::Message(format!("'{key}' already has a value ({known}), and --overwrite is false"))
            };
            return Err(taken.iter().map(wrong).collect());
        }
        if !taken.is_empty() {
            let all: Vec<String> =
                taken.iter().map(|(key, known)| format!("'{key}' already has a value ({known})")).collect();
            return Err(vec![Failure::Message(format!(
                "--overwrite is false but found the following declared annotation(s): {}",
                all.join("; ")
            ))]);
        }
    }
    let mut after = before.clone();
    let (mut added, mut removed) = (false, false);
    for (key, value) in &changes.set {
        let value = Value::from(value.as_str());
        added |= after.get(key) != Some(&value);
        after.insert(key.clone(), value);
    }
    for key in &changes.remove {
        removed |= after.remove(key).is_some();
    }
    let done = match (what.one == "label", added, removed) {
        (false, ..) => "annotated",
        (true, true, true) => "modified",
        (true, true, false) => "labeled",
        (true, false, true) => "unlabeled",
        (true, false, false) => "not labeled",
    };
    Ok((after, done))
}

/// A merge patch from one map to the other.
fn difference(before: &Map<String, Value>, after: &Map<String, Value>) -> Value {
    let mut patch = Map::new();
    for (key, value) in after.iter().filter(|(key, value)| before.get(*key) != Some(value)) {
        patch.insert(key.clone(), value.clone());
    }
    for key in before.keys().filter(|key| !after.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    Value::Object(patch)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn resources_come_before_changes() {
        assert_eq!(split(&own("pods a x=y z-"), "label"), Ok((own("pods a"), own("x=y z-"))));
        assert!(split(&own("pods x=y a"), "label").is_err());
        assert!(parse(&own("a=b a-"), &LABELS).is_err());
        assert!(parse(&own("a=b=c"), &LABELS).is_err());
        assert!(parse(&own("a=b=c"), &ANNOTATIONS).is_ok());
    }

    #[test]
    fn what_is_there_is_kept_unless_it_may_be_overwritten() {
        let before: Map<String, Value> = [("a".to_owned(), json!("1"))].into_iter().collect();
        let changes = |line: &str| parse(&own(line), &LABELS).expect("changes");
        let error = change(&before, &changes("a=2"), false, &LABELS).expect_err("refused");
        assert_eq!(error[0].render(), "error: 'a' already has a value (1), and --overwrite is false");
        assert_eq!(change(&before, &changes("a=2"), true, &LABELS).expect("changed").1, "labeled");
        assert_eq!(change(&before, &changes("a-"), false, &LABELS).expect("changed").1, "unlabeled");
        assert_eq!(change(&before, &changes("a=1"), false, &LABELS).expect("changed").1, "not labeled");
        let (after, done) = change(&before, &changes("b=2 a-"), false, &LABELS).expect("changed");
        assert_eq!((done, difference(&before, &after)), ("modified", json!({"a": null, "b": "2"})));
    }
}
