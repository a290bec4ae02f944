//! Who owns which field, as clients see it in `managedFields`.

use serde_json::{Value, json};
use testkit::Kubectl;

use crate::server::Server;

const DEPLOYMENT: &str = r"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: i}]}
";

/// The record of owners: manager, operation, subresource, version, fields.
async fn owners(kubectl: &Kubectl, object: &str) -> Vec<(String, String, String, String, Value)> {
    let text = kubectl.run(&["get", object, "-o", "json", "--show-managed-fields"]).await;
    let object: Value = serde_json::from_str(&text).expect("an object");
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let text = |entry: &Value, key: &str| entry[key].as_str().unwrap_or_default().to_owned();
    entries
        .iter()
        .map(|entry| {
            let fields = entry["fieldsV1"].clone();
            (
                text(entry, "manager"),
                text(entry, "operation"),
                text(entry, "subresource"),
                text(entry, "apiVersion"),
                fields,
            )
        })
        .collect()
}

#[tokio::test]
async fn scaling_takes_the_replicas_and_nothing_else() {
    let server = Server::default().await;
    let kubectl = server.kubectl();
    kubectl.run_with(&["apply", "--server-side", "--field-manager=owner", "-f", "-"], DEPLOYMENT).await;
    kubectl.run(&["scale", "deployment", "web", "--replicas=3"]).await;
    let replicas = json!({"f:spec": {"f:replicas": {}}});
    let entries = owners(&kubectl, "deployment/web").await;
    let scaler = entries.iter().find(|entry| entry.2 == "scale").expect("an entry of the scale");
    assert_eq!(
        scaler,
        &("kubectl".to_owned(), "Update".to_owned(), "scale".to_owned(), "apps/v1".to_owned(), replicas)
    );
    let owner = entries.iter().find(|entry| entry.0 == "owner").expect("the owner");
    assert!(owner.4["f:spec"]["f:replicas"].is_null(), "{:?}", owner.4);
    assert!(owner.4["f:spec"]["f:template"].is_object(), "{:?}", owner.4);

    // The owner applies its number again: the conflict names the scaler.
    let apply = ["apply", "--server-side", "--field-manager=owner", "-f", "-"];
    let refused = kubectl.output(&apply, DEPLOYMENT).await;
    assert!(
        refused.stderr.contains("conflict with \"kubectl\" with subresource \"scale\" using apps/v1: .spec.replicas"),
        "{}",
        refused.stderr
    );
    kubectl
        .run_with(&["apply", "--server-side", "--field-manager=owner", "--force-conflicts", "-f", "-"], DEPLOYMENT)
        .await;
    assert!(owners(&kubectl, "deployment/web").await.iter().all(|entry| entry.2 != "scale"));

    // An apply to the scale is refused by the same rules, and owns the replicas when forced.
    let scale = "apiVersion: autoscaling/v1\nkind: Scale\nmetadata: {name: web}\nspec: {replicas: 4}\n";
    let path = "/apis/apps/v1/namespaces/default/deployments/web/scale";
    let media = "application/apply-patch+yaml";
    let refused = server.patch(&format!("{path}?fieldManager=autoscaler"), media, scale).await;
    assert_eq!(refused.status, 409, "{}", refused.text());
    assert!(refused.message().contains("conflict with \"owner\""), "{}", refused.text());
    let scaled = server.patch(&format!("{path}?fieldManager=autoscaler&force=true"), media, scale).await;
    assert_eq!(scaled.json()["spec"]["replicas"], 4, "{}", scaled.text());
    let absent = server.patch(&path.replace("web", "none"), "application/merge-patch+json", "{}").await;
    assert_eq!(absent.message(), "deployments/scale.apps \"none\" not found");
    let negative = server.patch(path, "application/merge-patch+json", r#"{"spec":{"replicas":-1}}"#).await;
    assert_eq!(
        negative.message(),
        "Scale.autoscaling \"web\" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0"
    );
    let entries = owners(&kubectl, "deployment/web").await;
    let autoscaler = entries.iter().find(|entry| entry.0 == "autoscaler").expect("the autoscaler");
    assert_eq!((autoscaler.1.as_str(), autoscaler.2.as_str(), autoscaler.3.as_str()), ("Apply", "scale", "apps/v1"));
    server.stop().await;
}

#[tokio::test]
async fn what_admission_adds_belongs_to_nobody() {
    let server = Server::default().await;
    let kubectl = server.kubectl();
    kubectl.run(&["run", "plain", "--image=i"]).await;
    let pod: Value = serde_json::from_str(&kubectl.run(&["get", "pod", "plain", "-o", "json"]).await).expect("a pod");
    assert!(pod["spec"]["volumes"][0]["name"].as_str().is_some_and(|name| name.starts_with("kube-api-access-")));
    let entries = owners(&kubectl, "pod/plain").await;
    assert_eq!(entries.len(), 1, "{entries:?}");
    assert_eq!(entries[0].0, "kubectl-run");
    assert!(entries[0].4["f:spec"]["f:volumes"].is_null(), "{:?}", entries[0].4);
    assert!(entries[0].4["f:spec"]["f:containers"].is_object());
    server.stop().await;
}

#[tokio::test]
async fn a_status_is_owned_through_its_subresource() {
    let server = Server::default().await;
    let kubectl = server.kubectl();
    kubectl.run_with(&["create", "-f", "-"], DEPLOYMENT).await;
    let status = r#"{"metadata":{"labels":{"no":"way"}},"status":{"observedGeneration":1}}"#;
    kubectl.run(&["patch", "deployment", "web", "--subresource=status", "--type=merge", "-p", status]).await;
    let entries = owners(&kubectl, "deployment/web").await;
    let entry = entries.iter().find(|entry| entry.2 == "status").expect("an entry of the status");
    assert_eq!(entry.4, json!({"f:status": {"f:observedGeneration": {}}}));
    server.stop().await;
}

#[tokio::test]
async fn strict_patches_name_what_they_cannot_mean() {
    let server = Server::default().await;
    let kubectl = server.kubectl();
    kubectl.run_with(&["create", "-f", "-"], DEPLOYMENT).await;
    let path = "/apis/apps/v1/namespaces/default/deployments/web?fieldValidation=Strict";
    let cases = [
        (
            "application/strategic-merge-patch+json",
            r#"{"spec":{"nonsense":1,"replicas":2}}"#,
            r#" "" is invalid: patch: Invalid value: "map[spec:map[nonsense:1 replicas:2]]": strict decoding error: unknown field "spec.nonsense""#,
        ),
        (
            "application/merge-patch+json",
            r#"{"spec":{"replicas":2,"replicas":3}}"#,
            r#"strict decoding error: duplicate field "spec.replicas""#,
        ),
        (
            "application/json-patch+json",
            r#"[{"op":"replace","path":"/spec/replicas","value":2,"value":3}]"#,
            r#"strict decoding error: json patch duplicate field "[0].value""#,
        ),
    ];
    for (media, patch, expected) in cases {
        let refused = server.patch(path, media, patch).await;
        assert_eq!(refused.status, 422, "{media}: {}", refused.text());
        assert!(refused.message().contains(expected), "{media}: {}", refused.message());
    }
    server.stop().await;
}
