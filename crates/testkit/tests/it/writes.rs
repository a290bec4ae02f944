//! Creates, updates and patches: names, versions, conflicts, no-ops, defaults, dry runs, owners of fields.

use http::Method;
use serde_json::{Value, json};
use testkit::Cluster;

use crate::http::{call_as, get, merge, post, put};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test(flavor = "multi_thread")]
async fn system_fields_are_the_servers_and_names_can_be_generated() {
    let cluster = Cluster::start().await;
    let client = cluster.client();
    let wish =
        json!({"metadata": {"generateName": "web-", "uid": "mine", "deletionTimestamp": "2020-01-01T00:00:00Z"}});
    let (code, made) = post(&client, MAPS, wish).await;
    assert_eq!(code, 201);
    let metadata = &made["metadata"];
    let name = metadata["name"].as_str().unwrap();
    assert!(name.starts_with("web-") && name.len() == 9, "{name}");
    assert_ne!(metadata["uid"], "mine");
    assert!(metadata["deletionTimestamp"].is_null());
    assert!(metadata["creationTimestamp"].is_string());
    let (code, error) = post(&client, MAPS, json!({"metadata": {"name": name}})).await;
    assert_eq!(code, 409);
    assert_eq!(error["message"], format!("configmaps \"{name}\" already exists"));
    let (code, error) = post(&client, MAPS, json!({"metadata": {"name": "x", "resourceVersion": "5"}})).await;
    assert_eq!(code, 400, "{error}");
    let (code, error) = post(&client, MAPS, json!({"metadata": {"name": "Bad_Name"}})).await;
    assert_eq!((code, &error["reason"]), (422, &json!("Invalid")));
    assert_eq!(error["details"]["causes"][0]["field"], "metadata.name");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_write_conflicts_and_a_write_that_changes_nothing_takes_no_revision() {
    let cluster = Cluster::start().await;
    let client = cluster.client();
    let path = format!("{MAPS}/a");
    let (_, first) = post(&client, MAPS, json!({"metadata": {"name": "a"}, "data": {"k": "1"}})).await;
    let mut second = first.clone();
    second["data"]["k"] = json!("2");
    let (code, second) = put(&client, &path, second).await;
    assert_eq!(code, 200);
    assert_ne!(second["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    let (code, error) = put(&client, &path, first).await;
    assert_eq!(code, 409);
    assert_eq!(
        error["message"],
        "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to the latest version and try again"
    );
    let (_, same) = put(&client, &path, second.clone()).await;
    assert_eq!(same["metadata"]["resourceVersion"], second["metadata"]["resourceVersion"]);
    let (_, same) = merge(&client, &path, json!({"data": {"k": "2"}})).await;
    assert_eq!(same["metadata"]["resourceVersion"], second["metadata"]["resourceVersion"]);
    let mut other = second.clone();
    other["metadata"]["name"] = json!("b");
    assert_eq!(put(&client, &path, other).await.0, 400);
    let (code, error) = put(&client, &format!("{MAPS}/absent"), json!({"metadata": {"name": "absent"}})).await;
    assert_eq!((code, &error["message"]), (404, &json!("configmaps \"absent\" not found")));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_answers_like_the_real_thing_and_writes_nothing() {
    let cluster = Cluster::start().await;
    let client = cluster.client();
    let (code, made) = post(&client, &format!("{MAPS}?dryRun=All"), json!({"metadata": {"name": "a"}})).await;
    assert_eq!((code, &made["metadata"]["name"]), (201, &json!("a")));
    assert_eq!(get(&client, &format!("{MAPS}/a")).await.0, 404);
    let (code, _) = post(&client, &format!("{MAPS}?dryRun=Some"), json!({"metadata": {"name": "a"}})).await;
    assert_eq!(code, 422);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn status_and_spec_are_written_apart_and_intent_is_counted() {
    let cluster = Cluster::start().await;
    let client = cluster.client();
    let sets = "/apis/apps/v1/namespaces/default/deployments";
    let labels = json!({"app": "w"});
    let wish = json!({"metadata": {"name": "w"}, "status": {"replicas": 9}, "spec": {"selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let (code, made) = post(&client, sets, wish).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(made["spec"]["replicas"], 1);
    assert!(made["status"]["replicas"].is_null(), "a create says nothing about status");
    assert_eq!(made["metadata"]["generation"], 1);
    let path = format!("{sets}/w");
    let (_, after) =
        merge(&client, &format!("{path}/status"), json!({"status": {"replicas": 3}, "spec": {"replicas": 7}})).await;
    assert_eq!((&after["status"]["replicas"], &after["spec"]["replicas"]), (&json!(3), &json!(1)));
    assert_eq!(after["metadata"]["generation"], 1);
    let (_, after) = merge(&client, &path, json!({"status": {"replicas": 0}, "spec": {"replicas": 2}})).await;
    assert_eq!((&after["status"]["replicas"], &after["spec"]["replicas"]), (&json!(3), &json!(2)));
    assert_eq!(after["metadata"]["generation"], 2);
    let (_, scale) = get(&client, &format!("{path}/scale")).await;
    assert_eq!(
        (&scale["kind"], &scale["spec"]["replicas"], &scale["status"]["selector"]),
        (&json!("Scale"), &json!(2), &json!("app=w"))
    );
    let (code, scale) = merge(&client, &format!("{path}/scale"), json!({"spec": {"replicas": 5}})).await;
    assert_eq!((code, &scale["spec"]["replicas"]), (200, &json!(5)));
    assert_eq!(get(&client, &path).await.1["metadata"]["generation"], 3);
    let (code, error) = merge(&client, &format!("{path}/scale"), json!({"spec": {"replicas": -1}})).await;
    assert_eq!(code, 422, "{error}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_fields_are_refused_told_or_dropped_as_asked() {
    let cluster = Cluster::start().await;
    let client = cluster.client();
    let wish = |name: &str| json!({"metadata": {"name": name}, "dta": {"k": "v"}});
    let (code, error) = post(&client, &format!("{MAPS}?fieldValidation=Strict"), wish("a")).await;
    assert_eq!(code, 400);
    assert_eq!(
        error["message"],
        "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: unknown field \"dta\""
    );
    let (code, made) = post(&client, &format!("{MAPS}?fieldValidation=Ignore"), wish("b")).await;
    assert_eq!(code, 201);
    assert!(made["dta"].is_null());
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn appliers_own_what_they_state_and_conflict_over_what_others_own() {
    let cluster = Cluster::start().await;
    let client = cluster.client();
    let path = format!("{MAPS}/a");
    let apply = |manager: &'static str, force: bool, data: Value| {
        let (client, path) = (client.clone(), path.clone());
        async move {
            let uri = format!("{path}?fieldManager={manager}&force={force}");
            let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data});
            call_as(&client, Method::PATCH, &uri, "application/apply-patch+yaml", Some(body)).await
        }
    };
    let (code, made) = apply("one", false, json!({"k": "1", "gone": "x"})).await;
    assert_eq!(code, 201, "{made}");
    let (code, error) = apply("two", false, json!({"k": "2"})).await;
    assert_eq!(code, 409);
    assert_eq!(error["message"], "Apply failed with 1 conflict: conflict with \"one\": .data.k");
    let (code, _) = apply("two", true, json!({"k": "2"})).await;
    assert_eq!(code, 200);
    let (_, after) = apply("one", false, json!({"other": "y"})).await;
    assert_eq!(
        after["data"],
        json!({"k": "2", "other": "y"}),
        "what is no longer applied goes, what others took stays"
    );
    let (code, error) = call_as(&client, Method::PATCH, &path, "application/apply-patch+yaml", Some(json!({}))).await;
    assert_eq!(code, 422, "{error}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn services_get_addresses_and_ports_that_nobody_else_has() {
    let cluster = Cluster::start().await;
    let client = cluster.client();
    let services = "/api/v1/namespaces/default/services";
    let wish =
        |name: &str, kind: &str| json!({"metadata": {"name": name}, "spec": {"type": kind, "ports": [{"port": 80}]}});
    let (code, first) = post(&client, services, wish("a", "NodePort")).await;
    assert_eq!(code, 201, "{first}");
    let ip = first["spec"]["clusterIP"].as_str().unwrap().to_owned();
    let port = first["spec"]["ports"][0]["nodePort"].as_i64().unwrap();
    assert!(ip.starts_with("10.96.") && (30000..=32767).contains(&port));
    let mut taken = wish("b", "NodePort");
    taken["spec"]["clusterIP"] = json!(ip);
    let (code, error) = post(&client, services, taken).await;
    assert_eq!(code, 422);
    assert_eq!(
        error["message"],
        format!(
            "Service \"b\" is invalid: spec.clusterIPs: Invalid value: [\"{ip}\"]: failed to allocate IP {ip}: provided IP is already allocated"
        )
    );
    let mut taken = wish("b", "NodePort");
    taken["spec"]["ports"][0]["nodePort"] = json!(port);
    let (code, error) = post(&client, services, taken).await;
    assert_eq!(code, 422);
    assert_eq!(
        error["message"],
        format!(
            "Service \"b\" is invalid: spec.ports[0].nodePort: Invalid value: {port}: provided port is already allocated"
        )
    );
    let (code, _) = crate::http::delete(&client, &format!("{services}/a"), None).await;
    assert_eq!(code, 200);
    let mut again = wish("c", "NodePort");
    again["spec"]["clusterIP"] = json!(ip);
    again["spec"]["ports"][0]["nodePort"] = json!(port);
    let (code, made) = post(&client, services, again).await;
    assert_eq!(code, 201, "what a deleted Service held is free again: {made}");
    cluster.stop().await;
}
