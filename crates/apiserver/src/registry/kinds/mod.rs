//! The strategy of every kind, in one table. A kind that needs nothing special is [`Plain`].

mod apps;
mod autoscaling;
mod batch;
mod claim;
mod cluster;
mod common;
mod config;
mod cron;
mod endpoints;
mod event;
mod names;
mod namespace;
mod networking;
mod node;
mod pod;
mod policy;
mod quota;
mod rbac;
mod service;
mod volume;

use super::strategy::{Plain, Strategy};

/// The strategy of a kind.
pub fn strategy(group: &str, kind: &str) -> &'static dyn Strategy {
    match (group, kind) {
        ("", "ConfigMap") => &config::ConfigMaps,
        ("", "Endpoints") => &endpoints::Endpoints,
        ("", "Event") => &event::Events,
        ("", "LimitRange") => &quota::LimitRanges,
        ("", "Namespace") => &namespace::Namespaces,
        ("", "Node") => &node::Nodes,
        ("", "PersistentVolume") => &volume::PersistentVolumes,
        ("", "PersistentVolumeClaim") => &claim::PersistentVolumeClaims,
        ("", "Pod") => &pod::Pods,
        ("", "PodTemplate") => &pod::PodTemplates,
        ("", "ReplicationController") => &apps::ReplicationControllers,
        ("", "ResourceQuota") => &quota::ResourceQuotas,
        ("", "Secret") => &config::Secrets,
        ("", "Service") => &service::Services,
        ("", "ServiceAccount") => &config::ServiceAccounts,
        ("apps", "ControllerRevision") => &apps::ControllerRevisions,
        ("apps", "DaemonSet") => &apps::DaemonSets,
        ("apps", "Deployment") => &apps::Deployments,
        ("apps", "ReplicaSet") => &apps::ReplicaSets,
        ("apps", "StatefulSet") => &apps::StatefulSets,
        ("autoscaling", "HorizontalPodAutoscaler") => &autoscaling::Autoscalers,
        ("batch", "CronJob") => &batch::CronJobs,
        ("batch", "Job") => &batch::Jobs,
        ("certificates.k8s.io", "CertificateSigningRequest") => &cluster::CertificateSigningRequests,
        ("coordination.k8s.io", "Lease") => &policy::Leases,
        ("discovery.k8s.io", "EndpointSlice") => &endpoints::EndpointSlices,
        ("networking.k8s.io", "IPAddress") => &networking::IpAddresses,
        ("networking.k8s.io", "Ingress") => &networking::Ingresses,
        ("networking.k8s.io", "IngressClass") => &networking::IngressClasses,
        ("networking.k8s.io", "NetworkPolicy") => &networking::NetworkPolicies,
        ("networking.k8s.io", "ServiceCIDR") => &networking::ServiceCidrs,
        ("node.k8s.io", "RuntimeClass") => &policy::RuntimeClasses,
        ("policy", "PodDisruptionBudget") => &policy::DisruptionBudgets,
        ("rbac.authorization.k8s.io", "ClusterRole") => &rbac::Roles { namespaced: false },
        ("rbac.authorization.k8s.io", "ClusterRoleBinding") => &rbac::Bindings { namespaced: false },
        ("rbac.authorization.k8s.io", "Role") => &rbac::Roles { namespaced: true },
        ("rbac.authorization.k8s.io", "RoleBinding") => &rbac::Bindings { namespaced: true },
        ("scheduling.k8s.io", "PriorityClass") => &policy::PriorityClasses,
        ("resource.k8s.io", "ResourceSlice" | "DeviceClass" | "DeviceTaintRule")
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
