//! What clients read about custom resources while their definitions change, and how kubectl goes by it.

use serde_json::{Value, json};

use super::{DEFINITIONS, define, fleet, serving, ship, ships, spec, version};
use crate::server::Server;

/// The names of schemas in both versions of OpenAPI: those of version 2, and those of a group version in version 3.
async fn schemas(server: &Server, version: &str) -> (Vec<String>, Option<Vec<String>>) {
    let ours = |names: &Value| -> Vec<String> {
        let all = names.as_object().into_iter().flatten().map(|(name, _)| name.clone());
        all.filter(|name| name.starts_with("com.example.") && !name.ends_with("List")).collect()
    };
    let v2 = server.get("/openapi/v2").await.json();
    let v3 = server.get(&format!("/openapi/v3/apis/harbour.example.com/{version}")).await;
    let v3 = (v3.status == 200).then(|| ours(&v3.json()["components"]["schemas"]));
    (ours(&v2["definitions"]), v3)
}

async fn change(server: &Server, change: impl Fn(&mut Value)) {
    let path = format!("{DEFINITIONS}/ships.harbour.example.com");
    let mut definition = server.get(&path).await.json();
    change(&mut definition);
    let changed = server.put(&path, &definition).await;
    assert_eq!(changed.status, 200, "{}", changed.text());
}

#[tokio::test]
async fn schemas_follow_the_versions_that_are_served() {
    let server =
        serving(&ships(json!([version("v1", true, spec(json!({}))), version("v2", false, spec(json!({})))]))).await;
    let both = ["com.example.harbour.v1.Ship", "com.example.harbour.v2.Ship"].map(str::to_owned).to_vec();
    assert_eq!(schemas(&server, "v2").await, (both.clone(), Some(vec![both[1].clone()])));
    change(&server, |definition| definition["spec"]["versions"][1]["served"] = json!(false)).await;
    let there = async {
        while schemas(&server, "v2").await != (vec![both[0].clone()], None) {
            tokio::task::yield_now().await;
        }
    };
    testkit::eventually("one version is not told of any more", there).await;
    assert_eq!(server.get(&fleet("v2")).await.status, 404);
    change(&server, |definition| {
        definition["spec"]["versions"][1]["served"] = json!(true);
        definition["spec"]["versions"][1]["name"] = json!("v3");
    })
    .await;
    let renamed = "com.example.harbour.v3.Ship".to_owned();
    let there = async {
        while schemas(&server, "v3").await != (vec![both[0].clone(), renamed.clone()], Some(vec![renamed.clone()])) {
            tokio::task::yield_now().await;
        }
    };
    testkit::eventually("it has another name", there).await;

    // Another kind, and another group.
    let mut rafts = ships(json!([version("v1", true, spec(json!({})))]));
    rafts["metadata"]["name"] = json!("rafts.harbour.example.com");
    rafts["spec"]["names"] = json!({"plural": "rafts", "singular": "raft", "kind": "Raft", "listKind": "RaftList"});
    define(&server, &rafts).await;
    let mut kites = ships(json!([version("v1", true, spec(json!({})))]));
    kites["metadata"]["name"] = json!("kites.sky.example.com");
    kites["spec"]["group"] = json!("sky.example.com");
    kites["spec"]["names"] = json!({"plural": "kites", "singular": "kite", "kind": "Kite", "listKind": "KiteList"});
    define(&server, &kites).await;
    let (all, first) = schemas(&server, "v1").await;
    assert_eq!(first, Some(vec!["com.example.harbour.v1.Raft".to_owned(), both[0].clone()]));
    assert_eq!(
        all,
        [
            "com.example.harbour.v1.Raft",
            "com.example.harbour.v1.Ship",
            "com.example.harbour.v3.Ship",
            "com.example.sky.v1.Kite"
        ]
    );
    server.stop().await;
}

