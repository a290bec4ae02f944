//! Impersonation: who may act as somebody else, and as whom exactly.

use std::sync::Arc;

use http::HeaderMap;
use machinery::rest::User;
use machinery::status::ApiError;

use super::certificates::unescape;
use super::service_accounts::{groups as account_groups, split_user_name};
use crate::gates::authorization::{Attributes, Authorizers, forbidden};

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";
const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";
const ANONYMOUS: &str = "system:anonymous";
const GROUP_OF_API: &str = "authentication.k8s.io";

/// One thing that the user wants to be.
#[derive(Debug, PartialEq, Eq)]
struct Wish<'a> {
    group: &'static str,
    version: &'static str,
    resource: &'static str,
    subresource: String,
    namespace: &'a str,
    name: &'a str,
}

/// The user that a request acts as: itself, or whom its headers name, if it may.
pub async fn impersonate(
    authorizers: &Authorizers,
    user: Arc<User>,
    headers: &HeaderMap,
) -> Result<Arc<User>, ApiError> {
    if !headers.keys().any(|name| name.as_str().starts_with("impersonate-")) {
        return Ok(user);
    }
    let Some((wishes, wanted)) = read(headers)? else { return Ok(user) };
    for wish in &wishes {
        let attributes = Attributes {
            version: wish.version,
            ..Attributes::question(&user, "impersonate", wish.group, wish.resource, wish.name)
        };
        let attributes = attributes.in_namespace(wish.namespace).of_subresource(&wish.subresource);
        let verdict = authorizers.authorize(&attributes).await;
        if !verdict.allows() {
            return Err(forbidden(&attributes, verdict.reason()));
        }
    }
    Ok(Arc::new(wanted))
}

/// Takes the headers out of a request that has become somebody else's.
pub fn strip(headers: &mut HeaderMap) {
    let names: Vec<_> = headers.keys().filter(|name| name.as_str().starts_with("impersonate-")).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

/// What is asked for, and who that would be.
fn read(headers: &HeaderMap) -> Result<Option<(Vec<Wish<'_>>, User)>, ApiError> {
    let all =
        |name: &str| -> Vec<&str> { headers.get_all(name).iter().filter_map(|header| header.to_str().ok()).collect() };
    let core = |resource, namespace, name| Wish {
        group: "",
        version: "v1",
        resource,
        subresource: String::new(),
        namespace,
        name,
    };
    let named = all(USER).into_iter().next().unwrap_or_default();
    let given = all(GROUP);
    let mut wishes = Vec::new();
    let mut user = User { name: named.to_owned(), ..User::default() };
    match split_user_name(named) {
        _ if named.is_empty() => {}
        Some((namespace, name)) => {
            wishes.push(core("serviceaccounts", namespace, name));
            if given.is_empty() {
                user.groups.extend(account_groups(namespace));
            }
        }
        None => wishes.push(core("users", "", named)),
    }
    for group in given {
        wishes.push(core("groups", "", group));
        user.groups.push(group.to_owned());
    }
    for header in headers.keys() {
        let Some(key) = header.as_str().strip_prefix(EXTRA) else { continue };
        let key = unescape(key);
        for text in all(header.as_str()) {
            let wish = core("userextras", "", text);
            wishes.push(Wish { group: GROUP_OF_API, subresource: key.clone(), ..wish });
            user.extra.entry(key.clone()).or_default().push(text.to_owned());
        }
    }
    if let Some(uid) = all(UID).into_iter().next().filter(|uid| !uid.is_empty()) {
        wishes.push(Wish { group: GROUP_OF_API, ..core("uids", "", uid) });
        user.uid = uid.to_owned();
    }
    if wishes.is_empty() {
        return Ok(None);
    }
    if named.is_empty() {
        let asked: Vec<String> = wishes.iter().map(|wish| format!("{} {}", wish.resource, wish.name)).collect();
        return Err(ApiError::bad_request(format!("requested [{}] without impersonating a user", asked.join(", "))));
    }
    let has = |group: &str| user.groups.iter().any(|own| own == group);
    let missing = match named {
        ANONYMOUS => (!has(UNAUTHENTICATED)).then_some(UNAUTHENTICATED),
        _ => (!has(AUTHENTICATED) && !has(UNAUTHENTICATED)).then_some(AUTHENTICATED),
    };
    user.groups.extend(missing.map(str::to_owned));
    Ok(Some((wishes, user)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};

    fn headers(list: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, text) in list {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(text));
        }
        headers
    }

    /// `resource[/subresource] [namespace/]name` of each wish, and the groups of the user.
    fn check(list: &[(&'static str, &'static str)], wishes: &[&str], groups: &[&str]) {
        let headers = headers(list);
        let (found, user) = read(&headers).expect("fine").expect("somebody");
        let found: Vec<String> = found
            .iter()
            .map(|wish| {
                let resource = [wish.resource, wish.subresource.as_str()].join("/");
                let name = [wish.namespace, wish.name].join("/");
                format!("{} {}", resource.trim_end_matches('/'), name.trim_start_matches('/'))
            })
            .collect();
        assert_eq!(found, wishes, "{list:?}");
        assert_eq!(user.groups, groups, "{list:?}");
    }

    #[test]
    fn everything_asked_for_is_a_question() {
        check(&[(USER, "jane")], &["users jane"], &["system:authenticated"]);
        check(
            &[(USER, "jane"), (GROUP, "a"), (GROUP, "b"), (UID, "7"), ("impersonate-extra-acme.com%2fx", "y")],
            &["users jane", "groups a", "groups b", "userextras/acme.com/x y", "uids 7"],
            &["a", "b", "system:authenticated"],
        );
        check(
            &[(USER, "system:serviceaccount:a:bot")],
            &["serviceaccounts a/bot"],
            &["system:serviceaccounts", "system:serviceaccounts:a", "system:authenticated"],
        );
        check(&[(USER, "system:anonymous")], &["users system:anonymous"], &["system:unauthenticated"]);
        check(
            &[(USER, "x"), (GROUP, "system:unauthenticated")],
            &["users x", "groups system:unauthenticated"],
            &["system:unauthenticated"],
        );
    }

    #[test]
    fn a_group_without_a_user_is_a_bad_request() {
        let error = read(&headers(&[(GROUP, "system:masters")])).expect_err("refused");
        assert_eq!(error.code, 400);
        assert!(read(&headers(&[])).expect("fine").is_none());
    }
}
