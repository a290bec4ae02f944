//! The chain of plug-ins, as two tables in the order in which they run: those that change a write, and those that judge it.
//!
//! A step without a plug-in runs always: it is a part of the storage of its kind upstream. Steps that never wait are plain
//! functions; those that may ask a cache or another to catch up return a future.

use futures::future::BoxFuture;
use machinery::Value;
use machinery::status::ApiError;

use super::settings::Plugin;
use super::subject::Subject;
use super::{
    Admission, Request, certificates, defaults, limit_ranger, namespace_lifecycle, namespaces, network_policy,
    node_restriction, owner_references, pod_security, pod_tolerations, priority, rbac_escalation, resize,
    runtime_class, service_account, storage, tolerations,
};
use crate::verbs::Api;

type Outcome = Result<(), ApiError>;

/// A write on its way through the chain.
#[derive(Clone, Copy)]
pub struct Write<'a> {
    /// Whose plug-ins these are.
    pub admission: &'a Admission,
    /// Where others are looked up.
    pub api: &'a Api,
    pub request: &'a Request<'a>,
    /// What the object was.
    pub old: Option<&'a Value>,
}

/// A step that may change the new object.
pub enum Mutate {
    Now(for<'a> fn(Write<'a>, &mut Value) -> Outcome),
    Later(for<'a> fn(Write<'a>, &'a mut Value) -> BoxFuture<'a, Outcome>),
}

