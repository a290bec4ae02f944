//! What a driver is asked for a volume of a pod. Pure.

use std::collections::BTreeMap;

use csi::v1;
use csi::v1::volume_capability::access_mode::Mode;
use csi::v1::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use k8s_openapi::api::core::v1::{PersistentVolume, Pod, SecretReference, Volume};
use k8s_openapi::api::storage::v1::CSIDriver;

use super::growth::bytes;
use super::{Growth, selinux};
use crate::pod::spec;

/// A volume of a driver, as a pod asks for it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Source {
    pub(crate) driver: String,
    pub(crate) handle: String,
    /// The persistent volume's name, or the pod's own for the volume.
    pub(crate) name: String,
    /// Whether it lives and dies with its pod.
    pub(crate) ephemeral: bool,
    /// Whether it is shown to containers as a device.
    pub(crate) block: bool,
    pub(crate) read_only: bool,
    pub(crate) fs_type: String,
    pub(crate) attributes: BTreeMap<String, String>,
    pub(crate) mount_options: Vec<String>,
    pub(crate) access_modes: Vec<String>,
    pub(crate) stage_secret: Option<SecretReference>,
    pub(crate) publish_secret: Option<SecretReference>,
    pub(crate) expand_secret: Option<SecretReference>,
    /// How large it is.
    pub(crate) bytes: i64,
    /// What its claim does not have yet.
    pub(crate) growth: Option<Growth>,
    /// The SELinux label that its files have to have, if its driver mounts with one.
    pub(crate) label: Option<String>,
}

impl Source {
    /// A volume that outlives its pod; nothing if no driver has it.
    pub(crate) fn persistent(volume: &PersistentVolume, read_only: bool) -> Option<Self> {
        let spec = volume.spec.as_ref()?;
        let source = spec.csi.clone()?;
        Some(Self {
            driver: source.driver,
            handle: source.volume_handle,
            name: volume.metadata.name.clone().unwrap_or_default(),
            ephemeral: false,
            block: spec.volume_mode.as_deref() == Some("Block"),
            read_only,
            fs_type: source.fs_type.unwrap_or_default(),
            attributes: source.volume_attributes.unwrap_or_default(),
            mount_options: spec.mount_options.clone().unwrap_or_default(),
            access_modes: spec.access_modes.clone().unwrap_or_default(),
            stage_secret: source.node_stage_secret_ref,
            publish_secret: source.node_publish_secret_ref,
            expand_secret: source.node_expand_secret_ref,
            bytes: bytes(spec.capacity.as_ref().and_then(|all| all.get("storage"))).unwrap_or(0),
            growth: None,
            label: None,
        })
    }

    /// A volume that the pod itself describes; nothing if it is no driver's.
    pub(crate) fn inline(pod: &Pod, volume: &Volume) -> Option<Self> {
        let source = volume.csi.clone()?;
        let namespace = Some(spec::namespace(pod).to_owned());
        Some(Self {
            driver: source.driver,
            handle: csi::names::ephemeral_handle(spec::uid(pod), &volume.name),
            name: volume.name.clone(),
            ephemeral: true,
            read_only: source.read_only == Some(true),
            fs_type: source.fs_type.unwrap_or_default(),
            attributes: source.volume_attributes.unwrap_or_default(),
            publish_secret: source
                .node_publish_secret_ref
                .map(|secret| SecretReference { name: Some(secret.name), namespace }),
            ..Self::default()
        })
    }

    /// The volume for a driver: only those that say so mount with an SELinux label.
    pub(crate) fn labelled_by(&self, driver: Option<&CSIDriver>) -> Self {
        let mounts = driver.and_then(|driver| driver.spec.se_linux_mount) == Some(true);
        Self { label: self.label.clone().filter(|_| mounts), ..self.clone() }
    }

    pub(crate) fn unique_name(&self) -> String {
        csi::names::unique(&self.driver, &self.handle)
    }

