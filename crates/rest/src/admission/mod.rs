//! Admission: who may change or refuse a write after it is authorized. The chain, in order, is the tables of [`chain`].
//!
//! Mutating plug-ins run first, one after the other, then (after validation) the validating ones. A plug-in reads the
//! caches and never waits for anything but them, except webhooks, which ask others, and quotas, which write.

pub(crate) mod cel;
mod certificates;
mod chain;
mod compiled;
mod conditions;
mod defaults;
pub mod event_rate_limit;
pub mod image_policy;
mod limit_ranger;
mod matching;
mod namespace_lifecycle;
mod namespaces;
mod network_policy;
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
pub mod webhooks;

use std::sync::Arc;

use gates::authorization::{Attributes, Authorizers};
use gates::{Exchange, RequestInfo};
use hops::Hop;
use machinery::gvk::GroupResource;
use machinery::rest::User;
use machinery::status::ApiError;
use machinery::{Value, value};

use crate::registry::{Registry, Resource, Shared};
use crate::verbs::Api;
use chain::{Mutate, Validate, Write};
use event_rate_limit::EventRateLimit;
use image_policy::ImagePolicy;
use policies::{MutatingPolicies, ValidatingPolicies};
use priority::Priorities;
use quota::Quotas;
use reinvocation::Rounds;
pub use settings::{Plugin, Settings};
pub use subject::connect_options;
pub use tolerations::Seconds as TolerationSeconds;
use webhooks::Webhooks;

/// What a request does to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
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
    /// The request that it is of.
    pub exchange: &'a Exchange,
    pub operation: Operation,
    /// What it is about.
    pub info: &'a RequestInfo,
    pub resource: &'a Arc<Resource>,
    /// The version of it that was asked for.
    pub facts: &'a Shared<facts::Resource>,
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

    /// Whether who sends it may do something else too, as authorizers are asked.
    fn question<'a>(&'a self, verb: &'a str, group: &'a str, resource: &'a str, name: &'a str) -> Attributes<'a> {
        Attributes::question(self.user, verb, group, resource, name).within(self.exchange.trace)
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
    ) -> Result<Self, gates::outbound::Error> {
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
        let hop = hops::start(Hop::Mutating, request.operation.verb()).within(request.exchange.trace);
        let write = Write { admission: self, api, request, old };
        let mut rounds = Rounds::default();
        self.mutate_once(write, new, &mut rounds).await?;
        if rounds.again() {
            self.mutate_once(write, new, &mut rounds).await?;
        }
        hop.end(value::text(new, "metadata.uid"), "", 0);
        Ok(())
    }

    async fn mutate_once(&self, write: Write<'_>, new: &mut Value, rounds: &mut Rounds) -> Result<(), ApiError> {
        self.mutate_built_in(write, new).await?;
        if self.settings.runs(Plugin::MutatingAdmissionPolicy) {
            self.mutating_policies.mutate(write, new, rounds).await?;
        }
        if self.settings.runs(Plugin::MutatingAdmissionWebhook) {
            self.webhooks.mutate(write, Some(new), rounds).await?;
        }
        self.deny_all(write.request, Some(new))
    }

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
            let write = Write { admission: self, api, request, old: Some(old) };
            self.webhooks.mutate(write, None, &mut Rounds::default()).await?;
        }
        self.validate(api, request, None, Some(old)).await
    }

    async fn mutate_built_in(&self, write: Write<'_>, new: &mut Value) -> Result<(), ApiError> {
        for (plugin, step) in chain::MUTATING {
            match step {
                _ if plugin.is_some_and(|plugin| !self.settings.runs(plugin)) => {}
                Mutate::Now(admit) => admit(write, new)?,
                Mutate::Later(admit) => admit(write, new).await?,
            }
        }
        Ok(())
    }

    /// Asks every validating plug-in.
    pub async fn validate(
        &self,
        api: &Api,
        request: &Request<'_>,
        new: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        let hop = hops::start(Hop::Validating, request.operation.verb()).within(request.exchange.trace);
        let write = Write { admission: self, api, request, old };
        for (plugin, step) in chain::VALIDATING {
            match step {
                _ if plugin.is_some_and(|plugin| !self.settings.runs(plugin)) => {}
                Validate::Now(judge) => judge(write, new)?,
                Validate::Later(judge) => judge(write, new).await?,
            }
        }
        self.deny_all(request, new)?;
        let uid = new.or(old).map_or("", |object| value::text(object, "metadata.uid"));
        hop.end(uid, "", 0);
        Ok(())
    }
}
