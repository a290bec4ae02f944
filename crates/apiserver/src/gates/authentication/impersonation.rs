//! Impersonation: who may act as somebody else, as whom exactly, and, since v1.37, for what.
//!
//! A permission to impersonate was once one for everything that the other may do. Now there are modes: each needs a
//! permission for the identity (`impersonate:user-info` on users) and one for the action (`impersonate-on:user-info:list`
//! on pods). They are tried in order; the permission of old, `impersonate`, comes last and still allows everything.

use std::hash::BuildHasher as _;
use std::sync::Arc;

use http::HeaderMap;
use machinery::names::domain::is_domain_prefixed_path;
use machinery::names::is_dns1123_subdomain;
use machinery::rest::User;
use machinery::status::ApiError;
use rustc_hash::FxBuildHasher;

use super::certificates::unescape;
use super::service_accounts::{groups as account_groups, split_user_name};
use crate::gates::authorization::{Attributes, Authorizers, forbidden};
use crate::gates::expiring::Expiring;

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
    /// Any node.
    ArbitraryNode,
    /// A service account.
    ServiceAccount,
    /// Anybody else, with groups, uid and more.
    UserInfo,
    /// Anybody, for everything.
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
    /// The user.
    pub user: Arc<User>,
    /// The permission by which, where it is not one for everything.
    pub constraint: Option<&'static str>,
}

/// By which mode who succeeded last, by a hash of their name: tried first, and the one whose refusal they hear. Two names
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
                // The first refusal is told: it is about the permission that did before, or the narrowest that would do.
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
    let asker = Asker { authorizers, mode, requestor };
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
}

