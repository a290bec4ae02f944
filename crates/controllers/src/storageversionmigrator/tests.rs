//! Whose turn it is, and what is said of it.

use std::sync::Arc;

use k8s_openapi::api::storagemigration::v1::StorageVersionMigration;
use serde_json::{Value, json};

use super::plan::{NewCondition, Progress, Step, finished, holds, plan, running, set_condition};
use crate::testing::at;

fn migration(name: &str, resource: &str, made: u8, conditions: &[&str]) -> StorageVersionMigration {
    let condition = |kind: &&str| json!({"type": kind, "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2020-01-01T00:00:00Z"});
    let conditions: Vec<Value> = conditions.iter().map(condition).collect();
    serde_json::from_value(
        json!({"metadata": {"name": name, "creationTimestamp": format!("2020-01-01T00:00:{made:02}Z")},
        "spec": {"resource": {"group": "g", "resource": resource}}, "status": {"conditions": conditions}}),
    )
    .expect("a migration")
}

#[test]
fn one_migration_of_a_resource_runs_at_a_time_the_oldest_first() {
    let next = |all: &[StorageVersionMigration]| -> Vec<Step> {
        let all: Vec<Arc<StorageVersionMigration>> = all.iter().cloned().map(Arc::new).collect();
        all.iter().map(|one| plan(one, &all)).collect()
    };
    let (young, old) = (migration("a", "x", 2, &[]), migration("b", "x", 1, &[]));
    assert_eq!(
        next(&[young.clone(), old.clone(), migration("c", "y", 3, &[])]),
        [Step::Nothing, Step::Begin, Step::Begin]
    );
    assert_eq!(next(&[migration("a", "x", 1, &[]), migration("b", "x", 1, &[])]), [Step::Begin, Step::Nothing]);
    let mut runs = migration("b", "x", 1, &["Running"]);
    assert_eq!(next(&[young.clone(), runs.clone()]), [Step::Nothing, Step::Measure]);
    runs.status.get_or_insert_default().resource_version = Some("7".to_owned());
    assert_eq!(next(&[young.clone(), runs]), [Step::Nothing, Step::Migrate]);
    assert_eq!(next(&[young.clone(), migration("b", "x", 1, &["Running", "Failed"])]), [Step::Nothing, Step::Finish]);
    assert_eq!(next(&[young, migration("b", "x", 1, &["Succeeded"])]), [Step::Begin, Step::Nothing]);
}

#[test]
fn what_is_said_is_upstreams() {
    assert_eq!(running(Progress::default(), None), "The migration is running");
    assert_eq!(running(Progress { left: 0, total: 3 }, None), "The migration is running, 3 objects verified migrated");
    assert_eq!(
        running(Progress { left: 2, total: 3 }, Some("busy")),
        "The migration is running, 2/3 objects not yet migrated; transient error: busy"
    );
    let told = |succeeded, began_with| finished(succeeded, began_with, 4);
    assert_eq!(told(true, Some(4)).1, "The migration has succeeded and the stored versions have been updated");
    assert_eq!(
        told(true, Some(3)).1,
        "The migration has succeeded but the stored versions have not been updated due to a generation mismatch"
    );
    assert_eq!((told(true, None).2, told(false, Some(4)).0), (false, "MigrationFailed"));
}

#[test]
fn a_condition_keeps_the_time_of_its_last_change() {
    let mut migration = migration("a", "x", 1, &[]);
    assert!(set_condition(&mut migration, NewCondition::running("one".to_owned()), at(1)));
    assert!(!set_condition(&mut migration, NewCondition::running("one".to_owned()), at(2)));
    assert!(set_condition(&mut migration, NewCondition::running("two".to_owned()), at(3)));
    let since = |migration: &StorageVersionMigration| {
        let conditions = migration.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions.map(|all| all[0].last_transition_time.0)
    };
    assert_eq!(since(&migration), Some(at(1)));
    assert!(set_condition(&mut migration, NewCondition::completed(Some(1)), at(4)) && !holds(&migration, "Running"));
    assert_eq!(since(&migration), Some(at(4)));
}
