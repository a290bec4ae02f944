//! The strategy of every kind, in one table. A kind that needs nothing special is [`Plain`].

mod apps;
mod batch;
mod claim;
mod cluster;
mod common;
mod cron;
mod names;
mod namespace;
mod node;
mod pod;
mod service;

use super::strategy::{NameRule, Plain, Strategy};

/// The strategy of a kind.
pub fn strategy(group: &str, kind: &str) -> &'static dyn Strategy {
    match (group, kind) {
        ("", "Namespace") => &namespace::Namespaces,
        ("", "Node") => &node::Nodes,
        ("", "Pod") => &pod::Pods,
        ("", "PodTemplate") => &pod::PodTemplates,
        ("", "ReplicationController") => &apps::ReplicationControllers,
        ("", "Service") => &service::Services,
        ("", "Secret") => &cluster::Secrets,
        ("", "Event") => &cluster::Events,
        ("", "PersistentVolume") => &cluster::PersistentVolumes,
        ("", "PersistentVolumeClaim") => &claim::PersistentVolumeClaims,
        ("apps", "ControllerRevision") => &apps::ControllerRevisions,
        ("apps", "DaemonSet") => &apps::DaemonSets,
        ("apps", "Deployment") => &apps::Deployments,
        ("apps", "ReplicaSet") => &apps::ReplicaSets,
        ("apps", "StatefulSet") => &apps::StatefulSets,
        ("batch", "CronJob") => &batch::CronJobs,
        ("batch", "Job") => &batch::Jobs,
        ("certificates.k8s.io", "CertificateSigningRequest") => &cluster::CertificateSigningRequests,
        ("coordination.k8s.io", "Lease") | ("", "Endpoints" | "LimitRange") => &CREATES_ON_UPDATE,
        ("rbac.authorization.k8s.io", _) => &cluster::Rbac,
        ("networking.k8s.io", "IngressClass" | "NetworkPolicy" | "Ingress")
        | ("scheduling.k8s.io", "PriorityClass")
        | ("discovery.k8s.io", "EndpointSlice")
        | ("policy", "PodDisruptionBudget")
        | ("resource.k8s.io", "ResourceSlice" | "DeviceClass" | "DeviceTaintRule")
        | ("autoscaling", "HorizontalPodAutoscaler")
        | ("flowcontrol.apiserver.k8s.io", _)
        | ("admissionregistration.k8s.io", _)
        | ("apiextensions.k8s.io", _) => &Counted,
        _ => &Plain,
    }
}

/// A kind whose changes of intent are counted, and nothing more.
struct Counted;

impl Strategy for Counted {
    fn counts_generations(&self) -> bool {
        true
    }
}

/// A kind that an update may create.
struct CreatesOnUpdate;

static CREATES_ON_UPDATE: CreatesOnUpdate = CreatesOnUpdate;

impl Strategy for CreatesOnUpdate {
    fn creates_on_update(&self) -> bool {
        true
    }
}
