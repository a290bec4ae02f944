//! Every path that a strategy names is one that its kind has: a typo would read null, and say nothing.
//!
//! The sources are read as text. Of each call that takes a path the literal is taken, and of each loop over names that are handed to such a call the names;
//! a path is good if it leads from some type of the kinds of its group to a field.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use facts::{Schema, Type};

/// The calls that take a path, and which of their arguments it is.
const READERS: [(&str, usize); 16] = [
    (".at(", 0),
    (".has(", 0),
    (".named(", 1),
    (".text_at(", 0),
    ("keep(", 2),
    ("value::at(", 1),
    ("value::at_mut(", 1),
    ("value::flag(", 1),
    ("value::int(", 1),
    ("value::list(", 1),
    ("value::list_mut(", 1),
    ("value::object_mut(", 1),
    ("value::remove(", 1),
    ("value::set(", 1),
    ("value::set_default(", 1),
    ("value::text(", 1),
];

/// What no type has, by file: a place that is shown and never read.
const ELSEWHERE: &[(&str, &str)] = &[("core/pod/resources.rs", "nothing")];

#[test]
fn every_path_of_a_strategy_leads_to_a_field() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut types = BTreeMap::new();
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for file in sources(&root) {
        let shown = file.strip_prefix(&root).expect("a file of this crate").display().to_string();
        let Some((folder, _)) = shown.split_once('/') else { continue };
        let known = types.entry(folder.to_owned()).or_insert_with(|| reachable(&groups(folder)));
        let text = fs::read_to_string(&file).expect("a source");
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for path in paths(text) {
            seen += 1;
            let excused = ELSEWHERE.contains(&(shown.as_str(), path.as_str()));
            if !known.iter().any(|of| leads(of, &path)) && !excused {
                wrong.push(format!("{shown}: {path:?}"));
            }
        }
    }
    assert!(seen > 1_500, "only {seen} paths were found: the calls that take one have other names now");
    assert!(wrong.is_empty(), "paths that lead nowhere:\n{}", wrong.join("\n"));
}

#[test]
fn a_typo_is_found() {
    let pods = reachable(&[""]);
    let good = |path: &str| pods.iter().any(|of| leads(of, path));
    assert!(good("spec.nodeName") && good("metadata.labels") && good("limits.cpu") && good("nodeName"));
    assert!(!good("spec.nodename") && !good("spec.containers.name") && !good("nodeNames"));
    let source = "let a = at.at(\"x.y\"); value::set(&mut b, \"z\", f(\"no\"));\nfor field in [\"v\", \"w\"] {\n    at.has(field);\n}\n";
    assert_eq!(paths(source), ["x.y", "z", "v", "w"]);
}

/// The groups of a folder; all of them for what kinds share.
fn groups(folder: &str) -> Vec<&'static str> {
    let named: Vec<&str> =
        crate::GROUPS.iter().map(|(group, _)| *group).filter(|group| room(group) == folder).collect();
    if named.is_empty() { crate::GROUPS.iter().map(|(group, _)| *group).collect() } else { named }
}

/// The folder of a group.
fn room(group: &str) -> String {
    match group {
        "" | "events.k8s.io" => "core".to_owned(),
        "internal.apiserver.k8s.io" => "internal_apiserver".to_owned(),
        _ => group.split('.').next().unwrap_or_default().to_owned(),
    }
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if !name.starts_with("tests") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Every type of objects that the kinds of these groups have in them.
fn reachable(groups: &[&str]) -> Vec<&'static Type> {
    let (mut found, mut names, mut next) = (Vec::new(), BTreeSet::new(), Vec::new());
    for resource in facts::resources().filter(|resource| groups.contains(&&*resource.group)) {
        next.extend(resource.ty.map(|ty| ty.def()));
    }
    while let Some(of) = next.pop() {
        if !names.insert(&*of.name) {
            continue;
        }
        found.push(of);
        next.extend(of.fields().iter().filter_map(|field| object_in(&field.schema)));
    }
    found
}

fn object_in(schema: &'static Schema) -> Option<&'static Type> {
    match schema {
        Schema::Array(list) => object_in(&list.items),
        Schema::Map(map) => object_in(&map.values),
        other => other.object(),
    }
}

/// Whether a dotted path leads from a type to a field, or to something in a map.
fn leads(of: &Type, path: &str) -> bool {
    let (name, rest) = path.split_once('.').unwrap_or((path, ""));
    let Some(field) = of.field(name) else { return false };
    rest.is_empty()
        || match &field.schema {
            Schema::Map(_) | Schema::Any(_) => true,
            other => other.object().is_some_and(|of| leads(of, rest)),
        }
}

/// The paths that a source names.
fn paths(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (reader, place) in READERS {
        for (start, _) in text.match_indices(reader) {
            let before = text[..start].chars().next_back();
            let part_of_a_name =
                before.is_some_and(|letter| letter.is_alphanumeric() || letter == '_' || letter == ':');
            if !reader.starts_with('.') && part_of_a_name {
                continue;
            }
            let arguments = arguments(&text[start + reader.len()..]);
            found.extend(arguments.get(place).and_then(|argument| literal(argument)).map(|path| (start, path)));
        }
    }
    for (start, _) in text.match_indices("for ") {
        let line = text[start + 4..].lines().next().unwrap_or_default();
        let Some((name, _)) = line.split_once(" in [") else { continue };
        let list = &text[start + 4 + name.len() + " in [".len()..];
        let Some((items, body)) = list.split_once(']') else { continue };
        let body = body.split("\n}").next().unwrap_or_default();
        let read =
            READERS.iter().any(|(reader, _)| reader.starts_with('.') && body.contains(&format!("{reader}{name})")));
        if read {
            found.extend(items.split(',').filter_map(literal).map(|path| (start, path)));
        }
    }
    found.sort();
    found.into_iter().map(|(_, path)| path).collect()
}

/// A text that is written as it is, and can be a path.
fn literal(argument: &str) -> Option<String> {
    let text = argument.trim().strip_prefix('"')?.strip_suffix('"')?;
    (!text.is_empty() && !text.contains(['"', '\\', '{', '/', ' '])).then(|| text.to_owned())
}

/// The arguments of a call, of which this is what follows the parenthesis.
fn arguments(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut quoted, mut escaped) = (0, 0, false, false);
    let mut found = Vec::new();
    for (at, letter) in text.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ if quoted => {}
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth == 0 => {
                found.push(&text[start..at]);
                break;
            }
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                found.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    found
}