    /// Whether one pod at a time may have it. With several modes nobody knows which one a pod means.
    pub(crate) fn is_exclusive(&self) -> bool {
        self.access_modes == ["ReadWriteOncePod"]
    }

    pub(crate) fn lifecycle(&self) -> &'static str {
        if self.ephemeral { "Ephemeral" } else { "Persistent" }
    }

    /// Whether it has to be attached to the node before anything else.
    pub(crate) fn is_attachable(&self, driver: Option<&CSIDriver>) -> bool {
        !self.ephemeral && driver.and_then(|driver| driver.spec.attach_required) != Some(false)
    }

    /// Why the driver does not have volumes of this life, if it does not.
    pub(crate) fn unsupported(&self, driver: Option<&CSIDriver>) -> Option<String> {
        let (mode, name) = (self.lifecycle(), &self.driver);
        let Some(driver) = driver else {
            return self
                .ephemeral
                .then(|| format!("volume mode {mode:?} not supported by driver {name} (no CSIDriver object)"));
        };
        let modes = driver.spec.volume_lifecycle_modes.clone().unwrap_or_default();
        let known = modes.iter().any(|known| known == mode);
        (!known)
            .then(|| format!("volume mode {mode:?} not supported by driver {name} (only supports {})", quoted(&modes)))
    }

    /// What the driver is told of what the volume has to be.
    pub(crate) fn capability(&self, abilities: csi::Abilities, group: Option<u32>) -> v1::VolumeCapability {
        let context = self.label.as_deref().map(selinux::option);
        let access_type = if self.block {
            AccessType::Block(BlockVolume {})
        } else {
            AccessType::Mount(MountVolume {
                fs_type: self.fs_type.clone(),
                mount_flags: self.mount_options.iter().cloned().chain(context).collect(),
                volume_mount_group: group
                    .filter(|_| abilities.mount_group)
                    .map(|group| group.to_string())
                    .unwrap_or_default(),
            })
        };
        let first = self.access_modes.first().map_or("ReadWriteOnce", String::as_str);
        let mode = match (first, abilities.single_node_multi_writer) {
            ("ReadWriteOnce", true) => Mode::SingleNodeMultiWriter,
            ("ReadWriteOncePod", true) => Mode::SingleNodeSingleWriter,
            ("ReadWriteOnce" | "ReadWriteOncePod", false) => Mode::SingleNodeWriter,
            ("ReadOnlyMany", _) => Mode::MultiNodeReaderOnly,
            ("ReadWriteMany", _) => Mode::MultiNodeMultiWriter,
            _ => Mode::Unknown,
        };
        v1::VolumeCapability { access_type: Some(access_type), access_mode: Some(AccessMode { mode: mode.into() }) }
    }

    /// Whether the kubelet gives the volume's files to the pod's group, and not the driver.
    pub(crate) fn takes_group(&self, abilities: csi::Abilities, driver: Option<&CSIDriver>) -> bool {
        let policy = driver.and_then(|driver| driver.spec.fs_group_policy.as_deref());
        if abilities.mount_group || self.read_only || policy == Some("None") {
            return false;
        }
        let once = self.ephemeral || self.access_modes.iter().any(|mode| mode == "ReadWriteOnce");
        policy == Some("File") || (!self.fs_type.is_empty() && once)
    }
}

/// A list as Go shows one of strings in quotes.
fn quoted(list: &[String]) -> String {
    let all: Vec<String> = list.iter().map(|one| format!("{one:?}")).collect();
    format!("[{}]", all.join(" "))
}

