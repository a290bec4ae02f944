//! `kubectl set`: single things of objects that are there.

mod env;
mod image;
mod resolve;
mod resources;
mod selector;
mod subject;
mod typed;

use serde_json::Value;

use crate::command::{Command, Invocation};
use crate::error::{Failure, Outcome};
use crate::flags::{Flag, sets};
use crate::record;
use crate::report::Report;
use crate::resource::arguments::ONLY_FILES;
use crate::resource::helper::{DryRun, MERGE, STRATEGIC, Writing};
use crate::resource::{Builder, Info};

pub static COMMAND: Command = Command {
    name: "set",
    aliases: &[],
    usage: "SUBCOMMAND",
    short: "Set specific features on objects",
    flags: &[],
    children: &[
        &env::COMMAND,
        &image::COMMAND,
        &resources::COMMAND,
        &selector::COMMAND,
        &selector::SERVICE_ACCOUNT,
        &subject::COMMAND,
    ],
    run: None,
};

/// Flags of every one of them.
static COMMON: &[Flag] = &[
    sets::field_manager("kubectl-set"),
    Flag::bool("all", "Every object of the given types."),
    Flag::bool("local", "Ask no server; work on files alone."),
];

/// The pod spec of an object: its own, or that of its template.
fn pod_spec(info: &mut Info) -> Result<&mut Value, String> {
    let path = match info.mapping.kind.as_str() {
        "Pod" => "spec",
        "CronJob" => "spec.jobTemplate.spec.template.spec",
        "Deployment" | "ReplicaSet" | "DaemonSet" | "StatefulSet" | "Job" | "ReplicationController" => {
            "spec.template.spec"
        }
        _ => "",
    };
    let what = format!(
        "{}/{} the object is not a pod or does not have a pod template: *{}.{}",
        resource(info),
        info.name,
        info.mapping.version,
        info.mapping.kind
    );
    if path.is_empty() {
        return Err(what);
    }
    machinery::value::at_mut(&mut info.object, path).ok_or(what)
}

/// What messages call the resource of an object. Without a server it goes by its kind.
fn resource(info: &Info) -> String {
    let known = &info.mapping;
    if known.verbs.is_empty() { known.kind.to_lowercase() } else { known.resource.clone() }
}

/// Changes each object with `change`, and sends what is different. What is `wrong` with the wanted change is said once the objects
/// were found.
async fn apply(
    invocation: &mut Invocation,
    arguments: Vec<String>,
    wrong: Option<String>,
    (done, failed): (&str, &str),
    change: impl Fn(&mut Info) -> Result<(), Vec<String>>,
) -> Outcome {
    let writing = Writing::from_flags(&invocation.flags)?;
    let local = invocation.flags.is("local");
    if local && writing.dry_run == DryRun::Server {
        return Err(Failure::message("cannot specify --local and --dry-run=server - did you mean --dry-run=client?"));
    }
    let mut builder = Builder { latest: true, ..Builder::from_flags(&invocation.session, &invocation.flags)? };
    if local && builder.has_no_files() {
        let anything = matches!(invocation.command.name, "env" | "serviceaccount");
        return Err(Failure::message(if anything { crate::resource::arguments::MISSING } else { ONLY_FILES }));
    }
    builder.arguments = arguments;
    let found = builder.infos(&invocation.session, &mut invocation.streams).await?;
    if let Some(wrong) = wrong {
        found.all()?;
        return Err(Failure::Message(wrong));
    }
    let mut errors = found.errors;
    let mut report = Report::new(invocation, writing.dry_run, true)?;
    for mut info in found.infos {
        let before = info.object.clone();
        if let Err(wrong) = change(&mut info) {
            errors.extend(wrong.into_iter().map(Failure::Message));
            continue;
        }
        record::note(invocation, &mut info.object);
        let remote = !local && writing.dry_run != DryRun::Client;
        let says_so_all_the_same = matches!(invocation.command.name, "serviceaccount" | "selector");
        if info.object == before && !says_so_all_the_same {
            continue;
        }
        if remote {
            let builtin = facts::type_of(&info.mapping.group, &info.mapping.version, &info.mapping.kind);
            let (content_type, patch) = match builtin {
                Some(of) => (STRATEGIC, crate::patch::strategic(&before, &info.object, &before, of.def())),
                None => (MERGE, crate::patch::difference(&before, &info.object)),
            };
            let api = invocation.session.api()?;
            match writing.patch(&api, &info, content_type, &patch).await {
                Ok(object) => info.refresh(object),
                Err(error) => {
                    // Without words of its own, what the server said is told as it is.
                    let told = format!("{failed} {}", error.bare());
                    errors.push(if failed.is_empty() { error } else { Failure::Message(told) });
                    continue;
                }
            }
        }
        if local {
            typed::fill(&mut info.object);
        }
        report.say(invocation, &info.object, done)?;
    }
    Failure::all(errors)
}

/// Whether a container's name fits a pattern of `*`.
fn fits(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((head, tail)) => name.len() >= head.len() + tail.len() && name.starts_with(head) && name.ends_with(tail),
    }
}

/// The containers of a pod spec whose names fit, with those that run before them.
fn containers<'a>(spec: &'a mut Value, pattern: &'a str, init: bool) -> Vec<&'a mut Value> {
    let Value::Object(fields) = spec else { return Vec::new() };
    let lists = fields.iter_mut().filter(|(key, _)| *key == "containers" || (init && *key == "initContainers"));
    lists
        .flat_map(|(_, list)| list.as_array_mut().into_iter().flatten())
        .filter(|container| fits(pattern, machinery::value::text(container, "name")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn patterns_fit_names() {
        for (pattern, name, expected) in
            [("*", "a", true), ("a*", "ab", true), ("*b", "ab", true), ("a", "ab", false), ("a*a", "a", false)]
        {
            assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
        }
    }
}
