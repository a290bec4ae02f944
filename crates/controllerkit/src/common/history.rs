//! ControllerRevisions: the templates that a DaemonSet or StatefulSet had, for updates and for `kubectl rollout undo`.

use std::sync::Arc;

use client::{Client, DeleteOptions, Kind};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use serde_json::{Value, json};

use super::meta::{MetaExt, controller_reference};
use crate::Error;

/// The label of pods and revisions that names a revision.
pub const HASH_LABEL: &str = "controller-revision-hash";

/// What a revision keeps: a patch that puts the template back.
pub fn data(template: &PodTemplateSpec) -> Value {
    let mut template = serde_json::to_value(template).unwrap_or_default();
    template["$patch"] = json!("replace");
    json!({"spec": {"template": template}})
}

/// The template that a revision keeps.
pub fn template(revision: &ControllerRevision) -> Option<PodTemplateSpec> {
    let mut template = revision.data.0.get("spec")?.get("template")?.clone();
    template.as_object_mut()?.remove("$patch");
    serde_json::from_value(template).ok()
}

pub fn sort(revisions: &mut [Arc<ControllerRevision>]) {
    revisions.sort_by(|a, b| {
        let age = |revision: &ControllerRevision| {
            (
                revision.revision.unwrap_or_default(),
                revision.metadata.creation_timestamp.clone(),
                revision.metadata.name.clone(),
            )
        };
        age(a).cmp(&age(b))
    });
}

/// The revision of the owner's present template, made or moved to the end as need be. `revisions` are the owner's own. `None` if another template has
/// the same hash: then the owner's collision count must grow.
pub async fn present<O: Kind>(
    client: &Client,
    owner: &O,
    template: &PodTemplateSpec,
    hash: &str,
    revisions: &[Arc<ControllerRevision>],
) -> Result<Option<Arc<ControllerRevision>>, Error> {
    let mut sorted = revisions.to_vec();
    sort(&mut sorted);
    let wanted = data(template);
    let next = sorted.last().and_then(|last| last.revision).unwrap_or_default().saturating_add(1);
    let same = sorted.iter().rfind(|revision| revision.data.0 == wanted);
    if let Some(known) = same {
        if sorted.last().is_some_and(|last| last.metadata.name == known.metadata.name) {
            return Ok(Some(known.clone()));
        }
        // Rolled back to: it becomes the newest again.
        let changed = ControllerRevision { revision: Some(next), ..ControllerRevision::clone(known) };
        return Ok(Some(Arc::new(client.update(&changed).await?)));
    }
    let revision = snapshot(owner, template, hash, next);
    match client.create(&revision).await {
        Ok(created) => Ok(Some(Arc::new(created))),
        Err(error) if error.is_already_exists() => {
            let live = client.get::<ControllerRevision>(owner.metadata().namespace(), revision.metadata.name()).await?;
            let owned = live.metadata.controller().is_some_and(|controller| controller.uid == owner.metadata().uid());
            if owned && live.data.0 == wanted { Ok(Some(Arc::new(live))) } else { Ok(None) }
        }
        Err(error) => Err(error.into()),
    }
}

/// A revision of the template. It has the annotations that its owner has at this moment, so that `kubectl rollout history` can tell why the
/// template changed, and the labels of the template, which the owner's selector always selects.
fn snapshot<O: Kind>(owner: &O, template: &PodTemplateSpec, hash: &str, revision: i64) -> ControllerRevision {
    let meta = owner.metadata();
    let mut labels = template.metadata.as_ref().and_then(|meta| meta.labels.clone()).unwrap_or_default();
    labels.insert(HASH_LABEL.to_owned(), hash.to_owned());
    ControllerRevision {
        metadata: ObjectMeta {
            name: Some(format!("{}-{hash}", meta.name().get(..223).unwrap_or(meta.name()))),
            namespace: meta.namespace.clone(),
            labels: Some(labels),
            annotations: meta.annotations.clone(),
            owner_references: Some(vec![controller_reference(owner)]),
            ..ObjectMeta::default()
        },
        data: RawExtension(data(template)),
        revision: Some(revision),
    }
}

/// The oldest revisions beyond the limit that no pod and no status names.
pub fn surplus(
    revisions: &[Arc<ControllerRevision>],
    limit: Option<i32>,
    in_use: impl Fn(&ControllerRevision) -> bool,
) -> Vec<Arc<ControllerRevision>> {
    let mut unused: Vec<Arc<ControllerRevision>> =
        revisions.iter().filter(|revision| !in_use(revision)).cloned().collect();
    sort(&mut unused);
    let surplus = unused.len().saturating_sub(usize::try_from(limit.unwrap_or(10)).unwrap_or_default());
    unused.truncate(surplus);
    unused
}

pub async fn delete(client: &Client, revisions: &[Arc<ControllerRevision>]) -> Result<(), Error> {
    for revision in revisions {
        let (namespace, name) = (revision.metadata.namespace(), revision.metadata.name());
        match client.delete::<ControllerRevision>(namespace, name, &DeleteOptions::default()).await {
            Err(error) if !error.is_not_found() => return Err(error.into()),
            _ => {}
        }
    }
    Ok(())
}