/// What drivers that want it are told of the pod.
pub(crate) fn about_pod(pod: &Pod, ephemeral: bool) -> BTreeMap<String, String> {
    let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.clone()).unwrap_or_default();
    [
        ("csi.storage.k8s.io/pod.name", spec::name(pod).to_owned()),
        ("csi.storage.k8s.io/pod.namespace", spec::namespace(pod).to_owned()),
        ("csi.storage.k8s.io/pod.uid", spec::uid(pod).to_owned()),
        ("csi.storage.k8s.io/serviceAccount.name", account),
        ("csi.storage.k8s.io/ephemeral", ephemeral.to_string()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn driver(spec: serde_json::Value) -> CSIDriver {
        serde_json::from_value(json!({"metadata": {"name": "d"}, "spec": spec})).unwrap()
    }

    fn source(modes: &[&str]) -> Source {
        let volume = json!({"metadata": {"name": "pv"}, "spec": {
            "accessModes": modes, "mountOptions": ["ro"],
            "csi": {"driver": "d", "volumeHandle": "h", "fsType": "ext4", "volumeAttributes": {"a": "b"}},
        }});
        Source::persistent(&serde_json::from_value(volume).unwrap(), false).unwrap()
    }

    #[test]
    fn access_modes_are_told_in_the_words_of_the_contract() {
        let mode = |mode: &str, abilities| source(&[mode]).capability(abilities, None).access_mode.unwrap().mode();
        let plain = csi::Abilities::default();
        let multi = csi::Abilities { single_node_multi_writer: true, ..plain };
        assert_eq!(mode("ReadWriteOnce", plain), Mode::SingleNodeWriter);
        assert_eq!(mode("ReadWriteOncePod", plain), Mode::SingleNodeWriter);
        assert_eq!(mode("ReadWriteOnce", multi), Mode::SingleNodeMultiWriter);
        assert_eq!(mode("ReadWriteOncePod", multi), Mode::SingleNodeSingleWriter);
        assert_eq!(mode("ReadOnlyMany", multi), Mode::MultiNodeReaderOnly);
        assert_eq!(mode("ReadWriteMany", plain), Mode::MultiNodeMultiWriter);
    }

    #[test]
    fn the_group_is_the_drivers_or_ours_by_policy() {
        let plain = csi::Abilities::default();
        let once = source(&["ReadWriteOnce"]);
        assert!(once.takes_group(plain, None));
        assert!(!source(&["ReadWriteMany"]).takes_group(plain, None));
        assert!(source(&["ReadWriteMany"]).takes_group(plain, Some(&driver(json!({"fsGroupPolicy": "File"})))));
        assert!(!once.takes_group(plain, Some(&driver(json!({"fsGroupPolicy": "None"})))));
        assert!(!Source { read_only: true, ..once.clone() }.takes_group(plain, None));
        assert!(!Source { fs_type: String::new(), ..once.clone() }.takes_group(plain, None));
        let own = csi::Abilities { mount_group: true, ..plain };
        assert!(!once.takes_group(own, None));
        let Some(AccessType::Mount(mount)) = once.capability(own, Some(7)).access_type else { panic!("a mount") };
        assert_eq!((mount.volume_mount_group.as_str(), mount.mount_flags), ("7", vec!["ro".to_owned()]));
    }

    #[test]
    fn a_pods_own_volume_needs_a_driver_that_says_so() {
        let pod: Pod =
            serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u"}})).unwrap();
        let volume: Volume = serde_json::from_value(json!({"name": "v", "csi": {"driver": "d"}})).unwrap();
        let inline = Source::inline(&pod, &volume).unwrap();
        assert_eq!(
            inline.unsupported(None).unwrap(),
            "volume mode \"Ephemeral\" not supported by driver d (no CSIDriver object)"
        );
        let persistent = driver(json!({"volumeLifecycleModes": ["Persistent"]}));
        let why = inline.unsupported(Some(&persistent)).unwrap();
        assert_eq!(why, "volume mode \"Ephemeral\" not supported by driver d (only supports [\"Persistent\"])");
        assert_eq!(inline.unsupported(Some(&driver(json!({"volumeLifecycleModes": ["Ephemeral"]})))), None);
        assert_eq!(source(&[]).unsupported(None), None);
        assert!(!inline.is_attachable(None) && source(&[]).is_attachable(None));
        assert!(!source(&[]).is_attachable(Some(&driver(json!({"attachRequired": false})))));
    }
}