impl Asker<'_> {
    /// The permission of old knows users and groups as things of the core group.
    fn group_of_names(&self) -> &'static str {
        if self.mode == Mode::Legacy { "" } else { GROUP_OF_API }
    }

    fn question<'b>(&'b self, group: &'b str, resource: &'b str, name: &'b str) -> Attributes<'b> {
        let version = "v1";
        Attributes { version, ..Attributes::question(self.requestor, self.mode.verb(), group, resource, name) }
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
            let wrong = crate::gates::configuration::together(&wrong);
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
mod tests {
    use super::*;
    use crate::gates::authorization::{Authorizer, Rules, Step, Verdict};
    use http::{HeaderName, HeaderValue};
    use parking_lot::Mutex;

    fn headers(list: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, text) in list {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(text));
        }
        headers
    }

    /// Allows what it was given, as `verb resource[/subresource][.group] [namespace/]name`, and notes what it was asked.
    struct Grants(Vec<&'static str>, Arc<Mutex<Vec<String>>>);

    impl Authorizer for Grants {
        fn authorize(&self, asked: &Attributes<'_>) -> Verdict {
            let resource = [asked.resource, asked.subresource].join("/");
            let group = [".", asked.group].concat();
            let name = [asked.namespace, asked.name].join("/");
            let name = name.trim_matches('/');
            let resource = format!("{}{}", resource.trim_end_matches('/'), group.trim_end_matches('.'));
            let line = format!("{} {resource} {name}", asked.verb);
            let line = line.trim_end().replace(".authentication.k8s.io", ".authn");
            let allowed = self.0.iter().any(|grant| *grant == line || *grant == "everything");
            self.1.lock().push(line);
            if allowed { Verdict::ALLOW } else { Verdict::NO_OPINION }
        }

        fn rules(&self, _: &User, _: &str, _: &mut Rules) {}
    }

    /// Lists pods as somebody: who that is and by which constraint, or the refusal; and what was asked on the way.
    async fn outcome(
        requestor: User,
        list: &[(&'static str, &'static str)],
        grants: &[&'static str],
    ) -> (Result<(String, Option<&'static str>), String>, Vec<String>) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let step = Step::Local(Arc::new(Grants(grants.to_vec(), asked.clone())));
        let authorizers = Authorizers::new(vec![("test".to_owned(), step)], None, None);
        let request = Attributes::question(&requestor, "list", "", "pods", "").in_namespace("a");
        let outcome = LastModes::default().impersonate(&authorizers, &request, &headers(list)).await;
        let outcome = outcome.map_err(|error| error.message).map(|found| {
            let found = found.expect("somebody");
            (found.user.groups.join(","), found.constraint)
        });
        let asked = asked.lock().clone();
        (outcome, asked)
    }

    #[tokio::test]
    async fn the_permission_of_old_allows_everything() {
        let jane = || User::new("jane", []);
        let grants = ["impersonate users joe", "impersonate groups a", "impersonate uids.authn 7"];
        let list = [(USER, "joe"), (GROUP, "a"), (UID, "7")];
        let (who, asked) = outcome(jane(), &list, &grants).await;
        assert_eq!(who, Ok(("a,system:authenticated".to_owned(), None)));
        assert_eq!(
            asked,
            [
                "impersonate-on:user-info:list pods a",
                "impersonate users joe",
                "impersonate uids.authn 7",
                "impersonate groups a"
            ]
        );
        // The refusal is about the narrowest permission.
        let (who, _) = outcome(jane(), &list, &[]).await;
        assert_eq!(
            who,
            Err("pods is forbidden: User \"jane\" cannot impersonate-on:user-info:list resource \"pods\" in API group \"\" in the namespace \"a\"".to_owned())
        );
        let account = [(USER, "system:serviceaccount:a:bot")];
        let (who, _) = outcome(jane(), &account, &["impersonate serviceaccounts a/bot"]).await;
        assert_eq!(who, Ok(("system:serviceaccounts,system:serviceaccounts:a,system:authenticated".to_owned(), None)));
        let (who, _) = outcome(jane(), &[(USER, "system:anonymous")], &["impersonate users system:anonymous"]).await;
        assert_eq!(who, Ok(("system:unauthenticated".to_owned(), None)));
    }

    #[tokio::test]
    async fn who_impersonated_before_hears_of_the_permission_that_did() {
        let jane = User::new("jane", []);
        let step = Step::Local(Arc::new(Grants(vec!["impersonate users joe"], Arc::default())));
        let authorizers = Authorizers::new(vec![("test".to_owned(), step)], None, None);
        let request = Attributes::question(&jane, "list", "", "pods", "").in_namespace("a");
        let modes = LastModes::default();
        let refused = async |modes: &LastModes| {
            let list = headers(&[(USER, "eve")]);
            modes.impersonate(&authorizers, &request, &list).await.err().map(|error| error.message)
        };
        let first = refused(&modes).await.expect("refused");
        assert!(first.starts_with("pods is forbidden: User \"jane\" cannot impersonate-on:user-info:list"), "{first}");
        assert!(modes.impersonate(&authorizers, &request, &headers(&[(USER, "joe")])).await.is_ok());
        assert_eq!(
            refused(&modes).await.as_deref(),
            Some(
                "users \"eve\" is forbidden: User \"jane\" cannot impersonate resource \"users\" in API group \"\" at the cluster scope"
            )
        );
    }

    #[tokio::test]
    async fn a_constrained_permission_is_for_an_identity_and_for_an_action() {
        let jane = || User::new("jane", []);
        let on = "impersonate-on:user-info:list pods a";
        let name = "impersonate:user-info users.authn joe";
        let (who, asked) = outcome(jane(), &[(USER, "joe")], &[on, name]).await;
        assert_eq!(who, Ok(("system:authenticated".to_owned(), Some("impersonate:user-info"))));
        assert_eq!(asked, [on, name]);
        for one in [on, name] {
            assert!(outcome(jane(), &[(USER, "joe")], &[one]).await.0.is_err(), "{one} alone");
        }
        let masters = [(USER, "joe"), (GROUP, "system:masters")];
        let (who, asked) = outcome(jane(), &masters, &["everything"]).await;
        assert_eq!(who.expect("by the permission of old").1, None);
        assert_eq!(asked.last().map(String::as_str), Some("impersonate groups system:masters"));
        let many = [(USER, "joe"), (GROUP, "a"), (GROUP, "b"), (GROUP, "c"), (GROUP, "d")];
        let (who, _) = outcome(jane(), &many, &[on, name, "impersonate:user-info groups.authn *"]).await;
        assert_eq!(who.expect("all groups at once").1, Some("impersonate:user-info"));
        let extra = [(USER, "joe"), ("impersonate-extra-acme.com%2fx", "y")];
        let (who, _) =
            outcome(jane(), &extra, &[on, name, "impersonate:user-info userextras/acme.com/x.authn y"]).await;
        assert!(who.is_ok(), "{who:?}");
        let (who, _) = outcome(jane(), &[(USER, "joe"), ("impersonate-extra-x", "y")], &[on, name]).await;
        assert!(who.expect_err("refused").contains("impersonating an invalid key in extra is not allowed"));
    }

    #[tokio::test]
    async fn nodes_and_accounts_have_modes_of_their_own() {
        let jane = || User::new("jane", []);
        let node = [(USER, "system:node:n1")];
        let grants = ["impersonate-on:arbitrary-node:list pods a", "impersonate:arbitrary-node nodes.authn n1"];
        let (who, _) = outcome(jane(), &node, &grants).await;
        assert_eq!(who, Ok(("system:nodes,system:authenticated".to_owned(), Some("impersonate:arbitrary-node"))));
        let account = [(USER, "system:serviceaccount:a:bot")];
        let grants =
            ["impersonate-on:serviceaccount:list pods a", "impersonate:serviceaccount serviceaccounts.authn a/bot"];
        assert_eq!(
            outcome(jane(), &account, &grants).await.0.expect("the account").1,
            Some("impersonate:serviceaccount")
        );
        let mut agent = User::new("system:serviceaccount:a:agent", []);
        agent.extra.insert(NODE_NAME.to_owned(), vec!["n1".to_owned()]);
        let grants = ["impersonate-on:associated-node:list pods a", "impersonate:associated-node nodes.authn *"];
        let (who, _) = outcome(agent.clone(), &node, &grants).await;
        assert_eq!(who, Ok(("system:nodes,system:authenticated".to_owned(), Some("impersonate:associated-node"))));
        assert!(outcome(agent, &[(USER, "system:node:n2")], &grants).await.0.is_err(), "another node");
        assert!(outcome(jane(), &node, &grants).await.0.is_err(), "nobody's node");
    }

    #[test]
    fn a_group_without_a_user_is_a_bad_request() {
        for (list, shown) in [
            (&[(GROUP, "x")][..], r#"UID:"", Groups:[]string{"x"}, Extra:map[string][]string(nil)"#),
            (&[(UID, "7")][..], r#"UID:"7", Groups:[]string(nil), Extra:map[string][]string(nil)"#),
            (
                &[("impersonate-extra-foo", "7")][..],
                r#"UID:"", Groups:[]string(nil), Extra:map[string][]string{"foo":[]string{"7"}}"#,
            ),
        ] {
            let error = read(&headers(list)).expect_err("refused");
            let expect = format!("requested &user.DefaultInfo{{Name:\"\", {shown}}} without impersonating a user name");
            assert_eq!((error.code, error.message), (400, expect));
        }
        assert!(read(&headers(&[])).expect("fine").is_none());
    }
}
