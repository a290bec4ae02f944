//! Volumes of pods, and persistent volumes.

use machinery::{Value, value};

use super::claim;
use super::source::{OF_PERSISTENT_VOLUMES, OF_PODS, Source};
use crate::Error;
use crate::show::{LONGEST, Scene, at, bracketed, int, joined, pairs, quantity, shorten};
use crate::writer::{Writer, put};

pub fn volumes(out: &mut Writer, volumes: &[Value], space: &str) {
    if volumes.is_empty() {
        return put!(out, 0, "{space}Volumes:\t<none>\n");
    }
    put!(out, 0, "{space}Volumes:\n");
    for volume in volumes {
        put!(out, 1, "{}{}:\n", if space.is_empty() { "" } else { " " }, value::text(volume, "name"));
        source(out, volume, OF_PODS);
    }
}

/// The first source of a table that a volume has.
fn source(out: &mut Writer, volume: &Value, known: &[Source]) {
    let found = known.iter().find_map(|kind| Some((kind, at(volume, kind.field)?)));
    let Some((kind, source)) = found else { return put!(out, 1, "<unknown>\n") };
    let lines = kind.lines.iter().map(|(title, path, shown)| match (kind.field, *path) {
        // No limit and a limit of nothing are the same.
        ("emptyDir", "sizeLimit") if quantity(source.get("sizeLimit")).signum() <= 0 => {
            format!("    {title}\t<unset>\n")
        }
        _ => format!("    {title}\t{}\n", shown.show(source, path)),
    });
    put!(out, 2, "Type:\t{}\n{}", kind.about, lines.collect::<String>());
    match kind.field {
        "csi" => attributes(out, at(source, "volumeAttributes")),
        "projected" => projected(out, value::list(source, "sources")),
        "downwardAPI" => downward(out, value::list(source, "items")),
        "ephemeral" => {
            if let Some(template) = at(source, "volumeClaimTemplate") {
                out.nested(2, |out| claim::claim(out, template, None));
            }
        }
        _ => {}
    }
}

fn attributes(out: &mut Writer, attributes: Option<&Value>) {
    put!(out, 2, "VolumeAttributes:\t");
    let all = pairs(attributes);
    if all.is_empty() {
        return out.line("<none>");
    }
    for (at, (key, value)) in all.into_iter().enumerate() {
        if at > 0 {
            put!(out, 2, "");
            put!(out, 2, "\t");
        }
        put!(out, 2, "{}\n", shorten(&format!("{key}={value}"), LONGEST));
    }
}

fn projected(out: &mut Writer, sources: &[Value]) {
    for source in sources {
        let named = |out: &mut Writer, title: &str, source: &Value| {
            let (name, optional) = (value::text(source, "name"), value::flag(source, "optional"));
            put!(out, 2, "{title}:\t{name}\n    Optional:\t{optional}\n");
        };
        if let Some(secret) = at(source, "secret") {
            named(out, "SecretName", secret);
        } else if at(source, "downwardAPI").is_some() {
            out.field(2, "DownwardAPI", "true");
        } else if let Some(map) = at(source, "configMap") {
            named(out, "ConfigMapName", map);
        } else if let Some(token) = at(source, "serviceAccountToken") {
            out.field(2, "TokenExpirationSeconds", int(token, "expirationSeconds"));
        }
    }
}

fn downward(out: &mut Writer, items: &[Value]) {
    put!(out, 0, "    Items:\n");
    for item in items {
        let path = value::text(item, "path");
        if let Some(field) = at(item, "fieldRef") {
            put!(out, 3, "{} -> {path}\n", value::text(field, "fieldPath"));
        }
        if let Some(field) = at(item, "resourceFieldRef") {
            put!(out, 3, "{} -> {path}\n", value::text(field, "resource"));
        }
    }
}

pub fn persistent(scene: &Scene<'_>, out: &mut Writer) -> Result<(), Error> {
    scene.name(out);
    scene.labels(out);
    scene.annotations(out);
    out.field(0, "Finalizers", bracketed(scene.list("metadata.finalizers")));
    out.field(0, "StorageClass", claim::storage_class(scene.object));
    claim::status(scene, out);
    match scene.at("spec.claimRef") {
        Some(claim) => {
            let (namespace, name) = (value::text(claim, "namespace"), value::text(claim, "name"));
            out.field(0, "Claim", format_args!("{namespace}/{name}"));
        }
        None => out.field(0, "Claim", ""),
    }
    out.field(0, "Reclaim Policy", scene.text("spec.persistentVolumeReclaimPolicy"));
    out.field(0, "Access Modes", claim::access_modes(scene.list("spec.accessModes")));
    if scene.at("spec.volumeMode").is_some() {
        out.field(0, "VolumeMode", scene.text("spec.volumeMode"));
    }
    out.field(0, "Capacity", quantity(scene.at("spec.capacity.storage")));
    node_affinity(scene, out);
    out.field(0, "Message", scene.text("status.message"));
    put!(out, 0, "Source:\n");
    source(out, scene.at("spec").unwrap_or(&Value::Null), OF_PERSISTENT_VOLUMES);
    scene.events(out);
    Ok(())
}

fn node_affinity(scene: &Scene<'_>, out: &mut Writer) {
    put!(out, 0, "Node Affinity:\t");
    let Some(required) = scene.at("spec.nodeAffinity.required") else { return out.line("<none>") };
    out.line("");
    put!(out, 1, "Required Terms:\t");
    let terms = value::list(required, "nodeSelectorTerms");
    if terms.is_empty() {
        return out.line("<none>");
    }
    out.line("");
    for (number, term) in terms.iter().enumerate() {
        requirements(out, 2, number, value::list(term, "matchExpressions"));
    }
}

/// A term: its requirements below each other.
pub fn requirements(out: &mut Writer, level: usize, term: usize, requirements: &[Value]) {
    put!(out, level, "Term {term}:\t");
    if requirements.is_empty() {
        return out.line("<none>");
    }
    for (at, requirement) in requirements.iter().enumerate() {
        if at > 0 {
            put!(out, level, "\t");
        }
        let key = value::text(requirement, "key");
        let operator = match value::text(requirement, "operator") {
            "" => "in".to_owned(),
            operator => operator.to_lowercase(),
        };
        match value::list(requirement, "values") {
            [] => put!(out, 0, "{key} {operator}\n"),
            values => put!(out, 0, "{key} {operator} [{}]\n", joined(values, ", ")),
        }
    }
}
