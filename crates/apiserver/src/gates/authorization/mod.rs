//! May they? A chain of authorizers; who is not allowed by any is refused.

pub mod rbac;

use std::sync::Arc;

use machinery::gvk::GroupResource;
use machinery::rest::User;
use machinery::status::ApiError;

use crate::route::RequestInfo;

/// What an authorizer decides by.
pub struct Attributes<'a> {
    /// Who.
    pub user: &'a Arc<User>,
    /// What, on what.
    pub info: &'a RequestInfo,
}

/// An authorizer's word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Yes.
    Allow,
    /// No, whatever the others say.
    Deny(ApiError),
    /// Not mine to decide.
    NoOpinion(ApiError),
}

impl Verdict {
    /// Deny by default.
    pub fn into_result(self) -> Result<(), ApiError> {
        match self {
            Self::Allow => Ok(()),
            Self::Deny(error) | Self::NoOpinion(error) => Err(error),
        }
    }
}

/// Somebody who decides.
pub trait Authorizer: Send + Sync {
    /// Decides one request, from memory.
    fn authorize(&self, attributes: &Attributes<'_>) -> Verdict;
}

/// Members of `system:masters` may do everything, so that a broken policy can be mended.
pub struct Masters;

impl Authorizer for Masters {
    fn authorize(&self, attributes: &Attributes<'_>) -> Verdict {
        if attributes.user.groups.iter().any(|group| group == "system:masters") {
            Verdict::Allow
        } else {
            Verdict::NoOpinion(forbidden(attributes, ""))
        }
    }
}

/// Several authorizers: the first Allow or Deny counts.
pub struct Union(pub Vec<Box<dyn Authorizer>>);

impl Authorizer for Union {
    fn authorize(&self, attributes: &Attributes<'_>) -> Verdict {
        let mut last = Verdict::NoOpinion(forbidden(attributes, ""));
        for authorizer in &self.0 {
            match authorizer.authorize(attributes) {
                verdict @ (Verdict::Allow | Verdict::Deny(_)) => return verdict,
                verdict => last = verdict,
            }
        }
        last
    }
}

/// The refusal in upstream's words.
pub fn forbidden(attributes: &Attributes<'_>, reason: &str) -> ApiError {
    let (user, info) = (&attributes.user.name, attributes.info);
    let because = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    if !info.is_resource {
        let why = format!("User {user:?} cannot {} path {:?}{because}", info.verb, info.path);
        return ApiError::forbidden(&GroupResource::new("", ""), "", &why);
    }
    let resource = match info.subresource.as_str() {
        "" => info.resource.clone(),
        subresource => format!("{}/{subresource}", info.resource),
    };
    let place = match info.namespace.as_str() {
        "" => "at the cluster scope".to_owned(),
        namespace => format!("in the namespace {namespace:?}"),
    };
    let why = format!(
        "User {user:?} cannot {} resource {resource:?} in API group {:?} {place}{because}",
        info.verb, info.group
    );
    ApiError::forbidden(&GroupResource::new(&*info.group, &*info.resource), &info.name, &why)
}
