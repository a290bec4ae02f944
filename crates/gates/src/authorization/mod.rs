//! May they? A chain of authorizers; who is not allowed by any is refused.
//!
//! Authorizers in memory decide at once, from indexes that follow the caches; one that asks somebody else (a webhook)
//! is waited for, and only when nobody before it has decided.

pub mod abac;
mod attributes;
mod conditions;
pub mod node;
pub mod rbac;
pub mod settings;
pub mod structured;
pub mod webhook;

use std::sync::Arc;

use common::reload::{Changes, Reloads};
use machinery::gvk::GroupResource;
use machinery::rest::User;
use machinery::status::ApiError;
use parking_lot::RwLock;
use storage::cache::Caches;

pub use attributes::{Attributes, Selectors};
use rbac::Rule;
pub use settings::{Mode, Settings};
use webhook::Webhook;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    Allow,
    /// No, whatever the others say.
    Deny,
    /// Not mine to decide.
    NoOpinion,
}

/// An authorizer's word and its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    pub decision: Decision,
    /// Why, if there is something to say.
    pub reason: Option<Arc<str>>,
}

impl Verdict {
    /// Yes, without a word.
    pub const ALLOW: Self = Self { decision: Decision::Allow, reason: None };
    /// Not mine to decide, without a word.
    pub const NO_OPINION: Self = Self { decision: Decision::NoOpinion, reason: None };

    /// Not mine to decide.
    pub fn no_opinion(reason: impl AsRef<str>) -> Self {
        Self { decision: Decision::NoOpinion, reason: Some(reason.as_ref().into()) }
    }

    /// Whether it is a yes.
    pub fn allows(&self) -> bool {
        self.decision == Decision::Allow
    }

    /// The reason as text.
    pub fn reason(&self) -> &str {
        self.reason.as_deref().unwrap_or_default()
    }
}

/// What a user may do, as far as an authorizer can list it.
#[derive(Debug, Default)]
pub struct Rules {
    /// Rules about resources and paths.
    pub rules: Vec<Arc<Rule>>,
    /// Whether there may be more.
    pub incomplete: bool,
    /// What went wrong on the way.
    pub errors: Vec<String>,
}

/// Somebody who decides from memory.
pub trait Authorizer: Send + Sync {
    fn authorize(&self, attributes: &Attributes<'_>) -> Verdict;

    /// Lists what a user may do in a namespace.
    fn rules(&self, user: &User, namespace: &str, rules: &mut Rules);
}

/// One of the chain.
pub enum Step {
    Local(Arc<dyn Authorizer>),
    Remote(Box<Webhook>),
}

/// A file that says which authorizers there are, and what they are made of.
pub struct Followed {
    file: structured::File,
    parts: settings::Parts,
    reloads: Reloads,
}

impl Followed {
    /// With what is in force.
    pub fn new(file: structured::File, parts: settings::Parts) -> Self {
        let reloads = Reloads::new("authorization", file.content.clone());
        Self { file, parts, reloads }
    }
}

/// The chain: the first Allow or Deny counts.
pub struct Authorizers {
    /// By name. Another chain takes its place when the file that says so changes.
    steps: RwLock<Arc<Vec<(String, Step)>>>,
    followed: Option<Followed>,
    caches: Option<Arc<Caches>>,
    /// Roles and bindings, for the checks on writes to them; there even when RBAC is not one of the steps.
    pub rbac: Option<Arc<rbac::Rbac>>,
}

impl Authorizers {
    /// In this order, by name, on these caches.
    pub fn new(steps: Vec<(String, Step)>, rbac: Option<Arc<rbac::Rbac>>, caches: Option<Arc<Caches>>) -> Self {
        Self { steps: RwLock::new(Arc::new(steps)), followed: None, rbac, caches }
    }

    /// As a file says that is followed.
    pub fn following(self, followed: Option<Followed>) -> Self {
        Self { followed, ..self }
    }

    /// Takes in the file whenever it changes, for as long as there are these authorizers.
    pub fn follow(self: &Arc<Self>) -> std::io::Result<()> {
        let Some(followed) = &self.followed else { return Ok(()) };
        Changes::of(&followed.file.path)?.follow(self, Self::reload);
        Ok(())
    }

    fn reload(&self) {
        let Some(Followed { file, parts, reloads }) = &self.followed else { return };
        reloads.take(&file.path, (parts.clock)(), |content| {
            let steps = parts.steps(&file.modes(content)?)?;
            *self.steps.write() = Arc::new(steps);
            Ok::<(), settings::Error>(())
        });
    }

    /// What came of following the file, in the Prometheus text format.
    pub fn metrics(&self, text: &mut String) {
        if let Some(followed) = &self.followed {
            followed.reloads.metrics(text);
        }
    }

    pub async fn authorize(&self, attributes: &Attributes<'_>) -> Verdict {
        let before = self.caches.as_ref().map_or(0, |caches| caches.revision());
        let verdict = self.decide(attributes).await;
        let (false, Some(caches)) = (verdict.allows(), &self.caches) else { return verdict };
        // Nobody is refused for a grant that was acknowledged before they asked and is still on its way into the caches.
        match caches.settle().await {
            Ok(now) if now != before => self.decide(attributes).await,
            _ => verdict,
        }
    }

