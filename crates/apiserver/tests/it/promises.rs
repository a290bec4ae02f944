//! What upstream's conformance suite asks of the API and no other test here tells: each as one short story.

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
    ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service, ServiceAccount};
use k8s_openapi::api::node::v1::RuntimeClass;
use serde_json::{Value, json};
use testkit::build::{config_map, deployment, pod};

use client::{DeleteOptions, ListParams, Patch};

use crate::server::Server;
use crate::webhooks::{Hook, Temper, mutating, settle, typed, validating};

const MERGE: &str = "application/merge-patch+json";

#[tokio::test]
async fn a_budget_holds_an_eviction_until_it_allows_one() {
    let server = Server::default().await;
    let pods = "/api/v1/namespaces/default/pods";
    let guarded = json!({"metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}});
    assert_eq!(server.post(pods, &guarded).await.status, 201);
    let ready = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    assert_eq!(server.patch(&format!("{pods}/web/status"), MERGE, &ready.to_string()).await.status, 200);
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let budget =
        json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}});
    assert_eq!(server.post(budgets, &budget).await.status, 201);
    let counted = async |allowed: i32| {
        let status = json!({"status": {"observedGeneration": 1, "currentHealthy": 1, "desiredHealthy": 1,
            "expectedPods": 1, "disruptionsAllowed": allowed}});
        let patched = server.patch(&format!("{budgets}/b/status"), MERGE, &status.to_string()).await;
        assert_eq!(patched.status, 200, "{}", patched.text());
        settle(&server).await;
    };
    let evict = async || {
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web"}});
        server.post(&format!("{pods}/web/eviction"), &eviction).await
    };
    counted(0).await;
    let refused = evict().await;
    assert_eq!(refused.status, 429, "{}", refused.text());
    assert_eq!(refused.message(), "Cannot evict pod as it would violate the pod's disruption budget.");
    counted(1).await;
    let evicted = evict().await;
    assert_eq!(evicted.status, 201, "{}", evicted.text());
    let budget = server.get(&format!("{budgets}/b")).await.json();
    assert_eq!(budget["status"]["disruptionsAllowed"].as_i64().unwrap_or(0), 0, "what it allowed is used up");
    assert!(budget["status"]["disruptedPods"]["web"].is_string(), "{budget}");
    server.stop().await;
}

