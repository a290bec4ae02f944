//! Everything that the API server can serve, our own clients can read: the structs that they read each kind into.

use client::Kind;
use facts::Resource;
use machinery::Value;
use machinery::codec::typed;

macro_rules! kinds {
    ($($module:path: $($kind:ident),*;)*) => {
        /// How an object of each kind is read: its `apiVersion`, its kind, and the reader.
        const READERS: &[(&str, &str, fn(&[u8]) -> Result<(), serde_json::Error>)] = &[
            $($({
                use $module as kinds;
                (
                    <kinds::$kind as k8s_openapi::Resource>::API_VERSION,
                    <kinds::$kind as k8s_openapi::Resource>::KIND,
                    read::<kinds::$kind>,
                )
            },)*)*
        ];
    };
}

kinds! {
    k8s_openapi::api::admissionregistration::v1: MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidatingWebhookConfiguration;
    k8s_openapi::api::admissionregistration::v1alpha1: MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding;
    k8s_openapi::api::admissionregistration::v1beta1: MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding;
    k8s_openapi::api::apiserverinternal::v1alpha1: StorageVersion;
    k8s_openapi::api::apps::v1: ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet;
    k8s_openapi::api::authentication::v1: SelfSubjectReview, TokenRequest, TokenReview;
    k8s_openapi::api::authorization::v1: LocalSubjectAccessReview, SelfSubjectAccessReview, SelfSubjectRulesReview, SubjectAccessReview;
    k8s_openapi::api::autoscaling::v1: HorizontalPodAutoscaler, Scale;
    k8s_openapi::api::autoscaling::v2: HorizontalPodAutoscaler;
    k8s_openapi::api::batch::v1: CronJob, Job;
    k8s_openapi::api::certificates::v1: CertificateSigningRequest, ClusterTrustBundle, PodCertificateRequest;
    k8s_openapi::api::certificates::v1beta1: ClusterTrustBundle, PodCertificateRequest;
    k8s_openapi::api::coordination::v1: Lease;
    k8s_openapi::api::coordination::v1alpha2: LeaseCandidate;
    k8s_openapi::api::coordination::v1beta1: LeaseCandidate;
    k8s_openapi::api::core::v1: Binding, ComponentStatus, ConfigMap, Endpoints, Event, LimitRange, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, PodTemplate, ReplicationController, ResourceQuota, Secret, Service, ServiceAccount;
    k8s_openapi::api::discovery::v1: EndpointSlice;
    k8s_openapi::api::events::v1: Event;
    k8s_openapi::api::flowcontrol::v1: FlowSchema, PriorityLevelConfiguration;
    k8s_openapi::api::lifecycle::v1alpha1: Eviction, EvictionRequest;
    k8s_openapi::api::networking::v1: IPAddress, Ingress, IngressClass, NetworkPolicy, ServiceCIDR;
    k8s_openapi::api::node::v1: RuntimeClass;
    k8s_openapi::api::policy::v1: Eviction, PodDisruptionBudget;
    k8s_openapi::api::rbac::v1: ClusterRole, ClusterRoleBinding, Role, RoleBinding;
    k8s_openapi::api::resource::v1: DeviceClass, DeviceTaintRule, ResourceClaim, ResourceClaimTemplate, ResourceSlice;
    k8s_openapi::api::resource::v1alpha3: DeviceTaintRule, ResourcePoolStatusRequest;
    k8s_openapi::api::resource::v1beta1: DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice;
    k8s_openapi::api::resource::v1beta2: DeviceClass, DeviceTaintRule, ResourceClaim, ResourceClaimTemplate, ResourceSlice;
    k8s_openapi::api::scheduling::v1: PriorityClass;
    k8s_openapi::api::scheduling::v1alpha3: CompositePodGroup, PodGroup, Workload;
    k8s_openapi::api::scheduling::v1beta1: PodGroup, Workload;
    k8s_openapi::api::storage::v1: CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment, VolumeAttributesClass;
    k8s_openapi::api::storagemigration::v1: StorageVersionMigration;
    k8s_openapi::api::storagemigration::v1beta1: StorageVersionMigration;
    k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1: CustomResourceDefinition;
    k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1: APIService;
}

fn read<K: Kind>(bytes: &[u8]) -> Result<(), serde_json::Error> {
    typed::from_slice::<K>(bytes, ("", "")).map(|_| ())
}

/// Reads an object, as it is stored, into the struct of its kind; `None` if there is no such struct.
pub fn decode(facts: &Resource, object: &Value) -> Option<Result<(), serde_json::Error>> {
    let version = facts.api_version();
    let (.., read) = READERS.iter().find(|(known, kind, _)| *known == version && *kind == facts.kind)?;
    Some(read(object.to_string().as_bytes()))
}
