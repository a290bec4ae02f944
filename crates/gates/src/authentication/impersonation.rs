//! Impersonation: who may act as somebody else, as whom exactly, and, since v1.37, for what.
//!
//! A permission to impersonate was once one for everything that the other may do. Now there are modes: each needs a
//! permission for the identity (`impersonate:user-info` on users) and one for the action (`impersonate-on:user-info:list`
//! on pods). They are tried in order; the permission of old, `impersonate`, comes last and still allows everything.

use std::hash::BuildHasher as _;
use std::sync::Arc;

use common::expiring::Expiring;
use http::HeaderMap;
use machinery::names::domain::is_domain_prefixed_path;
use machinery::names::is_dns1123_subdomain;
use machinery::rest::User;
use machinery::status::ApiError;
use rustc_hash::FxBuildHasher;

use super::certificates::unescape;
use super::service_accounts::{groups as account_groups, split_user_name};
use crate::authorization::{Attributes, Authorizers, forbidden};

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";
const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";
const ANONYMOUS: &str = "system:anonymous";
const GROUP_OF_API: &str = "authentication.k8s.io";
/// The node that a service account's token was made for.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
/// From so many names on, a permission for all of them is asked for first.
const MANY: usize = 4;

/// Of so many users it is known by which mode they impersonate.
const MAX_REMEMBERED: usize = 10_000;

/// A way to impersonate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// A service account acts as the node that it runs on.
    AssociatedNode,
    ArbitraryNode,
    ServiceAccount,
    /// Anybody else, with groups, uid and more.
    UserInfo,
    Legacy,
}

/// In the order in which they are tried.
const MODES: [Mode; 5] =
    [Mode::AssociatedNode, Mode::ArbitraryNode, Mode::ServiceAccount, Mode::UserInfo, Mode::Legacy];

impl Mode {
    /// The verb for the identity.
    const fn verb(self) -> &'static str {
        match self {
            Self::AssociatedNode => "impersonate:associated-node",
            Self::ArbitraryNode => "impersonate:arbitrary-node",
            Self::ServiceAccount => "impersonate:serviceaccount",
            Self::UserInfo => "impersonate:user-info",
            Self::Legacy => "impersonate",
        }
    }

    /// The verb for the action; none where the identity is all that is asked about.
    fn verb_on(self, verb: &str) -> Option<String> {
        let mode = self.verb().strip_prefix("impersonate:")?;
        Some(format!("impersonate-on:{mode}:{verb}"))
    }

    /// Whether it is for somebody like that.
    fn is_for(self, wanted: &User, requestor: &User) -> bool {
        let alone = wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty();
        let (node, account) = (node_name(&wanted.name), split_user_name(&wanted.name));
        match self {
            Self::AssociatedNode => {
                let own = requestor.extra.get(NODE_NAME).map(Vec::as_slice);
                let is_own = node.is_some_and(|node| matches!(own, Some([one]) if one == node));
                alone && is_own && split_user_name(&requestor.name).is_some()
            }
            Self::ArbitraryNode => alone && node.is_some(),
            Self::ServiceAccount => alone && account.is_some(),
            Self::UserInfo => node.is_none() && account.is_none(),
            Self::Legacy => true,
        }
    }
}

/// Whom a request acts as.
pub struct Impersonated {
    pub user: Arc<User>,
    /// The permission by which, where it is not one for everything.
    pub constraint: Option<&'static str>,
}

/// By which mode who succeeded last, by a hash of their name: tried first, and the one whose refusal is the answer. Two names
/// with one hash only change the order for each other.
pub struct LastModes(Expiring<u64, Mode>);

impl Default for LastModes {
    fn default() -> Self {
        Self(Expiring::new(MAX_REMEMBERED))
    }
}

