//! A pod as scheduling sees it: everything a plugin asks for, computed once, and nothing else.
//!
//! A [`PodInfo`] is immutable and shared: the informer, the queue, the cluster model and a binding under way hold the same
//! one. It stands in for the API's object, which is several times as large, throughout the scheduler. Where a pod *is*
//! belongs to the cluster model, not here, because an assumed pod does not know it yet.

mod shape;

use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, Pod, PodCondition, Toleration, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use rustc_hash::FxHasher;

use crate::model::resources::{PodRequests, Resources, pod_requests};
use rules::selectors::Labels;
pub use shape::{AffinityTerm, HostPort, Owner, PodAffinity, Shape, Shapes, SpreadConstraint};

/// A volume of a pod, as far as it matters where the pod runs.
#[derive(Debug, Clone, PartialEq)]
pub enum PodVolume {
    /// From a claim of this name.
    Claim(String),
    /// From a claim that is made for the pod; the volume's name.
    Ephemeral(String),
    /// A disk that not every pod may use at the same time.
    Disk(Box<Volume>),
}

/// What scheduling knows of a pod.
#[derive(Debug, Clone)]
pub struct PodInfo {
    /// Name, namespace, uid, versions and deletion; nothing else of the metadata is kept here.
    meta: ObjectMeta,
    uid: Arc<str>,
    /// `spec.priority`, zero when absent.
    pub priority: i32,
    finished: bool,
    node_name: Option<Box<str>>,
    nominated_node: Option<Box<str>>,
    requests: PodRequests,
    volumes: Box<[PodVolume]>,
    conditions: Box<[PodCondition]>,
    started: Option<Timestamp>,
    /// A digest of what [`PodInfo::has_same_needs`] compares.
    needs: u64,
    shape: Arc<Shape>,
    object: Option<Arc<Pod>>,
}

impl Deref for PodInfo {
    type Target = Shape;

    fn deref(&self) -> &Shape {
        &self.shape
    }
}

impl PodInfo {
    /// Reads a pod by itself: nothing is shared with others, and the object is kept.
    pub fn new(pod: Arc<Pod>) -> Self {
        let shape = Arc::new(Shape::new(&pod));
        Self { object: Some(pod.clone()), ..Self::read(&pod, shape) }
    }

    /// Reads a pod, sharing what its replicas have in common. The object is kept only where somebody will ask for it.
    pub fn shared(pod: &Arc<Pod>, shapes: &Shapes, keep: bool) -> Self {
        let shape = shapes.share(Shape::new(pod));
        Self { object: keep.then(|| pod.clone()), ..Self::read(pod, shape) }
    }

    fn read(pod: &Pod, shape: Arc<Shape>) -> Self {
        let (spec, status) = (pod.spec.as_ref(), pod.status.as_ref());
        let name = |part: Option<&String>| part.filter(|n| !n.is_empty()).map(|n| n.as_str().into());
        let mut info = Self {
            meta: ObjectMeta {
                name: pod.metadata.name.clone(),
                namespace: pod.metadata.namespace.clone(),
                uid: pod.metadata.uid.clone(),
                resource_version: pod.metadata.resource_version.clone(),
                generation: pod.metadata.generation,
                deletion_timestamp: pod.metadata.deletion_timestamp.clone(),
                ..Default::default()
            },
            uid: pod.metadata.uid.as_deref().unwrap_or_default().into(),
            priority: spec.and_then(|s| s.priority).unwrap_or(0),
            finished: matches!(status.and_then(|s| s.phase.as_deref()), Some("Succeeded" | "Failed")),
            node_name: name(spec.and_then(|s| s.node_name.as_ref())),
            nominated_node: name(status.and_then(|s| s.nominated_node_name.as_ref())),
            requests: pod_requests(pod),
            volumes: volumes(pod),
            conditions: conditions(pod),
            started: status.and_then(|s| s.start_time.as_ref()).map(|t| t.0),
            needs: 0,
            shape,
            object: None,
        };
        info.needs = info.digest();
        info
    }

    fn digest(&self) -> u64 {
        let mut hasher = FxHasher::default();
        let Resources { milli_cpu, memory, ephemeral_storage, .. } = self.requests();
        (milli_cpu, memory, ephemeral_storage, self.scoring_requests(), self.node_name()).hash(&mut hasher);
        self.requests().scalars().hash(&mut hasher);
        self.shape.needs.hash(&mut hasher);
        hasher.finish()
    }

