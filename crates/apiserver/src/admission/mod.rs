//! Admission: who may change or refuse a write after it is authorized. The chain, in order, in one place.
//!
//! Mutating plug-ins run first, one after the other, then (after validation) the validating ones. A plug-in reads the
//! caches and never waits for anything but them, except webhooks, which ask others, and quotas, which write.

pub(crate) mod cel;
mod certificates;
mod compiled;
mod conditions;
mod defaults;
pub mod event_rate_limit;
pub mod image_policy;
mod limit_ranger;
mod matching;
mod namespace_lifecycle;
mod namespaces;
mod node_restriction;
mod owner_references;
pub mod pod_security;
pub mod pod_tolerations;
mod pods;
mod policies;
mod priority;
mod quota;
mod rbac_escalation;
mod reinvocation;
mod resize;
mod runtime_class;
mod service_account;
pub mod settings;
mod storage;
mod subject;
mod tolerations;
mod webhooks;

use std::sync::Arc;

use hops::Hop;
use machinery::gvk::GroupResource;
use machinery::rest::User;
use machinery::status::ApiError;
use machinery::{Value, value};

use crate::gates::authorization::Authorizers;
use crate::registry::{Registry, Resource};
use crate::rest::Api;
use crate::route::RequestInfo;
use event_rate_limit::EventRateLimit;
use image_policy::ImagePolicy;
use policies::{MutatingPolicies, ValidatingPolicies};
use priority::Priorities;
use quota::Quotas;
use reinvocation::Rounds;
pub use settings::{Plugin, Settings};
use subject::Subject;
pub use subject::connect_options;
use webhooks::Webhooks;

/// What a request does to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Makes it.
    Create,
    /// Changes it.
    Update,
    /// Removes it.
    Delete,
    /// Connects to it: exec, attach, port-forward, proxy.
    Connect,
}

impl Operation {
    /// As hops name it.
    pub const fn verb(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::Connect => "connect",
        }
    }

    /// As reviews name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// A write under admission.
pub struct Request<'a> {
    /// What it does.
    pub operation: Operation,
    /// What it is about.
    pub info: &'a RequestInfo,
    /// The stored resource.
    pub resource: &'a Arc<Resource>,
    /// The version of it that was asked for.
    pub facts: &'static facts::Resource,
    /// Who asks.
    pub user: &'a Arc<User>,
    /// Whether nothing will be written.
    pub dry_run: bool,
    /// The parameters of the request.
    pub options: &'a [(String, String)],
}

impl Request<'_> {
    /// Whether it is about this resource itself, not about a subresource.
    pub fn is_for(&self, group: &str, plural: &str) -> bool {
        self.resource.name.group == group && self.resource.name.resource == plural && self.info.subresource.is_empty()
    }

    /// What a refusal is about, in the group that was asked for.
    fn subject(&self) -> GroupResource {
        GroupResource::new(&*self.facts.group, &self.resource.name.resource)
    }

    /// A refusal that names the object.
    fn forbid(&self, object: &Value, why: &str) -> ApiError {
        let own = match (value::text(object, "metadata.name"), value::text(object, "metadata.generateName")) {
            ("", generated) => generated,
            (name, _) => name,
        };
        let name = if self.info.name.is_empty() { own } else { &self.info.name };
        ApiError::forbidden(&self.subject(), name, why)
    }

    /// A refusal of a request without an object.
    fn forbid_unnamed(&self, why: &str) -> ApiError {
        ApiError::forbidden(&self.subject(), &self.info.name, why)
    }
}

/// Several problems as one message, as upstream joins them.
fn together(problems: &[String]) -> Option<String> {
    match problems {
        [] => None,
        [one] => Some(one.clone()),
        several => Some(format!("[{}]", several.join(", "))),
    }
}

/// The chain.
pub struct Admission {
    authorizers: Arc<Authorizers>,
    settings: Settings,
    priorities: Priorities,
    event_limits: EventRateLimit,
    image_policy: Option<ImagePolicy>,
    quotas: Quotas,
    webhooks: Webhooks,
    mutating_policies: MutatingPolicies,
    validating_policies: ValidatingPolicies,
}

