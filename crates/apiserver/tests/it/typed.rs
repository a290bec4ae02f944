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

#[cfg(test)]
mod tests {
    use facts::{Schema, Type};
    use serde_json::json;

    use super::*;
    use crate::kinds::samples;

    #[test]
    fn every_kind_has_a_struct() {
        for facts in facts::resources().filter(|facts| facts.verbs.has("watch")) {
            let object = json!({"apiVersion": facts.api_version(), "kind": facts.kind});
            let read = decode(facts, &object)
                .unwrap_or_else(|| panic!("no struct for {} {}", facts.api_version(), facts.kind));
            read.unwrap_or_else(|error| panic!("an empty {}: {error}", facts.kind));
        }
    }

    /// From samples of every kind, with every field that their types have.
    #[test]
    fn whatever_is_null_can_be_read() {
        let mut read = 0;
        for sample in samples() {
            let kind = sample.object["kind"].as_str().expect("a kind").to_owned();
            let (group, version) =
                sample.object["apiVersion"].as_str().expect("a version").rsplit_once('/').unwrap_or(("", "v1"));
            let facts = facts::kind(group, version, &kind).expect("a built-in kind");
            let of = facts.ty.expect("a type").def();
            let mut whole = sample.object.clone();
            fill(&mut whole, of, 4);
            let mut paths = Vec::new();
            walk(&whole, &mut Vec::new(), &mut paths);
            for path in paths {
                let mut object = whole.clone();
                *at(&mut object, &path) = Value::Null;
                // Raw, as foreign servers may have it, and in the form in which ours would keep it.
                let raw = object.clone();
                let kept = machinery::schema::conform(&mut object, of).map(|_| {
                    machinery::schema::complete(&mut object, of);
                    object
                });
                for object in [Some(raw), kept.ok()].into_iter().flatten() {
                    read += 1;
                    if let Some(Err(error)) = decode(facts, &object) {
                        panic!("{kind} with a null at {path:?}: {error}");
                    }
                }
            }
        }
        assert!(read > 10_000, "only {read} objects were read");
    }

    /// Puts in what is missing, one element into each list and map, so many levels deep.
    fn fill(value: &mut Value, of: &Type, depth: usize) {
        let Some(fields) = value.as_object_mut() else { return };
        for field in of.fields() {
            if matches!(&*field.name, "apiVersion" | "kind") {
                continue;
            }
            let entry = fields.entry(field.name.to_string()).or_insert_with(|| sample_of(&field.schema, depth));
            if let Some(of) = field.schema.object().filter(|_| depth > 0) {
                fill(entry, of, depth - 1);
            }
        }
    }

    fn sample_of(schema: &Schema, depth: usize) -> Value {
        match schema {
            Schema::String | Schema::IntOrString => json!("a"),
            Schema::Bytes => json!("YQ=="),
            Schema::Int32 | Schema::Int64 => json!(1),
            Schema::Double => json!(0.5),
            Schema::Bool => json!(true),
            Schema::Time => json!("9999-12-30T21:59:59Z"),
            Schema::MicroTime => json!("9999-12-30T21:59:59.000000Z"),
            Schema::Quantity => json!("1"),
            Schema::Duration => json!("1m"),
            Schema::Any(
                facts::Opaque::SchemaOrArray | facts::Opaque::SchemaOrBool | facts::Opaque::SchemaOrStrings,
            ) => {
                json!({"type": "object"})
            }
            Schema::Any(_) => json!({"a": null}),
            Schema::Ref(_) | Schema::Object(_) => {
                let mut object = json!({});
                if let Some(of) = schema.object().filter(|_| depth > 0) {
                    fill(&mut object, of, depth - 1);
                }
                object
            }
            Schema::Array(list) => json!([sample_of(&list.items, depth.saturating_sub(1))]),
            Schema::Map(map) => json!({"a": sample_of(&map.values, depth.saturating_sub(1))}),
        }
    }

    /// Every place in an object but what says what it is.
    fn walk(value: &Value, here: &mut Vec<String>, paths: &mut Vec<Vec<String>>) {
        let mut step = |key: String, value: &Value| {
            here.push(key);
            if !(here.len() == 1 && matches!(here[0].as_str(), "apiVersion" | "kind")) {
                paths.push(here.clone());
            }
            walk(value, here, paths);
            here.pop();
        };
        match value {
            Value::Object(fields) => fields.iter().for_each(|(key, value)| step(key.clone(), value)),
            Value::Array(items) => items.iter().enumerate().for_each(|(at, item)| step(at.to_string(), item)),
            _ => {}
        }
    }

    fn at<'a>(value: &'a mut Value, path: &[String]) -> &'a mut Value {
        path.iter().fold(value, |value, key| match value {
            Value::Array(items) => &mut items[key.parse::<usize>().expect("a number")],
            value => &mut value[key.as_str()],
        })
    }
}
