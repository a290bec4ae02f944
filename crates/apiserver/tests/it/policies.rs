//! Policies in the API: what they refuse, warn of and change.

use k8s_openapi::api::admissionregistration::v1::{
    MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use machinery::rest::User;
use serde_json::{Value, json};
use testkit::build::{config_map, deployment, pod};

use crate::server::Server;

fn typed<T: serde::de::DeserializeOwned>(tree: Value) -> T {
    serde_json::from_value(tree).expect("an object of that kind")
}

/// A list sees everything that was acknowledged before it, and so does what is admitted after it.
async fn settle(server: &Server) {
    server.admin().list::<ConfigMap>("default", &Default::default()).await.expect("a list");
}

/// A policy about creations and updates of a resource, and a binding for it.
async fn validating(server: &Server, resource: (&str, &str), spec: Value, actions: Value) {
    let rules = json!([{"operations": ["CREATE", "UPDATE"], "apiGroups": [resource.0], "apiVersions": ["v1"], "resources": [resource.1]}]);
    let mut whole = json!({"failurePolicy": "Fail", "matchConstraints": {"resourceRules": rules}});
    for (key, value) in spec.as_object().expect("fields") {
        whole[key] = value.clone();
    }
    let policy = json!({"metadata": {"name": "p"}, "spec": whole});
    let binding = json!({"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": actions}});
    let admin = server.admin();
    admin.create(&typed::<ValidatingAdmissionPolicy>(policy)).await.expect("a policy");
    admin.create(&typed::<ValidatingAdmissionPolicyBinding>(binding)).await.expect("a binding");
    settle(server).await;
}

async fn mutating(server: &Server, name: &str, mutation: Value) {
    let rules = json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]);
    let policy = json!({"metadata": {"name": name}, "spec": {"failurePolicy": "Fail", "reinvocationPolicy": "IfNeeded",
        "matchConstraints": {"resourceRules": rules}, "mutations": [mutation],
        "variables": [{"name": "who", "expression": "request.userInfo.username"}]}});
    let binding = json!({"metadata": {"name": name}, "spec": {"policyName": name}});
    let admin = server.admin();
    admin.create(&typed::<MutatingAdmissionPolicy>(policy)).await.expect("a policy");
    admin.create(&typed::<MutatingAdmissionPolicyBinding>(binding)).await.expect("a binding");
    settle(server).await;
}

#[tokio::test]
async fn policies_refuse_and_warn_by_expressions() {
    let server = Server::default().await;
    let admin = server.admin();
    let policy = json!({"metadata": {"name": "limits"}, "spec": {
        "failurePolicy": "Fail",
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "matchConstraints": {"resourceRules": [{"operations": ["CREATE", "UPDATE"], "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"]}]},
        "validations": [{"expression": "object.spec.replicas <= int(params.data.max)", "messageExpression": "'at most ' + params.data.max"}],
    }});
    admin.create(&config_map("settings", "max", "3")).await.expect("parameters");
    admin.create(&typed::<ValidatingAdmissionPolicy>(policy)).await.expect("a policy");
    let binding = |name: &str, actions: Value| -> ValidatingAdmissionPolicyBinding {
        typed(json!({"metadata": {"name": name}, "spec": {"policyName": "limits", "validationActions": actions,
            "paramRef": {"name": "settings", "namespace": "default", "parameterNotFoundAction": "Deny"}}}))
    };
    admin.create(&binding("deny", json!(["Deny"]))).await.expect("a binding");
    settle(&server).await;
    admin.create(&deployment("small", 2)).await.expect("within the limit");
    let refused = admin.create(&deployment("big", 4)).await.expect_err("refused");
    assert_eq!(refused.code(), Some(422));
    assert_eq!(
        refused.to_string(),
        "deployments.apps \"big\" is forbidden: ValidatingAdmissionPolicy 'limits' with binding 'deny' denied request: at most 3"
    );
    admin.delete::<ValidatingAdmissionPolicyBinding>("", "deny", &Default::default()).await.expect("removed");
    admin.create(&binding("warn", json!(["Warn"]))).await.expect("a binding");
    settle(&server).await;
    let warned = server.kubectl().output(&["create", "deployment", "big", "--image=i", "--replicas=9"], "").await;
    assert!(warned.success, "{}", warned.stderr);
    assert_eq!(
        warned.stderr,
        "Warning: Validation failed for ValidatingAdmissionPolicy 'limits' with binding 'warn': at most 3\n"
    );
    server.stop().await;
}

