//! Who somebody is, shown in every way there is.

use std::time::Duration;

use client::Client;
use client::config::{Credentials, Impersonate};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Secret, ServiceAccount};
use pki::{Authority, Leaf, PrivateKey, Subject};
use serde_json::json;
use testkit::Issuer;
use testkit::build::service_account;

use crate::server::{Server, post};

#[tokio::test]
async fn a_service_accounts_token_is_good_while_the_account_lives() {
    let server = Server::default().await;
    let admin = server.kubectl();
    admin.run(&["create", "serviceaccount", "bot"]).await;
    let token = admin.run(&["create", "token", "bot"]).await;
    let bot = server.kubectl_with_token(token.trim());
    let who = bot.run(&["auth", "whoami", "-o", "yaml"]).await;
    assert!(who.contains("username: system:serviceaccount:default:bot"), "{who}");
    assert!(who.contains("- system:serviceaccounts:default"), "{who}");
    let refused = bot.fail(&["get", "pods"]).await;
    assert_eq!(
        refused,
        "Error from server (Forbidden): pods is forbidden: User \"system:serviceaccount:default:bot\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\"\n"
    );
    admin.run(&["create", "rolebinding", "bot", "--clusterrole=view", "--serviceaccount=default:bot"]).await;
    // The aggregation controller fills `view` in a whole cluster; here the binding alone counts.
    admin.run(&["create", "role", "reader", "--verb=list", "--resource=pods"]).await;
    admin.run(&["create", "rolebinding", "reader", "--role=reader", "--serviceaccount=default:bot"]).await;
    bot.run(&["get", "pods"]).await;
    admin.run(&["delete", "serviceaccount", "bot"]).await;
    let gone = bot.fail(&["get", "pods"]).await;
    assert!(gone.contains("You must be logged in to the server"), "{gone}");
    server.stop().await;
}

#[tokio::test]
async fn token_reviews_know_audiences() {
    let server = Server::default().await;
    let admin = server.admin();
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": ["vault"], "expirationSeconds": 600}});
    let issued: serde_json::Value = admin
        .create_subresource::<ServiceAccount, _, _>("default", "default", "token", &request)
        .await
        .expect("a token");
    let token = issued["status"]["token"].as_str().expect("a token").to_owned();
    let reviews = client::Gvr::new("authentication.k8s.io", "v1", "tokenreviews");
    let review = |audiences: serde_json::Value| {
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "metadata": {}, "spec": {"token": token, "audiences": audiences}});
        let reviews = admin.dynamic(&reviews);
        async move { reviews.create("", &body).await.expect("a review")["status"].clone() }
    };
    let known = review(json!(["vault", "other"])).await;
    assert_eq!(known["authenticated"], true, "{known}");
    assert_eq!(known["audiences"], json!(["vault"]));
    assert_eq!(known["user"]["username"], "system:serviceaccount:default:default");
    let ours = review(json!([])).await;
    assert_ne!(ours["authenticated"], true, "a token for somebody else is none for us: {ours}");
    let bearer = server.kubectl_with_token(&token).fail(&["get", "pods"]).await;
    assert!(bearer.contains("logged in"), "{bearer}");
    server.stop().await;
}

#[tokio::test]
async fn bootstrap_tokens_and_static_tokens_name_their_users() {
    let server = Server::start(|config, directory| {
        let path = directory.join("tokens.csv");
        std::fs::write(&path, "static-token-1,jane,7,\"devs,ops\"\n").expect("a file");
        config.authentication.token_file = Some(path);
    })
    .await;
    let secret: Secret = serde_json::from_value(json!({
        "metadata": {"name": "bootstrap-token-abcdef", "namespace": "kube-system"},
        "type": "bootstrap.kubernetes.io/token",
        "stringData": {"token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true",
            "auth-extra-groups": "system:bootstrappers:kubeadm:default-node-token"},
    }))
    .expect("a secret");
    server.admin().create(&secret).await.expect("a secret");
    let who = server.kubectl_with_token("abcdef.0123456789abcdef").run(&["auth", "whoami", "-o", "yaml"]).await;
    assert!(who.contains("username: system:bootstrap:abcdef"), "{who}");
    assert!(who.contains("- system:bootstrappers:kubeadm:default-node-token"), "{who}");
    let who = server.kubectl_with_token("static-token-1").run(&["auth", "whoami", "-o", "yaml"]).await;
    assert!(who.contains("username: jane") && who.contains("uid: \"7\"") && who.contains("- ops"), "{who}");
    let wrong = server.kubectl_with_token("abcdef.0123456789abcdee").fail(&["get", "pods"]).await;
    assert!(wrong.contains("logged in"), "{wrong}");
    server.stop().await;
}

