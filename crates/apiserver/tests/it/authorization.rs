//! Who may do what, asked from outside.

use client::Error;
use k8s_openapi::api::core::v1::{ConfigMap, Node, PersistentVolumeClaim, Pod, Secret};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role};
use machinery::rest::User;
use serde_json::json;
use testkit::Https;
use testkit::build::{BuildPod as _, node, pod};

use crate::server::{Server, post};

fn typed<T: serde::de::DeserializeOwned>(tree: serde_json::Value) -> T {
    serde_json::from_value(tree).expect("an object of that kind")
}

fn refusal<T: std::fmt::Debug>(outcome: Result<T, Error>) -> String {
    let error = outcome.expect_err("refused");
    assert_eq!(error.code(), Some(403), "{error}");
    error.to_string()
}

#[tokio::test]
async fn nobody_grants_what_they_do_not_have() {
    let server = Server::default().await;
    let admin = server.admin();
    let role: ClusterRole = typed(json!({"metadata": {"name": "role-writer"}, "rules": [
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles", "roles", "clusterrolebindings"], "verbs": ["*"]},
    ]}));
    // `*` would be `escalate` and `bind` too.
    let mut writer = role.clone();
    writer.rules.as_mut().expect("rules")[0].verbs = ["create", "update", "get"].map(str::to_owned).to_vec();
    admin.create(&writer).await.expect("a role");
    let binding = |name: &str, role: &str, user: &str| -> ClusterRoleBinding {
        typed(json!({"metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}]}))
    };
    admin.create(&binding("writer", "role-writer", "jane")).await.expect("a binding");
    let jane = server.as_user(User::new("jane", ["devs"]));
    let wanted: ClusterRole = typed(json!({"metadata": {"name": "reader"}, "rules": [
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"]},
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "verbs": ["get"]},
    ]}));
    assert_eq!(
        refusal(jane.create(&wanted).await),
        "clusterroles.rbac.authorization.k8s.io \"reader\" is forbidden: user \"jane\" (groups=[\"devs\" \"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\" \"list\"]}"
    );
    let held: ClusterRole = typed(json!({"metadata": {"name": "held"}, "rules": [
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "verbs": ["get"]}]}));
    jane.create(&held).await.expect("what she has herself");
    let refused = refusal(jane.create(&binding("admin", "cluster-admin", "jane")).await);
    assert!(refused.contains("is attempting to grant RBAC permissions not currently held"), "{refused}");
    jane.create(&binding("fine", "held", "bob")).await.expect("a binding to what she has");
    let missing = jane.create(&binding("nothing", "no-such-role", "bob")).await.expect_err("no such role");
    assert_eq!(missing.code(), Some(404));
    // With `escalate` and `bind` she may.
    admin.create(&ClusterRole { metadata: typed(json!({"name": "role-master"})), ..role }).await.expect("a role");
    admin.create(&binding("master", "role-master", "jane")).await.expect("a binding");
    jane.create(&wanted).await.expect("escalated");
    jane.create(&binding("admin", "cluster-admin", "jane")).await.expect("bound");
    server.stop().await;
}

#[tokio::test]
async fn a_namespaces_role_reaches_only_its_namespace() {
    let server = Server::default().await;
    let admin = server.admin();
    let everything = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    admin
        .create(&typed::<Role>(json!({"metadata": {"name": "all", "namespace": "default"}, "rules": everything})))
        .await
        .expect("a role");
    let binding: k8s_openapi::api::rbac::v1::RoleBinding =
        typed(json!({"metadata": {"name": "all", "namespace": "default"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "all"},
        "subjects": [{"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}]}));
    admin.create(&binding).await.expect("a binding");
    let jane = server.as_user(User::new("jane", []));
    jane.list::<Pod>("default", &Default::default()).await.expect("her own namespace");
    assert_eq!(
        refusal(jane.list::<Pod>("kube-system", &Default::default()).await),
        "pods is forbidden: User \"jane\" cannot list resource \"pods\" in API group \"\" in the namespace \"kube-system\""
    );
    assert_eq!(
        refusal(jane.list::<Node>("", &Default::default()).await),
        "nodes is forbidden: User \"jane\" cannot list resource \"nodes\" in API group \"\" at the cluster scope"
    );
    assert!(refusal(jane.list::<Pod>("", &Default::default()).await).contains("at the cluster scope"));
    // The namespace object itself has the namespace in its path, and is the cluster's all the same.
    server.stop().await;
}

#[tokio::test]
async fn a_node_sees_what_its_pods_use() {
    let server = Server::default().await;
    let admin = server.admin();
    for name in ["n1", "n2"] {
        admin.create(&node(name)).await.expect("a node");
    }
    let secret = |name: &str| -> Secret { typed(json!({"metadata": {"name": name, "namespace": "default"}})) };
    admin.create(&secret("used")).await.expect("a secret");
    admin.create(&secret("unused")).await.expect("a secret");
    let mut web = pod("web").on("n1");
    web.spec.as_mut().expect("a spec").volumes = typed(
        json!([{"name": "s", "secret": {"secretName": "used"}}, {"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]),
    );
    let n1 = server.as_user(User::new("system:node:n1", ["system:nodes"]));
    let n2 = server.as_user(User::new("system:node:n2", ["system:nodes"]));
    let early = refusal(n1.get::<Secret>("default", "used").await);
    assert!(early.ends_with("no relationship found between node 'n1' and this object"), "{early}");
    admin.create(&web).await.expect("a pod");
    n1.get::<Secret>("default", "used").await.expect("its pod uses it");
    refusal(n1.get::<Secret>("default", "unused").await);
    refusal(n2.get::<Secret>("default", "used").await);
    refusal(n1.list::<Secret>("default", &Default::default()).await);
    refusal(n1.get::<ConfigMap>("default", "any").await);
    // A claim may be followed by its name; nobody sees all of them.
    let named =
        |name: &str| client::ListParams { field_selector: format!("metadata.name={name}"), ..Default::default() };
    n1.list::<PersistentVolumeClaim>("default", &named("data")).await.expect("its pod's claim");
    refusal(n1.list::<PersistentVolumeClaim>("default", &named("other")).await);
    refusal(n2.list::<PersistentVolumeClaim>("default", &named("data")).await);
    assert!(
        refusal(n1.list::<PersistentVolumeClaim>("default", &Default::default()).await)
            .ends_with("can only get individual resources of this type")
    );
    n1.get::<Node>("", "n1").await.expect("itself");
    assert!(refusal(n1.get::<Node>("", "n2").await).ends_with("node 'n1' cannot read 'n2', only its own Node object"));
    let own = client::ListParams { field_selector: "spec.nodeName=n1".to_owned(), ..Default::default() };
    assert_eq!(n1.list::<Pod>("", &own).await.expect("its own pods").items.len(), 1);
    assert!(
        refusal(n2.list::<Pod>("", &own).await).ends_with("can only list/watch pods with spec.nodeName field selector")
    );
    admin
        .delete::<Pod>("default", "web", &client::DeleteOptions { grace_period_seconds: Some(0), ..Default::default() })
        .await
        .expect("gone");
    // A list sees everything that was acknowledged before it, and so does what is decided after it.
    assert!(admin.list::<Pod>("", &own).await.expect("a list").items.is_empty());
    refusal(n1.get::<Secret>("default", "used").await);
    server.stop().await;
}

#[tokio::test]
async fn services_are_read_by_nodes_with_a_name() {
    use k8s_openapi::api::core::v1::{Namespace, Service};
    use k8s_openapi::api::discovery::v1::EndpointSlice;
    use k8s_openapi::api::networking::v1::ServiceCIDR;

    let server = Server::default().await;
    let everything = Default::default();
    let node = server.as_user(User::new("system:node:n1", ["system:nodes"]));
    node.list::<Service>("", &everything).await.expect("services");
    node.list::<Namespace>("", &everything).await.expect("namespaces");
    node.list::<Node>("", &everything).await.expect("nodes");
    node.list::<EndpointSlice>("", &everything).await.expect("slices");
    node.list::<ServiceCIDR>("", &everything).await.expect("ranges");
    for name in ["jane", "system:node:"] {
        let member = server.as_user(User::new(name, ["system:nodes"]));
        let told = [
            refusal(member.list::<Service>("", &everything).await),
            refusal(member.list::<Namespace>("", &everything).await),
            refusal(member.list::<Node>("", &everything).await),
            refusal(member.list::<EndpointSlice>("", &everything).await),
            refusal(member.list::<ServiceCIDR>("", &everything).await),
        ];
        assert!(told.iter().all(|told| told.contains("cannot list resource")), "{told:?}");
    }
    server.stop().await;
}

#[tokio::test]
async fn kubectl_asks_what_it_may() {
    let server = Server::default().await;
    let kubectl = server.kubectl();
    let who = kubectl.run(&["auth", "whoami"]).await;
    assert!(who.contains("kubernetes-admin") && who.contains("system:masters"), "{who}");
    let list = kubectl.run(&["auth", "can-i", "--list"]).await;
    assert!(list.lines().any(|line| line.starts_with("*.*") && line.contains("[*]")), "{list}");
    assert!(list.contains("selfsubjectaccessreviews.authorization.k8s.io"), "{list}");
    let as_jane = kubectl.output(&["auth", "can-i", "list", "pods", "--as", "jane"], "").await;
    assert_eq!(as_jane.stdout, "no\n");
    kubectl.run(&["create", "clusterrole", "frobnicator", "--verb=frobnicate", "--resource=pods"]).await;
    kubectl.run(&["create", "clusterrolebinding", "frob", "--clusterrole=frobnicator", "--user=jane"]).await;
    let as_jane = kubectl.output(&["auth", "can-i", "frobnicate", "pods", "--as", "jane"], "").await;
    assert_eq!(as_jane.stdout, "yes\n", "{}", as_jane.stderr);
    server.stop().await;
}

#[tokio::test]
async fn a_webhook_is_asked_only_what_its_conditions_let_through() {
    let (sender, mut questions) = tokio::sync::mpsc::unbounded_channel();
    let webhook = Https::start(|_| {
        move |request: http::Request<bytes::Bytes>| {
            let mut review: serde_json::Value = serde_json::from_slice(request.body()).expect("a review");
            review["status"] = match review["spec"]["resourceAttributes"]["verb"].as_str() {
                Some("delete") => json!({"allowed": false, "denied": true, "reason": "never"}),
                _ => json!({"allowed": true}),
            };
            let trace = request.headers().get(hops::TRACEPARENT).and_then(|trace| trace.to_str().ok());
            // The test may be over.
            let _ = sender.send((review["spec"].clone(), trace.map(str::to_owned)));
            http::Response::new(bytes::Bytes::from(review.to_string()))
        }
    })
    .await;
    let server = Server::start(|config, directory| {
        use base64::Engine as _;
        let authority = base64::engine::general_purpose::STANDARD.encode(webhook.authority());
        let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": webhook.url(), "certificate-authority-data": authority}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}], "users": [{"name": "u", "user": {}}]});
        let file = directory.join("webhook.kubeconfig");
        std::fs::write(&file, kubeconfig.to_string()).expect("a file");
        let configuration = json!({
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthorizationConfiguration",
            "authorizers": [
                {"type": "Webhook", "name": "acme", "webhook": {
                    "timeout": "10s", "subjectAccessReviewVersion": "v1", "failurePolicy": "Deny",
                    "matchConditionSubjectAccessReviewVersion": "v1",
                    "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": file},
                    "matchConditions": [
                        {"expression": "has(request.resourceAttributes)"},
                        {"expression": "request.resourceAttributes.namespace == 'guarded'"},
                        {"expression": "request.user != 'odd' || request.resourceAttributes.fieldSelector.rawSelector == ''"},
                    ]}},
                {"type": "RBAC", "name": "rbac"},
            ],
        });
        let path = directory.join("authorization.yaml");
        std::fs::write(&path, configuration.to_string()).expect("a file");
        config.authorization = apiserver::gates::authorization::structured::load(&path, None).expect("a configuration");
    })
    .await;
    let jane = server.as_user(User::new("jane", []));
    let parent = hops::Context { trace: 5, span: 7, sampled: false };
    let listed = hops::scope(parent, jane.list::<Pod>("guarded", &Default::default())).await;
    listed.expect("the webhook says yes");
    let (asked, trace) = questions.recv().await.expect("a question");
    assert_eq!(trace, Some(parent.header()), "it can go on with the trace of the request");
    assert_eq!((&asked["user"], &asked["resourceAttributes"]["verb"]), (&json!("jane"), &json!("list")));
    let denied = refusal(jane.delete::<Pod>("guarded", "x", &Default::default()).await);
    assert!(denied.ends_with("in the namespace \"guarded\": never"), "{denied}");
    questions.recv().await.expect("a question");
    // Elsewhere it is not its business, and RBAC has nothing for Jane.
    refusal(jane.list::<Pod>("default", &Default::default()).await);
    // A condition that cannot be told refuses, as the policy for failures says.
    refusal(server.as_user(User::new("odd", [])).list::<Pod>("guarded", &Default::default()).await);
    assert!(questions.try_recv().is_err(), "nobody else was asked");
    server.stop().await;
}

#[tokio::test]
async fn reviews_are_read_as_their_schema_has_them() {
    let server = Server::default().await;
    let admin = server.admin();
    let ask = async |kind: &str, path: &str, spec: serde_json::Value| {
        let group = if kind.starts_with("Token") { "authentication.k8s.io" } else { "authorization.k8s.io" };
        let tree = json!({"apiVersion": format!("{group}/v1"), "kind": kind, "spec": spec});
        post(&admin, path, tree).await.map(|(headers, _)| headers)
    };
    let reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let attributes = json!({"verb": "get", "resource": "pods"});
    let odd = ask("SubjectAccessReview", reviews, json!({"user": 5, "resourceAttributes": attributes})).await;
    assert_eq!(
        odd.expect_err("refused"),
        "SubjectAccessReview in version \"v1\" cannot be handled as a SubjectAccessReview: json: cannot unmarshal number into Go struct field SubjectAccessReviewSpec.spec.user of type string"
    );
    let unknown = json!({"user": "jane", "nonsense": true, "resourceAttributes": attributes});
    let headers = ask("SubjectAccessReview", reviews, unknown.clone()).await.expect("an answer");
    assert_eq!(headers["warning"], "299 - \"unknown field \\\"spec.nonsense\\\"\"");
    let strict = ask("SubjectAccessReview", &format!("{reviews}?fieldValidation=Strict"), unknown).await;
    assert!(strict.expect_err("refused").ends_with("strict decoding error: unknown field \"spec.nonsense\""));
    let token = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let odd = ask("TokenRequest", token, json!({"expirationSeconds": "long"})).await.expect_err("refused");
    assert!(
        odd.ends_with(
            "cannot unmarshal string into Go struct field TokenRequestSpec.spec.expirationSeconds of type int64"
        ),
        "{odd}"
    );
    let nameless = json!({"boundObjectRef": {"kind": "Pod", "apiVersion": "v1"}});
    assert_eq!(ask("TokenRequest", token, nameless).await.expect_err("refused"), "Name parameter required.");
    let nowhere = ask("TokenRequest", &token.replace("namespaces/default", "namespaces/nowhere"), json!({})).await;
    assert_eq!(nowhere.expect_err("refused"), "namespaces \"nowhere\" not found");
    server.stop().await;
}

#[tokio::test]
async fn a_binding_that_names_somebody_twice_grants_once() {
    let server = Server::default().await;
    let admin = server.admin();
    admin
        .create(&typed::<Role>(json!({"metadata": {"name": "r", "namespace": "default"},
            "rules": [{"apiGroups": ["x.io"], "resources": ["things"], "verbs": ["use"]}]})))
        .await
        .expect("a role");
    let group = "rbac.authorization.k8s.io";
    let binding = json!({"metadata": {"name": "b", "namespace": "default"},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "r"},
        "subjects": [{"kind": "User", "apiGroup": group, "name": "jane"}, {"kind": "Group", "apiGroup": group, "name": "devs"}]});
    admin.create(&typed::<k8s_openapi::api::rbac::v1::RoleBinding>(binding)).await.expect("a binding");
    admin.list::<Role>("default", &Default::default()).await.expect("settled");
    let jane = server.as_user(User::new("jane", ["devs"]));
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": "default"}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let (_, answer) = post(&jane, path, review).await.expect("an answer");
    let rules = answer["status"]["resourceRules"].as_array().expect("rules").clone();
    let own = rules.iter().filter(|rule| rule["apiGroups"] == json!(["x.io"])).count();
    assert_eq!(own, 1, "{rules:?}");
    server.stop().await;
}

#[tokio::test]
async fn authorizers_change_with_their_file() {
    let file = |types: &[&str]| {
        let all: Vec<_> = types.iter().map(|kind| json!({"type": kind, "name": kind.to_lowercase()})).collect();
        json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthorizationConfiguration", "authorizers": all})
            .to_string()
    };
    let server = Server::start(|config, directory| {
        let path = directory.join("authorization.yaml");
        std::fs::write(&path, file(&["RBAC"])).expect("a file");
        config.authorization = apiserver::gates::authorization::structured::load(&path, None).expect("a configuration");
    })
    .await;
    let path = server.path("authorization.yaml");
    let jane = server.as_user(User::new("jane", []));
    let may = async || jane.list::<ConfigMap>("default", &Default::default()).await.is_ok();
    assert!(!may().await);
    let becomes = async |wanted: bool| {
        let look = async {
            while may().await != wanted {
                tokio::task::yield_now().await;
            }
        };
        testkit::eventually("the file is taken in", look).await;
    };
    std::fs::write(&path, file(&["RBAC", "AlwaysAllow"])).expect("a file");
    becomes(true).await;
    std::fs::write(&path, file(&["RBAC"])).expect("a file");
    becomes(false).await;
    // What was not there from the beginning cannot join, and what makes no sense changes nothing.
    for wrong in [file(&["Node", "AlwaysAllow"]), file(&["Nonsense", "AlwaysAllow"]), "{}".to_owned()] {
        std::fs::write(&path, wrong).expect("a file");
    }
    std::fs::write(&path, file(&["AlwaysAllow", "RBAC"])).expect("a file");
    becomes(true).await;
    let text = server.kubectl().run(&["get", "--raw", "/metrics"]).await;
    let reloads = "apiserver_authorization_config_controller_automatic_reloads_total{";
    assert!(text.lines().any(|line| line.starts_with(reloads) && line.contains("status=\"success\"")), "{text}");
    server.stop().await;
}
