//! Groups, versions, resources and subresources, from legacy discovery.

use std::fmt::Write;
use std::path::Path;

use serde_json::Value;

use super::{Failure, list, read_json, text};

/// Appends the lines `G`, `V`, `R` and `S`.
pub fn write(facts: &Path, out: &mut String) -> Result<(), Failure> {
    let folder = facts.join("discovery");
    let apis = read_json(&folder.join("apis.json"))?;
    writeln!(out, "G -")?;
    for version in list(&read_json(&folder.join("api.json"))?["versions"]) {
        write_version(&folder.join(format!("api__{version}.json")), version, out)?;
    }
    for group in apis["groups"].as_array().into_iter().flatten() {
        let name = text(group, "name");
        writeln!(out, "G {name}")?;
        for version in group["versions"].as_array().into_iter().flatten() {
            let version = text(version, "version");
            write_version(&folder.join(format!("apis__{name}__{version}.json")), version, out)?;
        }
    }
    Ok(())
}

fn write_version(path: &Path, version: &str, out: &mut String) -> Result<(), Failure> {
    // Upstream serves every stable version by default, and no other since v1.24.
    let on = !version.contains("alpha") && !version.contains("beta");
    writeln!(out, "V {version} {}", if on { "on" } else { "off" })?;
    let document = read_json(path)?;
    let mut parent = String::new();
    for resource in document["resources"].as_array().into_iter().flatten() {
        let (name, kind, verbs) = (text(resource, "name"), text(resource, "kind"), verbs(&resource["verbs"]));
        match name.split_once('/') {
            None => {
                parent = name.to_owned();
                let scope = if resource["namespaced"] == true { "N" } else { "C" };
                write!(out, "R {name} {} {kind} {scope} {verbs}", text(resource, "singularName"))?;
                for (mark, key) in [("s", "shortNames"), ("c", "categories")] {
                    if let names @ [_, ..] = &*list(&resource[key]) {
                        write!(out, " {mark}={}", names.join(","))?;
                    }
                }
                if let Some(hash) = resource["storageVersionHash"].as_str() {
                    write!(out, " h={hash}")?;
                }
            }
            Some((of, sub)) => {
                if of != parent {
                    return Err(format!("{}: {name} does not follow its resource", path.display()).into());
                }
                write!(out, "S {sub} {kind} {verbs}")?;
                if resource["version"].is_string() {
                    write!(out, " {}/{}", text(resource, "group"), text(resource, "version"))?;
                }
            }
        }
        out.push('\n');
    }
    Ok(())
}

fn verbs(verbs: &Value) -> String {
    let verbs = list(verbs);
    if verbs.len() == 8 { "*".to_owned() } else { verbs.join(",") }
}
