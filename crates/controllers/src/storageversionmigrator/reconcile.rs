//! Observes, applies what `plan` decides, and reports.

use std::time::Duration;

use client::{Gvr, ListParams, Patch};
use informer::{Action, Informer, Key, Reconciler};
use k8s_openapi::api::storagemigration::v1::StorageVersionMigration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::GroupResource;
use machinery::value;
use serde_json::{Value, json};

use super::plan::{self, FAILED, NewCondition, Progress, SUCCEEDED, Step, holds, plan, set_condition};
use crate::Error;
use crate::common::discovery::{Resource, discover};
use crate::common::meta::MetaExt;
use crate::context::{Context, Tools};

const WORKERS: usize = 5;
/// How long a resource may take to be known after its migration was asked for: its definition may have been made just before.
const KNOWN_WITHIN: Duration = Duration::from_secs(60);
/// How often a definition is written while others write it too.
const ATTEMPTS: usize = 5;
/// What a resource must be able to do.
const VERBS: [&str; 3] = ["update", "patch", "list"];
/// Who owns what is said in definitions.
const MANAGER: &str = "migration-runner-controller";

pub(crate) async fn start(context: Context) {
    let mut inputs = context.inputs();
    let controller = Migrator { tools: context.tools.clone(), migrations: inputs.read() };
    let all = controller.migrations.clone();
    // The end of one is the turn of another.
    inputs.feed(&controller.migrations, move |change| {
        let resource = |migration: &StorageVersionMigration| migration.spec.as_ref().map(|spec| spec.resource.clone());
        let about = resource(change.object());
        let same = all.list().into_iter().filter(|migration| resource(migration) == about);
        same.map(|migration| migration.metadata.key()).collect::<Vec<_>>()
    });
    inputs.filled().await;
    controller.migrations.list().iter().for_each(|migration| inputs.queue.add(migration.metadata.key()));
    inputs.run(controller, WORKERS).await;
}

pub(super) struct Migrator {
    pub(super) tools: Tools,
    migrations: Informer<StorageVersionMigration>,
}

impl Reconciler for Migrator {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(migration) = self.migrations.get(key) else { return Ok(Action::Done) };
        let step = plan(&migration, &self.migrations.list());
        let mut migration = StorageVersionMigration::clone(&migration);
        let resource = migration.spec.as_ref().map(|spec| spec.resource.clone()).unwrap_or_default();
        let mut outcome = Ok(());
        let changed = match step {
            Step::Nothing => false,
            Step::Begin => {
                let message = format!("Migration {} is running", migration.metadata.name());
                self.tell_definition(&resource, |definition| {
                    Some(with_condition(definition, "True", "MigrationRunning", &message, false))
                })
                .await?;
                set_condition(
                    &mut migration,
                    NewCondition::running(plan::running(Progress::default(), None)),
                    self.tools.clock.now(),
                )
            }
            Step::Measure => self.measure(&mut migration, &resource).await?,
            Step::Migrate => {
                let (changed, left) = self.migrate(&mut migration, &resource).await?;
                outcome = left;
                changed
            }
            Step::Finish => {
                let succeeded = holds(&migration, SUCCEEDED) && !holds(&migration, FAILED);
                self.tell_definition(&resource, |definition| {
                    let generation = value::int(definition, "metadata.generation").unwrap_or(0);
                    let (reason, message, only) = plan::finished(succeeded, began_with(definition), generation);
                    Some(with_condition(definition, "False", reason, &message, only))
                })
                .await?;
                let generation = migration.metadata.generation;
                set_condition(&mut migration, NewCondition::completed(generation), self.tools.clock.now())
            }
        };
        if changed {
            match self.tools.client.update_status(&migration).await {
                Err(error) if !error.is_not_found() => return Err(error.into()),
                _ => {}
            }
        }
        outcome.map(|()| Action::Done)
    }
}

