//! What is to be done about a migration, and how its conditions say so.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::storagemigration::v1::StorageVersionMigration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

pub(super) const RUNNING: &str = "Running";
pub(super) const SUCCEEDED: &str = "Succeeded";
pub(super) const FAILED: &str = "Failed";

/// What comes next for a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// It has ended, or waits for another.
    Nothing,
    /// It is its turn.
    Begin,
    /// Notes at which resource version it began.
    Measure,
    /// Writes objects again.
    Migrate,
    /// It has ended, and the definition has to hear of it.
    Finish,
}

/// What comes next for a migration; `all` are those that there are.
pub(super) fn plan(migration: &StorageVersionMigration, all: &[Arc<StorageVersionMigration>]) -> Step {
    match (holds(migration, RUNNING), has_ended(migration)) {
        (true, true) => Step::Finish,
        (false, true) => Step::Nothing,
        (true, false) if version(migration).is_empty() => Step::Measure,
        (true, false) => Step::Migrate,
        (false, false) => {
            let resource = |one: &StorageVersionMigration| one.spec.as_ref().map(|spec| spec.resource.clone());
            let age = |one: &StorageVersionMigration| {
                (one.metadata.creation_timestamp.as_ref().map(|time| time.0), one.metadata.name.clone())
            };
            let mut others = all.iter().filter(|other| resource(other) == resource(migration));
            let waits = others.any(|other| holds(other, RUNNING) || (!has_ended(other) && age(other) < age(migration)));
            if waits { Step::Nothing } else { Step::Begin }
        }
    }
}

/// The resource version at which a migration began; empty if it has not.
pub(super) fn version(migration: &StorageVersionMigration) -> &str {
    migration.status.as_ref().and_then(|status| status.resource_version.as_deref()).unwrap_or_default()
}

pub(super) fn holds(migration: &StorageVersionMigration, kind: &str) -> bool {
    let conditions = migration.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == kind && condition.status == "True")
}

fn has_ended(migration: &StorageVersionMigration) -> bool {
    holds(migration, SUCCEEDED) || holds(migration, FAILED)
}

/// A condition that a migration is to have.
pub(super) struct NewCondition<'a> {
    pub(super) kind: &'a str,
    pub(super) status: &'a str,
    pub(super) reason: &'a str,
    pub(super) message: String,
    pub(super) generation: Option<i64>,
}

impl<'a> NewCondition<'a> {
    pub(super) fn running(message: String) -> Self {
        Self { kind: RUNNING, status: "True", reason: "MigrationRunning", message, generation: None }
    }

    pub(super) fn failed(message: String) -> Self {
        Self { kind: FAILED, status: "True", reason: "StorageVersionMigrationFailed", message, generation: None }
    }

    pub(super) fn succeeded() -> Self {
        let (reason, message) = ("StorageVersionMigrationSucceeded", "Migration completed".to_owned());
        Self { kind: SUCCEEDED, status: "True", reason, message, generation: None }
    }

    pub(super) fn completed(generation: Option<i64>) -> Self {
        let message = "Migration completed".to_owned();
        Self { kind: RUNNING, status: "False", reason: "MigrationCompleted", message, generation }
    }
}

/// Gives a migration a condition. Whether that is new.
pub(super) fn set_condition(
    migration: &mut StorageVersionMigration,
    condition: NewCondition<'_>,
    now: Timestamp,
) -> bool {
    let conditions = migration.status.get_or_insert_default().conditions.get_or_insert_default();
    let mut new = Condition {
        type_: condition.kind.to_owned(),
        status: condition.status.to_owned(),
        reason: condition.reason.to_owned(),
        message: condition.message,
        observed_generation: condition.generation,
        last_transition_time: Time(now),
    };
    match conditions.iter_mut().find(|known| known.type_ == condition.kind) {
        None => {
            conditions.push(new);
            true
        }
        Some(known) => {
            if known.status == new.status {
                new.last_transition_time = known.last_transition_time.clone();
            }
            let changed = *known != new;
            *known = new;
            changed
        }
    }
}

/// How far a migration is: how many objects there are, and how many of them have not been written yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Progress {
    pub(super) left: usize,
    pub(super) total: usize,
}

/// What a migration that runs says of itself.
pub(super) fn running(progress: Progress, transient: Option<&str>) -> String {
    let mut message = "The migration is running".to_owned();
    match progress {
        Progress { total: 0, .. } => {}
        Progress { left: 0, total } => message.push_str(&format!(", {total} objects verified migrated")),
        Progress { left, total } => message.push_str(&format!(", {left}/{total} objects not yet migrated")),
    }
    if let Some(error) = transient {
        message.push_str(&format!("; transient error: {error}"));
    }
    message
}

/// What a definition says once its migration has ended, and whether only the present version is stored from then on. That is known only if the
/// definition is the one that the migration began with.
pub(super) fn finished(succeeded: bool, began_with: Option<i64>, generation: i64) -> (&'static str, String, bool) {
    let unchanged = began_with == Some(generation);
    let (reason, message) = match (succeeded, unchanged) {
        (true, true) => ("MigrationSucceeded", "The migration has succeeded and the stored versions have been updated"),
        (true, false) => (
            "MigrationSucceeded",
            "The migration has succeeded but the stored versions have not been updated due to a generation mismatch",
        ),
        (false, _) => ("MigrationFailed", "The migration has failed"),
    };
    (reason, message.to_owned(), unchanged)
}
