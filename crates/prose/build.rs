//! Takes the descriptions of types and fields out of the source of the `k8s-openapi` crate, whose schemas hold
//! them as upstream wrote them, into one text: `T type<tab>description`, followed by `F field<tab>description`
//! for each of its fields, sorted by type. Newlines and backslashes are escaped.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    let source = source()?;
    let mut types = BTreeMap::new();
    read_folder(&source.join("src/v1_37"), &mut types)?;
    let text: String = types.into_values().collect();
    fs::write(PathBuf::from(std::env::var("OUT_DIR")?).join("prose.txt"), text)?;
    Ok(())
}

/// The folder of the `k8s-openapi` crate that this build uses. Cargo tells build scripts where their own crate
/// is, but not where a dependency is, so it is asked: without the network if it can do so.
fn source() -> Result<PathBuf, Box<dyn Error>> {
    let metadata = metadata(&["--offline"]).or_else(|_| metadata(&[]))?;
    let paths = metadata.split("\"manifest_path\":\"").skip(1).filter_map(|rest| rest.split('"').next());
    let folders = paths.filter_map(|path| Path::new(path).parent());
    let is_it = |folder: &&Path| {
        folder.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("k8s-openapi"))
    };
    let found = folders.filter(is_it).find(|folder| folder.join("src/v1_37").is_dir());
    Ok(found.ok_or("k8s-openapi is not among the packages of this build")?.to_owned())
}

/// The packages of this build, as JSON.
fn metadata(options: &[&str]) -> Result<String, Box<dyn Error>> {
    let platform = std::env::var("TARGET")?;
    let output = Command::new(std::env::var("CARGO")?)
        .args(["metadata", "--format-version", "1", "--filter-platform", &platform])
        .args(options)
        .output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

fn read_folder(folder: &Path, types: &mut BTreeMap<String, String>) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            read_folder(&path, types)?;
        } else {
            read_file(&fs::read_to_string(&path)?, types);
        }
    }
    Ok(())
}

/// Reads the implementations of `JsonSchema` in a file. They are generated: a keyword of the type stands at 12
/// spaces, a field at 16 and a keyword of the field at 20.
fn read_file(text: &str, types: &mut BTreeMap<String, String>) {
    let mut name = None;
    let mut lines = String::new();
    let mut field = "";
    let mut inside = false;
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        let rest = line.trim_start();
        if rest.starts_with("fn schema_name()") {
            (inside, name) = (true, None);
        } else if !inside {
            continue;
        } else if name.is_none() && rest.starts_with('"') {
            name = literal(rest).map(|(name, _)| name);
            lines = format!("T {}\t", name.as_deref().unwrap_or_default());
        } else if let (12, Some(text)) = (indent, rest.strip_prefix("\"description\": ")) {
            lines.push_str(&escape(&literal(text).map(|(text, _)| text).unwrap_or_default()));
        } else if indent == 16 && rest.starts_with('"') {
            field = rest[1..].split('"').next().unwrap_or_default();
        } else if let (20, Some(text)) = (indent, description(rest)) {
            lines.push_str(&format!("\nF {field}\t{}", escape(&text)));
        } else if line == "}" {
            lines.push('\n');
            types.extend(name.take().map(|name| (name, std::mem::take(&mut lines))));
            inside = false;
        }
    }
}

/// The description that a line of a field gives, as a keyword or beside a reference.
fn description(line: &str) -> Option<String> {
    let reference = "schema_obj.ensure_object().insert(\"description\".into(), ";
    let text = line.strip_prefix("\"description\": ").or_else(|| line.strip_prefix(reference))?;
    literal(text).map(|(text, _)| text)
}

/// The string literal with which the text begins, and what follows it.
fn literal(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.strip_prefix('"')?.chars();
    loop {
        match chars.next()? {
            '"' => return Some((value, chars.as_str())),
            '\\' => match chars.next()? {
                'n' => value.push('\n'),
                't' => value.push('\t'),
                'r' => value.push('\r'),
                'u' => {
                    let (code, rest) = chars.as_str().strip_prefix('{')?.split_once('}')?;
                    value.push(char::from_u32(u32::from_str_radix(code, 16).ok()?)?);
                    chars = rest.chars();
                }
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n")
}
