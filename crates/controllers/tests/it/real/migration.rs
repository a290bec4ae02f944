//! Storage version migrations.

use client::Gvr;
use k8s_openapi::api::storagemigration::v1::StorageVersionMigration;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

use super::Rig;

fn definition(stored: &str) -> Value {
    let version = |name: &str| {
        json!({"name": name, "served": true, "storage": name == stored, "schema": {"openAPIV3Schema": {
            "type": "object", "properties": {"size": {"type": "integer"}}}}})
    };
    json!({"metadata": {"name": "ships.harbour.example.com"}, "spec": {"group": "harbour.example.com", "scope": "Namespaced",
        "names": {"plural": "ships", "kind": "Ship"}, "versions": [version("v1"), version("v2")]}})
}

fn migration(name: &str, group: &str, resource: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"resource": {"group": group, "resource": resource}}})
}

/// Its conditions: type, status, reason and message.
fn conditions(migration: &StorageVersionMigration) -> Vec<[String; 4]> {
    let all = migration.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    all.into_iter().map(|one| [one.type_, one.status, one.reason, one.message]).collect()
}

fn has(migration: &StorageVersionMigration, kind: &str, status: &str) -> bool {
    conditions(migration).iter().any(|condition| condition[0] == kind && condition[1] == status)
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_written_again_and_only_the_present_version_is_stored() {
    let rig = Rig::start().await;
    rig.create::<CustomResourceDefinition>(definition("v1")).await;
    let established = |definition: &CustomResourceDefinition| {
        let conditions = definition.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions.into_iter().flatten().any(|one| one.type_ == "Established" && one.status == "True")
    };
    rig.until::<CustomResourceDefinition>("", "ships.harbour.example.com", "it is served", established).await;
    let ships = rig.client.dynamic(&Gvr::new("harbour.example.com", "v1", "ships"));
    for number in 0..7 {
        let ship = json!({"apiVersion": "harbour.example.com/v1", "kind": "Ship", "metadata": {"name": format!("s{number}")}, "size": number});
        ships.create("default", &ship).await.expect("a ship");
    }
    let patch = json!({"spec": {"versions": definition("v2")["spec"]["versions"]}});
    rig.patch::<CustomResourceDefinition>("", "ships.harbour.example.com", patch).await;
    let before = ships.list("default", &Default::default()).await.expect("ships");
    // One that is written after the change is as it should be, whatever happens.
    let stored = |definition: &CustomResourceDefinition| {
        definition.status.as_ref().and_then(|status| status.stored_versions.clone()).unwrap_or_default()
    };
    rig.until::<CustomResourceDefinition>("", "ships.harbour.example.com", "both are stored", |definition| {
        stored(definition) == ["v1", "v2"]
    })
    .await;

    let _running = rig.run("storage-version-migrator-controller");
    let done =
        |migration: &StorageVersionMigration| has(migration, "Succeeded", "True") && has(migration, "Running", "False");
    let migrating = async {
        rig.create::<StorageVersionMigration>(migration("first", "harbour.example.com", "ships")).await;
        rig.create::<StorageVersionMigration>(migration("second", "harbour.example.com", "ships")).await;
        rig.until::<StorageVersionMigration>("", "first", "it is done", done).await
    };
    // Watched from before the first begins: once the second has its turn, the definition tells of that one.
    let stored_once =
        rig.until::<CustomResourceDefinition>("", "ships.harbour.example.com", "one is stored", |ships| {
            stored(ships) == ["v2"]
        });
    let (definition, first) = tokio::join!(stored_once, migrating);
    assert_eq!(
        conditions(&first),
        [
            ["Running", "False", "MigrationCompleted", "Migration completed"],
            ["Succeeded", "True", "StorageVersionMigrationSucceeded", "Migration completed"],
        ]
        .map(|condition| condition.map(str::to_owned))
    );
    let said = definition.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    let said = said.into_iter().find(|one| one.type_ == "StorageMigrating").expect("it tells of its migration");
    assert_eq!(
        (said.status.as_str(), said.message.as_deref()),
        ("False", Some("The migration has succeeded and the stored versions have been updated"))
    );
    let after = ships.list("default", &Default::default()).await.expect("ships");
    let facts =
        |ship: &Value| (ship["metadata"]["name"].clone(), ship["size"].clone(), ship["metadata"]["generation"].clone());
    assert_eq!(
        after.items.iter().map(|ship| facts(ship)).collect::<Vec<_>>(),
        before.items.iter().map(|ship| facts(ship)).collect::<Vec<_>>()
    );
    for (before, after) in before.items.iter().zip(&after.items) {
        assert_ne!(before["metadata"]["resourceVersion"], after["metadata"]["resourceVersion"], "it was written again");
    }
    rig.until::<StorageVersionMigration>("", "second", "its turn came", done).await;
    // What was stored once may go now.
    let only = json!({"spec": {"versions": [definition_of_second()]}});
    rig.patch::<CustomResourceDefinition>("", "ships.harbour.example.com", only).await;
    rig.cluster.stop().await;
}

fn definition_of_second() -> Value {
    definition("v2")["spec"]["versions"][1].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resource_that_cannot_be_migrated_is_told_of() {
    let rig = Rig::start().await;
    let _running = rig.run("storage-version-migrator-controller");
    rig.create::<StorageVersionMigration>(migration("reviews", "authentication.k8s.io", "tokenreviews")).await;
    rig.create::<StorageVersionMigration>(migration("maps", "", "configmaps")).await;
    let failed = rig
        .until::<StorageVersionMigration>("", "reviews", "it failed", |migration| {
            has(migration, "Failed", "True") && has(migration, "Running", "False")
        })
        .await;
    assert_eq!(
        conditions(&failed)[1],
        [
            "Failed",
            "True",
            "StorageVersionMigrationFailed",
            "resource \"authentication.k8s.io/v1, Resource=tokenreviews\" does not support discovery operations: [update patch list]",
        ]
        .map(str::to_owned)
    );
    rig.until::<StorageVersionMigration>("", "maps", "built-in kinds are migrated too", |migration| {
        has(migration, "Succeeded", "True")
    })
    .await;
    rig.cluster.stop().await;
}
