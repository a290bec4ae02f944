//! The claims behind the pod's volumes: what they are bound to, and what they do not have yet of the size of that.
//!
//! A claim is watched from the moment a pod of the node wants it, so that nobody polls: it is bound, gets its owner, or is to grow, and the
//! pod's worker hears of it. A volume is read only when its claim has changed, because whatever a node has to know of it is announced there.

use informer::EventType;
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim, Volume};

use super::Worker;
use crate::pod::spec;
use crate::status::Verdict;
use crate::storage::{Grown, Growth};
use crate::volumes::{Paths, Resolved, references};

const PROTECTION: &str = "kubernetes.io/pvc-protection";
const LIMIT_EXCEEDED: &str = "VolumeAttachmentLimitExceeded";

/// A claim that is bound, and what it is bound to.
#[derive(Debug)]
pub(super) struct Claimed {
    claim: ObjectReference,
    /// The version of the claim that this is about.
    revision: Option<String>,
    pub(super) volume: PersistentVolume,
    /// What the claim does not have yet.
    pub(super) growth: Option<Growth>,
}

impl Worker {
    /// Finds the volumes behind the pod's claims; answers of which volumes nothing can be made, and why.
    pub(super) async fn resolve_claims(&mut self, resolved: &mut Resolved) -> Vec<(String, String)> {
        let pod = self.pod.clone();
        let mut unprocessed = Vec::new();
        for volume in references::used(&pod) {
            let Some(name) = references::claim_of(&pod, volume) else { continue };
            match self.claimed(&name, volume).await {
                Ok(Some(found)) => drop(self.claims.insert(name, found)),
                Ok(None) => {}
                // What was found before stays what it is.
                Err(_) if self.claims.contains_key(&name) => {}
                Err(why) => unprocessed.push((volume.name.clone(), why)),
            }
        }
        resolved.claims = self.claims.iter().map(|(name, claimed)| (name.clone(), claimed.volume.clone())).collect();
        unprocessed
    }

    /// What a claim is bound to; nothing if it is known and has not changed.
    async fn claimed(&self, name: &str, volume: &Volume) -> Result<Option<Claimed>, String> {
        let (client, namespace) = (&self.shared.client, spec::namespace(&self.pod));
        let about = |why: String| format!("error processing PVC {namespace}/{name}: {why}");
        let fresh = async || {
            let read = client.get::<PersistentVolumeClaim>(namespace, name).await;
            read.map_err(|error| about(format!("failed to fetch PVC from API server: {error}")))
        };
        let mut claim = match self.shared.claims.get(namespace, name).await {
            Some(claim) => claim,
            None => fresh().await?.into(),
        };
        if self.claims.get(name).is_some_and(|known| known.revision == claim.metadata.resource_version) {
            return Ok(None);
        }
        let volume_name = bound_to(&claim).map_err(|why| about(why.to_owned()))?.to_owned();
        if volume.ephemeral.is_some() && rules::owners::controller_uid(&claim.metadata) != Some(self.uid()) {
            let pod = spec::name(&self.pod);
            return Err(format!("PVC {namespace}/{name} was not created for pod {namespace}/{pod} (pod is not owner)"));
        }
        let found = client.get::<PersistentVolume>("", &volume_name).await;
        let found = found.map_err(|e| about(format!("failed to fetch PV {volume_name} from API server: {e}")))?;
        check_owner(&found, &claim).map_err(about)?;
        let found = rules::migration::volume(&found)?.into_owned();
        self.check_mode(&volume.name, &found)?;
        let mut growth = Growth::of(&found, &claim);
        if growth.is_some() {
            // The cache may be older than what this node itself said of the claim.
            claim = fresh().await?.into();
            growth = Growth::of(&found, &claim);
        }
        let revision = claim.metadata.resource_version.clone();
        Ok(Some(Claimed { growth, revision, claim: informer::events::reference(&*claim), volume: found }))
    }