    async fn decide(&self, attributes: &Attributes<'_>) -> Verdict {
        // The reasons of those without an opinion are joined, one per line, each with the name of who says it.
        let mut reasons: Option<Arc<str>> = None;
        let steps = self.steps.read().clone();
        for (name, step) in steps.iter() {
            let verdict = match step {
                Step::Local(local) => local.authorize(attributes),
                Step::Remote(remote) => remote.authorize(attributes).await,
            };
            if verdict.decision != Decision::NoOpinion {
                return verdict;
            }
            if let Some(reason) = verdict.reason.filter(|reason| !reason.is_empty()) {
                reasons = Some(match reasons {
                    Some(before) => format!("{before}\n{name}: {reason}").into(),
                    None => format!("{name}: {reason}").into(),
                });
            }
        }
        Verdict { decision: Decision::NoOpinion, reason: reasons }
    }

    /// Whether a request is allowed.
    pub async fn allows(&self, attributes: &Attributes<'_>) -> bool {
        self.authorize(attributes).await.allows()
    }

    /// What a user may do in a namespace, as far as it can be listed.
    pub fn rules(&self, user: &User, namespace: &str) -> Rules {
        let mut rules = Rules::default();
        for (_, step) in self.steps.read().iter() {
            match step {
                Step::Local(local) => local.rules(user, namespace, &mut rules),
                Step::Remote(_) => {
                    rules.incomplete = true;
                    rules.errors.push("webhook authorizer does not support user rule resolution".to_owned());
                }
            }
        }
        rules
    }
}

/// Members of `system:masters` may do everything, so that a broken policy can be mended.
pub struct Masters;

impl Authorizer for Masters {
    fn authorize(&self, attributes: &Attributes<'_>) -> Verdict {
        if is_master(attributes.user) { Verdict::ALLOW } else { Verdict::NO_OPINION }
    }

    fn rules(&self, _: &User, _: &str, _: &mut Rules) {}
}

/// Everybody may do everything.
pub struct AlwaysAllow;

impl Authorizer for AlwaysAllow {
    fn authorize(&self, _: &Attributes<'_>) -> Verdict {
        Verdict::ALLOW
    }

    fn rules(&self, _: &User, _: &str, rules: &mut Rules) {
        rules.rules.extend(Rule::everything().map(Arc::new));
    }
}

/// Nobody but masters may do anything.
pub struct AlwaysDeny;

impl Authorizer for AlwaysDeny {
    fn authorize(&self, _: &Attributes<'_>) -> Verdict {
        Verdict::no_opinion("Everything is forbidden.")
    }

    fn rules(&self, _: &User, _: &str, _: &mut Rules) {}
}

/// Whether the user is above every policy.
pub fn is_master(user: &User) -> bool {
    user.groups.iter().any(|group| group == "system:masters")
}

/// The refusal in upstream's words.
pub fn forbidden(attributes: &Attributes<'_>, reason: &str) -> ApiError {
    let user = &attributes.user.name;
    let because = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    if !attributes.is_resource {
        let why = harmless(&format!("User {user:?} cannot {} path {:?}", attributes.verb, attributes.path));
        return ApiError::forbidden(&GroupResource::new("", ""), "", &format!("{why}{because}"));
    }
    let resource = match attributes.subresource {
        "" => attributes.resource.to_owned(),
        subresource => format!("{}/{subresource}", attributes.resource),
    };
    let place = match attributes.namespace {
        "" => "at the cluster scope".to_owned(),
        namespace => format!("in the namespace {namespace:?}"),
    };
    let why = harmless(&format!(
        "User {user:?} cannot {} resource {resource:?} in API group {:?} {place}",
        attributes.verb, attributes.group
    ));
    let subject = GroupResource::new(attributes.group, attributes.resource);
    ApiError::forbidden(&subject, attributes.name, &format!("{why}{because}"))
}

/// Names come from the client and may end in somebody's browser.
fn harmless(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(attributes: Attributes<'_>, reason: &str, expect: &str) {
        assert_eq!(forbidden(&attributes, reason).message, expect);
    }

    #[test]
    fn refusals_read_as_upstreams() {
        let user = User::new("jane", []);
        let pods = Attributes::question(&user, "list", "", "pods", "").in_namespace("a");
        check(
            pods,
            "",
            r#"pods is forbidden: User "jane" cannot list resource "pods" in API group "" in the namespace "a""#,
        );
        let scale = Attributes::question(&user, "get", "apps", "deployments", "web").of_subresource("scale");
        check(
            scale,
            "why",
            r#"deployments.apps "web" is forbidden: User "jane" cannot get resource "deployments/scale" in API group "apps" at the cluster scope: why"#,
        );
        let path = Attributes { is_resource: false, path: "/<x>", ..scale };
        check(path, "", r#"forbidden: User "jane" cannot get path "/&lt;x&gt;""#);
    }

    #[tokio::test]
    async fn the_first_word_counts_and_silence_is_a_refusal() {
        let user = User::new("jane", []);
        let question = Attributes::question(&user, "get", "", "pods", "");
        let chain = |steps: Vec<Arc<dyn Authorizer>>| {
            let named = |step: Arc<dyn Authorizer>| ("test".to_owned(), Step::Local(step));
            Authorizers::new(steps.into_iter().map(named).collect(), None, None)
        };
        assert!(!chain(vec![]).allows(&question).await);
        assert!(!chain(vec![Arc::new(Masters)]).allows(&question).await);
        assert!(chain(vec![Arc::new(Masters), Arc::new(AlwaysAllow)]).allows(&question).await);
        let verdict = chain(vec![Arc::new(AlwaysDeny), Arc::new(Masters)]).authorize(&question).await;
        assert_eq!(verdict, Verdict::no_opinion("test: Everything is forbidden."));
    }
}
