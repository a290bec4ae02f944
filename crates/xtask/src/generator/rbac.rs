//! Bootstrap roles and bindings, from upstream's manifests.

use std::fmt::Write;
use std::path::Path;

use serde_json::Value;

use super::{Failure, list, text};

/// The text of `rbac.txt`.
pub fn write(facts: &Path) -> Result<String, Failure> {
    let folder = facts.join("rbac");
    let mut out = String::from("# Written by the generator of this crate; see src/rbac.rs for what the lines mean.\n");
    let plain = read(&folder.join("cluster-roles.yaml"))?;
    let gated = read(&folder.join("cluster-roles-featuregates.yaml"))?;
    if plain.len() != gated.len() {
        return Err("features that are off by default add whole roles".into());
    }
    for (plain, gated) in plain.iter().zip(&gated) {
        write_role(gated, plain, &mut out)?;
    }
    for file in ["controller-roles.yaml", "namespace-roles.yaml"] {
        for role in read(&folder.join(file))? {
            write_role(&role, &role, &mut out)?;
        }
    }
    for file in ["cluster-role-bindings.yaml", "controller-role-bindings.yaml", "namespace-role-bindings.yaml"] {
        for binding in read(&folder.join(file))? {
            write_binding(&binding, &mut out)?;
        }
    }
    Ok(out)
}

fn read(path: &Path) -> Result<Vec<Value>, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let document: Value = serde_saphyr::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(document["items"].as_array().cloned().unwrap_or_default())
}

/// The namespace and name, after checking that the label and annotation common to all are there.
fn head(object: &Value) -> Result<(&str, &str), Failure> {
    let metadata = &object["metadata"];
    let name = text(metadata, "name");
    let common = metadata["labels"]["kubernetes.io/bootstrapping"] == "rbac-defaults"
        && metadata["annotations"]["rbac.authorization.kubernetes.io/autoupdate"] == "true"
        && metadata["annotations"].as_object().is_some_and(|annotations| annotations.len() == 1);
    if !common {
        return Err(format!("{name} lacks the label or annotation of bootstrap objects").into());
    }
    Ok((metadata["namespace"].as_str().unwrap_or("-"), name))
}

/// `plain` is the same role without the rules of features that are off by default.
fn write_role(role: &Value, plain: &Value, out: &mut String) -> Result<(), Failure> {
    let (namespace, name) = head(role)?;
    write!(out, "R {namespace} {name}")?;
    for (key, value) in role["metadata"]["labels"].as_object().into_iter().flatten() {
        if key != "kubernetes.io/bootstrapping" {
            write!(out, " l={key}={}", value.as_str().unwrap_or_default())?;
        }
    }
    for selector in role["aggregationRule"]["clusterRoleSelectors"].as_array().into_iter().flatten() {
        for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
            write!(out, " a={key}={}", value.as_str().unwrap_or_default())?;
        }
    }
    out.push('\n');
    let mut default = plain["rules"].as_array().into_iter().flatten().peekable();
    for rule in role["rules"].as_array().into_iter().flatten() {
        let gated = if default.next_if_eq(&rule).is_some() { "" } else { " ~" };
        let verbs = list(&rule["verbs"]).join(",");
        match list(&rule["nonResourceURLs"]).as_slice() {
            [] => {
                let groups =
                    list(&rule["apiGroups"]).iter().map(|of| if of.is_empty() { "-" } else { of }).collect::<Vec<_>>();
                write!(out, "P{gated} {verbs} {} {}", groups.join(","), list(&rule["resources"]).join(","))?;
                if let names @ [_, ..] = &*list(&rule["resourceNames"]) {
                    write!(out, " {}", names.join(","))?;
                }
            }
            urls => write!(out, "N{gated} {verbs} {}", urls.join(","))?,
        }
        out.push('\n');
    }
    match default.next() {
        Some(_) => Err(format!("features that are off by default change a rule of {name}").into()),
        None => Ok(()),
    }
}

fn write_binding(binding: &Value, out: &mut String) -> Result<(), Failure> {
    let (namespace, name) = head(binding)?;
    let role = &binding["roleRef"];
    writeln!(out, "B {namespace} {name} {} {}", text(role, "kind"), text(role, "name"))?;
    for subject in binding["subjects"].as_array().into_iter().flatten() {
        write!(out, "J {} {}", text(subject, "kind"), text(subject, "name"))?;
        if let Some(namespace) = subject["namespace"].as_str() {
            write!(out, " {namespace}")?;
        }
        out.push('\n');
    }
    Ok(())
}