#[tokio::test]
async fn impersonation_is_allowed_to_those_who_may() {
    let server = Server::default().await;
    let kubectl = server.kubectl();
    let who = kubectl.run(&["auth", "whoami", "--as=jane", "--as-group=devs", "--as-uid=9", "-o", "yaml"]).await;
    assert!(who.contains("username: jane") && who.contains("- devs") && who.contains("uid: \"9\""), "{who}");
    let who = kubectl.run(&["auth", "whoami", "--as=system:serviceaccount:a:bot", "-o", "yaml"]).await;
    assert!(who.contains("- system:serviceaccounts:a"), "{who}");
    kubectl.run(&["create", "serviceaccount", "bot"]).await;
    let token = kubectl.run(&["create", "token", "bot"]).await;
    let bot = server.kubectl_with_token(token.trim());
    let mut config = server.config();
    config.credentials = Credentials::token(token.trim()).expect("a token");
    config.impersonate = Some(Impersonate { user: "system:admin".to_owned(), groups: Vec::new() });
    let refused = Client::https(config).expect("a client").list::<Pod>("default", &Default::default()).await;
    assert_eq!(
        refused.expect_err("refused").to_string(),
        "pods is forbidden: User \"system:serviceaccount:default:bot\" cannot impersonate-on:user-info:list resource \"pods\" in API group \"\" in the namespace \"default\""
    );
    kubectl
        .run(&["create", "clusterrole", "as-jane", "--verb=impersonate", "--resource=users", "--resource-name=jane"])
        .await;
    kubectl
        .run(&["create", "clusterrolebinding", "as-jane", "--clusterrole=as-jane", "--serviceaccount=default:bot"])
        .await;
    let who = bot.run(&["auth", "whoami", "--as=jane", "-o", "yaml"]).await;
    assert!(who.contains("username: jane"), "{who}");
    // Her groups are another question than her name.
    bot.fail(&["auth", "whoami", "--as=jane", "--as-group=system:masters"]).await;
    // A constrained permission is for somebody and for something: reading, and nothing else.
    let role = "---\n{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: reads-as-joe}, rules: [\
        {apiGroups: [authentication.k8s.io], resources: [users], resourceNames: [joe], verbs: ['impersonate:user-info']}, \
        {apiGroups: [''], resources: [pods], verbs: ['impersonate-on:user-info:list']}]}";
    kubectl.run_with(&["create", "-f", "-"], role).await;
    let binding =
        ["create", "clusterrolebinding", "reads-as-joe", "--clusterrole=reads-as-joe", "--serviceaccount=default:bot"];
    kubectl.run(&binding).await;
    kubectl.run(&["create", "role", "pods", "--verb=list,delete", "--resource=pods"]).await;
    kubectl.run(&["create", "rolebinding", "pods", "--role=pods", "--user=joe"]).await;
    let mut config = server.config();
    config.credentials = Credentials::token(token.trim()).expect("a token");
    config.impersonate = Some(Impersonate { user: "joe".to_owned(), groups: Vec::new() });
    let as_joe = Client::https(config).expect("a client");
    as_joe.list::<Pod>("default", &Default::default()).await.expect("it may list as Joe");
    let refused = as_joe.delete::<Pod>("default", "x", &Default::default()).await.expect_err("refused").to_string();
    assert!(refused.contains("cannot impersonate-on:user-info:delete resource \"pods\""), "{refused}");
    server.stop().await;
}

