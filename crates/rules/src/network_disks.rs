//! Disks of storage networks, as controllers and nodes name them.
//!
//! No driver attaches them: the node that uses one connects to it. The attach-detach controller nevertheless gives a volume to its node by
//! name, so that a disk for one node is never mounted on two. Upstream: the plug-ins `iscsi` and `fc`, whose `Attach` does nothing.

use k8s_openapi::api::core::v1::PersistentVolume;

/// The plug-ins whose volumes are given to nodes without a driver.
pub const PLUGINS: [&str; 2] = ["kubernetes.io/iscsi", "kubernetes.io/fc"];

/// The plug-in of a volume and the volume's name in `volumesInUse` and `volumesAttached` of a node's status; nothing if it is no such disk, or
/// does not say which one.
pub fn unique_name(volume: &PersistentVolume) -> Option<(&'static str, String)> {
    let spec = volume.spec.as_ref()?;
    let [iscsi, fc] = PLUGINS;
    if let Some(disk) = &spec.iscsi {
        return Some((iscsi, format!("{iscsi}/{}:{}:{}", disk.target_portal, disk.iqn, disk.lun)));
    }
    let disk = spec.fc.as_ref()?;
    let list = |names: &[String]| format!("[{}]", names.join(" "));
    let (targets, ids) = (disk.target_wwns.as_deref().unwrap_or_default(), disk.wwids.as_deref().unwrap_or_default());
    match disk.lun {
        Some(lun) if !targets.is_empty() => Some((fc, format!("{fc}/{}:{lun}", list(targets)))),
        _ if !ids.is_empty() => Some((fc, format!("{fc}/{}", list(ids)))),
        _ => None,
    }
}

/// The plug-in of a name in a node's status, if it is one of these.
pub fn plugin_of(name: &str) -> Option<&'static str> {
    PLUGINS.into_iter().find(|plugin| name.strip_prefix(plugin).is_some_and(|rest| rest.starts_with('/')))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn named(spec: Value) -> Option<String> {
        let volume: PersistentVolume = serde_json::from_value(json!({"spec": spec})).unwrap();
        let (plugin, name) = unique_name(&volume)?;
        assert_eq!(plugin_of(&name), Some(plugin));
        Some(name)
    }

    #[test]
    fn a_disk_has_the_name_that_every_node_gives_it() {
        let iscsi = named(json!({"iscsi": {"targetPortal": "10.0.0.1", "iqn": "iqn.2003-01.io.k8s:e2e", "lun": 2}}));
        assert_eq!(iscsi.as_deref(), Some("kubernetes.io/iscsi/10.0.0.1:iqn.2003-01.io.k8s:e2e:2"));
        let targets = named(json!({"fc": {"targetWWNs": ["500a", "500b"], "lun": 0}}));
        assert_eq!(targets.as_deref(), Some("kubernetes.io/fc/[500a 500b]:0"));
        assert_eq!(named(json!({"fc": {"wwids": ["3600"]}})).as_deref(), Some("kubernetes.io/fc/[3600]"));
        assert_eq!(named(json!({"fc": {"targetWWNs": ["500a"]}})), None);
        assert_eq!(named(json!({"nfs": {"server": "s", "path": "/"}})), None);
        assert_eq!(plugin_of("kubernetes.io/csi/d^h"), None);
        assert_eq!(plugin_of("kubernetes.io/fcx/1"), None);
    }
}