/// What a webhook is asked follows every change of its configuration.
#[tokio::test]
async fn webhooks_follow_their_configuration() {
    let server = Server::default().await;
    let admin = server.admin();
    let rules = |operation: &str| json!([{"operations": [operation], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]);
    let refusing = Hook::start(Temper::Deny).await;
    validating(&server, "v", refusing.webhook(json!({"rules": rules("CREATE")}))).await;
    admin.create(&config_map("a", "k", "v")).await.expect_err("refused");
    let other = Patch::Json(json!([{"op": "replace", "path": "/webhooks/0/rules/0/operations", "value": ["UPDATE"]}]));
    let mut changed: ValidatingWebhookConfiguration = admin.patch("", "v", &other).await.expect("patched");
    settle(&server).await;
    admin.create(&config_map("a", "k", "v")).await.expect("nobody is asked about creations");
    changed.webhooks.as_mut().expect("webhooks")[0].rules = Some(typed(rules("CREATE")));
    changed.metadata.labels = Some([("set".to_owned(), "one".to_owned())].into());
    admin.update(&changed).await.expect("updated");
    settle(&server).await;
    admin.create(&config_map("b", "k", "v")).await.expect_err("refused again");
    let set = ListParams { label_selector: "set=one".to_owned(), ..ListParams::default() };
    assert_eq!(admin.list::<ValidatingWebhookConfiguration>("", &set).await.expect("a list").items.len(), 1);
    let all = DeleteOptions::default();
    admin.delete_collection::<ValidatingWebhookConfiguration>("", &set, &all).await.expect("deleted");
    settle(&server).await;
    admin.create(&config_map("b", "k", "v")).await.expect("nobody is asked any more");

    let marking = Hook::start(Temper::Mark("x")).await;
    mutating(&server, marking.webhook(json!({"rules": rules("CREATE")}))).await;
    let marked = async |name: &str| {
        let made: ConfigMap = admin.create(&config_map(name, "k", "v")).await.expect("a map");
        made.metadata.annotations.is_some_and(|notes| notes["seen"] == "x")
    };
    assert!(marked("c").await);
    let mut changed: MutatingWebhookConfiguration = admin.patch("", "m", &other).await.expect("patched");
    settle(&server).await;
    assert!(!marked("d").await);
    changed.webhooks.as_mut().expect("webhooks")[0].rules = Some(typed(rules("CREATE")));
    changed.metadata.labels = Some([("set".to_owned(), "one".to_owned())].into());
    admin.update(&changed).await.expect("updated");
    settle(&server).await;
    assert!(marked("e").await);
    assert_eq!(admin.list::<MutatingWebhookConfiguration>("", &set).await.expect("a list").items.len(), 1);
    admin.delete_collection::<MutatingWebhookConfiguration>("", &set, &all).await.expect("deleted");
    settle(&server).await;
    assert!(!marked("f").await);
    server.stop().await;
}

#[tokio::test]
async fn webhooks_keep_people_out_of_pods_and_conditions_must_compile() {
    let server = Server::default().await;
    let admin = server.admin();
    admin.create(&pod("web")).await.expect("a pod");
    let hook = Hook::start(Temper::Deny).await;
    let rules =
        json!([{"operations": ["CONNECT"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/attach"]}]);
    validating(&server, "v", hook.webhook(json!({"rules": rules}))).await;
    let refused = server.kubectl().fail(&["attach", "web", "-i"]).await;
    assert!(refused.contains("denied the request: not today"), "{refused}");
    let odd = hook.webhook(json!({"matchConditions": [{"name": "odd", "expression": "... [] bad expression"}]}));
    let both = json!({"metadata": {"name": "odd"}, "webhooks": [odd]});
    let why =
        "webhooks[0].matchConditions[0].expression: Invalid value: \"... [] bad expression\": compilation failed: ";
    let refused = admin.create(&typed::<ValidatingWebhookConfiguration>(both.clone())).await.expect_err("refused");
    assert!(refused.code() == Some(422) && refused.to_string().contains(why), "{refused}");
    let refused = admin.create(&typed::<MutatingWebhookConfiguration>(both)).await.expect_err("refused");
    assert!(refused.code() == Some(422) && refused.to_string().contains(why), "{refused}");
    server.stop().await;
}

#[tokio::test]
async fn policies_may_name_what_they_compute() {
    let server = Server::default().await;
    let admin = server.admin();
    let rules =
        json!([{"operations": ["CREATE"], "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"]}]);
    let policy = json!({"metadata": {"name": "p"}, "spec": {
        "matchConstraints": {"resourceRules": rules},
        "variables": [{"name": "replicas", "expression": "object.spec.replicas"},
            {"name": "oddReplicas", "expression": "variables.replicas % 2 == 1"}],
        "validations": [{"expression": "variables.replicas > 1"}, {"expression": "variables.oddReplicas"}]}});
    let binding = json!({"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}});
    admin.create(&typed::<ValidatingAdmissionPolicy>(policy)).await.expect("a policy");
    admin.create(&typed::<ValidatingAdmissionPolicyBinding>(binding)).await.expect("a binding");
    settle(&server).await;
    for (replicas, failed) in [(1, "variables.replicas > 1"), (4, "variables.oddReplicas")] {
        let refused = admin.create(&deployment("web", replicas)).await.expect_err("refused").to_string();
        assert!(refused.ends_with(&format!("failed expression: {failed}")), "{refused}");
    }
    admin.create(&deployment("web", 3)).await.expect("odd and more than one");
    server.stop().await;
}

#[tokio::test]
async fn a_pods_runtime_class_is_there_and_says_what_it_costs() {
    let server = Server::default().await;
    let admin = server.admin();
    let class = |name: &str, more: Value| -> RuntimeClass {
        let mut class = json!({"metadata": {"name": name}, "handler": "runc"});
        class.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
        typed(class)
    };
    let overhead = json!({"podFixed": {"cpu": "10m", "memory": "1Mi"}});
    admin.create(&class("dear", json!({"overhead": overhead}))).await.expect("a class");
    admin.create(&class("free", json!({}))).await.expect("a class");
    settle(&server).await;
    let with = |name: &str, class: &str| {
        let mut pod = pod(name);
        pod.spec.get_or_insert_default().runtime_class_name = Some(class.to_owned());
        pod
    };
    let dear = admin.create(&with("dear", "dear")).await.expect("a pod").spec.expect("a spec");
    assert_eq!(serde_json::to_value(dear.overhead).expect("JSON"), overhead["podFixed"]);
    let free = admin.create(&with("free", "free")).await.expect("a pod").spec.expect("a spec");
    assert_eq!(free.overhead, None);
    admin.delete::<RuntimeClass>("", "free", &Default::default()).await.expect("deleted");
    settle(&server).await;
    for class in ["free", "never-was"] {
        let refused = admin.create(&with("late", class)).await.expect_err("refused");
        let why = format!("pods \"late\" is forbidden: pod rejected: RuntimeClass {class:?} not found");
        assert_eq!((refused.code(), refused.to_string()), (Some(403), why));
    }
    server.stop().await;
}

/// Whether a pod gets a token: what it says itself comes before what its account says.
#[tokio::test]
async fn pods_and_accounts_may_do_without_a_token() {
    let server = Server::default().await;
    let admin = server.admin();
    for (account, says) in [("silent", None), ("willing", Some(true)), ("unwilling", Some(false))] {
        let meta = json!({"metadata": {"name": account, "namespace": "default"}});
        let mut made = typed::<ServiceAccount>(meta);
        made.automount_service_account_token = says;
        admin.create(&made).await.expect("an account");
        settle(&server).await;
        for (name, own) in [("silent", None), ("willing", Some(true)), ("unwilling", Some(false))] {
            let mut pod = pod(&format!("{account}-{name}"));
            let spec = pod.spec.get_or_insert_default();
            spec.service_account_name = Some(account.to_owned());
            spec.automount_service_account_token = own;
            let made: Pod = admin.create(&pod).await.expect("a pod");
            let mounts = made.spec.expect("a spec").containers[0].volume_mounts.clone().unwrap_or_default();
            let mounted =
                mounts.iter().any(|mount| mount.mount_path == "/var/run/secrets/kubernetes.io/serviceaccount");
            assert_eq!(mounted, own.or(says).unwrap_or(true), "{account} {name}");
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn a_service_changes_its_type_and_what_comes_with_it() {
    let server = Server::default().await;
    let admin = server.admin();
    let spec = json!({"type": "ExternalName", "externalName": "example.com"});
    let service = json!({"metadata": {"name": "s", "namespace": "default"}, "spec": spec});
    admin.create(&typed::<Service>(service)).await.expect("a Service");
    let ports = json!([{"name": "http", "port": 80, "protocol": "TCP"}]);
    for (kind, name) in [
        ("ClusterIP", None),
        ("ExternalName", Some("example.com")),
        ("NodePort", None),
        ("ExternalName", Some("example.com")),
    ] {
        let patch = json!({"spec": {"type": kind, "externalName": name, "ports": ports}});
        let made: Service = admin.patch("default", "s", &Patch::Merge(patch)).await.expect("another type");
        let spec = made.spec.expect("a spec");
        assert_eq!(spec.type_.as_deref(), Some(kind));
        assert_eq!(spec.cluster_ip.is_some(), name.is_none(), "{kind}: {spec:?}");
        let port = spec.ports.as_ref().and_then(|ports| ports[0].node_port);
        assert_eq!(port.is_some(), kind == "NodePort", "{kind}: {spec:?}");
    }
    server.stop().await;
}

#[tokio::test]
async fn what_must_not_be_written_is_refused() {
    let server = Server::default().await;
    let keyless = json!({"metadata": {"name": "k"}, "data": {"": "dmFsdWU="}});
    for resource in ["configmaps", "secrets"] {
        let refused = server.post(&format!("/api/v1/namespaces/default/{resource}"), &keyless).await;
        assert_eq!(refused.status, 422, "{}", refused.text());
        assert!(refused.message().contains("data[]: Invalid value: \"\""), "{}", refused.message());
    }
    for (resource, name) in [("configmaps", "m"), ("secrets", "s")] {
        let path = format!("/api/v1/namespaces/default/{resource}");
        let fixed = json!({"metadata": {"name": name}, "immutable": true, "data": {"key": "dmFsdWU="}});
        assert_eq!(server.post(&path, &fixed).await.status, 201);
        for change in [r#"{"data": {"key": "b3RoZXI="}}"#, r#"{"immutable": false}"#] {
            let refused = server.patch(&format!("{path}/{name}"), MERGE, change).await;
            assert_eq!(refused.status, 422, "{resource} {change}: {}", refused.text());
            assert!(refused.message().contains("field is immutable when `immutable` is set"), "{}", refused.message());
        }
        assert_eq!(server.send(http::Method::DELETE, &format!("{path}/{name}"), &[], "").await.status, 200);
    }
    // A certificate of a pod lives for an hour at least and 91 days at most.
    for (seconds, why) in [
        (3599, "if provided, maxExpirationSeconds must be >= 3600"),
        (7_862_401, "if provided, maxExpirationSeconds must be <= 7862400"),
    ] {
        let source = json!({"podCertificate": {"signerName": "example.com/signer", "keyType": "ED25519",
            "credentialBundlePath": "bundle.pem", "maxExpirationSeconds": seconds}});
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}],
            "volumes": [{"name": "v", "projected": {"sources": [source]}}]}});
        let refused = server.post("/api/v1/namespaces/default/pods", &pod).await;
        assert_eq!(refused.status, 422, "{}", refused.text());
        assert!(refused.message().contains(why), "{}", refused.message());
    }
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    let class = json!({"metadata": {"name": "high"}, "value": 5});
    assert_eq!(server.post(classes, &class).await.status, 201);
    let refused = server.patch(&format!("{classes}/high"), MERGE, r#"{"value": 6}"#).await;
    assert_eq!(refused.status, 422);
    assert!(refused.message().ends_with("value: Forbidden: may not be changed in an update."), "{}", refused.message());
    server.stop().await;
}

#[tokio::test]
async fn requests_are_approved_and_containers_added_by_their_own_doors() {
    let server = Server::default().await;
    let sample =
        crate::kinds::samples().into_iter().find(|sample| sample.path.ends_with("/certificatesigningrequests"));
    let sample = sample.expect("a sample");
    assert_eq!(server.post(&sample.path, &sample.object).await.status, 201);
    let door = format!("{}/{}/approval", sample.path, sample.name);
    let condition = |kind: &str| json!({"type": kind, "status": "True", "reason": "Test", "message": "m"});
    let patch = json!({"status": {"conditions": [condition("ApprovalPatch")]}});
    let patched = server.patch(&door, MERGE, &patch.to_string()).await;
    assert_eq!(patched.status, 200, "{}", patched.text());
    let mut whole = server.get(&door).await.json();
    whole["status"]["conditions"].as_array_mut().expect("conditions").push(condition("Approved"));
    let updated = server.put(&door, &whole).await;
    assert_eq!(updated.status, 200, "{}", updated.text());
    let kinds: Vec<Value> = updated.json()["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|one| one["type"].clone())
        .collect();
    assert_eq!(kinds, ["ApprovalPatch", "Approved"]);

    let pods = "/api/v1/namespaces/default/pods";
    let plain = json!({"metadata": {"name": "web"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    assert_eq!(server.post(pods, &plain).await.status, 201);
    for (number, name) in ["first", "second"].into_iter().enumerate() {
        let patch = json!({"spec": {"ephemeralContainers": [{"name": name, "image": "i"}]}});
        let door = format!("{pods}/web/ephemeralcontainers");
        let added = server.patch(&door, "application/strategic-merge-patch+json", &patch.to_string()).await;
        assert_eq!(added.status, 200, "{}", added.text());
        assert_eq!(
            server.get(&door).await.json()["spec"]["ephemeralContainers"].as_array().map(Vec::len),
            Some(number + 1)
        );
    }
    server.stop().await;
}

#[tokio::test]
async fn the_api_server_is_found_as_a_service() {
    let server = Server::start(|config, _| config.advertise = "192.0.2.9".parse().expect("an address")).await;
    let get = async |path: &str| server.get(path).await.json();
    let service = get("/api/v1/namespaces/default/services/kubernetes").await;
    let ports = &service["spec"]["ports"];
    assert_eq!((&ports[0]["name"], &ports[0]["port"]), (&json!("https"), &json!(443)), "{service}");
    let port = &ports[0]["targetPort"];
    let endpoints = get("/api/v1/namespaces/default/endpoints/kubernetes").await;
    let subset = &endpoints["subsets"][0];
    assert_eq!((&subset["addresses"][0]["ip"], &subset["ports"][0]["port"]), (&json!("192.0.2.9"), port));
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector=kubernetes.io/service-name%3Dkubernetes";
    let slice = &get(slices).await["items"][0];
    assert_eq!((&slice["endpoints"][0]["addresses"][0], &slice["ports"][0]["port"]), (&json!("192.0.2.9"), port));
    server.stop().await;
}

/// What somebody else may do, asked for the whole cluster and in one namespace.
#[tokio::test]
async fn reviews_answer_for_others() {
    let server = Server::default().await;
    let binding = json!({"metadata": {"name": "jane", "namespace": "default"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node-proxier"},
        "subjects": [{"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}]});
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    assert_eq!(server.post(bindings, &binding).await.status, 201);
    settle(&server).await;
    let ask = async |kind: &str, path: &str, namespace: &str, verb: &str| {
        let attributes = json!({"namespace": namespace, "verb": verb, "resource": "services"});
        let mut review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": kind,
            "spec": {"user": "jane", "resourceAttributes": attributes}});
        if kind.starts_with("Local") {
            review["metadata"]["namespace"] = json!(namespace);
        }
        let answer = server.post(&format!("/apis/authorization.k8s.io/v1/{path}"), &review).await;
        assert_eq!(answer.status, 201, "{}", answer.text());
        answer.json()["status"]["allowed"].as_bool()
    };
    for (kind, path) in [
        ("SubjectAccessReview", "subjectaccessreviews"),
        ("LocalSubjectAccessReview", "namespaces/default/localsubjectaccessreviews"),
    ] {
        assert_eq!(ask(kind, path, "default", "list").await, Some(true), "{kind}");
        assert_eq!(ask(kind, path, "default", "delete").await, Some(false), "{kind}");
    }
    assert_eq!(ask("SubjectAccessReview", "subjectaccessreviews", "kube-system", "list").await, Some(false));
    server.stop().await;
}