/// A step that may refuse a write. There is no new object where one is deleted.
pub enum Validate {
    Now(for<'a> fn(Write<'a>, Option<&'a Value>) -> Outcome),
    Later(for<'a> fn(Write<'a>, Option<&'a Value>) -> BoxFuture<'a, Outcome>),
}

/// What changes a write, before the policies and webhooks that somebody configured.
pub static MUTATING: &[(Option<Plugin>, Mutate)] = &[
    (
        None,
        Mutate::Now(|write, new| {
            certificates::stamp(write.api, write.request, new, write.old);
            Ok(())
        }),
    ),
    (
        Some(Plugin::NamespaceAutoProvision),
        Mutate::Later(|write, _| Box::pin(namespaces::provide(write.api, write.request))),
    ),
    (
        Some(Plugin::NamespaceLifecycle),
        Mutate::Later(|write, new| Box::pin(namespace_lifecycle::admit(write.api, write.request, new))),
    ),
    (
        Some(Plugin::LimitRanger),
        Mutate::Now(|write, new| {
            limit_ranger::admit(write.api, write.request, new);
            Ok(())
        }),
    ),
    (
        Some(Plugin::ServiceAccount),
        Mutate::Later(|write, new| Box::pin(service_account::admit(write.api, write.request, new))),
    ),
    (
        Some(Plugin::NodeRestriction),
        Mutate::Later(|write, new| {
            let authorizers = &write.admission.authorizers;
            Box::pin(node_restriction::admit(write.api, authorizers, write.request, Some(new), write.old))
        }),
    ),
    (
        Some(Plugin::TaintNodesByCondition),
        Mutate::Now(|write, new| {
            defaults::taint_new_node(write.request, new);
            Ok(())
        }),
    ),
    (
        Some(Plugin::AlwaysPullImages),
        Mutate::Now(|write, new| {
            defaults::always_pull(write.request, new, write.old);
            Ok(())
        }),
    ),
    (
        Some(Plugin::PodNodeSelector),
        Mutate::Now(|write, new| {
            defaults::node_selector(&write.admission.settings.node_selectors, write.api, write.request, new)
        }),
    ),
    (Some(Plugin::Priority), Mutate::Now(|write, new| write.admission.priorities.admit(write.request, new, write.old))),
    (
        Some(Plugin::DefaultTolerationSeconds),
        Mutate::Now(|write, new| {
            tolerations::admit(write.admission.settings.toleration_seconds, write.request, new);
            Ok(())
        }),
    ),
    (
        Some(Plugin::PodTolerationRestriction),
        Mutate::Later(|write, new| {
            Box::pin(pod_tolerations::admit(&write.admission.settings.tolerations, write.api, write.request, new))
        }),
    ),
    (
        Some(Plugin::ExtendedResourceToleration),
        Mutate::Now(|write, new| {
            defaults::tolerate_devices(write.request, new);
            Ok(())
        }),
    ),
    (
        Some(Plugin::DefaultStorageClass),
        Mutate::Now(|write, new| {
            storage::set_default_class(write.api, write.request, new);
            Ok(())
        }),
    ),
    (
        Some(Plugin::StorageObjectInUseProtection),
        Mutate::Now(|write, new| {
            storage::protect(write.request, new);
            Ok(())
        }),
    ),
    (
        Some(Plugin::RuntimeClass),
        Mutate::Later(|write, new| Box::pin(runtime_class::admit(write.api, write.request, new))),
    ),
    (
        Some(Plugin::DefaultIngressClass),
        Mutate::Now(|write, new| {
            defaults::ingress_class(write.api, write.request, new);
            Ok(())
        }),
    ),
    (
        Some(Plugin::PodTopologyLabels),
        Mutate::Now(|write, new| {
            defaults::topology_labels(write.api, write.request, new);
            Ok(())
        }),
    ),
];

/// What judges a write. Quotas come last: what they take is for an object that nobody else refuses.
pub static VALIDATING: &[(Option<Plugin>, Validate)] = &[
    (
        None,
        Validate::Later(|write, new| {
            Box::pin(rbac_escalation::validate(&write.admission.authorizers, write.request, new, write.old))
        }),
    ),
    (None, Validate::Now(|write, _| priority::keep_system_classes(write.request))),
    (
        None,
        Validate::Now(|write, new| {
            network_policy::warn(write.api, write.request, new, write.old);
            Ok(())
        }),
    ),
    (
        Some(Plugin::NamespaceLifecycle),
        Validate::Now(|write, _| namespace_lifecycle::validate(write.api, write.request)),
    ),
    (
        Some(Plugin::NamespaceExists),
        Validate::Later(|write, _| Box::pin(namespaces::must_exist(write.api, write.request))),
    ),
    (
        Some(Plugin::LimitPodHardAntiAffinityTopology),
        Validate::Now(|write, new| defaults::limit_anti_affinity(write.request, new)),
    ),
    (
        Some(Plugin::LimitRanger),
        Validate::Now(|write, new| limit_ranger::validate(write.api, write.request, new, write.old)),
    ),
    (
        Some(Plugin::ServiceAccount),
        Validate::Later(|write, new| Box::pin(service_account::validate(write.api, write.request, new))),
    ),
    (
        Some(Plugin::AlwaysPullImages),
        Validate::Now(|write, new| defaults::check_always_pull(write.request, new, write.old)),
    ),
    (
        Some(Plugin::ImagePolicyWebhook),
        Validate::Later(|write, new| {
            Box::pin(async move {
                match &write.admission.image_policy {
                    Some(image_policy) => image_policy.validate(write.api, write.request, new).await,
                    None => Ok(()),
                }
            })
        }),
    ),
    (
        Some(Plugin::PodSecurity),
        Validate::Now(|write, new| {
            pod_security::validate(&write.admission.settings.pod_security, write.api, write.request, new, write.old)
        }),
    ),
    (Some(Plugin::Priority), Validate::Now(|write, new| write.admission.priorities.validate(write.request, new))),
    (
        Some(Plugin::PodTolerationRestriction),
        Validate::Later(|write, new| {
            Box::pin(pod_tolerations::validate(&write.admission.settings.tolerations, write.api, write.request, new))
        }),
    ),
    (
        Some(Plugin::EventRateLimit),
        Validate::Now(|write, new| write.admission.event_limits.validate(write.api, write.request, new)),
    ),
    (
        Some(Plugin::OwnerReferencesPermissionEnforcement),
        Validate::Later(|write, new| {
            Box::pin(owner_references::validate(&write.admission.authorizers, write.request, new, write.old))
        }),
    ),
    (
        Some(Plugin::PersistentVolumeClaimResize),
        Validate::Now(|write, new| storage::validate_resize(write.api, write.request, new, write.old)),
    ),
    (
        Some(Plugin::RuntimeClass),
        Validate::Later(|write, new| Box::pin(runtime_class::validate(write.api, write.request, new))),
    ),
    (
        Some(Plugin::CertificateApproval),
        Validate::Later(|write, _| {
            Box::pin(certificates::approval(&write.admission.authorizers, write.request, write.old))
        }),
    ),
    (
        Some(Plugin::CertificateSigning),
        Validate::Later(|write, new| {
            Box::pin(certificates::signing(&write.admission.authorizers, write.request, new, write.old))
        }),
    ),
    (
        Some(Plugin::ClusterTrustBundleAttest),
        Validate::Later(|write, new| {
            Box::pin(certificates::attest(&write.admission.authorizers, write.request, new, write.old))
        }),
    ),
    (
        Some(Plugin::CertificateSubjectRestriction),
        Validate::Now(|write, new| certificates::subject(write.request, new)),
    ),
    (
        Some(Plugin::DenyServiceExternalIPs),
        Validate::Now(|write, new| defaults::deny_external_ips(write.request, new, write.old)),
    ),
    (
        Some(Plugin::NodeDeclaredFeatureValidator),
        Validate::Now(|write, new| resize::is_declared(write.api, write.request, new, write.old)),
    ),
    (
        Some(Plugin::PodResizeValidator),
        Validate::Now(|write, new| resize::fits(write.api, write.request, new, write.old)),
    ),
    (
        Some(Plugin::ValidatingAdmissionPolicy),
        Validate::Later(|write, new| {
            Box::pin(async move {
                let Write { admission, api, request, old } = write;
                admission.validating_policies.validate(&Subject { api, request, new, old }).await
            })
        }),
    ),
    (
        Some(Plugin::ValidatingAdmissionWebhook),
        Validate::Later(|write, new| {
            Box::pin(async move {
                let Write { admission, api, request, old } = write;
                admission.webhooks.validate(&Subject { api, request, new, old }).await
            })
        }),
    ),
    (
        Some(Plugin::ResourceQuota),
        Validate::Later(|write, new| {
            Box::pin(write.admission.quotas.validate(write.api, write.request, new, write.old))
        }),
    ),
];
