//! What differs from kind to kind: a file per kind or family, and the table of them.

mod autoscaler;
mod certificate;
mod claim;
mod config;
mod container;
mod env;
mod ingress;
mod job;
mod limits;
mod namespace;
mod network_policy;
mod networking;
mod node;
mod node_resources;
mod pod;
mod policy;
mod rbac;
mod service;
mod source;
mod storage;
mod template;
mod volume;
mod workload;

use machinery::Value;

use crate::read::{Resource, nothing, only_events};
use crate::show::Scene;
use crate::writer::Writer;
use crate::{Error, Read};

/// How a kind is described.
pub struct Kind {
    group: &'static str,
    kind: &'static str,
    /// Where the object is read, the first that has it.
    pub resources: &'static [Resource],
    /// What is read besides.
    pub reads: fn(&Value, bool) -> Vec<Read>,
    pub text: fn(&Scene<'_>, &mut Writer) -> Result<(), Error>,
}

pub fn find(group: &str, kind: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|known| known.group == group && known.kind == kind)
}

type Reads = fn(&Value, bool) -> Vec<Read>;
type Text = fn(&Scene<'_>, &mut Writer) -> Result<(), Error>;

const fn kind(kind: &'static str, resources: &'static [Resource], reads: Reads, text: Text) -> Kind {
    Kind { group: resources[0].group, kind, resources, reads, text }
}

macro_rules! at {
    ($($group:literal $version:literal $resource:literal),+) => {
        &[$(Resource::new($group, $version, $resource)),+]
    };
}

static KINDS: &[Kind] = &[
    kind("Pod", at!["" "v1" "pods"], pod::reads, pod::text),
    kind(
        "ReplicationController",
        at!["" "v1" "replicationcontrollers"],
        workload::reads_by_labels,
        workload::replication_controller,
    ),
    kind("Secret", at!["" "v1" "secrets"], nothing, config::secret),
    kind("Service", at!["" "v1" "services"], service::reads, service::text),
    kind("ServiceAccount", at!["" "v1" "serviceaccounts"], only_events, config::service_account),
    kind("Node", at!["" "v1" "nodes"], node::reads, node::text),
    kind("LimitRange", at!["" "v1" "limitranges"], nothing, limits::limit_range),
    kind("ResourceQuota", at!["" "v1" "resourcequotas"], nothing, limits::resource_quota),
    kind("PersistentVolume", at!["" "v1" "persistentvolumes"], only_events, volume::persistent),
    kind("PersistentVolumeClaim", at!["" "v1" "persistentvolumeclaims"], claim::reads, claim::text),
    kind("Namespace", at!["" "v1" "namespaces"], namespace::reads, namespace::text),
    kind("Endpoints", at!["" "v1" "endpoints"], only_events, service::endpoints),
    kind("ConfigMap", at!["" "v1" "configmaps"], only_events, config::config_map),
    Kind {
        group: "",
        kind: "PriorityClass",
        resources: at!["scheduling.k8s.io" "v1" "priorityclasses"],
        reads: only_events,
        text: policy::priority_class,
    },
    kind("EndpointSlice", at!["discovery.k8s.io" "v1" "endpointslices"], only_events, service::endpoint_slice),
    kind(
        "HorizontalPodAutoscaler",
        at!["autoscaling" "v2" "horizontalpodautoscalers", "autoscaling" "v1" "horizontalpodautoscalers"],
        only_events,
        autoscaler::text,
    ),
    kind("Ingress", at!["networking.k8s.io" "v1" "ingresses"], ingress::reads, ingress::text),
    kind("IngressClass", at!["networking.k8s.io" "v1" "ingressclasses"], only_events, networking::ingress_class),
    kind(
        "ServiceCIDR",
        at!["networking.k8s.io" "v1" "servicecidrs", "networking.k8s.io" "v1beta1" "servicecidrs"],
        only_events,
        networking::service_cidr,
    ),
    kind(
        "IPAddress",
        at!["networking.k8s.io" "v1" "ipaddresses", "networking.k8s.io" "v1beta1" "ipaddresses"],
        only_events,
        networking::ip_address,
    ),
    kind("Job", at!["batch" "v1" "jobs"], only_events, job::job),
    kind("CronJob", at!["batch" "v1" "cronjobs"], only_events, job::cron_job),
    kind("StatefulSet", at!["apps" "v1" "statefulsets"], workload::reads, workload::stateful_set),
    kind("Deployment", at!["apps" "v1" "deployments"], workload::deployment_reads, workload::deployment),
    kind("DaemonSet", at!["apps" "v1" "daemonsets"], workload::reads, workload::daemon_set),
    kind("ReplicaSet", at!["apps" "v1" "replicasets"], workload::reads, workload::replica_set),
    kind(
        "CertificateSigningRequest",
        at!["certificates.k8s.io" "v1" "certificatesigningrequests"],
        only_events,
        certificate::text,
    ),
    kind("StorageClass", at!["storage.k8s.io" "v1" "storageclasses"], only_events, storage::storage_class),
    kind("CSINode", at!["storage.k8s.io" "v1" "csinodes"], only_events, storage::csi_node),
    kind(
        "VolumeAttributesClass",
        at!["storage.k8s.io" "v1" "volumeattributesclasses"],
        only_events,
        storage::volume_attributes_class,
    ),
    kind("PodDisruptionBudget", at!["policy" "v1" "poddisruptionbudgets"], only_events, policy::pod_disruption_budget),
    kind("Role", at!["rbac.authorization.k8s.io" "v1" "roles"], nothing, rbac::role),
    kind("ClusterRole", at!["rbac.authorization.k8s.io" "v1" "clusterroles"], nothing, rbac::role),
    kind("RoleBinding", at!["rbac.authorization.k8s.io" "v1" "rolebindings"], nothing, rbac::binding),
    kind("ClusterRoleBinding", at!["rbac.authorization.k8s.io" "v1" "clusterrolebindings"], nothing, rbac::binding),
    kind("NetworkPolicy", at!["networking.k8s.io" "v1" "networkpolicies"], nothing, network_policy::text),
    kind("PriorityClass", at!["scheduling.k8s.io" "v1" "priorityclasses"], only_events, policy::priority_class),
];

/// A template of pods, wherever it is from.
pub fn pod_template(out: &mut Writer, of: &Value) {
    template::template(out, Some(of));
}