impl LastModes {
    /// The user that a request acts as, if it names one and may. `request` is what it wants to do, and who it is.
    pub async fn impersonate(
        &self,
        authorizers: &Authorizers,
        request: &Attributes<'_>,
        headers: &HeaderMap,
    ) -> Result<Option<Impersonated>, ApiError> {
        if !headers.keys().any(|name| name.as_str().starts_with("impersonate-")) {
            return Ok(None);
        }
        let Some(wanted) = read(headers)? else { return Ok(None) };
        let who = FxBuildHasher.hash_one(&request.user.name);
        // There is no time at which it is forgotten, only a number of others after whom it is.
        let last = self.0.get(&who, 0);
        let others = MODES.into_iter().filter(|mode| Some(*mode) != last);
        let mut refusal = None;
        for mode in last.into_iter().chain(others).filter(|mode| mode.is_for(&wanted, request.user)) {
            match attempt(authorizers, mode, request, &wanted).await {
                Ok(user) => {
                    if last != Some(mode) {
                        self.0.put(who, mode, i64::MAX);
                    }
                    let constraint = (mode != Mode::Legacy).then_some(mode.verb());
                    return Ok(Some(Impersonated { user: Arc::new(user), constraint }));
                }
                // The first refusal is the answer: it is about the permission that did before, or the narrowest that would do.
                Err(error) => refusal = refusal.or(Some(error)),
            }
        }
        Err(refusal.unwrap_or_else(|| ApiError::internal("all impersonation modes failed")))
    }
}

/// Takes the headers out of a request that has become somebody else's.
pub fn strip(headers: &mut HeaderMap) {
    let names: Vec<_> = headers.keys().filter(|name| name.as_str().starts_with("impersonate-")).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

/// Who is asked for; nobody where there are no such headers.
fn read(headers: &HeaderMap) -> Result<Option<User>, ApiError> {
    let all =
        |name: &str| -> Vec<&str> { headers.get_all(name).iter().filter_map(|header| header.to_str().ok()).collect() };
    let first = |name: &str| all(name).into_iter().next().unwrap_or_default().to_owned();
    let mut wanted = User { name: first(USER), uid: first(UID), ..User::default() };
    wanted.groups = all(GROUP).into_iter().map(str::to_owned).collect();
    for header in headers.keys() {
        let Some(key) = header.as_str().strip_prefix(EXTRA) else { continue };
        let values = wanted.extra.entry(unescape(key)).or_default();
        values.extend(all(header.as_str()).into_iter().map(str::to_owned));
    }
    let alone = wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty();
    match (wanted.name.is_empty(), alone) {
        (false, _) => Ok(Some(wanted)),
        (true, true) => Ok(None),
        (true, false) => {
            Err(ApiError::bad_request(format!("requested {} without impersonating a user name", as_go_prints(&wanted))))
        }
    }
}

fn as_go_prints(user: &User) -> String {
    let list = |items: &[String]| match items {
        [] => "[]string(nil)".to_owned(),
        items => {
            let quoted: Vec<String> = items.iter().map(|item| format!("{item:?}")).collect();
            format!("[]string{{{}}}", quoted.join(", "))
        }
    };
    let extra = if user.extra.is_empty() {
        "map[string][]string(nil)".to_owned()
    } else {
        let entries: Vec<String> = user.extra.iter().map(|(key, values)| format!("{key:?}:{}", list(values))).collect();
        format!("map[string][]string{{{}}}", entries.join(", "))
    };
    format!(
        "&user.DefaultInfo{{Name:{:?}, UID:{:?}, Groups:{}, Extra:{extra}}}",
        user.name,
        user.uid,
        list(&user.groups)
    )
}

fn node_name(user: &str) -> Option<&str> {
    user.strip_prefix("system:node:").filter(|name| is_dns1123_subdomain(name).is_empty())
}

/// Who somebody becomes by a mode, or why not.
async fn attempt(
    authorizers: &Authorizers,
    mode: Mode,
    request: &Attributes<'_>,
    wanted: &User,
) -> Result<User, ApiError> {
    // Which node it is counts for nothing in this mode, and neither does what else the token says.
    let keys = request.user.extra.keys().cloned().collect();
    let anywhere = User {
        extra: [("authentication.kubernetes.io/associated-node-keys".to_owned(), keys)].into(),
        ..request.user.clone()
    };
    let requestor = if mode == Mode::AssociatedNode { &anywhere } else { request.user };
    let asker = Asker { authorizers, mode, requestor, trace: request.trace };
    if let Some(verb) = mode.verb_on(request.verb) {
        asker.check(Attributes { user: requestor, verb: &verb, ..*request }).await?;
    }
    let mut actual = wanted.clone();
    asker.name(wanted, &mut actual).await?;
    if !wanted.uid.is_empty() {
        asker.check(asker.question(GROUP_OF_API, "uids", &wanted.uid)).await?;
    }
    asker.groups(&wanted.groups).await?;
    asker.extra(wanted).await?;
    let has = |group: &str| actual.groups.iter().any(|own| own == group);
    let missing = match wanted.name.as_str() {
        ANONYMOUS => (!has(UNAUTHENTICATED)).then_some(UNAUTHENTICATED),
        _ => (!has(AUTHENTICATED) && !has(UNAUTHENTICATED)).then_some(AUTHENTICATED),
    };
    actual.groups.extend(missing.map(str::to_owned));
    Ok(actual)
}

struct Asker<'a> {
    authorizers: &'a Authorizers,
    mode: Mode,
    requestor: &'a User,
    trace: hops::Context,
}

