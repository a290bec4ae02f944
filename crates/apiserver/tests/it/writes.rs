//! What writes have in common, whatever they write: names, kinds, system fields, the answers to deletions, and the shapes of
//! answers that there are not. Codes and texts are upstream's.

use http::Method;
use serde_json::{Value, json};

use crate::server::Server;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const JSON: &str = "application/json-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

async fn with_map() -> Server {
    let server = Server::default().await;
    let made = server.post(MAPS, &json!({"metadata": {"name": "a"}, "data": {"k": "v"}})).await;
    assert_eq!(made.status, 201, "{}", made.text());
    server
}

#[tokio::test]
async fn a_write_says_the_name_of_what_it_changes() {
    let server = with_map().await;
    let nameless = "the name of the object (a based on URL) was undeterminable: name must be provided";
    let put = server.put(&format!("{MAPS}/a"), &json!({"data": {}})).await;
    assert_eq!((put.status, put.json()["message"].as_str()), (400, Some(nameless)));
    for (media, patch) in [
        (MERGE, r#"{"metadata": {"name": null}}"#),
        (MERGE, r#"{"metadata": null}"#),
        (STRATEGIC, r#"{"metadata": {"name": null}}"#),
        (JSON, r#"[{"op": "remove", "path": "/metadata/name"}]"#),
    ] {
        let patched = server.patch(&format!("{MAPS}/a"), media, patch).await;
        assert_eq!((patched.status, patched.json()["message"].as_str()), (400, Some(nameless)), "{patch}");
    }
    let configuration = r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}"#;
    let live = server.patch(&format!("{MAPS}/a?fieldManager=m"), APPLY, configuration).await;
    assert_eq!(live.status, 200, "the live object has a name: {}", live.text());
    let new = server.patch(&format!("{MAPS}/b?fieldManager=m"), APPLY, configuration).await;
    assert_eq!(new.json()["message"], nameless.replace("(a ", "(b "));
    server.stop().await;
}

#[tokio::test]
async fn a_patch_does_not_make_another_kind_of_an_object() {
    let server = with_map().await;
    let at = format!("{MAPS}/a?dryRun=All");
    let odd = "no kind \"x\" is registered for version \"v1\" in scheme \"pkg/api/legacyscheme/scheme.go:30\"";
    for (media, patch, why) in [
        (MERGE, r#"{"kind": "x"}"#, odd),
        (JSON, r#"[{"op": "replace", "path": "/kind", "value": "x"}]"#, odd),
        (MERGE, r#"{"kind": "Secret"}"#, "converting (v1.Secret) to (core.ConfigMap): unknown conversion"),
        (MERGE, r#"{"apiVersion": "a/b/c"}"#, "unexpected GroupVersion string: a/b/c"),
        (STRATEGIC, r#"{"kind": 5}"#, "\"map[kind:5]\": cannot convert int64 to string"),
    ] {
        let refused = server.patch(&at, media, patch).await;
        assert_eq!(refused.status, 422, "{patch}: {}", refused.text());
        let message = refused.json()["message"].as_str().unwrap_or_default().to_owned();
        assert!(message.starts_with(" \"\" is invalid: patch: Invalid value: ") && message.ends_with(why), "{message}");
    }
    let read_as_what_it_patches = server.patch(&at, STRATEGIC, r#"{"kind": "x"}"#).await;
    assert_eq!(read_as_what_it_patches.json()["kind"], "ConfigMap");
    server.stop().await;
}

#[tokio::test]
async fn system_fields_are_the_servers() {
    let server = with_map().await;
    let metadata = json!({
        "name": "b", "uid": "x", "generation": 7, "creationTimestamp": "2020-01-01T00:00:00Z", "selfLink": "x",
        "deletionTimestamp": "2020-01-01T00:00:00Z", "deletionGracePeriodSeconds": 3, "resourceVersion": "odd",
    });
    let made = server.post(MAPS, &json!({"metadata": metadata, "data": {"k": "v"}})).await.json();
    assert_ne!(made["metadata"]["uid"], "x");
    assert_ne!(made["metadata"]["creationTimestamp"], "2020-01-01T00:00:00Z");
    assert!(made["metadata"]["generation"].is_null(), "a kind without generations has none: {made}");
    assert!(made["metadata"]["deletionTimestamp"].is_null() && made["metadata"]["selfLink"].is_null(), "{made}");
    let owned = &made["metadata"]["managedFields"][0]["fieldsV1"];
    assert_eq!(owned, &json!({"f:data": {".": {}, "f:k": {}}}), "nobody is recorded as the author of these");
    let versioned = server.post(MAPS, &json!({"metadata": {"name": "c", "resourceVersion": "5"}})).await;
    assert_eq!(versioned.json()["message"], "resourceVersion should not be set on objects to be created");
    let at = format!("{MAPS}/a");
    for (patch, message) in [
        (
            r#"{"metadata": {"uid": "x"}}"#,
            "ConfigMap \"a\" is invalid: metadata.uid: Invalid value: \"x\": field is immutable",
        ),
        (
            r#"{"metadata": {"deletionTimestamp": "2020-01-01T00:00:00Z"}}"#,
            "ConfigMap \"a\" is invalid: metadata.deletionTimestamp: Invalid value: \"2020-01-01T00:00:00Z\": field is immutable",
        ),
        (
            r#"{"metadata": {"deletionGracePeriodSeconds": 1}}"#,
            "ConfigMap \"a\" is invalid: metadata.deletionGracePeriodSeconds: Invalid value: 1: field is immutable",
        ),
        (r#"{"metadata": {"resourceVersion": "odd"}}"#, "strconv.ParseUint: parsing \"odd\": invalid syntax"),
        (
            r#"{"metadata": {"resourceVersion": "99999999999999999999"}}"#,
            "strconv.ParseUint: parsing \"99999999999999999999\": value out of range",
        ),
    ] {
        assert_eq!(server.patch(&at, MERGE, patch).await.json()["message"], message);
    }
    let ignored = r#"{"metadata": {"uid": null, "creationTimestamp": null, "generation": 9}}"#;
    let same = server.patch(&at, MERGE, ignored).await.json();
    assert!(same["metadata"]["generation"].is_null() && !same["metadata"]["uid"].is_null(), "{same}");
    server.stop().await;
}

/// A number that cannot be counted on would be in the way of everything that comes after, the namespace's end above all.
#[tokio::test]
async fn a_namespace_with_a_generation_of_its_own_can_be_deleted() {
    let server = Server::default().await;
    let metadata = json!({"name": "odd", "generation": i64::MAX});
    let made = server.post("/api/v1/namespaces", &json!({"metadata": metadata})).await;
    assert_eq!(made.status, 201, "{}", made.text());
    assert!(made.json()["metadata"]["generation"].is_null(), "{}", made.text());
    let at = "/api/v1/namespaces/odd";
    let going = server.send(Method::DELETE, at, &[], "").await;
    assert_eq!((going.status, going.json()["status"]["phase"].as_str()), (200, Some("Terminating")));
    let mut last = going.json();
    last["spec"]["finalizers"] = json!([]);
    let gone = server.put(&format!("{at}/finalize"), &last).await;
    assert_eq!(gone.status, 200, "{}", gone.text());
    assert_eq!(server.get(at).await.status, 404);
    server.stop().await;
}

#[tokio::test]
async fn a_deletion_shows_the_pod_on_its_way() {
    let server = Server::default().await;
    let pods = "/api/v1/namespaces/default/pods";
    let account = json!({"metadata": {"name": "default"}});
    server.post("/api/v1/namespaces/default/serviceaccounts", &account).await;
    for (name, query) in [("a", "?dryRun=All"), ("a", "")] {
        let pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        server.post(pods, &pod).await;
        let gone = server.send(Method::DELETE, &format!("{pods}/{name}{query}"), &[], "").await.json();
        let metadata = &gone["metadata"];
        assert_eq!(
            (&metadata["deletionGracePeriodSeconds"], &metadata["generation"]),
            (&json!(0), &json!(2)),
            "{gone}"
        );
        assert!(metadata["deletionTimestamp"].is_string(), "{gone}");
    }
    server.post(MAPS, &json!({"metadata": {"name": "held", "finalizers": ["example.com/x"]}})).await;
    server.send(Method::DELETE, &format!("{MAPS}/held"), &[], "").await;
    let last = server.patch(&format!("{MAPS}/held"), MERGE, r#"{"metadata": {"finalizers": null}}"#).await.json();
    assert!(last["metadata"]["finalizers"].is_null(), "what removes the last finalizer shows it removed: {last}");
    assert_eq!(server.get(&format!("{MAPS}/held")).await.status, 404);
    server.stop().await;
}

#[tokio::test]
async fn one_object_has_no_shape_of_a_list_and_the_other_way_round() {
    let server = with_map().await;
    let ask = async |method: Method, path: &str, kind: &str, body: &str| {
        let accept = format!("application/json;as={kind};g=meta.k8s.io;v=v1,application/json");
        server.send(method, path, &[("accept", &accept), ("content-type", "application/json")], body).await
    };
    let one = format!("{MAPS}/a");
    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let asked = r#"{"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}"#;
    let no_list = "you requested PartialObjectMetadataList, but the requested object is not a list";
    for (method, path, kind, body, message) in [
        (
            Method::GET,
            MAPS,
            "PartialObjectMetadata",
            "",
            "you requested PartialObjectMetadata, but the requested object is a list (*core.ConfigMapList)".to_owned(),
        ),
        (Method::GET, &one, "PartialObjectMetadataList", "", format!("{no_list} (*core.ConfigMap)")),
        (
            Method::POST,
            reviews,
            "PartialObjectMetadataList",
            asked,
            format!("{no_list} (*authorization.SelfSubjectAccessReview)"),
        ),
    ] {
        let refused = ask(method, path, kind, body).await;
        assert_eq!(refused.status, 406, "{path} as {kind}: {}", refused.text());
        let told = refused.json();
        assert_eq!((told["reason"].as_str(), told["message"].as_str()), (Some("NotAcceptable"), Some(&*message)));
    }
    let list = ask(Method::GET, MAPS, "PartialObjectMetadataList", "").await.json();
    assert_eq!(list["items"][0]["kind"], "PartialObjectMetadata");
    let review = ask(Method::POST, reviews, "PartialObjectMetadata", asked).await.json();
    assert_eq!(review["kind"], "PartialObjectMetadata");
    // Nothing is kept of a review, so it has no table; those who would rather have that take what else they named.
    assert_eq!(ask(Method::POST, reviews, "Table", asked).await.json()["kind"], "SelfSubjectAccessReview");
    let only = [("accept", "application/json;as=Table;g=meta.k8s.io;v=v1"), ("content-type", "application/json")];
    assert_eq!(server.send(Method::POST, reviews, &only, asked).await.status, 406);
    let components = ask(Method::GET, "/api/v1/componentstatuses", "PartialObjectMetadataList", "").await.json();
    assert_eq!(components["items"][0]["kind"], "PartialObjectMetadata", "{components}");
    let table = ask(Method::GET, "/api/v1/componentstatuses", "Table", "").await.json();
    assert_eq!((&table["kind"], &table["columnDefinitions"][0]["name"]), (&json!("Table"), &json!("Name")), "{table}");
    server.stop().await;
}

#[tokio::test]
async fn an_evicted_pod_says_so() {
    let server = Server::default().await;
    let pods = "/api/v1/namespaces/default/pods";
    for name in ["a", "b"] {
        // Pods on a node are gone when its kubelet says so.
        let pod =
            json!({"metadata": {"name": name}, "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}});
        assert_eq!(server.post(pods, &pod).await.status, 201);
    }
    let evict = async |name: &str, options: Value| {
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, "deleteOptions": options});
        server.post(&format!("{pods}/{name}/eviction"), &eviction).await
    };
    let get = async |name: &str| server.get(&format!("{pods}/{name}")).await.json();
    let before = get("a").await;
    assert_eq!(evict("a", json!({"dryRun": ["All"]})).await.status, 201);
    assert_eq!(get("a").await, before);
    let refused = evict("a", json!({"preconditions": {"resourceVersion": "1"}})).await;
    let version = before["metadata"]["resourceVersion"].as_str().expect("a version");
    let why = format!(
        "Operation cannot be fulfilled on Pod \"a\": the ResourceVersion in the precondition (1) does not match the ResourceVersion in record ({version}). The object might have been modified"
    );
    assert_eq!((refused.status, refused.message()), (409, why));
    assert_eq!(get("a").await, before);
    // The mark that it sets itself is no reason to refuse.
    for (name, options) in
        [("a", json!({"preconditions": {"resourceVersion": version}})), ("b", json!({})), ("b", json!({}))]
    {
        let evicted = evict(name, options).await;
        assert_eq!(evicted.status, 201, "{}", evicted.text());
        let pod = get(name).await;
        assert!(pod["metadata"]["deletionTimestamp"].is_string());
        let conditions: Vec<Value> = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let marks: Vec<_> = conditions.iter().filter(|condition| condition["type"] == "DisruptionTarget").collect();
        let [mark] = *marks else { panic!("one mark: {pod}") };
        assert_eq!((&mark["status"], &mark["reason"]), (&json!("True"), &json!("EvictionByEvictionAPI")));
        assert_eq!(mark["message"], "Eviction API: evicting");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_review_is_read_as_any_new_object_is() {
    let server = Server::default().await;
    let at = "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews";
    let asks = json!({"user": "x", "resourceAttributes": {"namespace": "default", "verb": "get", "resource": "pods"}});
    let made = server.post(&format!("{at}?fieldManager=m"), &json!({"spec": asks})).await.json();
    let record = &made["metadata"]["managedFields"][0];
    let fields = json!({"f:spec": {
        "f:resourceAttributes": {".": {}, "f:namespace": {}, "f:resource": {}, "f:verb": {}}, "f:user": {},
    }});
    assert_eq!((&record["manager"], &record["fieldsV1"]), (&json!("m"), &fields), "{made}");
    let elsewhere = server.post(at, &json!({"metadata": {"namespace": "other"}, "spec": asks})).await;
    let message = "the namespace of the provided object does not match the namespace sent on the request";
    assert_eq!((elsewhere.status, elsewhere.json()["message"].as_str()), (400, Some(message)));
    let typo = json!({"spec": {"user": "x", "resourceAttribute": {}}});
    let strict = server.post(&format!("{at}?fieldValidation=Strict"), &typo).await;
    let message = "LocalSubjectAccessReview in version \"v1\" cannot be handled as a LocalSubjectAccessReview: strict decoding error: unknown field \"spec.resourceAttribute\"";
    assert_eq!(strict.json()["message"], message);
    let rules = server
        .post("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", &json!({"spec": {"namespace": "default"}}))
        .await
        .json();
    assert_eq!(rules["metadata"], json!({}), "a list of rules is an object of its own");
    server.stop().await;
}

#[tokio::test]
async fn a_dry_run_shows_that_ports_would_be_found() {
    let server = Server::default().await;
    let services = "/api/v1/namespaces/default/services?dryRun=All";
    let service = json!({"metadata": {"name": "s"}, "spec": {
        "type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}],
    }});
    let shown = server.post(services, &service).await.json();
    let ports = [&shown["spec"]["ports"][0]["nodePort"], &shown["spec"]["ports"][1]["nodePort"]];
    assert_eq!(
        (ports, &shown["spec"]["healthCheckNodePort"]),
        ([&json!(32769), &json!(32770)], &json!(32771)),
        "{shown}"
    );
    server.stop().await;
}

#[tokio::test]
async fn an_update_names_the_version_it_is_of_where_the_kind_wants_that() {
    let server = Server::default().await;
    let classes = "/apis/node.k8s.io/v1/runtimeclasses";
    let class = json!({"metadata": {"name": "a"}, "handler": "h"});
    assert_eq!(server.post(classes, &class).await.status, 201);
    let refused = server.put(&format!("{classes}/a"), &class).await;
    let message = "runtimeclasses.node.k8s.io \"a\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update";
    assert_eq!((refused.status, refused.message().as_str()), (422, message));
    server.stop().await;
}

/// What admission adds to a pod, it adds to the pod that replaces it as well.
#[tokio::test]
async fn a_pod_can_be_replaced_by_the_manifest_it_was_made_of() {
    let server = Server::default().await;
    let pods = "/api/v1/namespaces/default/pods";
    let mut pod = json!({"metadata": {"name": "a"}, "spec": {
        "serviceAccountName": "default", "automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i:1"}],
    }});
    assert_eq!(server.post(pods, &pod).await.status, 201);
    pod["spec"]["containers"][0]["image"] = json!("i:2");
    let replaced = server.put(&format!("{pods}/a"), &pod).await;
    assert_eq!(replaced.status, 200, "{}", replaced.text());
    assert_eq!(replaced.json()["spec"]["tolerations"].as_array().map(Vec::len), Some(2));
    pod["spec"]["containers"][0]["name"] = json!("other");
    let refused = server.put(&format!("{pods}/a"), &pod).await.message();
    let shown = "-   \"Name\": \"c\",\n+   \"Name\": \"other\",\n";
    assert!(refused.contains("pod updates may not change fields other than") && refused.contains(shown), "{refused}");
    server.stop().await;
}

/// What a check finds twice, its client reads once, in the message and among the causes.
#[tokio::test]
async fn a_thing_is_said_once() {
    let server = Server::default().await;
    let container = json!({"name": "c", "image": "i", "resizePolicy": [{}, {}]});
    let pod =
        json!({"metadata": {"name": "p"}, "spec": {"containers": [container], "automountServiceAccountToken": false}});
    let refused = server.post("/api/v1/namespaces/default/pods", &pod).await;
    assert_eq!(
        refused.message(),
        "Pod \"p\" is invalid: [spec.containers[0].resizePolicy: Required value, spec.containers[0].resizePolicy[1]: Duplicate value: \"\"]"
    );
    assert_eq!(refused.json()["details"]["causes"].as_array().map(Vec::len), Some(2), "{}", refused.text());
    server.stop().await;
}

/// A name that came with a prefix is taken for one that was made of it.
#[tokio::test]
async fn a_taken_name_with_a_prefix_asks_to_try_again() {
    let server = with_map().await;
    let refused = server.post(MAPS, &json!({"metadata": {"name": "a", "generateName": "x-"}})).await;
    let message = "configmaps \"a\" already exists, the server was not able to generate a unique name for the object";
    assert_eq!((refused.status, refused.message().as_str()), (409, message));
    assert_eq!(refused.json()["details"]["retryAfterSeconds"], 1);
    server.stop().await;
}

/// What every new object must have right, every change must; and a finalizer needs a domain where upstream wants one.
#[tokio::test]
async fn metadata_is_checked_whole_when_it_changes() {
    let server = with_map().await;
    let change = |finalizer: &str| json!({"metadata": {"name": "a", "finalizers": [finalizer], "labels": {"a": "-"}}});
    let refused = server.put(&format!("{MAPS}/a"), &change("A b/c")).await;
    let causes = refused.json()["details"]["causes"].clone();
    let fields: Vec<&str> =
        causes.as_array().into_iter().flatten().filter_map(|cause| cause["field"].as_str()).collect();
    assert_eq!(fields, ["metadata.labels", "metadata.finalizers"], "{}", refused.text());
    let plain = json!({"metadata": {"name": "a", "finalizers": ["bad"]}});
    let refused = server.put(&format!("{MAPS}/a"), &plain).await;
    assert_eq!(
        refused.message(),
        "ConfigMap \"a\" is invalid: metadata.finalizers[0]: Invalid value: \"bad\": name is neither a standard finalizer name nor is it fully qualified"
    );
    let budget = json!({"metadata": {"name": "b", "finalizers": ["bad"]}, "spec": {"maxUnavailable": 1}});
    let made = server.post("/apis/policy/v1/namespaces/default/poddisruptionbudgets", &budget).await;
    assert_eq!(made.status, 201, "{}", made.text());
    server.stop().await;
}

#[tokio::test]
async fn an_event_is_spoken_of_in_the_group_it_is_asked_for_in() {
    let server = Server::default().await;
    let events = "/apis/events.k8s.io/v1/namespaces/default/events";
    let event = json!({"metadata": {"name": "e"}, "regarding": {"namespace": "default"}, "eventTime": "2024-01-01T00:00:00.000000Z",
        "reportingController": "a.b/c", "reportingInstance": "i", "action": "a", "reason": "r", "type": "Normal"});
    assert_eq!(server.post(events, &event).await.status, 201);
    assert_eq!(server.post(events, &event).await.message(), "events.events.k8s.io \"e\" already exists");
    assert_eq!(server.get(&format!("{events}/x")).await.message(), "events.events.k8s.io \"x\" not found");
    assert_eq!(server.get("/api/v1/namespaces/default/events/x").await.message(), "events \"x\" not found");
    server.stop().await;
}

#[tokio::test]
async fn every_line_that_yaml_says_twice_is_a_warning() {
    let server = Server::default().await;
    let body = "metadata:\n  name: y\n  name: z\ndata: {}\ndata: {}\n";
    let made = server.send(Method::POST, MAPS, &[("content-type", "application/yaml")], body).await;
    assert_eq!(made.status, 201, "{}", made.text());
    assert_eq!(made.warnings(), ["line 3: key \"name\" already set in map", "line 5: key \"data\" already set in map"]);
    server.stop().await;
}

/// A dry run imagines that it got the address it asks for; a port it looks for.
#[tokio::test]
async fn a_dry_run_does_not_ask_who_has_an_address() {
    let server = Server::default().await;
    let services = "/api/v1/namespaces/default/services";
    let service = |name: &str, address: &serde_json::Value| json!({"metadata": {"name": name}, "spec": {"clusterIP": address, "ports": [{"port": 80}]}});
    let made = server.post(services, &service("a", &serde_json::Value::Null)).await.json();
    let address = &made["spec"]["clusterIP"];
    let shown = server.post(&format!("{services}?dryRun=All"), &service("b", address)).await;
    assert_eq!((shown.status, &shown.json()["spec"]["clusterIP"]), (201, address));
    let refused = server.post(services, &service("b", address)).await;
    assert!(refused.message().contains("provided IP is already allocated"), "{}", refused.text());
    let beyond =
        json!({"metadata": {"name": "c"}, "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": 70000}]}});
    let shown = server.post(&format!("{services}?dryRun=All"), &beyond).await;
    assert_eq!((shown.status, &shown.json()["spec"]["ports"][0]["nodePort"]), (201, &json!(70000)), "{}", shown.text());
    assert_eq!(server.post(services, &beyond).await.status, 422);
    server.stop().await;
}

/// Whose object it is counts before which version of it.
#[tokio::test]
async fn an_update_of_another_object_of_the_name_is_told_so() {
    let server = with_map().await;
    let refused =
        server.put(&format!("{MAPS}/a"), &json!({"metadata": {"name": "a", "uid": "x", "resourceVersion": "1"}})).await;
    assert_eq!(refused.status, 409);
    assert!(refused.message().contains("Precondition failed: UID in precondition: x"), "{}", refused.text());
    server.stop().await;
}

/// A job gets the labels of its pods where it has none, and its author is said to have written what the template says.
#[tokio::test]
async fn a_job_is_labelled_like_its_pods() {
    let server = Server::default().await;
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let template = json!({"metadata": {"labels": {"app": "x"}}, "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let made = server.post(jobs, &json!({"metadata": {"name": "j"}, "spec": {"template": template}})).await.json();
    assert_eq!(made["metadata"]["labels"], made["spec"]["template"]["metadata"]["labels"], "{made}");
    assert_eq!(made["metadata"]["labels"]["job-name"], "j");
    let record = &made["metadata"]["managedFields"][0]["fieldsV1"]["f:metadata"]["f:labels"];
    assert_eq!(*record, json!({".": {}, "f:app": {}}), "{made}");
    let own = json!({"metadata": {"name": "k", "labels": {"app": "x"}}, "spec": {"template": template}});
    let made = server.post(jobs, &own).await.json();
    assert_eq!(made["metadata"]["labels"], json!({"app": "x"}));
    server.stop().await;
}

#[tokio::test]
async fn component_statuses_are_spoken_of_as_upstream_does() {
    let server = Server::default().await;
    let at = "/api/v1/componentstatuses";
    let listed = server.get(at).await;
    assert_eq!(listed.warnings(), ["v1 ComponentStatus is deprecated in v1.19+"]);
    assert_eq!(listed.json()["items"][0].get("kind"), None, "{}", listed.text());
    assert_eq!(server.get(&format!("{at}/etcd-0")).await.json()["kind"], "ComponentStatus");
    let none = server.get(&format!("{at}/nope")).await;
    assert_eq!((none.status, none.message().as_str()), (404, "componentstatus \"nope\" not found"));
    let refused = server.put(&format!("{at}/etcd-0"), &json!({})).await;
    assert_eq!((refused.status, refused.warnings().len()), (405, 0), "there is nothing to be warned of");
    server.stop().await;
}

#[tokio::test]
async fn a_part_that_does_not_run_is_unhealthy() {
    let parts = std::sync::Arc::<apiserver::components::Parts>::default();
    let server = Server::start(|config, _| config.parts = parts.clone()).await;
    let told =
        async |name: &str| server.get(&format!("/api/v1/componentstatuses/{name}")).await.json()["conditions"].clone();
    let healthy = json!([{"type": "Healthy", "status": "True", "message": "ok"}]);
    parts.runs("kube-scheduler");
    parts.failed("kube-controller-manager", "kube-controller-manager failed: on purpose");
    assert_eq!(told("scheduler").await, healthy);
    assert_eq!(told("etcd-0").await, healthy);
    let failed =
        json!([{"type": "Healthy", "status": "False", "message": "kube-controller-manager failed: on purpose"}]);
    assert_eq!(told("controller-manager").await, failed);
    let listed = server.kubectl().run(&["get", "cs", "--no-headers"]).await;
    assert!(
        listed.lines().any(|line| line.starts_with("controller-manager") && line.contains("Unhealthy")),
        "{listed}"
    );
    assert!(listed.lines().any(|line| line.starts_with("scheduler") && line.contains("Healthy")), "{listed}");
    parts.runs("kube-controller-manager");
    assert_eq!(told("controller-manager").await, healthy);
    server.stop().await;
}

#[tokio::test]
async fn numbers_without_quotes_are_what_their_text_says() {
    let server = Server::default().await;
    let volumes = "/api/v1/persistentvolumes";
    let volume = |number: &str| {
        format!(
            r#"{{"metadata": {{"generateName": "a-"}}, "spec": {{"accessModes": ["ReadWriteOnce"],
                "capacity": {{"storage": {number}}}, "hostPath": {{"path": "/a"}}}}}}"#
        )
    };
    let json = [("content-type", "application/json")];
    for (number, kept) in [("1e1000", "10e999"), ("123456789012345678901234567890", "123456789012345678901234567890")] {
        let made = server.send(Method::POST, volumes, &json, volume(number)).await;
        assert_eq!((made.status, &made.json()["spec"]["capacity"]["storage"]), (201, &json!(kept)), "{}", made.text());
    }
    let deployment = r#"{"spec": {"replicas": 1e1000}}"#;
    let refused = server.send(Method::POST, "/apis/apps/v1/namespaces/default/deployments", &json, deployment).await;
    let why = "Deployment in version \"v1\" cannot be handled as a Deployment: json: cannot unmarshal number 1e1000 into Go struct field DeploymentSpec.spec.replicas of type int32";
    assert_eq!((refused.status, refused.json()["message"].as_str()), (400, Some(why)));
}
