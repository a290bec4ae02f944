//! `kubectl history`: every change that is kept of an object or of a kind's objects, with when, who and which fields.

use machinery::value::{int, list, text};
use serde_json::{Value, json};

use crate::command::{Command, Invocation};
use crate::discovery::query;
use crate::error::{Failure, Outcome};
use crate::flags::{Flag, sets};
use crate::print::tabs::Tabs;
use crate::resource::{Builder, Target, arguments};

pub static COMMAND: Command = Command {
    name: "history",
    aliases: &[],
    usage: "(TYPE NAME | TYPE/NAME | TYPE)",
    short: "Show what changed, when and by whom",
    flags: &[
        sets::ALL_NAMESPACES,
        &[
            Flag::string("from", "", "Only what came after: a revision, a time, or how long ago."),
            Flag::string("to", "", "Only what came until then."),
            Flag::int("limit", "50", "How many changes, the newest; 0 for all that are kept."),
            Flag::bool("no-headers", "Print no headers."),
            Flag::string("output", "", "json for everything that is known, wide for every field; a table otherwise.")
                .short('o'),
        ],
    ],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation))),
};

/// Changes asked for at once.
const PAGE: i64 = 500;
/// Fields in a line.
const FIELDS: usize = 2;

async fn run(invocation: &mut Invocation) -> Outcome {
    let output = invocation.flags.text("output").to_owned();
    if !matches!(output.as_str(), "" | "json" | "wide") {
        return Err(invocation.usage(format_args!("--output accepts only json and wide, not {output}")));
    }
    let mut builder = Builder::from_flags(&invocation.session, &invocation.flags)?;
    builder.types_mean_all = true;
    let mut items = Vec::new();
    let (mut oldest, mut several) = (Value::Null, false);
    for target in arguments::targets(&builder, &invocation.session).await? {
        several |= target.name.is_none();
        let (more, from) = changes(invocation, &target).await?;
        items.extend(more);
        oldest = from;
    }
    if output == "json" {
        let list = json!({"kind": "ChangeList", "apiVersion": "trireme.io/v1", "oldest": oldest, "items": items});
        return invocation.print(&format!("{list:#}\n"));
    }
    if items.is_empty() {
        let since = text(&oldest, "resourceVersion");
        invocation.streams.error(&format!("Nothing changed since revision {since}, which is the oldest that is kept."));
        return Ok(());
    }
    let lines = lines(&items, several, output == "wide", !invocation.flags.is("no-headers"));
    invocation.print(&Tabs::new().align(&lines))
}

/// The changes of an object or of a collection, newest first, and where history begins.
async fn changes(invocation: &Invocation, target: &Target) -> Outcome<(Vec<Value>, Value)> {
    let flags = &invocation.flags;
    let most = usize::try_from(flags.int("limit")).ok().filter(|most| *most > 0).unwrap_or(usize::MAX);
    let api = invocation.session.api()?;
    let path = target.mapping.path(&target.namespace, target.name.as_deref().unwrap_or_default(), "");
    let (mut items, mut next) = (Vec::new(), String::new());
    loop {
        let left = i64::try_from(most - items.len()).unwrap_or(PAGE).min(PAGE).to_string();
        let asked = query(&[
            ("changes", "true"),
            ("from", flags.text("from")),
            ("to", flags.text("to")),
            ("limit", &left),
            ("continue", &next),
        ]);
        let answer = api.get(&format!("{path}{asked}")).await?;
        if text(&answer, "kind") != "ChangeList" {
            return Err(Failure::message("the server keeps no history: it is none of Trireme's"));
        }
        items.extend(list(&answer, "items").iter().cloned());
        text(&answer, "metadata.continue").clone_into(&mut next);
        if next.is_empty() || items.len() >= most {
            return Ok((items, answer.get("oldest").cloned().unwrap_or_default()));
        }
    }
}

