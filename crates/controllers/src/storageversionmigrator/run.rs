//! The migration itself: every object gets a patch that changes nothing.

use client::{Dynamic, ListParams, Patch};
use k8s_openapi::api::storagemigration::v1::StorageVersionMigration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::GroupResource;
use serde_json::json;

use super::plan::{self, NewCondition, Progress, set_condition, version};
use super::reconcile::Migrator;
use crate::Error;
use crate::common::meta::MetaExt;

/// How many objects are listed at once.
const PAGE: u32 = 500;

/// An object that is to be written again.
struct Candidate {
    namespace: String,
    name: String,
    version: String,
}

impl Migrator {
    /// Writes all objects again that have not been written since the migration began. Whether there is something new to say of it, and whether it has to be
    /// tried again.
    pub(super) async fn migrate(
        &self,
        migration: &mut StorageVersionMigration,
        of: &GroupResource,
    ) -> Result<(bool, Result<(), Error>), Error> {
        let unhandled = |error: &str| format!("migration encountered unhandled error: {error}");
        let Some(resource) = self.resource(migration, of).await? else {
            let condition = NewCondition::failed(unhandled("unable to obtain GVR from discovery"));
            return Ok((set_condition(migration, condition, self.tools.clock.now()), Ok(())));
        };
        let objects = self.tools.client.dynamic(&resource.gvr);
        let (candidates, total) = candidates(&objects, version(migration)).await?;
        let api_version = facts::api_version(&resource.gvr.group, &resource.gvr.version);
        let mut progress = Progress { left: candidates.len(), total };
        for Candidate { namespace, name, version } in &candidates {
            let nothing =
                json!({"apiVersion": api_version, "kind": resource.kind, "metadata": {"resourceVersion": version}});
            match objects.patch(namespace, name, "", &Patch::Merge(nothing)).await {
                Ok(_) => {}
                // It has been written or deleted since.
                Err(error) if error.is_conflict() || error.is_not_found() => {}
                Err(error) if is_transient(&error) => {
                    let message = plan::running(progress, Some(&error.to_string()));
                    let changed = set_condition(migration, NewCondition::running(message), self.tools.clock.now());
                    return Ok((changed, Err(error.into())));
                }
                Err(error) => {
                    set_condition(
                        migration,
                        NewCondition::running(plan::running(progress, None)),
                        self.tools.clock.now(),
                    );
                    let Progress { left, total } = progress;
                    let message = format!("{left}/{total} not yet migrated. {}", unhandled(&error.to_string()));
                    return Ok((
                        set_condition(migration, NewCondition::failed(message), self.tools.clock.now()),
                        Ok(()),
                    ));
                }
            }
            progress.left -= 1;
        }
        let changed =
            set_condition(migration, NewCondition::running(plan::running(progress, None)), self.tools.clock.now());
        Ok((set_condition(migration, NewCondition::succeeded(), self.tools.clock.now()) || changed, Ok(())))
    }
}

fn is_transient(error: &client::Error) -> bool {
    error.is_too_many_requests() || error.is_unreachable() || matches!(error.code(), Some(500))
}

/// The objects that were last written at or before a resource version, and how many there are in all.
async fn candidates(objects: &Dynamic, began: &str) -> Result<(Vec<Candidate>, usize), client::Error> {
    let number = |version: &str| version.parse::<u64>().unwrap_or(0);
    let (mut candidates, mut total, mut next) = (Vec::new(), 0, None);
    loop {
        let params = ListParams { limit: Some(PAGE), next: next.take(), ..ListParams::default() };
        let page = objects.list_metadata("", &params).await?;
        total += page.items.len();
        for object in &page.items {
            let version = object.metadata.resource_version.clone().unwrap_or_default();
            if number(&version) <= number(began) {
                let (namespace, name) = (object.metadata.namespace().to_owned(), object.metadata.name().to_owned());
                candidates.push(Candidate { namespace, name, version });
            }
        }
        next = page.next;
        if next.is_none() {
            return Ok((candidates, total));
        }
    }
}
