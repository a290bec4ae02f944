//! Admission: who may change or refuse a write after it is authorized. The chain, in order, in one place.
//!
//! Mutating plug-ins run first, one after the other, then (after validation) the validating ones. A plug-in reads the
//! caches and never waits for anything but them.

mod namespace_lifecycle;
mod priority;
mod rbac_escalation;
mod service_account;
mod tolerations;

use std::sync::Arc;

use hops::Hop;
use machinery::Value;
use machinery::rest::User;
use machinery::status::ApiError;

use crate::gates::authorization::Authorizers;
use crate::registry::Resource;
use crate::rest::Api;
use crate::route::RequestInfo;

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
}

/// The chain.
pub struct Admission {
    authorizers: Arc<Authorizers>,
}

impl Admission {
    /// With somebody to ask what else a user may do.
    pub fn new(authorizers: Arc<Authorizers>) -> Self {
        Self { authorizers }
    }

    /// Lets every mutating plug-in change the new object.
    pub async fn mutate(&self, api: &Api, request: &Request<'_>, new: &mut Value) -> Result<(), ApiError> {
        let hop = hops::start(Hop::Mutate, request.operation.verb());
        namespace_lifecycle::admit(api, request, new).await?;
        service_account::admit(api, request, new)?;
        tolerations::admit(request, new);
        priority::admit(api, request, new)?;
        hop.end(machinery::value::text(new, "metadata.uid"), "", 0);
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
        let hop = hops::start(Hop::Admit, request.operation.verb());
        rbac_escalation::validate(&self.authorizers, request, new, old).await?;
        namespace_lifecycle::validate(api, request)?;
        let uid = new.or(old).map_or("", |object| machinery::value::text(object, "metadata.uid"));
        hop.end(uid, "", 0);
        Ok(())
    }
}
