//! What the pods of each node refer to, kept pod by pod.

use rustc_hash::FxHashMap;
use serde::Deserialize;

/// A kind of object that a node may reach only through its pods or volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Secret,
    ConfigMap,
    Claim,
    ResourceClaim,
    ServiceAccount,
}

type Name = Box<str>;
/// What a pod refers to, in its own namespace.
pub type Reference = (Kind, Name);

/// One pod's node and references.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    node: Name,
    references: Vec<Reference>,
}

/// One volume's claim and secrets, as `(namespace, name)`.
#[derive(Debug)]
struct Volume {
    claim: (Name, Name),
    secrets: Vec<(Name, Name)>,
}

#[derive(Debug, Default)]
pub struct Graph {
    pods: FxHashMap<(Name, Name), Entry>,
    /// Which nodes reach an object, through how many pods.
    nodes: FxHashMap<(Kind, Name, Name), FxHashMap<Name, usize>>,
    volumes: FxHashMap<Name, Volume>,
    /// The volumes that a secret belongs to.
    of_secret: FxHashMap<(Name, Name), Vec<Name>>,
}

impl Graph {
    /// A pod came or changed. A pod without a node refers to nothing yet.
    pub fn set_pod(&mut self, namespace: &str, name: &str, pod: &Pod) {
        let key = (Name::from(namespace), Name::from(name));
        let entry = pod
            .spec
            .node_name
            .as_deref()
            .filter(|node| !node.is_empty())
            .map(|node| Entry { node: node.into(), references: pod.references(name) });
        // Most changes of a pod are of its status: nothing to do.
        if self.pods.get(&key) == entry.as_ref() {
            return;
        }
        self.remove_pod(namespace, name);
        let Some(entry) = entry else { return };
        for (kind, name) in &entry.references {
            let nodes = self.nodes.entry((*kind, key.0.clone(), name.clone())).or_default();
            *nodes.entry(entry.node.clone()).or_default() += 1;
        }
        self.pods.insert(key, entry);
    }

    pub fn remove_pod(&mut self, namespace: &str, name: &str) {
        let key = (Name::from(namespace), Name::from(name));
        let Some(entry) = self.pods.remove(&key) else { return };
        for (kind, name) in entry.references {
            let target = (kind, key.0.clone(), name);
            let Some(nodes) = self.nodes.get_mut(&target) else { continue };
            if let Some(count) = nodes.get_mut(&entry.node) {
                *count -= 1;
                if *count == 0 {
                    nodes.remove(&entry.node);
                }
            }
            if nodes.is_empty() {
                self.nodes.remove(&target);
            }
        }
    }

    /// A volume came or changed.
    pub fn set_volume(&mut self, name: &str, volume: &PersistentVolume) {
        self.remove_volume(name);
        let Some(claim) = &volume.spec.claim_ref else { return };
        let secrets = volume.secrets();
        for secret in &secrets {
            self.of_secret.entry(secret.clone()).or_default().push(name.into());
        }
        let claim = (claim.namespace.as_str().into(), claim.name.as_str().into());
        self.volumes.insert(name.into(), Volume { claim, secrets });
    }

    pub fn remove_volume(&mut self, name: &str) {
        let Some(volume) = self.volumes.remove(name) else { return };
        for secret in volume.secrets {
            if let Some(volumes) = self.of_secret.get_mut(&secret) {
                volumes.retain(|candidate| **candidate != *name);
                if volumes.is_empty() {
                    self.of_secret.remove(&secret);
                }
            }
        }
    }

    /// Forgets every pod, before all are added anew.
    pub fn forget_pods(&mut self) {
        self.pods.clear();
        self.nodes.clear();
    }

    /// As [`Graph::forget_pods`], for volumes.
    pub fn forget_volumes(&mut self) {
        self.volumes.clear();
        self.of_secret.clear();
    }

    /// Whether a pod of the node refers to the object, itself or through a volume it uses.
    pub fn reaches(&self, node: &str, kind: Kind, namespace: &str, name: &str) -> bool {
        let key = (kind, Name::from(namespace), Name::from(name));
        if self.nodes.get(&key).is_some_and(|nodes| nodes.contains_key(node)) {
            return true;
        }
        let (_, namespace, name) = key;
        kind == Kind::Secret
            && self.of_secret.get(&(namespace, name)).is_some_and(|all| all.iter().any(|one| self.uses(node, one)))
    }