fn lines(items: &[Value], several: bool, wide: bool, headers: bool) -> String {
    let mut lines = String::new();
    if headers {
        lines += if several {
            "REVISION\tWHEN\tNAME\tCHANGE\tUSER\tMANAGER\tFIELDS\n"
        } else {
            "REVISION\tWHEN\tCHANGE\tUSER\tMANAGER\tFIELDS\n"
        };
    }
    for item in items {
        let or = |path: &str, none: &str| match text(item, path) {
            "" => none.to_owned(),
            known => known.to_owned(),
        };
        let mut cells = vec![or("resourceVersion", "<unknown>"), or("time", "<unknown>")];
        if several {
            let namespace = text(item, "namespace");
            let name = text(item, "name");
            cells.push(if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") });
        }
        cells.extend([change(item), or("user", "<unknown>"), or("manager", "<none>"), fields(item, wide)]);
        lines += &cells.join("\t");
        lines.push('\n');
    }
    lines
}

/// What was done: the verb, or what came of it where that is not known.
fn change(item: &Value) -> String {
    let (verb, subresource) = (text(item, "verb"), text(item, "subresource"));
    match (text(item, "type"), verb) {
        ("Deleted", "delete" | "deletecollection") | ("Added", "create") | ("Modified", _) if !verb.is_empty() => {
            if subresource.is_empty() {
                verb.to_owned()
            } else {
                format!("{verb}/{subresource}")
            }
        }
        (kind, "") => kind.to_lowercase(),
        (kind, verb) => format!("{} by {verb}", kind.to_lowercase()),
    }
}

fn fields(item: &Value, wide: bool) -> String {
    let all = list(item, "fields");
    let shown = if wide { all.len() } else { FIELDS };
    let side = |field: &Value, name: &str| match field.get(name) {
        Some(value) => value.to_string(),
        None if field.get(format!("{name}Omitted")).is_some() => "…".to_owned(),
        None => "-".to_owned(),
    };
    let one = |field: &Value| format!("{}: {} → {}", text(field, "path"), side(field, "old"), side(field, "new"));
    let mut words: Vec<String> = all.iter().take(shown).map(one).collect();
    let left = all.len() - words.len() + usize::try_from(int(item, "omitted").unwrap_or(0)).unwrap_or(0);
    if left > 0 {
        words.push(format!("+{left} more"));
    }
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_a_line() {
        let field = |path: &str, old: i64, new: i64| json!({"path": path, "old": old, "new": new});
        let items = [
            json!({"resourceVersion": "9", "time": "2027-01-31T12:00:00.000Z", "type": "Modified", "namespace": "default", "name": "web",
                "user": "alice", "manager": "kubectl", "verb": "patch", "subresource": "scale",
                "fields": [field("spec.replicas", 1, 3), {"path": "a", "oldOmitted": true}, field("b", 1, 2)], "omitted": 4}),
            json!({"resourceVersion": "2", "time": null, "type": "Added", "namespace": "default", "name": "web",
                "user": "", "manager": "", "verb": "", "subresource": "", "fields": [], "omitted": 0}),
        ];
        assert_eq!(
            lines(&items, false, false, true),
            "REVISION\tWHEN\tCHANGE\tUSER\tMANAGER\tFIELDS\n\
             9\t2027-01-31T12:00:00.000Z\tpatch/scale\talice\tkubectl\tspec.replicas: 1 → 3, a: … → -, +5 more\n\
             2\t<unknown>\tadded\t<unknown>\t<none>\t\n"
        );
        assert!(
            lines(&items, true, true, false).starts_with("9\t2027-01-31T12:00:00.000Z\tdefault/web\tpatch/scale\t")
        );
        let deleted = json!({"type": "Deleted", "verb": "update", "subresource": ""});
        assert_eq!(change(&deleted), "deleted by update", "the last finalizer went");
        assert_eq!(change(&json!({"type": "Deleted", "verb": "delete"})), "delete");
    }
}