impl Admission {
    /// With somebody to ask what else a user may do.
    pub fn new(
        registry: &Registry,
        authorizers: Arc<Authorizers>,
        settings: Settings,
    ) -> Result<Self, crate::gates::outbound::Error> {
        let asks_about_images = settings.runs(Plugin::ImagePolicyWebhook);
        let image_policy =
            settings.image_policy.clone().filter(|_| asks_about_images).map(ImagePolicy::new).transpose()?;
        Ok(Self {
            priorities: Priorities::new(registry),
            event_limits: EventRateLimit::new(settings.event_limits.clone()),
            image_policy,
            settings,
            quotas: Quotas::default(),
            webhooks: Webhooks::new(registry, authorizers.clone()),
            mutating_policies: MutatingPolicies::new(registry, authorizers.clone()),
            validating_policies: ValidatingPolicies::new(registry, authorizers.clone()),
            authorizers,
        })
    }

    /// Whether anybody changes writes whom somebody configured, and who may therefore do anything.
    pub fn asks_others(&self) -> bool {
        self.mutating_policies.are_there() || self.webhooks.change_writes()
    }

    /// Lets every mutating plug-in change the new object, and again if a policy or a webhook changed what others had seen.
    pub async fn mutate(
        &self,
        api: &Api,
        request: &Request<'_>,
        new: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        let hop = hops::start(Hop::Mutate, request.operation.verb());
        let mut rounds = Rounds::default();
        self.mutate_once(api, request, new, old, &mut rounds).await?;
        if rounds.again() {
            self.mutate_once(api, request, new, old, &mut rounds).await?;
        }
        hop.end(value::text(new, "metadata.uid"), "", 0);
        Ok(())
    }

    async fn mutate_once(
        &self,
        api: &Api,
        request: &Request<'_>,
        new: &mut Value,
        old: Option<&Value>,
        rounds: &mut Rounds,
    ) -> Result<(), ApiError> {
        self.mutate_built_in(api, request, new, old).await?;
        if self.settings.runs(Plugin::MutatingAdmissionPolicy) {
            self.mutating_policies.mutate(api, request, new, old, rounds).await?;
        }
        if self.settings.runs(Plugin::MutatingAdmissionWebhook) {
            self.webhooks.mutate(api, request, Some(new), old, rounds).await?;
        }
        self.deny_all(request, Some(new))
    }

    /// AlwaysDeny.
    fn deny_all(&self, request: &Request<'_>, new: Option<&Value>) -> Result<(), ApiError> {
        const WHY: &str = "admission control is denying all modifications";
        match new {
            _ if !self.settings.runs(Plugin::AlwaysDeny) => Ok(()),
            Some(new) => Err(request.forbid(new, WHY)),
            None => Err(request.forbid_unnamed(WHY)),
        }
    }

    /// Asks everybody whether a connection may be made.
    pub async fn connect(&self, api: &Api, request: &Request<'_>, mut options: Value) -> Result<(), ApiError> {
        self.mutate(api, request, &mut options, None).await?;
        self.validate(api, request, Some(&options), None).await
    }

    /// Asks everybody whether an object may be deleted. There is nothing to change in a deletion, but a webhook for changes
    /// may refuse it.
    pub async fn delete(&self, api: &Api, request: &Request<'_>, old: &Value) -> Result<(), ApiError> {
        if self.settings.runs(Plugin::NodeRestriction) {
            node_restriction::admit(api, &self.authorizers, request, None, Some(old)).await?;
        }
        if self.settings.runs(Plugin::MutatingAdmissionWebhook) {
            self.webhooks.mutate(api, request, None, Some(old), &mut Rounds::default()).await?;
        }
        self.validate(api, request, None, Some(old)).await
    }

    async fn mutate_built_in(
        &self,
        api: &Api,
        request: &Request<'_>,
        new: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        let runs = |plugin| self.settings.runs(plugin);
        certificates::stamp(api, request, new, old);
        if runs(Plugin::NamespaceAutoProvision) {
            namespaces::provide(api, request).await?;
        }
        if runs(Plugin::NamespaceLifecycle) {
            namespace_lifecycle::admit(api, request, new).await?;
        }
        if runs(Plugin::LimitRanger) {
            limit_ranger::admit(api, request, new);
        }
        if runs(Plugin::ServiceAccount) {
            service_account::admit(api, request, new).await?;
        }
        if runs(Plugin::NodeRestriction) {
            node_restriction::admit(api, &self.authorizers, request, Some(new), old).await?;
        }
        if runs(Plugin::TaintNodesByCondition) {
            defaults::taint_new_node(request, new);
        }
        if runs(Plugin::AlwaysPullImages) {
            defaults::always_pull(request, new, old);
        }
        if runs(Plugin::PodNodeSelector) {
            defaults::node_selector(&self.settings.node_selectors, api, request, new)?;
        }
        if runs(Plugin::Priority) {
            self.priorities.admit(request, new, old)?;
        }
        if runs(Plugin::DefaultTolerationSeconds) {
            tolerations::admit(request, new);
        }
        if runs(Plugin::PodTolerationRestriction) {
            pod_tolerations::admit(&self.settings.tolerations, api, request, new).await?;
        }
        if runs(Plugin::ExtendedResourceToleration) {
            defaults::tolerate_devices(request, new);
        }
        if runs(Plugin::DefaultStorageClass) {
            storage::set_default_class(api, request, new);
        }
        if runs(Plugin::StorageObjectInUseProtection) {
            storage::protect(request, new);
        }
        if runs(Plugin::RuntimeClass) {
            runtime_class::admit(api, request, new).await?;
        }
        if runs(Plugin::DefaultIngressClass) {
            defaults::ingress_class(api, request, new);
        }
        if runs(Plugin::PodTopologyLabels) {
            defaults::topology_labels(api, request, new);
        }
        Ok(())
    }