    /// Containers have to take a volume for what it is.
    fn check_mode(&self, name: &str, volume: &PersistentVolume) -> Result<(), String> {
        let mode = volume.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref()).unwrap_or("Filesystem");
        for member in spec::members(&self.pod) {
            let mut mounts = member.container.volume_mounts.iter().flatten();
            if mode != "Filesystem" && mounts.any(|mount| mount.name == name) {
                return Err(format!("volume {name} has volumeMode {mode}, but is specified in volumeMounts"));
            }
            let mut devices = member.container.volume_devices.iter().flatten();
            if mode != "Block" && devices.any(|device| device.name == name) {
                return Err(format!("volume {name} has volumeMode {mode}, but is specified in volumeDevices"));
            }
        }
        Ok(())
    }

    /// Which volumes the pod lacks, and how.
    pub(super) fn missing(&self, unprocessed: &[(String, String)], paths: &Paths, unattached: &[String]) -> String {
        let sorted = |mut names: Vec<&str>| {
            names.sort_unstable();
            names.join(" ")
        };
        let missing = |name: &str| !paths.contains_key(name);
        let unmounted = references::used(&self.pod).filter(|volume| volume.image.is_none() && missing(&volume.name));
        let unmounted = sorted(unmounted.map(|volume| volume.name.as_str()).collect());
        let unattached = sorted(unattached.iter().map(String::as_str).collect());
        let unprocessed = sorted(unprocessed.iter().map(|(name, _)| name.as_str()).collect());
        format!(
            "unmounted volumes=[{unmounted}], unattached volumes=[{unattached}], failed to process volumes=[{unprocessed}]"
        )
    }

    /// The pod goes: its node takes no more volumes. Whoever made it makes another one, for another node.
    pub(super) fn refuse_for_limit(&mut self, unprocessed: &[(String, String)], paths: &Paths, unattached: &[String]) {
        let missing = self.missing(unprocessed, paths, unattached);
        let message = format!(
            "Node has reached its volume attachment limit, rejecting pod. {missing}: context deadline exceeded"
        );
        self.shared.event(&self.pod, EventType::Warning, LIMIT_EXCEEDED, message.clone());
        self.shared.figures.refusals.increment(&[LIMIT_EXCEEDED]);
        let message = format!("Pod was rejected: {message}");
        self.refused = Some(Verdict { reason: LIMIT_EXCEEDED.to_owned(), message, disruption: None });
    }

    /// Tells the pod and the claim what came of making a volume as large as it was asked to be.
    pub(super) fn note_growth(&mut self, volume: &str, grown: Grown) {
        let (kind, reason, message) = match grown {
            Grown::No => return,
            Grown::Yes => {
                let node = self.shared.facts().node_name.clone();
                let message = format!("MountVolume.NodeExpandVolume succeeded for volume {volume:?} {node}");
                (EventType::Normal, "FileSystemResizeSuccessful", message)
            }
            Grown::ReadOnly => {
                let message = format!(
                    "MountVolume.NodeExpandVolume failed for volume {volume:?} requested read-only file system"
                );
                (EventType::Warning, "FileSystemResizeFailed", message)
            }
        };
        self.shared.event(&self.pod, kind, reason, message.clone());
        let named = |claimed: &&mut Claimed| claimed.volume.metadata.name.as_deref() == Some(volume);
        for claimed in self.claims.values_mut().filter(named) {
            claimed.growth = None;
            self.shared.recorder.event_about(claimed.claim.clone(), kind, reason, message.clone());
        }
    }
}

/// The name of the volume that a claim is bound to.
fn bound_to(claim: &PersistentVolumeClaim) -> Result<&str, &'static str> {
    let protected = claim.metadata.finalizers.iter().flatten().any(|one| one == PROTECTION);
    if claim.metadata.deletion_timestamp.is_some() && !protected {
        return Err("PVC is being deleted");
    }
    if claim.status.as_ref().and_then(|status| status.phase.as_deref()) != Some("Bound") {
        return Err("PVC is not bound");
    }
    let name = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).filter(|name| !name.is_empty());
    name.ok_or("PVC has empty pvc.Spec.VolumeName")
}

/// A volume that is another claim's, or was an earlier one's of that name, is nobody's business here.
fn check_owner(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Result<(), String> {
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    let Some(of) = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()) else {
        return Err(format!(
            "found PV object {name} but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim"
        ));
    };
    let (of, uid) = (of.uid.as_deref().unwrap_or_default(), claim.metadata.uid.as_deref().unwrap_or_default());
    if of != uid {
        return Err(format!(
            "found PV object {name} but its pv.Spec.ClaimRef.UID {of} does not point to claim.UID {uid}"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn claim(metadata: Value, phase: &str, volume: &str) -> PersistentVolumeClaim {
        let claim = json!({"metadata": metadata, "spec": {"volumeName": volume}, "status": {"phase": phase}});
        serde_json::from_value(claim).unwrap()
    }

    #[test]
    fn only_a_claim_that_is_bound_and_stays_has_a_volume() {
        assert_eq!(bound_to(&claim(json!({}), "Bound", "pv")), Ok("pv"));
        assert_eq!(bound_to(&claim(json!({}), "Pending", "pv")), Err("PVC is not bound"));
        assert_eq!(bound_to(&claim(json!({}), "Bound", "")), Err("PVC has empty pvc.Spec.VolumeName"));
        let mut going = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        assert_eq!(bound_to(&claim(going.clone(), "Bound", "pv")), Err("PVC is being deleted"));
        going["finalizers"] = json!([PROTECTION]);
        assert_eq!(bound_to(&claim(going, "Bound", "pv")), Ok("pv"), "a pod has it");
    }

    #[test]
    fn a_volume_of_an_earlier_claim_of_that_name_is_refused() {
        let claim = claim(json!({"uid": "new"}), "Bound", "pv");
        let volume = |claim_ref: Value| {
            let volume = json!({"metadata": {"name": "pv"}, "spec": {"claimRef": claim_ref}});
            serde_json::from_value::<PersistentVolume>(volume).unwrap()
        };
        assert_eq!(check_owner(&volume(json!({"uid": "new"})), &claim), Ok(()));
        assert_eq!(
            check_owner(&volume(json!({"uid": "old"})), &claim).unwrap_err(),
            "found PV object pv but its pv.Spec.ClaimRef.UID old does not point to claim.UID new"
        );
        assert!(check_owner(&volume(Value::Null), &claim).unwrap_err().contains("nil pv.Spec.ClaimRef"));
    }
}
