//! The list of attached volumes in a node's status.
//!
//! It is one list for all volumes, so turns of several volumes would overwrite each other's words. It is read anew and written under the
//! version that was read; who comes second reads again.

use client::{Client, Patch};
use k8s_openapi::api::core::v1::{AttachedVolume, Node};
use serde_json::json;

use super::plan::is_in_use;
use crate::Error;
use crate::common::meta::MetaExt;

/// Turns that write one node's list at once, at most, and some.
const TRIES: usize = 20;

/// A node after its list of attached volumes was looked at.
pub(super) struct Reported {
    pub(super) node: Node,
    /// Whether the list had to be changed.
    pub(super) changed: bool,
}

/// Says that a volume is attached to a node, or is not; answers nothing if there is no such node.
pub(super) async fn write(
    client: &Client,
    node: &str,
    volume: &str,
    attached: bool,
) -> Result<Option<Reported>, Error> {
    write_if(client, node, volume, attached, |_| true).await
}

/// Whether a disk was taken from a node.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    Yes,
    /// The node says that it uses it.
    No,
}

/// Says that a disk is not attached to a node, unless the node uses it. Nothing else keeps the node's hands off it, so one version of the node's
/// status decides both: a node says that it uses a disk before it looks whether it has it.
pub(super) async fn take(client: &Client, node: &str, disk: &str, by_force: bool) -> Result<Taken, Error> {
    let may = |known: &Node| by_force || !is_in_use(known, disk);
    let reported = write_if(client, node, disk, false, may).await?;
    Ok(if reported.is_none_or(|reported| by_force || !is_in_use(&reported.node, disk)) {
        Taken::Yes
    } else {
        Taken::No
    })
}

async fn write_if(
    client: &Client,
    node: &str,
    volume: &str,
    attached: bool,
    may: impl Fn(&Node) -> bool,
) -> Result<Option<Reported>, Error> {
    for _ in 0..TRIES {
        let known = match client.get::<Node>("", node).await {
            Err(error) if error.is_not_found() => return Ok(None),
            other => other?,
        };
        let Some(list) = changed(&known, volume, attached).filter(|_| may(&known)) else {
            return Ok(Some(Reported { node: known, changed: false }));
        };
        let patch = json!({
            "metadata": {"resourceVersion": known.metadata.resource_version, "uid": known.metadata.uid()},
            "status": {"volumesAttached": list},
        });
        match client.patch_status::<Node>("", node, &Patch::Merge(patch)).await {
            Err(error) if error.is_conflict() => {}
            other => return Ok(Some(Reported { node: other?, changed: true })),
        }
    }
    Err(Error::Waiting(format!("status of node {node} is written by too many at once")))
}

/// The list as it should be; nothing if it is so.
fn changed(node: &Node, volume: &str, attached: bool) -> Option<Vec<AttachedVolume>> {
    let mut list = node.status.as_ref().and_then(|status| status.volumes_attached.clone()).unwrap_or_default();
    let present = list.iter().any(|one| one.name == volume);
    if present == attached {
        return None;
    }
    list.retain(|one| one.name != volume);
    if attached {
        list.push(AttachedVolume { name: volume.to_owned(), device_path: String::new() });
    }
    Some(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_volumes_of_the_node_stay_in_the_list() {
        let node: Node =
            serde_json::from_value(json!({"status": {"volumesAttached": [{"name": "a", "devicePath": ""}]}}))
                .expect("a node");
        let names = |list: Option<Vec<AttachedVolume>>| {
            list.map(|list| list.into_iter().map(|one| one.name).collect::<Vec<_>>())
        };
        assert_eq!(names(changed(&node, "b", true)), Some(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(names(changed(&node, "a", false)), Some(vec![]));
        assert_eq!(names(changed(&node, "a", true)), None);
        assert_eq!(names(changed(&node, "b", false)), None);
    }
}
