//! Kubeconfigs for people.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use client::{Client, Config, ListParams};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::ConfigMap;
use testkit::{Server, ServerOptions, eventually};

use crate::command::run;

#[tokio::test]
async fn a_person_s_kubeconfig_is_who_it_says_and_may_what_roles_say() {
    let arguments = ["--disable-agent", "--disable-scheduler"].map(str::to_owned).to_vec();
    let mut server = Server::start(ServerOptions { binary: env!("CARGO_BIN_EXE_trireme").into(), arguments }).await;
    let there = |map: Option<&ConfigMap>| map.is_some();
    testkit::object::<ConfigMap>(&server.client(), "kube-public", "cluster-info", "an invitation", there).await;
    let home = tempfile::tempdir().expect("a directory");
    let file = home.path().join("jane.kubeconfig");
    let (own, written) = (server.kubeconfig(), file.to_str().expect("a path in UTF-8"));
    let own = own.to_str().expect("a path in UTF-8");
    let create = ["kubeconfig", "create", "--kubeconfig", own];
    let jane = ["--group", "crew", "--group", "a: b", "--ttl", "1", "-o", written, "oidc:jane"];
    let (made, said) = run(&[&create[..], &jane[..]].concat());
    assert!(made && said.is_empty(), "{said}");
    assert_eq!(std::fs::metadata(&file).expect("a file").permissions().mode() & 0o777, 0o600);

    let jane = Client::https(Config::from_kubeconfig(&file).expect("a kubeconfig")).expect("a client");
    let review = jane.create(&SelfSubjectReview::default()).await.expect("an answer");
    let who = review.status.and_then(|status| status.user_info).expect("somebody");
    assert_eq!(who.username.as_deref(), Some("oidc:jane"));
    assert_eq!(who.groups.expect("groups"), ["crew", "a: b", "system:authenticated"]);
    let refused = jane.list::<ConfigMap>("default", &ListParams::default()).await.expect_err("a refusal").to_string();
    assert!(refused.contains(r#"User "oidc:jane" cannot list"#), "{refused}");
    server.kubectl().run(&["create", "rolebinding", "crew", "--clusterrole=view", "--group=crew"]).await;
    let allowed = async {
        while jane.list::<ConfigMap>("default", &ListParams::default()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    eventually("she may what the role says", allowed).await;
    // Who may not approve requests gets nobody's credentials.
    let (made, said) = run(&["kubeconfig", "create", "--kubeconfig", written, "--group", "system:masters", "eve"]);
    assert!(!made && said.contains("forbidden"), "{said}");
    assert!(server.stop().await, "a clean stop:\n{}", server.log_text());
}
