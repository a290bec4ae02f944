//! `apply --prune`: what was applied before and is no longer in the files goes.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::create::LAST_APPLIED;
use crate::command::Invocation;
use crate::discovery::Mapping;
use crate::error::{Failure, Outcome};
use crate::resource::helper::{DryRun, Writing};
use crate::resource::{Builder, Info, Target, info, list};

/// What is pruned where nobody says what.
const USUAL: [(&str, &str); 15] = [
    ("v1", "ConfigMap"),
    ("v1", "Endpoints"),
    ("v1", "Namespace"),
    ("v1", "PersistentVolumeClaim"),
    ("v1", "PersistentVolume"),
    ("v1", "Pod"),
    ("v1", "ReplicationController"),
    ("v1", "Secret"),
    ("v1", "Service"),
    ("batch/v1", "Job"),
    ("batch/v1", "CronJob"),
    ("networking.k8s.io/v1", "Ingress"),
    ("apps/v1", "DaemonSet"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "ReplicaSet"),
];

pub(super) async fn run(
    invocation: &mut Invocation,
    writing: &Writing,
    builder: &Builder,
    applied: &[Info],
) -> Outcome {
    for (mapping, object) in prunable(invocation, builder, applied).await? {
        delete(invocation, writing, &mapping, object).await?;
    }
    Ok(())
}

/// What was applied before and is not among what is applied now.
pub async fn prunable(invocation: &Invocation, builder: &Builder, applied: &[Info]) -> Outcome<Vec<(Mapping, Value)>> {
    let mut found = Vec::new();
    let visited: BTreeSet<String> =
        applied.iter().map(|info| machinery::value::text(&info.object, "metadata.uid").to_owned()).collect();
    let namespaces: BTreeSet<&str> =
        applied.iter().filter(|info| info.mapping.namespaced).map(|info| info.namespace.as_str()).collect();
    for mapping in mappings(invocation).await? {
        let places: Vec<&str> = if mapping.namespaced { namespaces.iter().copied().collect() } else { vec![""] };
        // Without a list of kinds, cluster-scoped ones are pruned only where they were meant.
        for place in places {
            let target = Target { mapping: mapping.clone(), namespace: place.to_owned(), name: None };
            for object in list(&invocation.session, &target, builder, "").await? {
                let uid = machinery::value::text(&object, "metadata.uid");
                let remembered =
                    machinery::value::at(&object, "metadata.annotations").and_then(|all| all.get(LAST_APPLIED));
                if remembered.is_none() || visited.contains(uid) {
                    continue;
                }
                found.push((mapping.clone(), object));
            }
        }
    }
    Ok(found)
}

async fn mappings(invocation: &Invocation) -> Outcome<Vec<Mapping>> {
    let allowed = invocation.flags.list("prune-allowlist");
    let mut found = Vec::new();
    if allowed.is_empty() {
        let statefulsets = ("apps/v1", "StatefulSet");
        for (version, kind) in USUAL.into_iter().chain([statefulsets]) {
            found.extend(invocation.session.mapping_of_kind(version, kind).await?);
        }
        return Ok(found);
    }
    for text in allowed {
        let parts: Vec<&str> = text.split('/').collect();
        let [group, version, kind] = parts[..] else {
            return Err(Failure::Message(format!(
                "invalid GroupVersionKind format: {text}, please follow <group/version/kind>"
            )));
        };
        let group = if group == "core" { "" } else { group };
        let mapping = invocation.session.mapping_of_kind(&facts::api_version(group, version), kind).await?;
        found.push(mapping.ok_or_else(|| {
            Failure::Message(format!(
                "no matches for kind \"{kind}\" in version \"{}\"",
                facts::api_version(group, version)
            ))
        })?);
    }
    Ok(found)
}

/// Deletes what is no longer applied, and says so.
pub(super) async fn delete(
    invocation: &mut Invocation,
    writing: &Writing,
    mapping: &Mapping,
    object: Value,
) -> Outcome {
    let info = info(mapping, object, "");
    if writing.dry_run != DryRun::Client {
        let mut options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"});
        if writing.dry_run == DryRun::Server {
            options["dryRun"] = json!(["All"]);
        }
        writing.delete(&*invocation.session.api()?, &info, &options).await?;
    }
    let line = format!("{} pruned{}", info.named(), writing.dry_run.suffix());
    invocation.say(&line)
}