#[tokio::test]
async fn kubectl_goes_by_what_is_published() {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let mut described = spec(json!({"name": {"type": "string", "description": "What it is called."}}));
    described["description"] = json!("Goes to sea.");
    described["properties"]["spec"]["required"] = json!(["name"]);
    let embedded = json!({"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}});
    let server = serving(&ships(json!([
        version("v1", true, described),
        version("v1beta1", false, embedded),
        version("v1alpha1", false, open),
    ])))
    .await;
    let kubectl = server.kubectl();
    let explained = kubectl.run(&["explain", "ships"]).await;
    assert!(explained.contains("DESCRIPTION:\n    Goes to sea."), "{explained}");
    assert!(explained.contains("APIVersion defines the versioned schema"), "{explained}");
    let field = kubectl.run(&["explain", "ships.spec.name"]).await;
    assert!(field.contains("FIELD: name <string>") && field.contains("What it is called."), "{field}");
    let manifest = |version: &str, spec: &str| {
        format!("apiVersion: harbour.example.com/{version}\nkind: Ship\nmetadata: {{name: argo}}\nspec: {spec}\n")
    };
    let missing = kubectl.output(&["create", "-f", "-"], &manifest("v1", "{}")).await;
    assert!(!missing.success && missing.stderr.contains("spec.name: Required value"), "{}", missing.stderr);
    let unknown = kubectl.output(&["create", "-f", "-"], &manifest("v1", "{name: a, odd: 1}")).await;
    assert!(!unknown.success && unknown.stderr.contains("unknown field \"spec.odd\""), "{}", unknown.stderr);
    for version in ["v1beta1", "v1alpha1"] {
        let free =
            kubectl.output(&["create", "--dry-run=server", "-f", "-"], &manifest(version, "{odd: {deeper: 1}}")).await;
        assert!(free.success, "{version}: {}", free.stderr);
    }
    server.stop().await;
}

#[tokio::test]
async fn strictness_reaches_into_what_is_embedded_and_what_is_preserved() {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
        "template": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}}}}});
    let server = serving(&ships(json!([version("v1", true, schema)]))).await;
    let path = format!("{}?fieldValidation=Strict", fleet("v1"));
    let mut odd = ship(
        "argo",
        json!({"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "odd": 1}}, "free": 1}),
    );
    odd["metadata"]["odd"] = json!(1);
    let refused = server.post(&path, &odd).await;
    assert_eq!(refused.status, 400);
    assert_eq!(
        refused.message(),
        "Ship in version \"v1\" cannot be handled as a Ship: strict decoding error: unknown field \"metadata.odd\", unknown field \"spec.template.metadata.odd\""
    );
    let twice = "apiVersion: harbour.example.com/v1\nkind: Ship\nmetadata: {name: argo}\nspec:\n  free: 1\n  free: 2\n";
    let yaml = [("content-type", "application/yaml")];
    let refused = server.send(http::Method::POST, &path, &yaml, twice).await;
    assert!(
        refused.status == 400 && refused.message().contains("key \"free\" already set in map"),
        "{}",
        refused.text()
    );
    let applied = server
        .patch(
            &format!("{}/argo?fieldManager=m&fieldValidation=Strict", fleet("v1")),
            "application/apply-patch+yaml",
            &odd.to_string(),
        )
        .await;
    assert!(applied.status >= 400 && applied.message().contains("metadata.odd"), "{}", applied.text());
    server.stop().await;
}

#[tokio::test]
async fn discovery_tells_of_custom_resources_as_upstream_does() {
    let mut v1 = version("v1", true, spec(json!({"masts": {"type": "integer"}})));
    v1["subresources"] =
        json!({"status": {}, "scale": {"specReplicasPath": ".spec.masts", "statusReplicasPath": ".status.masts"}});
    let server = serving(&ships(json!([v1]))).await;
    let accept = [("accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")];
    let all = server.send(http::Method::GET, "/apis", &accept, "").await.json();
    let groups = all["items"].as_array().expect("groups");
    let ours = groups.iter().find(|group| group["metadata"]["name"] == "harbour.example.com").expect("ours");
    let own = json!({"group": "harbour.example.com", "version": "v1", "kind": "Ship"});
    let scale = json!({"group": "autoscaling", "version": "v1", "kind": "Scale"});
    let some = json!(["get", "patch", "update"]);
    let verbs = json!(["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]);
    assert_eq!(
        ours["versions"][0]["resources"],
        json!([{
            "resource": "ships", "responseKind": own, "scope": "Namespaced", "singularResource": "ship", "verbs": verbs,
            "shortNames": ["sh"], "categories": ["fleet"], "subresources": [
                {"subresource": "status", "responseKind": own, "verbs": some},
                {"subresource": "scale", "responseKind": scale, "verbs": some},
            ],
        }])
    );
    let listed = server.get("/apis/harbour.example.com/v1").await.json();
    assert_eq!(listed["resources"][0]["verbs"], verbs);
    let document = server.get("/openapi/v3/apis/harbour.example.com/v1").await.json();
    let scaled = &document["paths"]["/apis/harbour.example.com/v1/namespaces/{namespace}/ships/{name}/scale"]["get"];
    assert_eq!(
        scaled["responses"]["200"]["content"]["application/json"]["schema"]["$ref"],
        "#/components/schemas/io.k8s.api.autoscaling.v1.Scale"
    );
    assert!(document["components"]["schemas"]["io.k8s.api.autoscaling.v1.Scale"].is_object());
    assert_eq!(scaled["x-kubernetes-group-version-kind"], own);
    server.stop().await;
}
