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
    warn(invocation);
    for (mapping, object) in prunable(invocation, builder, applied).await? {
        delete(invocation, writing, &mapping, object).await?;
    }
    Ok(())
}

/// Kinds without a namespace are pruned where nobody says which kinds are: said to whoever relies on it.
pub fn warn(invocation: &mut Invocation) {
    if invocation.flags.list("prune-allowlist").is_empty() {
        invocation.streams.log('W', "prune.go:71", "Deprecated: kubectl apply will no longer prune non-namespaced resources by default when used with the --namespace flag in a future release. To preserve the current behaviour, list the resources you want to target explicitly in the --prune-allowlist flag.");
    }
}

/// What was applied before and is not among what is applied now.
pub async fn prunable(invocation: &Invocation, builder: &Builder, applied: &[Info]) -> Outcome<Vec<(Mapping, Value)>> {
    let mut found = Vec::new();
    let visited: BTreeSet<String> =
        applied.iter().map(|info| machinery::value::text(&info.object, "metadata.uid").to_owned()).collect();
    let namespaces: BTreeSet<&str> =
        applied.iter().filter(|info| info.mapping.namespaced).map(|info| info.namespace.as_str()).collect();
    let mappings = mappings(invocation).await?;
    let (namespaced, others): (Vec<&Mapping>, Vec<&Mapping>) = mappings.iter().partition(|mapping| mapping.namespaced);
    let places = namespaces.iter().map(|place| (*place, &namespaced)).chain([("", &others)]);
    for (place, mappings) in places {
        for mapping in mappings {
            let target = Target { mapping: (*mapping).clone(), namespace: place.to_owned(), name: None };
            for object in list(&invocation.session, &target, builder, "").await? {
                let uid = machinery::value::text(&object, "metadata.uid");
                let remembered =
                    machinery::value::at(&object, "metadata.annotations").and_then(|all| all.get(LAST_APPLIED));
                if remembered.is_none() || visited.contains(uid) {
                    continue;
                }
                found.push(((*mapping).clone(), object));
            }
        }
    }
    Ok(found)
}

/// Whether what may be pruned can be read at all, before anything is applied.
pub(super) fn check(invocation: &Invocation) -> Outcome {
    let wrong = |text: &&String| text.split('/').count() != 3;
    match invocation.flags.list("prune-allowlist").iter().find(wrong) {
        None => Ok(()),
        Some(text) => Err(Failure::Message(format!(
            "invalid GroupVersionKind format: {text}, please follow <group/version/kind>"
        ))),
    }
}

async fn mappings(invocation: &Invocation) -> Outcome<Vec<Mapping>> {
    check(invocation)?;
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
        let [group, version, kind] = parts[..] else { continue };
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
        let mut options = json!({"propagationPolicy": "Background"});
        if writing.dry_run == DryRun::Server {
            options["dryRun"] = json!(["All"]);
        }
        writing.delete(&*invocation.session.api()?, &info, &options).await?;
    }
    let line = format!("{} pruned{}", info.named(), writing.dry_run.suffix());
    invocation.say(&line)
}
