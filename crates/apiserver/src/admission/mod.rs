//! Admission: who may change or refuse a write after it is authorized. The chain, in order, in one place.
//!
//! Mutating plug-ins run first, one after the other, then (after validation) the validating ones. A plug-in reads the
//! caches and never waits for anything but them, except quotas, which write.

mod certificates;
mod defaults;
mod limit_ranger;
mod namespace_lifecycle;
mod node_restriction;
mod owner_references;
pub mod pod_security;
mod priority;
mod quota;
mod rbac_escalation;
mod resources;
mod runtime_class;
mod service_account;
pub mod settings;
mod storage;
mod tolerations;

use std::sync::Arc;

use hops::Hop;
use machinery::rest::User;
use machinery::status::ApiError;
use machinery::{Value, value};

use crate::gates::authorization::Authorizers;
use crate::registry::Resource;
use crate::rest::Api;
use crate::route::RequestInfo;
use quota::Quotas;
pub use settings::{Plugin, Settings};

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
    /// Who asks.
    pub user: &'a Arc<User>,
    /// Whether nothing will be written.
    pub dry_run: bool,
}

impl Request<'_> {
    /// Whether it is about this resource itself, not about a subresource.
    pub fn is_for(&self, group: &str, plural: &str) -> bool {
        self.resource.name.group == group && self.resource.name.resource == plural && self.info.subresource.is_empty()
    }

    /// A refusal that names the object.
    fn forbid(&self, object: &Value, why: &str) -> ApiError {
        let own = match (value::text(object, "metadata.name"), value::text(object, "metadata.generateName")) {
            ("", generated) => generated,
            (name, _) => name,
        };
        let name = if self.info.name.is_empty() { own } else { &self.info.name };
        ApiError::forbidden(&self.resource.name, name, why)
    }

    /// A refusal of a request without an object.
    fn forbid_unnamed(&self, why: &str) -> ApiError {
        ApiError::forbidden(&self.resource.name, &self.info.name, why)
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
    pod_security: pod_security::Settings,
    quotas: Quotas,
}

impl Admission {
    /// With somebody to ask what else a user may do.
    pub fn new(authorizers: Arc<Authorizers>, settings: Settings, pod_security: pod_security::Settings) -> Self {
        Self { authorizers, settings, pod_security, quotas: Quotas::default() }
    }

    /// Lets every mutating plug-in change the new object.
    pub async fn mutate(&self, api: &Api, request: &Request<'_>, new: &mut Value) -> Result<(), ApiError> {
        let hop = hops::start(Hop::Mutate, request.operation.verb());
        let runs = |plugin| self.settings.runs(plugin);
        if runs(Plugin::NamespaceLifecycle) {
            namespace_lifecycle::admit(api, request, new).await?;
        }
        if runs(Plugin::PodNodeSelector) {
            defaults::node_selector(api, request, new)?;
        }
        if runs(Plugin::LimitRanger) {
            limit_ranger::admit(api, request, new);
        }
        if runs(Plugin::ServiceAccount) {
            service_account::admit(api, request, new)?;
        }
        if runs(Plugin::TaintNodesByCondition) {
            defaults::taint_new_node(request, new);
        }
        if runs(Plugin::AlwaysPullImages) {
            defaults::always_pull(request, new);
        }
        if runs(Plugin::Priority) {
            priority::admit(api, request, new)?;
        }
        if runs(Plugin::DefaultTolerationSeconds) {
            tolerations::admit(request, new);
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
        hop.end(value::text(new, "metadata.uid"), "", 0);
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
        if runs(Plugin::NamespaceLifecycle) {
            namespace_lifecycle::validate(api, request)?;
        }
        if runs(Plugin::NodeRestriction) {
            node_restriction::validate(api, request, new, old)?;
        }
        if runs(Plugin::LimitRanger) {
            limit_ranger::validate(api, request, new, old)?;
        }
        if runs(Plugin::AlwaysPullImages) {
            defaults::check_always_pull(request, new, old)?;
        }
        if runs(Plugin::PodSecurity) {
            pod_security::validate(&self.pod_security, api, request, new, old)?;
        }
        if runs(Plugin::RuntimeClass) {
            runtime_class::validate(api, request, new).await?;
        }
        if runs(Plugin::PersistentVolumeClaimResize) {
            storage::validate_resize(api, request, new, old)?;
        }
        if runs(Plugin::DenyServiceExternalIPs) {
            defaults::deny_external_ips(request, new, old)?;
        }
        if runs(Plugin::CertificateApproval) {
            certificates::approval(authorizers, request, old).await?;
        }
        if runs(Plugin::CertificateSigning) {
            certificates::signing(authorizers, request, new, old).await?;
        }
        if runs(Plugin::CertificateSubjectRestriction) {
            certificates::subject(request, new)?;
        }
        if runs(Plugin::OwnerReferencesPermissionEnforcement) {
            owner_references::validate(authorizers, request, new, old).await?;
        }
        if runs(Plugin::ResourceQuota) {
            self.quotas.validate(api, request, new, old).await?;
        }
        let uid = new.or(old).map_or("", |object| value::text(object, "metadata.uid"));
        hop.end(uid, "", 0);
        Ok(())
    }
}