#[tokio::test]
async fn expressions_ask_what_a_user_may_do() {
    let server = Server::default().await;
    let expression = "!has(object.data.secret) || authorizer.group('').resource('secrets').namespace('default').check('get').allowed()";
    validating(
        &server,
        ("", "configmaps"),
        json!({"validations": [{"expression": expression, "message": "not yours", "reason": "Forbidden"}]}),
        json!(["Deny"]),
    )
    .await;
    let rbac = json!({"metadata": {"name": "editors"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "configs"},
        "subjects": [{"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}]});
    let role = json!({"metadata": {"name": "configs"}, "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]});
    let admin = server.admin();
    admin.create(&typed::<k8s_openapi::api::rbac::v1::ClusterRole>(role)).await.expect("a role");
    admin.create(&typed::<k8s_openapi::api::rbac::v1::ClusterRoleBinding>(rbac)).await.expect("a binding");
    settle(&server).await;
    let jane = server.as_user(User::new("jane", ["system:authenticated"]));
    jane.create(&config_map("plain", "a", "b")).await.expect("no secret is asked for");
    let refused = jane.create(&config_map("other", "secret", "b")).await.expect_err("refused");
    assert_eq!(
        (refused.code(), refused.to_string().as_str()),
        (
            Some(403),
            "configmaps \"other\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: not yours"
        )
    );
    admin.create(&config_map("admins", "secret", "b")).await.expect("an administrator may");
    server.stop().await;
}

#[tokio::test]
async fn expressions_must_compile_and_must_not_cost_too_much() {
    let server = Server::default().await;
    let rules =
        json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]);
    let policy = |expression: &str| -> ValidatingAdmissionPolicy {
        typed(
            json!({"metadata": {"name": "odd"}, "spec": {"matchConstraints": {"resourceRules": rules}, "validations": [{"expression": expression}]}}),
        )
    };
    let admin = server.admin();
    for (expression, why) in [
        ("object.", "compilation failed: ERROR: <input>:1:8: Syntax error: no viable alternative at input '.'"),
        ("nothing > 1", "compilation failed: ERROR: <input>:1:1: undeclared reference to 'nothing' (in container '')"),
        ("1", "must evaluate to bool but got int"),
    ] {
        let refused = admin.create(&policy(expression)).await.expect_err("refused").to_string();
        assert!(
            refused.contains(&format!("spec.validations[0].expression: Invalid value: {expression:?}: {why}")),
            "{refused}"
        );
    }
    let bomb = "(".repeat(9_000);
    assert!(
        admin.create(&policy(&bomb)).await.expect_err("refused").to_string().contains("recursion limit exceeded: 250")
    );
    let list = "[0,1,2,3,4,5,6,7,8,9]";
    let slow =
        format!("{list}.all(a, {list}.all(b, {list}.all(c, {list}.all(d, {list}.all(e, {list}.all(f, true))))))");
    validating(&server, ("", "configmaps"), json!({"validations": [{"expression": slow}]}), json!(["Deny"])).await;
    let refused = admin.create(&config_map("slow", "a", "b")).await.expect_err("refused").to_string();
    assert!(refused.ends_with("resulted in error: operation cancelled: actual cost limit exceeded"), "{refused}");
    server.stop().await;
}

#[tokio::test]
async fn policies_change_what_is_written() {
    let server = Server::default().await;
    let admin = server.admin();
    let apply = "Object{metadata: Object.metadata{labels: Object.metadata.labels{team: 'x'}}, spec: Object.spec{initContainers: [Object.spec.initContainers{name: 'mesh', image: 'mesh:1', restartPolicy: 'Always'}]}}";
    mutating(
        &server,
        "sidecar",
        json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": apply}}),
    )
    .await;
    let patch = "[JSONPatch{op: 'add', path: '/metadata/annotations', value: {}}, \
                 JSONPatch{op: 'add', path: '/metadata/annotations/' + jsonpatch.escapeKey('example.com/by'), value: variables.who}]";
    mutating(&server, "who", json!({"patchType": "JSONPatch", "jsonPatch": {"expression": patch}})).await;
    let made = admin.create(&pod("web")).await.expect("a pod");
    assert_eq!(made.metadata.labels.expect("labels")["team"], "x");
    assert_eq!(made.metadata.annotations.expect("annotations")["example.com/by"], "kubernetes-admin");
    let spec = made.spec.expect("a spec");
    let sidecar = &spec.init_containers.expect("a sidecar")[0];
    assert_eq!((sidecar.name.as_str(), sidecar.restart_policy.as_deref()), ("mesh", Some("Always")));
    assert_eq!(sidecar.termination_message_policy.as_deref(), Some("File"), "it gets its defaults");
    assert!(sidecar.volume_mounts.is_some() && spec.volumes.expect("volumes").len() == 1, "and the pod's token, once");
    // What merges as a whole must not be changed in part.
    let whole = "Object{spec: Object.spec{nodeSelector: Object.spec.nodeSelector{a: 'b'}}}";
    mutating(&server, "whole", json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": whole}}))
        .await;
    let refused = admin.create(&pod("other")).await.expect_err("refused").to_string();
    assert_eq!(
        refused,
        "policy 'whole' with binding 'whole' denied request: error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.nodeSelector"
    );
    let gone = client::DeleteOptions { grace_period_seconds: Some(0), ..Default::default() };
    admin
        .delete::<Pod>("default", "web", &gone)
        .await
        .expect("policies for changes do not stand in the way of deletions");
    server.stop().await;
}

#[tokio::test]
async fn parameters_of_a_kind_that_nobody_knows_are_the_policys_mistake() {
    let server = Server::default().await;
    let spec = json!({"paramKind": {"apiVersion": "example.com/v1", "kind": "Limit"},
        "validations": [{"expression": "params.spec.max > 1"}]});
    validating(&server, ("", "configmaps"), spec, json!(["Deny"])).await;
    let refused = server.admin().create(&config_map("m", "a", "b")).await.expect_err("refused").to_string();
    assert_eq!(
        refused,
        "configmaps \"m\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: failed to find resource referenced by paramKind: 'example.com/v1, Kind=Limit'"
    );
    server.stop().await;
}

#[tokio::test]
async fn what_is_wrong_with_a_policy_is_told_in_upstreams_order() {
    let server = Server::default().await;
    let refused = async |spec: Value| {
        let rules =
            json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]);
        let mut whole = json!({"failurePolicy": "Fail", "matchConstraints": {"resourceRules": rules},
            "validations": [{"expression": "true"}]});
        for (key, value) in spec.as_object().expect("fields") {
            whole[key] = value.clone();
        }
        let policy = json!({"metadata": {"name": "p"}, "spec": whole});
        let error = server.admin().create(&typed::<ValidatingAdmissionPolicy>(policy)).await.expect_err("refused");
        error.to_string().split_once(" is invalid: ").map(|(_, why)| why.to_owned()).expect("what is invalid")
    };
    assert_eq!(
        refused(json!({"variables": [{"name": "if", "expression": "1"}]})).await,
        "spec.variables[0].name: Invalid value: \"if\": must be a valid CEL identifier"
    );
    assert_eq!(
        refused(json!({"variables": [{"name": "a", "expression": "variables.b"}, {"name": "b", "expression": "1"}]}))
            .await,
        "spec.variables[0].expression: Invalid value: \"variables.b\": compilation failed: ERROR: <input>:1:10: undefined field 'b'\n | variables.b\n | .........^"
    );
    assert_eq!(
        refused(json!({"auditAnnotations": [{"key": "a", "valueExpression": "1"}]})).await,
        "spec.auditAnnotations[0].valueExpression: Invalid value: \"1\": must evaluate to one of [string null_type] but got int"
    );
    server.stop().await;
}