#[tokio::test]
async fn headers_of_a_front_proxy_mean_nothing_from_others() {
    let server = Server::default().await;
    // No front proxy is configured: whatever the client claims, it is anonymous.
    let mut config = server.config();
    config.credentials = Credentials::default();
    config.impersonate =
        Some(Impersonate { user: "kubernetes-admin".to_owned(), groups: vec!["system:masters".to_owned()] });
    let client = Client::https(config).expect("a client");
    let refused = client.list::<Pod>("default", &Default::default()).await.expect_err("refused");
    assert_eq!(refused.code(), Some(403));
    assert!(
        refused
            .to_string()
            .contains("User \"system:anonymous\" cannot impersonate-on:user-info:list resource \"pods\""),
        "{refused}"
    );
    server.stop().await;
}

#[tokio::test]
async fn the_issuer_of_our_tokens_can_be_discovered() {
    let server = Server::default().await;
    let kubectl = server.kubectl();
    let document = kubectl.run(&["get", "--raw", "/.well-known/openid-configuration"]).await;
    let document: serde_json::Value = serde_json::from_str(&document).expect("a document");
    assert_eq!(document["issuer"], "https://kubernetes.default.svc.cluster.local");
    assert_eq!(document["response_types_supported"], json!(["id_token"]));
    let keys: serde_json::Value =
        serde_json::from_str(&kubectl.run(&["get", "--raw", "/openid/v1/jwks"]).await).expect("keys");
    assert_eq!(keys["keys"].as_array().map(Vec::len), Some(1));
    assert_eq!(keys["keys"][0]["use"], "sig");
    server.stop().await;
}

#[tokio::test]
async fn anonymous_requests_can_be_kept_to_some_paths() {
    use apiserver::gates::authentication::Anonymous;
    let server = Server::start(|config, _| {
        config.authentication.anonymous = Anonymous::At(vec!["/livez".to_owned()]);
    })
    .await;
    let client = Client::https(server.config()).expect("a client");
    let ask = |path: &'static str| {
        let client = client.clone();
        async move {
            let request = http::Request::builder().uri(path).body(machinery::rest::Body::Empty).expect("a request");
            client
                .request(request)
                .await
                .map_or_else(|error| error.code().unwrap_or(0), |answer| answer.status().as_u16())
        }
    };
    assert_eq!(ask("/livez").await, 200);
    assert_eq!(ask("/readyz").await, 401);
    server.stop().await;
}

/// The file of `--authentication-config` in which expressions say who somebody is.
fn by_expressions(issuer: &Issuer) -> serde_json::Value {
    json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration",
        "jwt": [{
            "issuer": {"url": issuer.url(), "audiences": ["us"], "certificateAuthority": issuer.authority()},
            "claimValidationRules": [{"expression": "claims.hd == 'acme'", "message": "acme only"}],
            "claimMappings": {
                "username": {"expression": "'acme:' + claims.sub"},
                "groups": {"expression": "claims.?roles.orValue('').split(',').map(r, 'acme:' + r)"},
                "uid": {"expression": "string(int(claims.number))"},
                "extra": [{"key": "acme.example/team", "valueExpression": "claims.team__dot__name"}],
            },
            "userValidationRules": [{"expression": "!user.username.contains('system:')", "message": "reserved"}],
        }],
        "anonymous": {"enabled": true, "conditions": [{"path": "/livez"}]},
    })
}