    /// Whether a pod of the node uses the volume.
    pub fn uses(&self, node: &str, volume: &str) -> bool {
        self.volumes.get(volume).is_some_and(|volume| {
            let (namespace, name) = &volume.claim;
            self.reaches(node, Kind::Claim, namespace, name)
        })
    }
}

const MIRROR: &str = "kubernetes.io/config.mirror";

/// The part of a pod that refers to other objects.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Pod {
    metadata: Metadata,
    spec: PodSpec,
    status: PodStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Metadata {
    annotations: Option<FxHashMap<String, serde::de::IgnoredAny>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodSpec {
    node_name: Option<String>,
    service_account_name: Option<String>,
    image_pull_secrets: Option<Vec<Named>>,
    volumes: Option<Vec<PodVolume>>,
    containers: Option<Vec<Container>>,
    init_containers: Option<Vec<Container>>,
    ephemeral_containers: Option<Vec<Container>>,
    resource_claims: Option<Vec<PodResourceClaim>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodStatus {
    resource_claim_statuses: Option<Vec<ClaimStatus>>,
    extended_resource_claim_status: Option<ExtendedClaimStatus>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ClaimStatus {
    name: String,
    resource_claim_name: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ExtendedClaimStatus {
    resource_claim_name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodResourceClaim {
    name: String,
    resource_claim_name: Option<String>,
    resource_claim_template_name: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Named {
    name: String,
    namespace: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Container {
    env: Option<Vec<Variable>>,
    env_from: Option<Vec<From>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Variable {
    value_from: Option<ValueFrom>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ValueFrom {
    secret_key_ref: Option<Named>,
    config_map_key_ref: Option<Named>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct From {
    secret_ref: Option<Named>,
    config_map_ref: Option<Named>,
}

/// A source that names a secret.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WithSecret {
    secret_ref: Option<Named>,
    node_publish_secret_ref: Option<Named>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodVolume {
    name: String,
    secret: Option<SecretVolume>,
    config_map: Option<Named>,
    persistent_volume_claim: Option<ClaimVolume>,
    ephemeral: Option<serde::de::IgnoredAny>,
    projected: Option<Projected>,
    azure_file: Option<SecretVolume>,
    cephfs: Option<WithSecret>,
    cinder: Option<WithSecret>,
    flex_volume: Option<WithSecret>,
    rbd: Option<WithSecret>,
    #[serde(rename = "scaleIO")]
    scale_io: Option<WithSecret>,
    iscsi: Option<WithSecret>,
    storageos: Option<WithSecret>,
    csi: Option<WithSecret>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct SecretVolume {
    secret_name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ClaimVolume {
    claim_name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Projected {
    sources: Option<Vec<Projection>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Projection {
    secret: Option<Named>,
    config_map: Option<Named>,
}

impl Pod {
    /// Whether a kubelet made it up from a file of its own.
    fn is_mirror(&self) -> bool {
        self.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(MIRROR))
    }

    fn references(&self, name: &str) -> Vec<Reference> {
        // A node makes its own mirror pods: they must not open anything to it.
        if self.is_mirror() { Vec::new() } else { self.written(name) }
    }

    /// What a pod's text refers to, whoever made the pod.
    pub fn written(&self, name: &str) -> Vec<Reference> {
        let mut found: Vec<Reference> = Vec::new();
        let mut add = |kind: Kind, name: &str| {
            let reference = (kind, Name::from(name));
            if !name.is_empty() && !found.contains(&reference) {
                found.push(reference);
            }
        };
        let spec = &self.spec;
        add(Kind::ServiceAccount, spec.service_account_name.as_deref().unwrap_or_default());
        for secret in spec.image_pull_secrets.iter().flatten() {
            add(Kind::Secret, &secret.name);
        }
        let containers = [&spec.init_containers, &spec.containers, &spec.ephemeral_containers];
        for container in containers.into_iter().flatten().flatten() {
            for from in container.env_from.iter().flatten() {
                from.secret_ref.iter().for_each(|secret| add(Kind::Secret, &secret.name));
                from.config_map_ref.iter().for_each(|map| add(Kind::ConfigMap, &map.name));
            }
            for from in container.env.iter().flatten().filter_map(|variable| variable.value_from.as_ref()) {
                from.secret_key_ref.iter().for_each(|secret| add(Kind::Secret, &secret.name));
                from.config_map_key_ref.iter().for_each(|map| add(Kind::ConfigMap, &map.name));
            }
        }
        for volume in spec.volumes.iter().flatten() {
            for secret in [&volume.secret, &volume.azure_file].into_iter().flatten() {
                add(Kind::Secret, &secret.secret_name);
            }
            let sources = [
                &volume.cephfs,
                &volume.cinder,
                &volume.flex_volume,
                &volume.rbd,
                &volume.scale_io,
                &volume.iscsi,
                &volume.storageos,
                &volume.csi,
            ];
            for source in sources.into_iter().flatten() {
                for secret in [&source.secret_ref, &source.node_publish_secret_ref].into_iter().flatten() {
                    add(Kind::Secret, &secret.name);
                }
            }
            for projection in volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten()) {
                projection.secret.iter().for_each(|secret| add(Kind::Secret, &secret.name));
                projection.config_map.iter().for_each(|map| add(Kind::ConfigMap, &map.name));
            }
            volume.config_map.iter().for_each(|map| add(Kind::ConfigMap, &map.name));
            volume.persistent_volume_claim.iter().for_each(|claim| add(Kind::Claim, &claim.claim_name));
            if volume.ephemeral.is_some() {
                add(Kind::Claim, &format!("{name}-{}", volume.name));
            }
        }
        let statuses = || self.status.resource_claim_statuses.iter().flatten();
        for claim in spec.resource_claims.iter().flatten() {
            match (&claim.resource_claim_name, &claim.resource_claim_template_name) {
                (Some(name), _) => add(Kind::ResourceClaim, name),
                (None, Some(_)) => {
                    let made = statuses().find(|status| status.name == claim.name);
                    add(
                        Kind::ResourceClaim,
                        made.and_then(|made| made.resource_claim_name.as_deref()).unwrap_or_default(),
                    );
                }
                (None, None) => {}
            }
        }
        if let Some(extended) = &self.status.extended_resource_claim_status {
            add(Kind::ResourceClaim, &extended.resource_claim_name);
        }
        found
    }
}

/// The part of a persistent volume that refers to other objects.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct PersistentVolume {
    spec: VolumeSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct VolumeSpec {
    claim_ref: Option<Named>,
    azure_file: Option<AzureFile>,
    cephfs: Option<WithSecret>,
    cinder: Option<WithSecret>,
    flex_volume: Option<WithSecret>,
    rbd: Option<WithSecret>,
    #[serde(rename = "scaleIO")]
    scale_io: Option<WithSecret>,
    iscsi: Option<WithSecret>,
    storageos: Option<WithSecret>,
    csi: Option<CsiVolume>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct AzureFile {
    secret_name: String,
    secret_namespace: Option<String>,
}

/// The secrets that a kubelet needs; those of controllers are none of its business.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct CsiVolume {
    node_publish_secret_ref: Option<Named>,
    node_stage_secret_ref: Option<Named>,
    node_expand_secret_ref: Option<Named>,
}

impl PersistentVolume {
    fn secrets(&self) -> Vec<(Name, Name)> {
        let spec = &self.spec;
        let Some(claim) = &spec.claim_ref else { return Vec::new() };
        let mut found = Vec::new();
        let mut add = |secret: &Named| {
            let namespace = if secret.namespace.is_empty() { &claim.namespace } else { &secret.namespace };
            found.push((namespace.as_str().into(), secret.name.as_str().into()));
        };
        let sources =
            [&spec.cephfs, &spec.cinder, &spec.flex_volume, &spec.rbd, &spec.scale_io, &spec.iscsi, &spec.storageos];
        for source in sources.into_iter().flatten() {
            source.secret_ref.iter().for_each(&mut add);
        }
        if let Some(csi) = &spec.csi {
            for secret in [&csi.node_publish_secret_ref, &csi.node_stage_secret_ref, &csi.node_expand_secret_ref] {
                secret.iter().for_each(&mut add);
            }
        }
        if let Some(azure) = &spec.azure_file {
            add(&Named {
                name: azure.secret_name.clone(),
                namespace: azure.secret_namespace.clone().unwrap_or_default(),
            });
        }
        found
    }
}

#[cfg(test)]
mod tests;
