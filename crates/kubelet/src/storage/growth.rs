//! What a claim lacks of the size of its volume, and what its status says while the node makes up for it. Pure.
//!
//! A resizer that knows how to recover from failures leaves its steps in the claim's status: the size that it was able to allocate, and
//! whose turn it is. The node acts only when it is its turn, and only for that size. Of older resizers there is nothing but a volume that is larger
//! than its claim says.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimCondition};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

/// Conditions that are about resizing and nothing else.
const ABOUT_RESIZING: [&str; 4] = ["FileSystemResizePending", "Resizing", "ControllerResizeError", "NodeResizeError"];
/// A resizer says with this that nodes have nothing to do.
const NOT_REQUIRED: &str = "volume.kubernetes.io/node-expansion-not-required";
const PENDING: &str = "NodeResizePending";
const IN_PROGRESS: &str = "NodeResizeInProgress";
const INFEASIBLE: &str = "NodeResizeInfeasible";

/// What a claim has to get on this node.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Growth {
    pub(super) namespace: String,
    pub(super) claim: String,
    revision: String,
    size: String,
    pub(super) bytes: i64,
    /// Whether the resizer keeps its steps in the claim's status.
    pub(super) recovers: bool,
    /// Whether the claim has its size, by another node, and only this node's mount does not.
    pub(super) elsewhere: bool,
    /// Whether the user has asked for another size meanwhile.
    pub(super) outdated: bool,
    conditions: Vec<PersistentVolumeClaimCondition>,
}

pub(super) fn bytes(size: Option<&Quantity>) -> Option<i64> {
    Some(size?.0.parse::<machinery::quantity::Quantity>().ok()?.value())
}

