//! Groups, versions, resources and subresources, from legacy discovery; what a deletion answers, from OpenAPI.

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
        write_version(facts, &format!("api__{version}"), version, out)?;
    }
    for group in apis["groups"].as_array().into_iter().flatten() {
        let name = text(group, "name");
        writeln!(out, "G {name}")?;
        for version in group["versions"].as_array().into_iter().flatten() {
            let version = text(version, "version");
            write_version(facts, &format!("apis__{name}__{version}"), version, out)?;
        }
    }
    Ok(())
}

fn write_version(facts: &Path, file: &str, version: &str, out: &mut String) -> Result<(), Failure> {
    // Upstream serves every stable version by default, and no other since v1.24.
    let on = !version.contains("alpha") && !version.contains("beta");
    writeln!(out, "V {version} {}", if on { "on" } else { "off" })?;
    let document = read_json(&facts.join("discovery").join(format!("{file}.json")))?;
    let openapi = read_json(&facts.join("openapi-v3").join(format!("{file}_openapi.json")))?;
    let base = format!("/{}", file.replace("__", "/"));
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
                let namespace = if scope == "N" { "/namespaces/{namespace}" } else { "" };
                let deleted =
                    &openapi["paths"][format!("{base}{namespace}/{name}/{{name}}")]["delete"]["responses"]["200"];
                let answer = deleted["content"]["application/json"]["schema"]["$ref"].as_str();
                if answer.is_some_and(|answer| !answer.ends_with(".Status")) {
                    write!(out, " o")?;
                }
            }
            Some((of, sub)) => {
                if of != parent {
                    return Err(format!("{file}: {name} does not follow its resource").into());
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
