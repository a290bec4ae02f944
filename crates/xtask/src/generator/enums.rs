//! Which values a field may have, where upstream's server says so in its OpenAPI documents.
//!
//! The published documents leave this out (they are written with the feature off), the server's own have it: so it is
//! read from upstream's generated definitions and kept in `enums.txt`, one field per line: `type field ["a","b"]`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use super::{Failure, types};

const DEFINITIONS: &str = "pkg/generated/openapi/zz_generated.openapi.go";

/// The values of fields, as JSON, by type and field.
pub type Enums<'a> = BTreeMap<(&'a str, &'a str), &'a str>;

pub fn read(text: &str) -> Enums<'_> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let parts = lines.filter_map(|line| {
        let (name, rest) = line.split_once(' ')?;
        let (field, values) = rest.split_once(' ')?;
        Some(((name, field), values))
    });
    parts.collect()
}

/// Writes `enums.txt` anew from a source tree; without one it stays.
pub fn renew(facts: &Path, source: &Path, before: &str) -> Result<String, Failure> {
    let Ok(text) = std::fs::read_to_string(source.join(DEFINITIONS)) else { return Ok(before.to_owned()) };
    let mut names = BTreeMap::new();
    for name in types::names(facts)? {
        names.insert(function(&name), name);
    }
    let mut found: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    let (mut of, mut field) = (None, "");
    for line in text.lines() {
        let word = line.trim();
        if let Some((function, _)) = line.strip_prefix("func ").and_then(|rest| rest.split_once('(')) {
            of = names.get(function);
        } else if let Some(name) = word.strip_prefix('"').and_then(|rest| rest.strip_suffix("\": {")) {
            // An item of a list has a nameless definition, which belongs to the field it is in.
            if !name.is_empty() {
                field = name;
            }
        } else if let (Some(of), Some((_, values))) = (of, word.split_once("Enum:")) {
            found.insert((of, field), values.split('"').skip(1).step_by(2).collect());
        }
    }
    let mut out = String::from("# Written by `cargo xtask generate --go-source`.\n");
    for ((name, field), values) in found {
        writeln!(out, "{name} {field} {}", serde_json::to_string(&values)?)?;
    }
    Ok(out)
}

/// The name of the function that defines a type.
fn function(name: &str) -> String {
    let path = match name.split_once(".pkg.") {
        Some((_, rest)) => format!("pkg.{rest}"),
        None => name.replacen("io.k8s.", "k8sio.", 1),
    };
    format!("schema_{}", path.replace('.', "_"))
}
