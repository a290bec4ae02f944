//! `kubectl taint`.

use machinery::names;
use machinery::value::{list, text};
use serde_json::{Value, json};

use crate::command::{Command, Invocation};
use crate::error::{Failure, Outcome};
use crate::flags::{Flag, sets};
use crate::report::Report;
use crate::resource::Builder;
use crate::resource::helper::{DryRun, MERGE, Writing};

pub static COMMAND: Command = Command {
    name: "taint",
    aliases: &[],
    usage: "NODE NAME KEY_1=VAL_1:TAINT_EFFECT_1 ... KEY_N=VAL_N:TAINT_EFFECT_N",
    short: "Update the taints on one or more nodes",
    flags: &[
        sets::PRINT,
        sets::DRY_RUN,
        sets::SELECTOR,
        sets::ALL,
        sets::VALIDATE,
        &[sets::field_manager("kubectl-taint"), Flag::bool("overwrite", "Change values that are there.")],
    ],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation))),
};

#[derive(Debug, Clone, PartialEq, Eq)]
struct Taint {
    key: String,
    value: String,
    effect: String,
}

fn parse(word: &str) -> Result<Taint, String> {
    let odd = || format!("invalid taint spec: {word}");
    let (rest, effect) = match word.split_once(':') {
        None => (word, ""),
        Some((_, "")) => return Err("invalid taint effect: , unsupported taint effect".to_owned()),
        Some((_, effect)) if effect.contains(':') => return Err(odd()),
        Some((rest, effect)) => (rest, effect),
    };
    if !effect.is_empty() && !matches!(effect, "NoSchedule" | "PreferNoSchedule" | "NoExecute") {
        return Err(format!("invalid taint effect: {effect}, unsupported taint effect"));
    }
    let (key, value) = match rest.split_once('=') {
        None => (rest, ""),
        Some((_, value)) if value.contains('=') => return Err(odd()),
        Some((key, value)) => (key, value),
    };
    let wrong = [names::is_label_value(value), names::is_qualified_name(key)].concat();
    if !wrong.is_empty() {
        return Err(format!("{}, {}", odd(), wrong.join("; ")));
    }
    Ok(Taint { key: key.to_owned(), value: value.to_owned(), effect: effect.to_owned() })
}

/// What is to be added, and what is to go.
fn parse_all(words: &[String]) -> Result<(Vec<Taint>, Vec<Taint>), String> {
    let (mut add, mut remove) = (Vec::new(), Vec::new());
    for word in words {
        match word.strip_suffix('-') {
            Some(word) => remove.push(parse(word)?),
            None => {
                let taint = parse(word)?;
                if taint.effect.is_empty() {
                    // Without an effect all of it would have to be a key.
                    let why = names::is_qualified_name(word).join("; ");
                    let colon = if why.is_empty() { "" } else { ", " };
                    return Err(format!("invalid taint spec: {word}{colon}{why}"));
                }
                if add.iter().any(|known: &Taint| (&known.key, &known.effect) == (&taint.key, &taint.effect)) {
                    let Taint { key, value, effect } = &taint;
                    let shown = format!("{{{key} {value} {effect} <nil>}}");
                    return Err(format!("duplicated taints with the same key and effect: {shown}"));
                }
                add.push(taint);
            }
        }
    }
    Ok((add, remove))
}