    /// Whether another pod asks the same of a node, taken by itself: everything that local filters and scores look at.
    pub fn has_same_needs(&self, other: &Self) -> bool {
        self.needs == other.needs
            && self.requests == other.requests
            && self.node_name == other.node_name
            && (Arc::ptr_eq(&self.shape, &other.shape) || self.shape.has_same_needs(&other.shape))
    }

    /// The pod as it would be on a node: an assumed pod does not know it yet.
    pub fn on_node(&self, node: &str) -> Self {
        Self { node_name: Some(node.into()), ..self.clone() }
    }

    /// The pod as the API has it once it is nominated to a node, in this version.
    pub fn nominated_to(&self, node: &str, version: &str) -> Self {
        let meta = ObjectMeta { resource_version: Some(version.to_owned()), ..self.meta.clone() };
        Self { nominated_node: (!node.is_empty()).then(|| node.into()), meta, ..self.clone() }
    }

    /// What the pod has in common with its replicas.
    pub fn shape(&self) -> &Arc<Shape> {
        &self.shape
    }

    /// The API's object, where it was kept.
    pub fn object(&self) -> Option<&Arc<Pod>> {
        self.object.as_ref()
    }

    /// `metadata.uid`: the identity of a pod, as names are used again.
    pub fn uid(&self) -> &Arc<str> {
        &self.uid
    }

    pub fn name(&self) -> &str {
        self.meta.name.as_deref().unwrap_or_default()
    }

    pub fn namespace(&self) -> &str {
        self.meta.namespace.as_deref().unwrap_or_default()
    }

    pub fn resource_version(&self) -> Option<&str> {
        self.meta.resource_version.as_deref()
    }

    pub fn generation(&self) -> Option<i64> {
        self.meta.generation
    }

    /// How events name the pod.
    pub fn reference(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: self.meta.name.clone(),
            namespace: self.meta.namespace.clone(),
            resource_version: self.meta.resource_version.clone(),
            uid: self.meta.uid.clone(),
            ..Default::default()
        }
    }

    pub fn labels(&self) -> Option<&Labels> {
        self.shape.labels.as_ref()
    }

    /// `spec.nodeName`, when the API has one.
    pub fn node_name(&self) -> Option<&str> {
        self.node_name.as_deref()
    }

    pub fn nominated_node(&self) -> Option<&str> {
        self.nominated_node.as_deref()
    }

    pub fn scheduler_name(&self) -> &str {
        &self.shape.scheduler_name
    }

    /// Whether deletion has been asked for.
    pub fn is_terminating(&self) -> bool {
        self.meta.deletion_timestamp.is_some()
    }

    /// Whether the pod has run to its end: it takes no room.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// `status.startTime`.
    pub fn started(&self) -> Option<Timestamp> {
        self.started
    }

    /// A condition of the status, if it is one that scheduling writes.
    pub fn condition(&self, kind: &str) -> Option<&PodCondition> {
        self.conditions.iter().find(|c| c.type_ == kind)
    }

    /// The requests that filters compare and nodes account for.
    pub fn requests(&self) -> &Resources {
        &self.requests.exact
    }

    /// CPU and memory as nodes account them for scoring.
    pub fn non_zero_requests(&self) -> (i64, i64) {
        self.requests.non_zero
    }

    /// CPU and memory as scoring sees them for the incoming pod.
    pub fn scoring_requests(&self) -> (i64, i64) {
        self.requests.scoring
    }

    pub fn tolerations(&self) -> &[Toleration] {
        &self.shape.tolerations
    }

    /// The volumes that matter.
    pub fn volumes(&self) -> &[PodVolume] {
        &self.volumes
    }

    /// Names of the claims that the spec itself names.
    pub fn named_claims(&self) -> impl Iterator<Item = &str> {
        self.volumes.iter().filter_map(|v| if let PodVolume::Claim(name) = v { Some(name.as_str()) } else { None })
    }

    /// Every topology key that inter-pod affinity and spread constraints use.
    pub fn topology_keys(&self) -> impl Iterator<Item = &str> {
        let terms = self.shape.affinity.iter().flat_map(|a| {
            let required = a.required.iter().chain(&a.required_anti);
            required.chain(a.preferred.iter().chain(&a.preferred_anti).map(|(_, term)| term))
        });
        terms.map(|t| t.topology_key.as_str()).chain(self.shape.spread.iter().map(|c| c.topology_key.as_str()))
    }

    /// The claims that the pod's volumes refer to, generic ephemeral volumes included.
    pub fn claim_names(&self) -> impl Iterator<Item = ClaimRef<'_>> {
        self.volumes.iter().filter_map(|volume| match volume {
            PodVolume::Claim(name) => Some(ClaimRef::Named(name)),
            PodVolume::Ephemeral(volume) => Some(ClaimRef::Ephemeral { pod: self.name(), volume }),
            PodVolume::Disk(_) => None,
        })
    }
}