impl Asker<'_> {
    /// The permission of old knows users and groups as things of the core group.
    fn group_of_names(&self) -> &'static str {
        if self.mode == Mode::Legacy { "" } else { GROUP_OF_API }
    }

    fn question<'b>(&'b self, group: &'b str, resource: &'b str, name: &'b str) -> Attributes<'b> {
        let question = Attributes::question(self.requestor, self.mode.verb(), group, resource, name);
        Attributes { version: "v1", trace: self.trace, ..question }
    }

    async fn check(&self, attributes: Attributes<'_>) -> Result<(), ApiError> {
        let verdict = self.authorizers.authorize(&attributes).await;
        if verdict.allows() { Ok(()) } else { Err(forbidden(&attributes, verdict.reason())) }
    }

    async fn name(&self, wanted: &User, actual: &mut User) -> Result<(), ApiError> {
        let group = self.group_of_names();
        let constrained = self.mode != Mode::Legacy;
        if let Some(node) = node_name(&wanted.name).filter(|_| constrained) {
            let name = if self.mode == Mode::AssociatedNode { "*" } else { node };
            actual.groups = vec!["system:nodes".to_owned()];
            return self.check(self.question(group, "nodes", name)).await;
        }
        if let Some((namespace, name)) = split_user_name(&wanted.name) {
            if wanted.groups.is_empty() {
                actual.groups = account_groups(namespace).into_iter().collect();
            }
            return self.check(self.question(group, "serviceaccounts", name).in_namespace(namespace)).await;
        }
        self.check(self.question(group, "users", &wanted.name)).await
    }

    async fn groups(&self, groups: &[String]) -> Result<(), ApiError> {
        let question = |name| self.question(self.group_of_names(), "groups", name);
        if self.mode != Mode::Legacy {
            if groups.iter().any(String::is_empty) {
                return Err(forbidden(&question(""), "impersonating the empty string group is not allowed"));
            }
            if let Some(masters) = groups.iter().find(|group| *group == "system:masters") {
                return Err(forbidden(&question(masters), "impersonating the system:masters group is not allowed"));
            }
            if groups.len() >= MANY && self.check(question("*")).await.is_ok() {
                return Ok(());
            }
        }
        for group in groups {
            self.check(question(group)).await?;
        }
        Ok(())
    }

    async fn extra(&self, wanted: &User) -> Result<(), ApiError> {
        let question = |name| self.question(GROUP_OF_API, "userextras", name);
        if self.mode != Mode::Legacy {
            if let Some(why) = odd_extra(wanted) {
                return Err(forbidden(&question(""), &why));
            }
            let many = wanted.extra.values().map(Vec::len).sum::<usize>() >= MANY;
            if many && self.check(question("*").of_subresource("*")).await.is_ok() {
                return Ok(());
            }
        }
        for (key, values) in &wanted.extra {
            for text in values {
                self.check(question(text).of_subresource(key)).await?;
            }
        }
        Ok(())
    }
}

/// What constrained modes do not let anybody say.
fn odd_extra(wanted: &User) -> Option<String> {
    wanted.extra.iter().find_map(|(key, values)| {
        if key.is_empty() {
            return Some("impersonating the empty string key in extra is not allowed".to_owned());
        }
        let wrong = is_domain_prefixed_path("extra.key", key);
        if !wrong.is_empty() {
            let wrong = crate::configuration::together(&wrong);
            return Some(format!("impersonating an invalid key in extra is not allowed: {wrong}"));
        }
        if key.to_lowercase() != *key {
            return Some(format!("impersonating a non-lowercase key in extra is not allowed: {key:?}"));
        }
        if values.is_empty() {
            return Some("impersonating empty values in extra is not allowed".to_owned());
        }
        let empty = values.iter().any(String::is_empty);
        empty.then(|| "impersonating the empty string value in extra is not allowed".to_owned())
    })
}

#[cfg(test)]
mod tests;