async fn run(invocation: &mut Invocation) -> Outcome {
    let writing = Writing::from_flags(&invocation.flags)?;
    let is_change = |word: &String| word.contains('=') || word.ends_with('-') || word.contains(':');
    let arguments = invocation.arguments();
    let at = arguments.iter().position(is_change).unwrap_or(arguments.len());
    let (resources, words) = arguments.split_at(at);
    if let Some(late) = words.iter().find(|word| !is_change(word)) {
        return Err(Failure::Message(format!("all resources must be specified before taint changes: {late}")));
    }
    if resources.is_empty() {
        return Err(Failure::message("one or more resources must be specified as <resource> <name>"));
    }
    if words.is_empty() {
        return Err(Failure::message("at least one taint update is required"));
    }
    let (add, remove) = parse_all(words).map_err(|why| invocation.usage(why))?;
    let both: Vec<String> = add
        .iter()
        .filter(|taint| {
            remove.iter().any(|gone| gone.key == taint.key && (gone.effect.is_empty() || gone.effect == taint.effect))
        })
        .map(|taint| {
            let whole = remove.iter().any(|gone| gone.key == taint.key && gone.effect.is_empty());
            format!("{}={}", taint.key, if whole { "" } else { taint.effect.as_str() })
        })
        .collect();
    if !both.is_empty() {
        let both = both.join(",");
        return Err(Failure::Message(format!(
            "can not both modify and remove the following taint(s) in the same command: {both}"
        )));
    }
    let flags = &invocation.flags;
    if flags.is("all") && !flags.text("selector").is_empty() {
        return Err(Failure::message("setting 'all' parameter with a non empty selector is prohibited"));
    }
    if !flags.is("all") && flags.text("selector").is_empty() && resources.len() < 2 && !resources[0].contains('/') {
        return Err(Failure::message("at least one resource name must be specified since 'all' parameter is not set"));
    }
    let kind = resources[0].as_str();
    if kind.contains('/') {
        return Err(Failure::Plain(format!(
            "the server doesn't have a resource type {}\n",
            machinery::status::go_quote(kind)
        )));
    }
    if !matches!(kind.to_lowercase().as_str(), "node" | "nodes" | "no") {
        return Err(Failure::Message(format!("invalid resource type {kind}, only node types are supported")));
    }
    let mut builder = Builder::from_flags(&invocation.session, flags)?;
    // Who says all means all, whichever are named besides.
    builder.arguments = if builder.all { vec![kind.to_owned()] } else { resources.to_vec() };
    let found = builder.infos(&invocation.session, &mut invocation.streams).await?;
    let mut errors = found.errors;
    for mut info in found.infos {
        let before = list(&info.object, "spec.taints").to_vec();
        match change(&info.name, &before, &add, &remove, invocation.flags.is("overwrite")) {
            Err(why) => errors.push(Failure::Message(why)),
            Ok((after, done)) => {
                if writing.dry_run == DryRun::Client {
                    machinery::value::set(&mut info.object, "spec.taints", Value::Array(after));
                } else {
                    let taints = if after.is_empty() { Value::Null } else { Value::Array(after) };
                    let api = invocation.session.api()?;
                    let object = writing.patch(&api, &info, MERGE, &json!({"spec": {"taints": taints}})).await?;
                    info.refresh(object);
                }
                Report::new(invocation, DryRun::No, false)?.say(invocation, &info.object, done)?;
            }
        }
    }
    Failure::all(errors)
}

type Changed = (Vec<Value>, &'static str);

fn change(node: &str, before: &[Value], add: &[Taint], remove: &[Taint], overwrite: bool) -> Result<Changed, String> {
    let same = |known: &Value, taint: &Taint| text(known, "key") == taint.key && text(known, "effect") == taint.effect;
    let taken: Vec<&Taint> = add.iter().filter(|taint| before.iter().any(|known| same(known, taint))).collect();
    if !overwrite && !taken.is_empty() {
        let keys = taken.iter().map(|taint| taint.key.as_str()).collect::<Vec<_>>().join(",");
        return Err(format!("node {node} already has {keys} taint(s) with same effect(s) and --overwrite is false"));
    }
    // What is new comes first.
    let new = |taint: &Taint| {
        let mut entry = json!({"key": taint.key, "effect": taint.effect});
        if !taint.value.is_empty() {
            entry["value"] = taint.value.as_str().into();
        }
        entry
    };
    let mut after: Vec<Value> = add.iter().map(new).collect();
    after.extend(before.iter().filter(|known| !add.iter().any(|taint| same(known, taint))).cloned());
    for taint in remove {
        let count = after.len();
        after.retain(|known| {
            text(known, "key") != taint.key || (!taint.effect.is_empty() && text(known, "effect") != taint.effect)
        });
        if after.len() == count {
            let effect = if taint.effect.is_empty() { String::new() } else { format!(":{}", taint.effect) };
            return Err(format!("taint \"{}{effect}\" not found", taint.key));
        }
    }
    let done = match (add.is_empty(), remove.is_empty()) {
        _ if overwrite => "modified",
        (false, false) => "modified",
        (false, true) => "tainted",
        _ => "untainted",
    };
    Ok((after, done))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taints_are_read_set_and_taken_away() {
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let (add, remove) = parse_all(&words("a=b:NoSchedule c-")).expect("taints");
        assert_eq!((add[0].value.as_str(), remove[0].key.as_str()), ("b", "c"));
        for odd in ["a", "a:", "a:-", "a=b", "a=b:Foo", "a=b=c:NoSchedule", "a:b:c"] {
            assert!(parse_all(&words(odd)).is_err(), "{odd}");
        }
        let before = [json!({"key": "c", "effect": "NoExecute"})];
        let (after, done) = change("n", &before, &add, &remove, false).expect("changed");
        assert_eq!((after, done), (vec![json!({"key": "a", "value": "b", "effect": "NoSchedule"})], "modified"));
        let again = [json!({"key": "a", "value": "x", "effect": "NoSchedule"})];
        assert!(change("n", &again, &add, &[], false).is_err());
        assert_eq!(change("n", &again, &add, &[], true).expect("changed").1, "modified");
        assert_eq!(change("n", &[], &[], &remove, false), Err("taint \"c\" not found".to_owned()));
    }
}