#[tokio::test]
async fn expressions_say_who_somebody_is() {
    let issuer = Issuer::start().await;
    let server = Server::start(|config, directory| {
        let path = directory.join("authentication.yaml");
        std::fs::write(&path, by_expressions(&issuer).to_string()).expect("a file");
        config.authentication.load(&path).expect("a configuration");
    })
    .await;
    let claims = json!({"sub": "joe", "hd": "acme", "roles": "dev,ops", "number": 7, "team.name": "red"});
    let joe = server.kubectl_with_token(&issuer.token(&claims));
    let who: serde_json::Value =
        serde_json::from_str(&joe.run(&["auth", "whoami", "-o", "json"]).await).expect("a review");
    assert_eq!(
        who["status"]["userInfo"],
        json!({"username": "acme:joe", "uid": "7", "groups": ["acme:dev", "acme:ops", "system:authenticated"],
            "extra": {"acme.example/team": ["red"]}})
    );
    for (claim, odd) in [("hd", json!("other")), ("sub", json!("system:admin")), ("number", json!("seven"))] {
        let mut claims = claims.clone();
        claims[claim] = odd;
        let refused = server.kubectl_with_token(&issuer.token(&claims)).fail(&["auth", "whoami"]).await;
        assert!(refused.contains("You must be logged in to the server"), "{claim}: {refused}");
    }
    let misspelt = server.path("misspelt.yaml");
    let mut tree = by_expressions(&issuer);
    tree["jwt"][0]["userValidationRule"] = json!([]);
    std::fs::write(&misspelt, tree.to_string()).expect("a file");
    let refused = apiserver::gates::authentication::Settings::default().load(&misspelt).expect_err("refused");
    assert!(
        refused.to_string().ends_with("strict decoding error: unknown field \"jwt[0].userValidationRule\""),
        "{refused}"
    );
    server.stop().await;
}

/// The file of `--authentication-config` with one issuer whose tokens name groups, or say where they are.
fn by_claims(issuer: &Issuer, prefix: &str) -> serde_json::Value {
    json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration",
        "jwt": [{
            "issuer": {"url": issuer.url(), "audiences": ["us"], "certificateAuthority": issuer.authority()},
            "claimMappings": {
                "username": {"claim": "sub", "prefix": prefix}, "groups": {"claim": "groups", "prefix": prefix},
            },
        }],
    })
}

#[tokio::test]
async fn groups_may_be_fetched_from_where_a_token_says() {
    let issuer = Issuer::start().await;
    let server = Server::start(|config, directory| {
        let path = directory.join("authentication.yaml");
        std::fs::write(&path, by_claims(&issuer, "o:").to_string()).expect("a file");
        config.authentication.load(&path).expect("a configuration");
    })
    .await;
    let token = |path: &str| {
        let source = json!({"endpoint": format!("{}{path}", issuer.url()), "access_token": "opaque"});
        issuer.token(
            &json!({"sub": path, "_claim_names": {"groups": "elsewhere"}, "_claim_sources": {"elsewhere": source}}),
        )
    };
    issuer.says("/groups", &issuer.token(&json!({"groups": ["dev", "ops"]})));
    issuer.says("/none", &issuer.token(&json!({"roles": ["dev"]})));
    issuer.says("/others", &issuer.token(&json!({"groups": ["dev"], "aud": "them"})));
    issuer.says("/junk", "junk");
    let who = server.kubectl_with_token(&token("/groups")).run(&["auth", "whoami", "-o", "json"]).await;
    let who: serde_json::Value = serde_json::from_str(&who).expect("a review");
    assert_eq!(who["status"]["userInfo"]["groups"], json!(["o:dev", "o:ops", "system:authenticated"]));
    for path in ["/none", "/others", "/junk"] {
        let refused = server.kubectl_with_token(&token(path)).fail(&["auth", "whoami"]).await;
        assert!(refused.contains("You must be logged in to the server"), "{path}: {refused}");
    }
    server.stop().await;
}