impl informer::Cached for PodInfo {
    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}

/// A claim as a pod refers to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimRef<'a> {
    Named(&'a str),
    /// Made for the pod from a template; its name joins both with a dash.
    Ephemeral {
        pod: &'a str,
        /// The volume of the pod.
        volume: &'a str,
    },
}

impl ClaimRef<'_> {
    pub fn name(&self) -> String {
        match self {
            Self::Named(name) => (*name).to_owned(),
            Self::Ephemeral { pod, volume } => format!("{pod}-{volume}"),
        }
    }
}

fn volumes(pod: &Pod) -> Box<[PodVolume]> {
    let volumes = pod.spec.iter().flat_map(|s| s.volumes.iter().flatten());
    let read = |volume: &Volume| {
        let is_disk = volume.gce_persistent_disk.is_some()
            || volume.aws_elastic_block_store.is_some()
            || volume.rbd.is_some()
            || volume.iscsi.is_some();
        match (&volume.persistent_volume_claim, &volume.ephemeral) {
            (Some(claim), _) => Some(PodVolume::Claim(claim.claim_name.clone())),
            (None, Some(_)) => Some(PodVolume::Ephemeral(volume.name.clone())),
            (None, None) => is_disk.then(|| PodVolume::Disk(Box::new(volume.clone()))),
        }
    };
    volumes.filter_map(read).collect()
}

/// The conditions that scheduling compares with what it would write. A bound pod's are written by others.
fn conditions(pod: &Pod) -> Box<[PodCondition]> {
    let bound = pod.spec.as_ref().is_some_and(|s| s.node_name.is_some());
    let is_ours = |kind: &str| kind == "DisruptionTarget" || (kind == "PodScheduled" && !bound);
    let conditions = pod.status.iter().flat_map(|s| s.conditions.iter().flatten());
    conditions.filter(|c| is_ours(&c.type_)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{container, pod};

    #[test]
    fn replicas_share_their_shape_until_the_last_is_gone() {
        let shapes = Shapes::default();
        let replica = |name: &str, app: &str| {
            let pod = pod(name).label("app", app).with(container("c").image("web:1").cpu("1")).build();
            PodInfo::shared(&Arc::new(pod), &shapes, false)
        };
        let (a, b, other) = (replica("a", "web"), replica("b", "web"), replica("c", "db"));
        assert!(Arc::ptr_eq(a.shape(), b.shape()) && !Arc::ptr_eq(a.shape(), other.shape()));
        assert!(a.has_same_needs(&other), "labels are nothing that a node is asked for");
        let last = Arc::downgrade(a.shape());
        drop((a, b));
        assert_eq!(last.strong_count(), 0);
    }

    #[test]
    fn needs_follow_requests_and_wishes() {
        let info = |builder: crate::testing::PodBuilder| PodInfo::new(Arc::new(builder.build()));
        let base = info(pod("a").cpu("1"));
        for (other, same) in [
            (pod("b").cpu("1").label("x", "y"), true),
            (pod("b").cpu("2"), false),
            (pod("b").cpu("1").node_selector("a", "b"), false),
            (pod("b").cpu("1").tolerates("a", "Exists", "", ""), false),
            (pod("b").with(container("cpu").cpu("1").image("i")), false),
        ] {
            assert_eq!(base.has_same_needs(&info(other.clone())), same, "{other:?}");
        }
    }
}
