//! What the cluster knows of this node's drivers: the CSINode, and on the Node an annotation and the labels of where it is.

use std::collections::BTreeMap;

use client::{Client, Patch};
use csi::v1::NodeGetInfoResponse;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::{CSINode, CSINodeDriver, VolumeNodeResources};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use rules::migration::{MIGRATED_PLUGINS, PLUGINS};
use serde_json::json;

const NODE_ID: &str = "csi.volume.kubernetes.io/nodeid";
/// Tries when somebody else writes the object at the same time.
const TRIES: usize = 5;

/// Makes the CSINode if there is none.
pub(super) async fn ensure(client: &Client, name: &str) -> Result<CSINode, client::Error> {
    match client.get::<CSINode>("", name).await {
        Err(error) if error.is_not_found() => {}
        other => return other,
    }
    let node = client.get::<Node>("", name).await?;
    let migrated = PLUGINS.iter().map(|plugin| plugin.name).collect::<Vec<_>>().join(",");
    let fresh = CSINode {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            annotations: Some([(MIGRATED_PLUGINS.to_owned(), migrated)].into()),
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Node".to_owned(),
                name: name.to_owned(),
                uid: node.metadata.uid.unwrap_or_default(),
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        },
        ..CSINode::default()
    };
    match client.create(&fresh).await {
        Err(error) if error.is_already_exists() => client.get("", name).await,
        other => other,
    }
}

/// Puts a driver into both objects.
pub(super) async fn install(
    client: &Client,
    node: &str,
    driver: &str,
    about: &NodeGetInfoResponse,
) -> Result<(), String> {
    if about.node_id.is_empty() {
        return Err("error adding CSI driver node info: driverNodeID must not be empty".to_owned());
    }
    let refused = |error: client::Error| format!("error updating Node object with CSI driver node info: {error}");
    let known = client.get::<Node>("", node).await.map_err(refused)?;
    if let Some(patch) = node_patch(&known, driver, about)? {
        client.patch::<Node>("", node, &Patch::Merge(patch)).await.map_err(refused)?;
    }
    let entry = entry(driver, about);
    change(client, node, |drivers| {
        if drivers.contains(&entry) {
            return false;
        }
        drivers.retain(|one| one.name != driver);
        drivers.push(entry.clone());
        true
    })
    .await
    .map_err(|error| format!("error updating CSINode object with CSI driver node info: {error}"))
}

/// Takes a driver out of both objects.
pub(super) async fn uninstall(client: &Client, node: &str, driver: &str) -> Result<(), client::Error> {
    change(client, node, |drivers| {
        let before = drivers.len();
        drivers.retain(|one| one.name != driver);
        drivers.len() != before
    })
    .await?;
    let known = client.get::<Node>("", node).await?;
    let mut ids = node_ids(&known).unwrap_or_default();
    if ids.remove(driver).is_none() {
        return Ok(());
    }
    let left = (!ids.is_empty()).then(|| json!(ids).to_string());
    let patch = json!({"metadata": {"annotations": {NODE_ID: left}}});
    client.patch::<Node>("", node, &Patch::Merge(patch)).await.map(drop)
}

async fn change(
    client: &Client,
    node: &str,
    edit: impl Fn(&mut Vec<CSINodeDriver>) -> bool,
) -> Result<(), client::Error> {
    let mut tries = 0;
    loop {
        let mut known = ensure(client, node).await?;
        if !edit(&mut known.spec.drivers) {
            return Ok(());
        }
        match client.update(&known).await {
            Err(error) if error.is_conflict() && tries < TRIES => tries += 1,
            other => return other.map(drop),
        }
    }
}

fn entry(driver: &str, about: &NodeGetInfoResponse) -> CSINodeDriver {
    let topology = about.accessible_topology.as_ref().map(|topology| topology.segments.keys().cloned().collect());
    let count = Some(about.max_volumes_per_node).filter(|count| *count > 0);
    CSINodeDriver {
        name: driver.to_owned(),
        node_id: about.node_id.clone(),
        topology_keys: topology,
        allocatable: count.map(|count| VolumeNodeResources { count: Some(i32::try_from(count).unwrap_or(i32::MAX)) }),
    }
}

fn node_ids(node: &Node) -> Result<BTreeMap<String, String>, String> {
    let text = node.metadata.annotations.as_ref().and_then(|all| all.get(NODE_ID)).map_or("", String::as_str);
    if text.is_empty() {
        return Ok(BTreeMap::new());
    }
    serde_json::from_str(text)
        .map_err(|error| format!("failed to parse node's {NODE_ID:?} annotation value ({text:?}) err={error}"))
}

/// What has to change about the node; nothing if it knows all of it.
fn node_patch(node: &Node, driver: &str, about: &NodeGetInfoResponse) -> Result<Option<serde_json::Value>, String> {
    let mut ids = node_ids(node)?;
    let news = ids.insert(driver.to_owned(), about.node_id.clone()).as_ref() != Some(&about.node_id);
    let mut labels = serde_json::Map::new();
    for (key, value) in about.accessible_topology.iter().flat_map(|topology| &topology.segments) {
        match node.metadata.labels.as_ref().and_then(|labels| labels.get(key)) {
            None => drop(labels.insert(key.clone(), json!(value))),
            Some(known) if known == value => {}
            Some(known) => {
                return Err(format!(
                    "detected topology value collision: driver reported {key:?}:{value:?} but existing label is {key:?}:{known:?}"
                ));
            }
        }
    }
    if !news && labels.is_empty() {
        return Ok(None);
    }
    Ok(Some(json!({"metadata": {"annotations": {NODE_ID: json!(ids).to_string()}, "labels": labels}})))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(id: &str, segments: &[(&str, &str)]) -> NodeGetInfoResponse {
        let segments: BTreeMap<String, String> =
            segments.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        NodeGetInfoResponse {
            node_id: id.to_owned(),
            max_volumes_per_node: 7,
            accessible_topology: Some(csi::v1::Topology { segments }),
        }
    }

    #[test]
    fn the_node_gets_the_drivers_name_for_it_and_labels_that_do_not_collide() {
        let mut node = Node::default();
        let patch = node_patch(&node, "d", &about("n1", &[("zone", "a")])).unwrap().unwrap();
        assert_eq!(patch, json!({"metadata": {"annotations": {NODE_ID: "{\"d\":\"n1\"}"}, "labels": {"zone": "a"}}}));
        node.metadata.annotations = Some([(NODE_ID.to_owned(), "{\"d\":\"n1\",\"e\":\"x\"}".to_owned())].into());
        node.metadata.labels = Some([("zone".to_owned(), "a".to_owned())].into());
        assert_eq!(node_patch(&node, "d", &about("n1", &[("zone", "a")])), Ok(None));
        let refused = node_patch(&node, "d", &about("n1", &[("zone", "b")])).unwrap_err();
        assert_eq!(
            refused,
            "detected topology value collision: driver reported \"zone\":\"b\" but existing label is \"zone\":\"a\""
        );
        let patch = node_patch(&node, "d", &about("n2", &[])).unwrap().unwrap();
        assert_eq!(patch["metadata"]["annotations"][NODE_ID], "{\"d\":\"n2\",\"e\":\"x\"}");
    }

    #[test]
    fn an_entry_has_keys_and_a_limit() {
        let entry = entry("d", &about("n1", &[("b", "2"), ("a", "1")]));
        assert_eq!(entry.topology_keys.unwrap(), ["a", "b"]);
        assert_eq!(entry.allocatable.unwrap().count, Some(7));
    }
}
