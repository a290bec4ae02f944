use super::*;
use crate::authorization::{Authorizer, Rules, Step, Verdict};
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
    let (who, _) = outcome(jane(), &extra, &[on, name, "impersonate:user-info userextras/acme.com/x.authn y"]).await;
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
    assert_eq!(outcome(jane(), &account, &grants).await.0.expect("the account").1, Some("impersonate:serviceaccount"));
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
