//! What admission has to say about custom resources: webhooks, policies, quotas.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use testkit::Https;

use super::{DEFINITIONS, fleet, serving, ship, ships, spec, version};

/// A webhook that denies what is marked so, and gives everything else two names: one that the schema knows.
async fn hook() -> Https {
    Https::start(|_| {
        |request: http::Request<Bytes>| {
            let review: Value = serde_json::from_slice(request.body()).expect("a review");
            let question = &review["request"];
            let object = if question["operation"] == "DELETE" { &question["oldObject"] } else { &question["object"] };
            let marked = object["spec"]["name"] == "pirate" || object["metadata"]["labels"]["pirate"] == "yes";
            // A webhook in Go reads no integer from a text such as `3.0`.
            let denied = marked || object["spec"]["masts"].is_f64();
            let mut response = json!({"uid": question["uid"], "allowed": !denied, "status": {"message": "no pirates"}});
            if request.uri().path() == "/mutate" {
                let patch = json!([
                    {"op": "add", "path": "/spec/name", "value": "mutated"},
                    {"op": "add", "path": "/spec/unknown", "value": "dropped"},
                ]);
                response["allowed"] = json!(true);
                response["patchType"] = json!("JSONPatch");
                response["patch"] = json!(STANDARD.encode(patch.to_string()));
            }
            let answer = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response});
            http::Response::new(Bytes::from(answer.to_string()))
        }
    })
    .await
}

fn configuration(kind: &str, hook: &Https, path: &str, rule: &Value) -> Value {
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "hook"}, "webhooks": [{
        "name": "hook.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None", "rules": [rule],
        "clientConfig": {"url": format!("{}{path}", hook.url()), "caBundle": STANDARD.encode(hook.authority())},
    }]})
}

