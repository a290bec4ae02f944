//! The strategy of every kind, in one table. A kind that needs nothing special is [`Plain`].

mod admission;
mod apiservice;
mod apps;
mod autoscaling;
mod batch;
mod certificates;
mod claim;
mod common;
#[cfg(test)]
mod compared;
mod config;
mod cron;
mod definition;
mod devices;
mod endpoints;
mod event;
mod expressions;
mod flowcontrol;
mod groups;
mod migration;
mod names;
mod namespace;
mod networking;
mod node;
mod pod;
mod policy;
mod quota;
mod rbac;
pub mod service;
mod slices;
mod storage;
#[cfg(test)]
mod tests;
mod trust;
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
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicy") => &admission::Policies { mutating: true },
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding") => {
            &admission::PolicyBindings { mutating: true }
        }
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration") => &admission::Webhooks { mutating: true },
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy") => &admission::Policies { mutating: false },
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding") => {
            &admission::PolicyBindings { mutating: false }
        }
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration") => &admission::Webhooks { mutating: false },
        ("apiextensions.k8s.io", "CustomResourceDefinition") => &definition::Definitions,
        ("apiregistration.k8s.io", "APIService") => &apiservice::ApiServices,
        ("apps", "ControllerRevision") => &apps::ControllerRevisions,
        ("apps", "DaemonSet") => &apps::DaemonSets,
        ("apps", "Deployment") => &apps::Deployments,
        ("apps", "ReplicaSet") => &apps::ReplicaSets,
        ("apps", "StatefulSet") => &apps::StatefulSets,
        ("autoscaling", "HorizontalPodAutoscaler") => &autoscaling::Autoscalers,
        ("batch", "CronJob") => &batch::CronJobs,
        ("batch", "Job") => &batch::Jobs,
        ("certificates.k8s.io", "CertificateSigningRequest") => &certificates::SigningRequests,
        ("certificates.k8s.io", "ClusterTrustBundle") => &trust::TrustBundles,
        ("certificates.k8s.io", "PodCertificateRequest") => &trust::PodCertificateRequests,
        ("coordination.k8s.io", "Lease") => &policy::Leases,
        ("coordination.k8s.io", "LeaseCandidate") => &migration::LeaseCandidates,
        ("discovery.k8s.io", "EndpointSlice") => &endpoints::EndpointSlices,
        ("flowcontrol.apiserver.k8s.io", "FlowSchema") => &flowcontrol::FlowSchemas,
        ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration") => &flowcontrol::PriorityLevels,
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
        ("resource.k8s.io", "DeviceClass") => &devices::DeviceClasses,
        ("resource.k8s.io", "DeviceTaintRule") => &devices::DeviceTaintRules,
        ("resource.k8s.io", "ResourceClaim") => &devices::Claims,
        ("resource.k8s.io", "ResourceClaimTemplate") => &devices::ClaimTemplates,
        ("resource.k8s.io", "ResourcePoolStatusRequest") => &devices::PoolStatusRequests,
        ("resource.k8s.io", "ResourceSlice") => &slices::ResourceSlices,
        ("scheduling.k8s.io", "PodGroup") => &groups::PodGroups,
        ("scheduling.k8s.io", "PriorityClass") => &policy::PriorityClasses,
        ("scheduling.k8s.io", "Workload") => &groups::Workloads,
        ("storage.k8s.io", "CSIDriver") => &storage::CsiDrivers,
        ("storage.k8s.io", "CSINode") => &storage::CsiNodes,
        ("storage.k8s.io", "CSIStorageCapacity") => &storage::CsiStorageCapacities,
        ("storage.k8s.io", "StorageClass") => &storage::StorageClasses,
        ("storage.k8s.io", "VolumeAttachment") => &storage::VolumeAttachments,
        ("storage.k8s.io", "VolumeAttributesClass") => &storage::VolumeAttributesClasses,
        ("storagemigration.k8s.io", "StorageVersionMigration") => &migration::Migrations,
        _ => &Plain,
    }
}