impl Growth {
    /// What is missing; nothing if it is not the node's turn.
    pub(crate) fn of(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<Self> {
        let capacity = volume.spec.as_ref()?.capacity.as_ref()?.get("storage")?;
        let (spec, status) = (claim.spec.clone().unwrap_or_default(), claim.status.as_ref()?);
        let granted = bytes(status.capacity.as_ref()?.get("storage"))?;
        let turn = status.allocated_resource_statuses.as_ref().and_then(|all| all.get("storage"));
        let turn = turn.map_or("", String::as_str);
        let recovers = !turn.is_empty() || status.allocated_resources.is_some();
        let allocated = status.allocated_resources.as_ref().and_then(|all| all.get("storage"));
        let size = allocated.filter(|_| recovers).unwrap_or(capacity);
        let wanted = bytes(Some(size))?;
        let elsewhere = recovers && turn.is_empty() && granted >= wanted;
        let due = if elsewhere {
            let shared = spec.access_modes.iter().flatten().any(|mode| mode == "ReadWriteMany");
            shared && !claim.metadata.annotations.iter().flatten().any(|(key, _)| key == NOT_REQUIRED)
        } else {
            granted < bytes(Some(capacity))? && (!recovers || turn == PENDING || turn == IN_PROGRESS)
        };
        let requested = bytes(spec.resources.and_then(|all| all.requests).as_ref().and_then(|all| all.get("storage")));
        due.then(|| Self {
            namespace: claim.metadata.namespace.clone().unwrap_or_default(),
            claim: claim.metadata.name.clone().unwrap_or_default(),
            revision: claim.metadata.resource_version.clone().unwrap_or_default(),
            size: size.0.clone(),
            bytes: wanted,
            recovers,
            elsewhere,
            outdated: requested != Some(wanted),
            conditions: status.conditions.clone().unwrap_or_default(),
        })
    }

    /// Whether a mount that was made when the volume had so many bytes has to grow.
    pub(super) fn is_due(&self, had: i64) -> bool {
        !self.elsewhere || had < self.bytes
    }

    /// The claim as it is after somebody wrote it.
    pub(super) fn after(&self, claim: &PersistentVolumeClaim) -> Self {
        let status = claim.status.clone().unwrap_or_default();
        Self {
            revision: claim.metadata.resource_version.clone().unwrap_or_default(),
            conditions: status.conditions.unwrap_or_default(),
            ..self.clone()
        }
    }

    /// It is being made larger on a node.
    pub(super) fn begun(&self) -> Value {
        self.if_unchanged(json!({"allocatedResourceStatuses": {"storage": IN_PROGRESS}}))
    }

    /// It is as large as it should be.
    pub(super) fn finished(&self) -> Value {
        let left = self.conditions.iter().filter(|one| !ABOUT_RESIZING.contains(&one.type_.as_str()));
        self.if_unchanged(json!({
            "capacity": {"storage": self.size}, "conditions": left.collect::<Vec<_>>(),
            "allocatedResourceStatuses": {"storage": null},
        }))
    }

    /// The driver did not do it. What can never be done is left to the resizer, which may try a smaller size.
    pub(super) fn failed(&self, why: &str, infeasible: bool, now: Timestamp) -> Value {
        let mut conditions = self.conditions.clone();
        let known = conditions.iter_mut().find(|one| one.type_ == "NodeResizeError");
        let fresh = PersistentVolumeClaimCondition {
            type_: "NodeResizeError".to_owned(),
            status: "True".to_owned(),
            last_transition_time: Some(Time(now)),
            message: Some(format!("failed to expand pvc with {why}")),
            ..PersistentVolumeClaimCondition::default()
        };
        match known {
            Some(known) if known.status == "True" => {}
            Some(known) => *known = fresh,
            None => conditions.push(fresh),
        }
        let mut status = json!({"conditions": conditions});
        if infeasible {
            status["allocatedResourceStatuses"] = json!({"storage": INFEASIBLE});
        }
        json!({"status": status})
    }

    fn if_unchanged(&self, status: Value) -> Value {
        json!({"metadata": {"resourceVersion": self.revision}, "status": status})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(size: &str) -> PersistentVolume {
        serde_json::from_value(json!({"spec": {"capacity": {"storage": size}}})).unwrap()
    }

    fn claim(has: &str, status: Value) -> PersistentVolumeClaim {
        let mut claim = json!({
            "metadata": {"name": "c", "namespace": "ns", "resourceVersion": "7"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}},
            "status": {"capacity": {"storage": has}},
        });
        for (key, value) in status.as_object().into_iter().flatten() {
            claim["status"][key] = value.clone();
        }
        serde_json::from_value(claim).unwrap()
    }

    #[test]
    fn a_claim_gets_what_its_volume_has_and_loses_what_is_over() {
        let conditions =
            json!([{"type": "FileSystemResizePending", "status": "True"}, {"type": "Other", "status": "True"}]);
        let claim = claim("1Gi", json!({"conditions": conditions}));
        assert_eq!(Growth::of(&volume("1Gi"), &claim), None);
        let growth = Growth::of(&volume("2Gi"), &claim).unwrap();
        assert!(growth.bytes == 2 << 30 && !growth.recovers && !growth.outdated && growth.is_due(i64::MAX));
        let patch = growth.finished();
        assert_eq!(patch["metadata"], json!({"resourceVersion": "7"}));
        assert_eq!(patch["status"]["capacity"], json!({"storage": "2Gi"}));
        assert_eq!(patch["status"]["conditions"], json!([{"type": "Other", "status": "True"}]));
        assert_eq!(Growth::of(&volume("2Gi"), &PersistentVolumeClaim::default()), None, "it has none yet");
    }

    #[test]
    fn with_a_resizer_that_recovers_the_node_waits_for_its_turn() {
        let allocated = |turn: &str| json!({"allocatedResources": {"storage": "1536Mi"}, "allocatedResourceStatuses": {"storage": turn}});
        for turn in [PENDING, IN_PROGRESS] {
            let growth = Growth::of(&volume("2Gi"), &claim("1Gi", allocated(turn))).unwrap();
            assert!(growth.recovers && growth.bytes == 1536 << 20, "what was allocated, whatever the volume says");
            assert!(growth.outdated, "2Gi were asked for");
            assert_eq!(growth.begun()["status"], json!({"allocatedResourceStatuses": {"storage": IN_PROGRESS}}));
            assert_eq!(growth.finished()["status"]["capacity"], json!({"storage": "1536Mi"}));
        }
        for turn in ["ControllerResizeInProgress", "ControllerResizeInfeasible", INFEASIBLE] {
            assert_eq!(Growth::of(&volume("2Gi"), &claim("1Gi", allocated(turn))), None, "{turn}");
        }
    }

    #[test]
    fn a_shared_volume_grows_on_every_node() {
        let mut claim = claim("2Gi", json!({"allocatedResources": {"storage": "2Gi"}}));
        assert_eq!(Growth::of(&volume("2Gi"), &claim), None);
        claim.spec.as_mut().unwrap().access_modes = Some(vec!["ReadWriteMany".to_owned()]);
        let growth = Growth::of(&volume("2Gi"), &claim).unwrap();
        assert!(growth.elsewhere && growth.is_due(1 << 30) && !growth.is_due(2 << 30));
        claim.metadata.annotations = Some([(NOT_REQUIRED.to_owned(), "true".to_owned())].into());
        assert_eq!(Growth::of(&volume("2Gi"), &claim), None);
    }

    #[test]
    fn a_failure_is_a_condition_and_what_can_never_be_done_is_a_status_too() {
        let pending = json!({"allocatedResourceStatuses": {"storage": PENDING}, "conditions": [
            {"type": "FileSystemResizePending", "status": "True"},
        ]});
        let growth = Growth::of(&volume("2Gi"), &claim("1Gi", pending)).unwrap();
        let patch = growth.failed("no", false, Timestamp::UNIX_EPOCH);
        assert_eq!(patch["status"]["conditions"][0]["type"], "FileSystemResizePending");
        assert_eq!(
            patch["status"]["conditions"][1],
            json!({
                "type": "NodeResizeError", "status": "True", "lastTransitionTime": "1970-01-01T00:00:00Z",
                "message": "failed to expand pvc with no",
            })
        );
        assert_eq!(patch["status"].get("allocatedResourceStatuses"), None);
        let patch = growth.failed("no", true, Timestamp::UNIX_EPOCH);
        assert_eq!(patch["status"]["allocatedResourceStatuses"], json!({"storage": INFEASIBLE}));
    }
}