    /// Asks every validating plug-in. Quotas come last: what they take is for an object that nobody else refuses.
    pub async fn validate(
        &self,
        api: &Api,
        request: &Request<'_>,
        new: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        let hop = hops::start(Hop::Admit, request.operation.verb());
        let (runs, authorizers) = (|plugin| self.settings.runs(plugin), &*self.authorizers);
        rbac_escalation::validate(authorizers, request, new, old).await?;
        priority::keep_system_classes(request)?;
        if runs(Plugin::NamespaceLifecycle) {
            namespace_lifecycle::validate(api, request)?;
        }
        if runs(Plugin::NamespaceExists) {
            namespaces::must_exist(api, request).await?;
        }
        if runs(Plugin::LimitPodHardAntiAffinityTopology) {
            defaults::limit_anti_affinity(request, new)?;
        }
        if runs(Plugin::LimitRanger) {
            limit_ranger::validate(api, request, new, old)?;
        }
        if runs(Plugin::ServiceAccount) {
            service_account::validate(api, request, new).await?;
        }
        if runs(Plugin::AlwaysPullImages) {
            defaults::check_always_pull(request, new, old)?;
        }
        if let Some(image_policy) = &self.image_policy {
            image_policy.validate(api, request, new).await?;
        }
        if runs(Plugin::PodSecurity) {
            pod_security::validate(&self.settings.pod_security, api, request, new, old)?;
        }
        if runs(Plugin::Priority) {
            self.priorities.validate(request, new)?;
        }
        if runs(Plugin::PodTolerationRestriction) {
            pod_tolerations::validate(&self.settings.tolerations, api, request, new).await?;
        }
        if runs(Plugin::EventRateLimit) {
            self.event_limits.validate(api, request, new)?;
        }
        if runs(Plugin::OwnerReferencesPermissionEnforcement) {
            owner_references::validate(authorizers, request, new, old).await?;
        }
        if runs(Plugin::PersistentVolumeClaimResize) {
            storage::validate_resize(api, request, new, old)?;
        }
        if runs(Plugin::RuntimeClass) {
            runtime_class::validate(api, request, new).await?;
        }
        if runs(Plugin::CertificateApproval) {
            certificates::approval(authorizers, request, old).await?;
        }
        if runs(Plugin::CertificateSigning) {
            certificates::signing(authorizers, request, new, old).await?;
        }
        if runs(Plugin::ClusterTrustBundleAttest) {
            certificates::attest(authorizers, request, new, old).await?;
        }
        if runs(Plugin::CertificateSubjectRestriction) {
            certificates::subject(request, new)?;
        }
        if runs(Plugin::DenyServiceExternalIPs) {
            defaults::deny_external_ips(request, new, old)?;
        }
        if runs(Plugin::NodeDeclaredFeatureValidator) {
            resize::is_declared(api, request, new, old)?;
        }
        if runs(Plugin::PodResizeValidator) {
            resize::fits(api, request, new, old)?;
        }
        let subject = Subject { api, request, new, old };
        if runs(Plugin::ValidatingAdmissionPolicy) {
            self.validating_policies.validate(&subject).await?;
        }
        if runs(Plugin::ValidatingAdmissionWebhook) {
            self.webhooks.validate(&subject).await?;
        }
        if runs(Plugin::ResourceQuota) {
            self.quotas.validate(api, request, new, old).await?;
        }
        self.deny_all(request, new)?;
        let uid = new.or(old).map_or("", |object| value::text(object, "metadata.uid"));
        hop.end(uid, "", 0);
        Ok(())
    }
}
