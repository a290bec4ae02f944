//! Which objects of its namespace a pod refers to.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Pod, Volume};

use crate::pod::spec;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    pub config_maps: BTreeSet<String>,
    /// Secrets, those for pulling images included.
    pub secrets: BTreeSet<String>,
    pub claims: BTreeSet<String>,
    /// Whether trust bundles, which are chosen among all there are.
    pub trust_bundles: bool,
}

/// Everything a pod refers to.
pub fn of(pod: &Pod) -> Names {
    let mut names = Names::default();
    let Some(spec) = &pod.spec else { return names };
    names.secrets.extend(spec.image_pull_secrets.iter().flatten().map(|s| s.name.clone()));
    for member in spec::members(pod) {
        for source in member.container.env_from.iter().flatten() {
            names.config_maps.extend(source.config_map_ref.iter().map(|r| r.name.clone()));
            names.secrets.extend(source.secret_ref.iter().map(|r| r.name.clone()));
        }
        for source in member.container.env.iter().flatten().filter_map(|e| e.value_from.as_ref()) {
            names.config_maps.extend(source.config_map_key_ref.iter().map(|r| r.name.clone()));
            names.secrets.extend(source.secret_key_ref.iter().map(|r| r.name.clone()));
        }
    }
    names.claims.extend(used(pod).filter_map(|volume| claim_of(pod, volume)));
    for volume in spec.volumes.iter().flatten() {
        names.config_maps.extend(volume.config_map.iter().map(|v| v.name.clone()));
        names.secrets.extend(volume.secret.iter().filter_map(|v| v.secret_name.clone()));
        for source in volume.projected.iter().flat_map(|p| p.sources.iter().flatten()) {
            names.config_maps.extend(source.config_map.iter().map(|s| s.name.clone()));
            names.secrets.extend(source.secret.iter().map(|s| s.name.clone()));
            names.trust_bundles |= source.cluster_trust_bundle.is_some();
        }
    }
    names.secrets.remove("");
    names.config_maps.remove("");
    names
}

/// Volumes that some container mounts or has as a device. Of the others nothing is made, and nothing keeps the pod from starting.
pub fn used(pod: &Pod) -> impl Iterator<Item = &Volume> {
    let used: BTreeSet<String> = spec::members(pod)
        .flat_map(|member| {
            let mounts = member.container.volume_mounts.iter().flatten().map(|mount| mount.name.clone());
            let devices = member.container.volume_devices.iter().flatten().map(|device| device.name.clone());
            mounts.chain(devices).collect::<Vec<_>>()
        })
        .collect();
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter(move |volume| used.contains(&volume.name))
}

/// The claim behind a volume of a pod: one that it names, or the one that is made for it.
pub fn claim_of(pod: &Pod, volume: &Volume) -> Option<String> {
    let named = volume.persistent_volume_claim.as_ref().map(|source| source.claim_name.clone());
    named.or_else(|| volume.ephemeral.is_some().then(|| format!("{}-{}", spec::name(pod), volume.name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_that_can_name_an_object_is_looked_at() {
        let pod: Pod = serde_json::from_value(serde_json::json!({"metadata": {"name": "p"}, "spec": {
            "imagePullSecrets": [{"name": "pull"}],
            "initContainers": [{"name": "i", "envFrom": [{"configMapRef": {"name": "from"}}, {"secretRef": {"name": "sfrom"}}]}],
            "containers": [{"name": "c", "env": [
                {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "key", "key": "k"}}},
                {"name": "B", "valueFrom": {"secretKeyRef": {"name": "skey", "key": "k"}}},
            ], "volumeDevices": [{"name": "d", "devicePath": "/d"}], "volumeMounts": [{"name": "e", "mountPath": "/e"}]}],
            "volumes": [
                {"name": "a", "configMap": {"name": "vol"}},
                {"name": "b", "secret": {"secretName": "svol"}},
                {"name": "c", "projected": {"sources": [{"configMap": {"name": "proj"}}, {"secret": {"name": "sproj"}},
                    {"clusterTrustBundle": {"name": "roots", "path": "ca"}}]}},
                {"name": "d", "persistentVolumeClaim": {"claimName": "claim"}},
                {"name": "e", "ephemeral": {}},
                {"name": "f", "persistentVolumeClaim": {"claimName": "unused"}},
            ],
        }}))
        .unwrap();
        let set = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<BTreeSet<_>>();
        let expect = Names {
            config_maps: set(&["from", "key", "vol", "proj"]),
            secrets: set(&["pull", "sfrom", "skey", "svol", "sproj"]),
            claims: set(&["claim", "p-e"]),
            trust_bundles: true,
        };
        assert_eq!(of(&pod), expect);
    }

    #[test]
    fn a_volume_is_used_by_containers_of_every_kind_and_by_nothing_else() {
        let mounts = |name: &str| serde_json::json!([{"name": name, "mountPath": "/v"}]);
        let pod: Pod = serde_json::from_value(serde_json::json!({"metadata": {"name": "p"}, "spec": {
            "initContainers": [{"name": "i", "volumeMounts": mounts("first")}],
            "containers": [{"name": "c", "volumeDevices": [{"name": "disk", "devicePath": "/d"}], "env": [
                {"name": "A", "valueFrom": {"secretKeyRef": {"name": "unused", "key": "k"}}},
            ]}],
            "ephemeralContainers": [{"name": "e", "volumeMounts": mounts("last")}],
            "volumes": [{"name": "first"}, {"name": "unused"}, {"name": "disk"}, {"name": "last"}],
        }}))
        .unwrap();
        assert_eq!(used(&pod).map(|volume| volume.name.as_str()).collect::<Vec<_>>(), ["first", "disk", "last"]);
    }
}
