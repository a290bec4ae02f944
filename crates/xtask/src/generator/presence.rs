//! Which fields Go holds by pointer, and which it writes even when they are zero.
//!
//! Protobuf and JSON as upstream writes them depend on this, but no published document tells it: it is read
//! from the field declarations of upstream's Go types and kept in `presence.txt`, one type per line:
//! `name [kind] [?pointers] [!always written] [~omitted when zero]`, where `kind` marks the types of whole
//! objects, and the last list has the fields with `omitzero`: Go's older `omitempty` never omits a struct.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use super::{Failure, types};

/// What is known of a type.
#[derive(Default)]
pub struct Presence {
    /// Whether it is the type of whole objects, with `kind` and `apiVersion`.
    pub kind: bool,
    /// The fields held by pointer.
    pub pointers: BTreeSet<String>,
    /// The fields without `omitempty` or `omitzero`.
    pub always: BTreeSet<String>,
    /// The fields with `omitzero`.
    pub omitzero: BTreeSet<String>,
}

impl Presence {
    fn is_empty(&self) -> bool {
        !self.kind && self.pointers.is_empty() && self.always.is_empty() && self.omitzero.is_empty()
    }
}

pub fn read(text: &str) -> BTreeMap<&str, Presence> {
    let mut types = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let mut tokens = line.split(' ');
        let name = tokens.next().unwrap_or_default();
        let mut presence = Presence::default();
        for token in tokens {
            let names = |list: &str| list.split(',').map(str::to_owned).collect();
            match token.split_at(1) {
                ("?", list) => presence.pointers = names(list),
                ("!", list) => presence.always = names(list),
                ("~", list) => presence.omitzero = names(list),
                _ => presence.kind = token == "kind",
            }
        }
        types.insert(name, presence);
    }
    types
}

/// Writes `presence.txt` anew from a source tree; packages that the tree lacks keep their lines.
pub fn renew(facts: &Path, source: &Path, before: &str) -> Result<String, Failure> {
    let mut lines = BTreeMap::new();
    for (name, presence) in read(before) {
        lines.insert(name.to_owned(), presence);
    }
    let wanted = types::names(facts)?;
    let packages: BTreeSet<&str> = wanted.iter().filter_map(|name| name.rsplit_once('.')).map(|(of, _)| of).collect();
    for package in packages {
        let Some(path) = package.strip_prefix("io.k8s.") else { continue };
        let folder = source.join("staging/src/k8s.io").join(path.replace('.', "/"));
        let Ok(entries) = std::fs::read_dir(folder) else { continue };
        for entry in entries {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if name.ends_with(".go") && !name.ends_with("_test.go") && !name.contains("generated") {
                read_go(&std::fs::read_to_string(&path)?, package, &mut lines);
            }
        }
    }
    let mut out = String::from("# Written by `cargo xtask generate --go-source`.\n");
    for (name, presence) in lines.into_iter().filter(|(name, of)| wanted.contains(name) && !of.is_empty()) {
        write!(out, "{name}")?;
        if presence.kind {
            write!(out, " kind")?;
        }
        for (mark, names) in [('?', &presence.pointers), ('!', &presence.always), ('~', &presence.omitzero)] {
            if !names.is_empty() {
                write!(out, " {mark}{}", names.iter().map(String::as_str).collect::<Vec<_>>().join(","))?;
            }
        }
        out.push('\n');
    }
    Ok(out)
}

/// Reads the struct declarations of one file.
fn read_go(text: &str, package: &str, types: &mut BTreeMap<String, Presence>) {
    let mut current: Option<(String, Presence)> = None;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("type ").and_then(|rest| rest.strip_suffix(" struct {")) {
            current = Some((format!("{package}.{name}"), Presence::default()));
        } else if line == "}" {
            // The wrapper of every stored object has the same inline header, but in protobuf it is a field.
            types.extend(current.take().filter(|(name, _)| !name.ends_with(".runtime.Unknown")));
        } else if let Some((_, presence)) = &mut current {
            read_go_field(line, presence);
        }
    }
}

fn read_go_field(line: &str, presence: &mut Presence) {
    let Some((declaration, tags)) = line.trim().split_once('`') else { return };
    let Some((_, tag)) = tags.split_once("json:\"") else { return };
    if declaration.starts_with("//") {
        return;
    }
    let mut options = tag.split('"').next().unwrap_or_default().split(',');
    let name = options.next().unwrap_or_default().to_owned();
    let options: Vec<&str> = options.collect();
    let mut words = declaration.split_whitespace();
    let first = words.next().unwrap_or_default();
    let Some(kind) = words.next() else {
        presence.kind |= first.ends_with("TypeMeta") && name.is_empty();
        return;
    };
    if name.is_empty() || name == "-" {
        return;
    }
    if kind.starts_with('*') {
        presence.pointers.insert(name.clone());
    }
    if options.contains(&"omitzero") {
        presence.omitzero.insert(name);
    } else if !options.contains(&"omitempty") {
        presence.always.insert(name);
    }
}