impl Migrator {
    /// The resource that a migration is about; nothing if it has been unknown for too long.
    pub(super) async fn resource(
        &self,
        migration: &StorageVersionMigration,
        resource: &GroupResource,
    ) -> Result<Option<Resource>, Error> {
        let known = discover(&self.tools.client).await?.resources;
        let known = known
            .into_iter()
            .find(|known| known.gvr.group == resource.group && known.gvr.resource == resource.resource);
        let created = migration.metadata.creation_timestamp.as_ref().map_or(jiff::Timestamp::UNIX_EPOCH, |time| time.0);
        if known.is_none() && informer::clock::add(created, KNOWN_WITHIN) > self.tools.clock.now() {
            let why = "resource does not exist in our rest mapper, requeuing to attempt again";
            return Err(Error::Waiting(why.to_owned()));
        }
        Ok(known)
    }

    /// Notes at which resource version a migration began, or why it cannot begin.
    async fn measure(&self, migration: &mut StorageVersionMigration, of: &GroupResource) -> Result<bool, Error> {
        let Some(resource) = self.resource(migration, of).await? else {
            return Ok(set_condition(
                migration,
                NewCondition::failed("resource does not exist in discovery".to_owned()),
                self.tools.clock.now(),
            ));
        };
        if !resource.can(&VERBS) {
            let Gvr { group, version, resource } = &resource.gvr;
            let message = format!(
                "resource \"{}, Resource={resource}\" does not support discovery operations: [{}]",
                facts::api_version(group, version),
                VERBS.join(" ")
            );
            return Ok(set_condition(migration, NewCondition::failed(message), self.tools.clock.now()));
        }
        let params = ListParams { limit: Some(1), ..ListParams::default() };
        let list = self.tools.client.dynamic(&resource.gvr).list_metadata("", &params).await?;
        migration.status.get_or_insert_default().resource_version = Some(list.revision);
        Ok(true)
    }

    /// Writes the status of the definition of a custom resource, if it is one.
    async fn tell_definition(
        &self,
        resource: &GroupResource,
        status: impl Fn(&Value) -> Option<Value>,
    ) -> Result<(), Error> {
        let definitions = Gvr::new("apiextensions.k8s.io", "v1", "customresourcedefinitions");
        let definitions = self.tools.client.dynamic(&definitions);
        let name = format!("{}.{}", resource.resource, resource.group);
        for attempt in 1.. {
            let definition = match definitions.get("", &name).await {
                Err(error) if error.is_not_found() => return Ok(()),
                definition => definition?,
            };
            let Some(mut object) = status(&definition) else { return Ok(()) };
            object["status"]["conditions"][0]["lastTransitionTime"] =
                json!(machinery::time::format(self.tools.clock.now()));
            let patch = Patch::Apply { manager: MANAGER.to_owned(), force: true, object };
            match definitions.patch("", &name, "status", &patch).await {
                Err(error) if error.is_conflict() && attempt < ATTEMPTS => {}
                Err(error) if error.is_not_found() => return Ok(()),
                outcome => return outcome.map(drop).map_err(Error::from),
            }
        }
        Ok(())
    }
}

/// With which generation of its definition the migration began that the definition tells of.
fn began_with(definition: &Value) -> Option<i64> {
    let conditions = value::list(definition, "status.conditions");
    let condition = conditions.iter().find(|condition| condition["type"] == "StorageMigrating")?;
    condition["observedGeneration"].as_i64()
}

/// What a definition is to say of its migration. It is meant for the definition as it was read, and for no other.
fn with_condition(definition: &Value, status: &str, reason: &str, message: &str, only_present: bool) -> Value {
    let condition = json!({"type": "StorageMigrating", "status": status, "reason": reason, "message": message,
        "observedGeneration": definition["metadata"]["generation"]});
    let mut changed = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": definition["metadata"]["name"], "resourceVersion": definition["metadata"]["resourceVersion"]},
        "status": {"conditions": [condition]}});
    let mut versions = value::list(definition, "spec.versions").iter();
    if only_present && let Some(stored) = versions.find(|version| value::flag(version, "storage")) {
        changed["status"]["storedVersions"] = json!([stored["name"]]);
    }
    changed
}