#[tokio::test]
async fn webhooks_see_change_and_refuse_custom_resources() {
    let hook = hook().await;
    let names = spec(json!({"name": {"type": "string"}, "masts": {"type": "integer"}}));
    let server = serving(&ships(json!([version("v1", false, names.clone()), version("v2", true, names)]))).await;
    let rule = json!({"apiGroups": ["harbour.example.com"], "apiVersions": ["v1"], "resources": ["ships"], "operations": ["*"]});
    let configurations = "/apis/admissionregistration.k8s.io/v1";
    let validating = configuration("ValidatingWebhookConfiguration", &hook, "/validate", &rule);
    assert_eq!(
        server.post(&format!("{configurations}/validatingwebhookconfigurations"), &validating).await.status,
        201
    );
    let denied = server.post(&fleet("v1"), &ship("argo", json!({"name": "pirate"}))).await;
    assert_eq!(
        (denied.status, denied.message().as_str()),
        (400, "admission webhook \"hook.example.com\" denied the request: no pirates")
    );
    assert_eq!(server.post(&fleet("v1"), &ship("argo", json!({"name": "Argo", "masts": 3.0}))).await.status, 201);
    let path = format!("{}/argo", fleet("v2"));
    let merge = "application/merge-patch+json";
    // What is asked for in another version is the same.
    assert_eq!(server.patch(&path, merge, r#"{"spec":{"name":"pirate"}}"#).await.status, 400);
    let removed =
        server.send(Method::DELETE, &format!("{configurations}/validatingwebhookconfigurations/hook"), &[], "").await;
    assert_eq!(removed.status, 200);
    assert_eq!(server.patch(&path, merge, r#"{"metadata":{"labels":{"pirate":"yes"}}}"#).await.status, 200);
    assert_eq!(
        server.post(&format!("{configurations}/validatingwebhookconfigurations"), &validating).await.status,
        201
    );
    assert_eq!(server.send(Method::DELETE, &path, &[], "").await.status, 400, "a deletion is asked about too");

    let mutating = configuration("MutatingWebhookConfiguration", &hook, "/mutate", &rule);
    assert_eq!(server.post(&format!("{configurations}/mutatingwebhookconfigurations"), &mutating).await.status, 201);
    let mutated = server.post(&fleet("v1"), &ship("other", json!({"name": "Other"}))).await;
    assert_eq!(
        (mutated.status, &mutated.json()["spec"]),
        (201, &json!({"name": "mutated"})),
        "what nobody knows is dropped again"
    );
    server.stop().await;
}

#[tokio::test]
async fn webhooks_are_asked_about_definitions() {
    let hook = hook().await;
    let server = crate::server::Server::default().await;
    let rule = json!({"apiGroups": ["apiextensions.k8s.io"], "apiVersions": ["*"], "resources": ["customresourcedefinitions"], "operations": ["CREATE"]});
    let validating = configuration("ValidatingWebhookConfiguration", &hook, "/validate", &rule);
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    assert_eq!(server.post(path, &validating).await.status, 201);
    let mut definition = ships(json!([version("v1", true, spec(json!({})))]));
    definition["metadata"]["labels"] = json!({"pirate": "yes"});
    let denied = server.post(DEFINITIONS, &definition).await;
    assert_eq!(denied.message(), "admission webhook \"hook.example.com\" denied the request: no pirates");
    assert_eq!(server.get(&fleet("v1")).await.status, 404);
    server.stop().await;
}

#[tokio::test]
async fn quotas_count_custom_resources() {
    let server = serving(&ships(json!([version("v1", true, spec(json!({})))]))).await;
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    let hard = json!({"count/ships.harbour.example.com": "1"});
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": hard}});
    assert_eq!(server.post(quotas, &quota).await.status, 201);
    let status = json!({"status": {"hard": hard, "used": {"count/ships.harbour.example.com": "0"}}}).to_string();
    assert_eq!(server.patch(&format!("{quotas}/q/status"), "application/merge-patch+json", &status).await.status, 200);
    assert_eq!(server.post(&fleet("v1"), &ship("a", json!({}))).await.status, 201);
    let refused = server.post(&fleet("v1"), &ship("b", json!({}))).await;
    assert_eq!(refused.status, 403);
    assert_eq!(
        refused.message(),
        "ships.harbour.example.com \"b\" is forbidden: exceeded quota: q, requested: count/ships.harbour.example.com=1, used: count/ships.harbour.example.com=1, limited: count/ships.harbour.example.com=1"
    );
    server.stop().await;
}

#[tokio::test]
async fn policies_see_change_and_refuse_custom_resources_by_custom_params() {
    let ports = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
        "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "days": {"type": "integer"}}}});
    let properties = json!({"name": {"type": "string"}, "oars": {"type": "integer"}, "ports": ports});
    let server = serving(&ships(json!([version("v1", true, spec(properties))]))).await;
    let admissions = "/apis/admissionregistration.k8s.io/v1";
    let constraints = json!({"resourceRules": [{"operations": ["CREATE", "UPDATE"],
        "apiGroups": ["harbour.example.com"], "apiVersions": ["v1"], "resources": ["ships"]}]});
    let make = async |kind: &str, name: &str, spec: Value| {
        let object = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec});
        let plural = match kind.strip_suffix('y') {
            Some(stem) => format!("{}ies", stem.to_lowercase()),
            None => format!("{}s", kind.to_lowercase()),
        };
        let made = server.post(&format!("{admissions}/{plural}"), &object).await;
        assert_eq!(made.status, 201, "{}", made.text());
    };
    let params = json!({"apiVersion": "harbour.example.com/v1", "kind": "Ship"});
    assert_eq!(server.post(&fleet("v1"), &ship("limit", json!({"oars": 50}))).await.status, 201);
    make(
        "ValidatingAdmissionPolicy",
        "fewer",
        json!({"paramKind": params, "matchConstraints": constraints, "validations": [
            {"expression": "object.spec.oars <= params.spec.oars", "messageExpression": "'at most ' + string(params.spec.oars) + ' oars'"},
        ]}),
    )
    .await;
    make(
        "ValidatingAdmissionPolicyBinding",
        "fewer",
        json!({"policyName": "fewer", "validationActions": ["Deny"],
            "paramRef": {"name": "limit", "namespace": "default", "parameterNotFoundAction": "Deny"}}),
    )
    .await;
    let overlay =
        "Object{spec: Object.spec{oars: object.spec.oars + 1, ports: [Object.spec.ports{name: 'home', days: 7}]}}";
    let patch = "[JSONPatch{op: 'add', path: '/spec/name', value: 'Changed'}, JSONPatch{op: 'add', path: '/spec/unknown', value: 1}]";
    make(
        "MutatingAdmissionPolicy",
        "more",
        json!({"matchConstraints": constraints, "reinvocationPolicy": "Never", "failurePolicy": "Fail", "mutations": [
            {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": overlay}},
            {"patchType": "JSONPatch", "jsonPatch": {"expression": patch}},
        ]}),
    )
    .await;
    make("MutatingAdmissionPolicyBinding", "more", json!({"policyName": "more"})).await;
    // Whoever reads a list has seen all of that, and so has admission.
    server.get(&fleet("v1")).await;
    let made =
        server.post(&fleet("v1"), &ship("argo", json!({"oars": 49, "ports": [{"name": "away", "days": 1}]}))).await;
    assert_eq!(
        (made.status, &made.json()["spec"]),
        (
            201,
            &json!({"name": "Changed", "oars": 50, "ports": [{"name": "away", "days": 1}, {"name": "home", "days": 7}]})
        ),
        "{}",
        made.text()
    );
    let refused = server.post(&fleet("v1"), &ship("pinta", json!({"oars": 50}))).await;
    assert_eq!(
        (refused.status, refused.message().as_str()),
        (
            422,
            "ships.harbour.example.com \"pinta\" is forbidden: ValidatingAdmissionPolicy 'fewer' with binding 'fewer' denied request: at most 50 oars"
        )
    );
    server.stop().await;
}