#[tokio::test]
async fn issuers_change_with_their_file() {
    let issuer = Issuer::start().await;
    let server = Server::start(|config, directory| {
        let path = directory.join("authentication.yaml");
        std::fs::write(&path, by_claims(&issuer, "old:").to_string()).expect("a file");
        config.authentication.load(&path).expect("a configuration");
    })
    .await;
    let path = server.path("authentication.yaml");
    let mut config = server.config();
    config.credentials = client::config::Credentials::token(&issuer.token(&json!({"sub": "joe"}))).expect("a token");
    let client = client::Client::https(config).expect("a client");
    let name = async || {
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let (_, tree) =
            post(&client, "/apis/authentication.k8s.io/v1/selfsubjectreviews", review).await.expect("an answer");
        tree["status"]["userInfo"]["username"].as_str().expect("a name").to_owned()
    };
    assert_eq!(name().await, "old:joe");
    let becomes = async |wanted: &str| {
        let look = async {
            while name().await != wanted {
                tokio::task::yield_now().await;
            }
        };
        testkit::eventually(wanted, look).await;
    };
    // Put in its place, as editors and mounted volumes do.
    let replace = |text: &str| {
        let beside = server.path("new.yaml");
        std::fs::write(&beside, text).expect("a file");
        std::fs::rename(&beside, &path).expect("the file");
    };
    replace(&by_claims(&issuer, "new:").to_string());
    becomes("new:joe").await;
    // What cannot be used changes nothing, and is counted.
    replace("nonsense");
    let metrics = server.kubectl();
    let counted = async {
        loop {
            let text = metrics.run(&["get", "--raw", "/metrics"]).await;
            let failed = |line: &&str| {
                line.starts_with("apiserver_authentication_config_controller_automatic_reloads_total{")
                    && line.contains("status=\"failure\"")
            };
            if text.lines().any(|line| failed(&line)) {
                return text;
            }
        }
    };
    let text = testkit::eventually("the failure is counted", counted).await;
    assert!(text.contains("apiserver_authentication_config_controller_last_config_info{"), "{text}");
    assert_eq!(name().await, "new:joe");
    replace(&by_claims(&issuer, "newest:").to_string());
    becomes("newest:joe").await;
    server.stop().await;
}

/// A client's certificate of this authority, as it was issued at a time for an hour, in files: the certificate's and the key's.
fn client_files(server: &Server, name: &str, authority: &Authority, at: Timestamp) -> [String; 2] {
    let leaf = Leaf::client(Subject::new(name, ["system:masters"]), Duration::from_secs(3600));
    let key = PrivateKey::generate().expect("a key");
    let issued = authority.issue(&leaf, &key.public(), at).expect("a certificate");
    [("crt", issued.to_pem()), ("key", key.to_pem().to_owned())].map(|(ending, text)| {
        let path = server.path(&format!("{name}.{ending}"));
        std::fs::write(&path, text).expect("a file");
        path.to_str().expect("a path in UTF-8").to_owned()
    })
}

#[tokio::test]
async fn who_shows_a_certificate_that_is_not_believed_is_told_so_and_may_show_a_token() {
    let server = Server::default().await;
    let kubectl = server.kubectl_with_token("");
    let (now, day) = (Timestamp::now(), Duration::from_secs(86_400));
    let others = Authority::new("others", PrivateKey::generate().expect("a key"), now, day).expect("an authority");
    let [good, expired, foreign] = [
        ("good", &server.keys.authority, now),
        ("expired", &server.keys.authority, now - day),
        ("foreign", &others, now),
    ]
    .map(|(name, authority, at)| client_files(&server, name, authority, at));
    let shown = |files: &[String; 2]| {
        ["get", "pods", "--client-certificate", &files[0], "--client-key", &files[1]].map(str::to_owned).to_vec()
    };
    let run = async |words: Vec<String>| {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        kubectl.output(&words, "").await
    };
    assert!(run(shown(&good)).await.success);
    server.admin().create(&service_account("bot")).await.expect("an account");
    let token = server.kubectl().run(&["create", "token", "bot"]).await;
    for files in [expired, foreign] {
        let refused = run(shown(&files)).await;
        assert!(!refused.success, "{refused:?}");
        assert_eq!(refused.stderr, "error: You must be logged in to the server (Unauthorized)\n");
        let by_token = run([shown(&files), vec!["--token".to_owned(), token.trim().to_owned()]].concat()).await;
        assert!(by_token.stderr.contains("User \"system:serviceaccount:default:bot\" cannot list"), "{by_token:?}");
    }
    server.stop().await;
}
