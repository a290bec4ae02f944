//! Holes that Kubernetes once had, one test per class, where admission closes them. Redirects and forged requests through
//! webhooks are in `webhooks`, what a node may write in `admission`.

use apiserver::admission::Settings;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, StatusCode};
use k8s_openapi::api::core::v1::{ConfigMap, LimitRange, Namespace, Node, Pod, Secret, Service, ServiceAccount};
use machinery::rest::{Body, Payload, Request, User};
use serde_json::{Value, json};
use testkit::build::{Build as _, config_map, node, pod};

use crate::server::{Server, post};

fn typed<T: serde::de::DeserializeOwned>(tree: Value) -> T {
    serde_json::from_value(tree).expect("an object of that kind")
}

/// Sends bytes as they are.
async fn send(server: &Server, method: Method, path: &str, media: &'static str, body: String) -> (StatusCode, String) {
    let mut request = Request::new(Body::Bytes(Bytes::from(body)));
    *request.method_mut() = method;
    *request.uri_mut() = path.parse().expect("a path");
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media));
    match server.admin().request(request).await {
        Ok(response) => {
            let message = match response.body() {
                Payload::Value(status) => machinery::value::text(status, "message").to_owned(),
                _ => String::new(),
            };
            (response.status(), message)
        }
        Err(error) => {
            let code = error.code().expect("an answer of the server's");
            (StatusCode::from_u16(code).expect("a code"), error.to_string())
        }
    }
}

#[tokio::test]
async fn subresources_are_no_way_around_what_is_asked_of_pods() {
    let server = Server::default().await;
    let admin = server.admin();
    let labels = json!({"pod-security.kubernetes.io/enforce": "baseline", "pod-security.kubernetes.io/enforce-version": "v1.30"});
    admin
        .create(&typed::<Namespace>(json!({"metadata": {"name": "safe", "labels": labels}})))
        .await
        .expect("a namespace");
    let account = json!({"metadata": {"name": "default", "namespace": "safe", "annotations": {"kubernetes.io/enforce-mountable-secrets": "true"}}});
    admin.create(&typed::<ServiceAccount>(account)).await.expect("an account");
    admin.create(&typed::<Secret>(json!({"metadata": {"name": "s", "namespace": "safe"}}))).await.expect("a secret");
    let range = json!({"metadata": {"name": "r", "namespace": "safe"}, "spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}});
    admin.create(&typed::<LimitRange>(range)).await.expect("a limit range");
    admin.list::<LimitRange>("safe", &Default::default()).await.expect("settled");
    let wish = json!({"metadata": {"name": "web", "namespace": "safe"}, "spec": {"containers": [{"name": "c", "image": "i",
        "resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": "200m"}}}]}});
    admin.create(&typed::<Pod>(wish)).await.expect("a pod");
    let ephemeral = |container: Value| {
        let patch = json!({"spec": {"ephemeralContainers": [container]}}).to_string();
        send(
            &server,
            Method::PATCH,
            "/api/v1/namespaces/safe/pods/web/ephemeralcontainers",
            "application/strategic-merge-patch+json",
            patch,
        )
    };
    let (code, why) = ephemeral(json!({"name": "d", "image": "i", "securityContext": {"privileged": true}})).await;
    assert_eq!(code, StatusCode::FORBIDDEN);
    assert!(why.contains("violates PodSecurity \"baseline:v1.30\": privileged (container \"d\""), "{why}");
    let (code, why) = ephemeral(json!({"name": "d", "image": "i", "envFrom": [{"secretRef": {"name": "s"}}]})).await;
    assert_eq!(code, StatusCode::FORBIDDEN);
    assert!(why.ends_with("ephemeral container d with envFrom referencing secret.secretName=\"s\" is not allowed because service account default does not reference that secret"), "{why}");
    let patch = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}}]}});
    let (code, why) = send(
        &server,
        Method::PATCH,
        "/api/v1/namespaces/safe/pods/web/resize",
        "application/strategic-merge-patch+json",
        patch.to_string(),
    )
    .await;
    assert_eq!(code, StatusCode::FORBIDDEN, "{why}");
    assert!(why.contains("maximum cpu usage per Container is 1, but limit is 2"), "{why}");
    // A namespace that becomes stricter tells which of its pods would not be let in again.
    let told = server
        .kubectl()
        .output(&["label", "namespace", "safe", "--overwrite", "pod-security.kubernetes.io/enforce=restricted"], "")
        .await;
    assert!(told.stderr.contains("Warning: existing pods in namespace \"safe\" violate the new PodSecurity enforce level \"restricted:v1.30\""), "{}", told.stderr);
    assert!(told.stderr.contains("Warning: web: allowPrivilegeEscalation != false, unrestricted capabilities, runAsNonRoot != true, seccompProfile"), "{}", told.stderr);
    server.stop().await;
}

#[tokio::test]
async fn nobody_draws_the_traffic_of_addresses_that_are_not_theirs() {
    let server = Server::start(|config, _| {
        config.admission = Settings::parse("DenyServiceExternalIPs", "").expect("a plug-in");
    })
    .await;
    let admin = server.admin();
    let service = |addresses: Value| -> Service {
        typed(
            json!({"metadata": {"name": "s", "namespace": "default"}, "spec": {"ports": [{"port": 443}], "externalIPs": addresses}}),
        )
    };
    let refused = admin.create(&service(json!(["1.1.1.1"]))).await.expect_err("refused").to_string();
    assert_eq!(refused, "services \"s\" is forbidden: Use of external IPs is denied by admission control");
    let mut made = admin.create(&service(json!([]))).await.expect("a plain service");
    made.spec.as_mut().expect("a spec").external_ips = Some(vec!["1.1.1.1".to_owned()]);
    assert!(admin.update(&made).await.is_err(), "nor by an update");
    server.stop().await;
}

#[tokio::test]
async fn a_node_gets_rid_of_nothing_by_owning_it_and_mirrors_no_claims() {
    let server = Server::default().await;
    let admin = server.admin();
    admin.create(&node("n1")).await.expect("a node");
    let n1 = server.as_user(User::new("system:node:n1", ["system:nodes"]));
    // Whoever sets the owners of a node lets the garbage collector delete it.
    let mut own: Node = n1.get("", "n1").await.expect("itself");
    own.metadata.owner_references =
        Some(vec![typed(json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "no-such-uid"}))]);
    let refused = n1.update(&own).await.expect_err("refused").to_string();
    assert!(refused.contains("is not allowed to modify ownerReferences"), "{refused}");
    let owner =
        json!([{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": own.metadata.uid, "controller": true}]);
    let mut mirror: Pod = pod("static");
    mirror.metadata.annotations = Some([("kubernetes.io/config.mirror".to_owned(), "x".to_owned())].into());
    mirror.metadata.owner_references = Some(typed(owner));
    let spec = mirror.spec.as_mut().expect("a spec");
    spec.node_name = Some("n1".to_owned());
    spec.resource_claims = Some(vec![typed(json!({"name": "gpu", "resourceClaimName": "others"}))]);
    let refused = n1.create(&mirror).await.expect_err("refused").to_string();
    assert!(refused.contains("resource"), "{refused}");
    mirror.spec.as_mut().expect("a spec").resource_claims = None;
    mirror.spec.as_mut().expect("a spec").service_account_name = Some("default".to_owned());
    assert!(n1.create(&mirror).await.is_err(), "nor does it run as an account");
    mirror.spec.as_mut().expect("a spec").service_account_name = None;
    let sources = [
        json!({"flexVolume": {"driver": "example.com/d", "secretRef": {"name": "theirs"}}}),
        json!({"rbd": {"monitors": ["m"], "image": "i", "secretRef": {"name": "theirs"}}}),
        json!({"cephfs": {"monitors": ["m"], "secretRef": {"name": "theirs"}}}),
        json!({"azureFile": {"shareName": "s", "secretName": "theirs"}}),
        json!({"iscsi": {"targetPortal": "p", "iqn": "iqn.2001-04.com.example:s", "lun": 0, "secretRef": {"name": "theirs"}}}),
        json!({"scaleIO": {"gateway": "g", "system": "s", "volumeName": "v", "secretRef": {"name": "theirs"}}}),
        json!({"storageos": {"volumeName": "v", "volumeNamespace": "n", "secretRef": {"name": "theirs"}}}),
    ];
    for mut volume in sources {
        volume["name"] = json!("v");
        mirror.spec.as_mut().expect("a spec").volumes = Some(vec![typed(volume.clone())]);
        let refused = n1.create(&mirror).await.expect_err("refused");
        let why = "pods \"static\" is forbidden: node \"n1\" can not create pods that reference secrets";
        assert_eq!((refused.code(), refused.to_string().as_str()), (Some(403), why), "{volume}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_node_gets_tokens_only_for_those_its_pods_speak_to() {
    let server = Server::default().await;
    let admin = server.admin();
    admin.create(&node("n1")).await.expect("a node");
    let driver = json!({"metadata": {"name": "csi.example.com"}, "spec": {"tokenRequests": [{"audience": "storage"}]}});
    admin.create(&typed::<k8s_openapi::api::storage::v1::CSIDriver>(driver)).await.expect("a driver");
    let volume = json!({"metadata": {"name": "pv"}, "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
        "csi": {"driver": "csi.example.com", "volumeHandle": "h"}, "claimRef": {"namespace": "default", "name": "data"}}});
    admin.create(&typed::<k8s_openapi::api::core::v1::PersistentVolume>(volume)).await.expect("a volume");
    let claim = json!({"metadata": {"name": "data", "namespace": "default"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "volumeName": "pv", "resources": {"requests": {"storage": "1Gi"}}}});
    admin.create(&typed::<k8s_openapi::api::core::v1::PersistentVolumeClaim>(claim)).await.expect("a claim");
    let projected = json!({"sources": [{"serviceAccountToken": {"path": "t", "audience": "vault"}}]});
    let with = |name: &str, volumes: Value| -> Pod {
        typed(json!({"metadata": {"name": name, "namespace": "default"}, "spec": {"nodeName": "n1", "volumes": volumes,
            "serviceAccountName": "default", "containers": [{"name": "c", "image": "i"}]}}))
    };
    let plain = admin.create(&with("plain", json!([{"name": "t", "projected": projected}]))).await.expect("a pod");
    let mounts = json!([{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]);
    let storage = admin.create(&with("storage", mounts)).await.expect("a pod");
    let mounts = json!([{"name": "d", "persistentVolumeClaim": {"claimName": "missing"}}]);
    let broken = admin.create(&with("broken", mounts)).await.expect("a pod");
    let n1 = server.as_user(User::new("system:node:n1", ["system:nodes"]));
    let ask = async |pod: &Pod, audiences: Value| {
        let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": pod.metadata.uid});
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"audiences": audiences, "boundObjectRef": bound}});
        let asked = n1.create_subresource::<ServiceAccount, _, Value>("default", "default", "token", &request).await;
        asked.map(|_| ()).map_err(|error| error.to_string())
    };
    let refused = |why: &str| Err(format!("serviceaccounts \"default\" is forbidden: {why}"));
    let not_for = |audience: &str| {
        refused(&format!("system:node:n1 is not authorized to request tokens for audience {audience:?}"))
    };
    assert_eq!(ask(&plain, json!(["vault"])).await, Ok(()));
    // The server's own audience, by the token that every pod mounts.
    assert_eq!(ask(&plain, json!([])).await, Ok(()));
    assert_eq!(ask(&plain, json!(["storage"])).await, not_for("storage"));
    assert_eq!(ask(&plain, json!(["vault", "storage"])).await, refused("node may only request 0 or 1 audiences"));
    assert_eq!(ask(&storage, json!(["storage"])).await, Ok(()));
    assert_eq!(ask(&storage, json!(["vault"])).await, not_for("vault"));
    let why = "error validating audience \"vault\": persistentvolumeclaim \"missing\" not found";
    assert_eq!(ask(&broken, json!(["vault"])).await, refused(why));
    // Somebody may let it have more.
    let rules =
        json!([{"apiGroups": [""], "resources": ["registry"], "verbs": ["request-serviceaccounts-token-audience"]}]);
    let role = json!({"metadata": {"name": "more"}, "rules": rules});
    admin.create(&typed::<k8s_openapi::api::rbac::v1::ClusterRole>(role)).await.expect("a role");
    let binding = json!({"metadata": {"name": "more"}, "subjects": [{"kind": "Group", "name": "system:nodes", "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "more"}});
    assert_eq!(ask(&plain, json!(["registry"])).await, not_for("registry"));
    admin.create(&typed::<k8s_openapi::api::rbac::v1::ClusterRoleBinding>(binding)).await.expect("a binding");
    assert_eq!(ask(&plain, json!(["registry"])).await, Ok(()));
    server.stop().await;
}

#[tokio::test]
async fn a_node_gets_certificates_only_for_its_own_pods() {
    let server = Server::default().await;
    let admin = server.admin();
    let mut uids = Vec::new();
    for name in ["n1", "n2"] {
        uids.push(admin.create(&node(name)).await.expect("a node").metadata.uid);
    }
    let account: ServiceAccount = admin.get("default", "default").await.expect("the account");
    let source = json!({"podCertificate": {"signerName": "example.com/signer", "keyType": "ED25519", "credentialBundlePath": "c"}});
    let with = |name: &str, node: &str| -> Pod {
        typed(json!({"metadata": {"name": name, "namespace": "default"}, "spec": {"nodeName": node,
            "volumes": [{"name": "c", "projected": {"sources": [source]}}], "containers": [{"name": "c", "image": "i"}]}}))
    };
    let own = admin.create(&with("own", "n1")).await.expect("a pod");
    let other = admin.create(&with("other", "n2")).await.expect("a pod");
    let n1 = server.as_user(User::new("system:node:n1", ["system:nodes"]));
    let ask = async |pod: &Pod, change: Value| {
        let mut spec = json!({"signerName": "example.com/signer", "podName": pod.metadata.name, "podUID": pod.metadata.uid,
            "serviceAccountName": "default", "serviceAccountUID": account.metadata.uid, "nodeName": "n1", "nodeUID": uids[0]});
        spec.as_object_mut().expect("a spec").extend(change.as_object().expect("a change").clone());
        let request = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "PodCertificateRequest",
            "metadata": {"generateName": "req-"}, "spec": spec});
        let path = "/apis/certificates.k8s.io/v1/namespaces/default/podcertificaterequests";
        post(&n1, path, request).await.expect_err("refused")
    };
    let is = |told: String, expect: &str| assert!(told.ends_with(expect), "{told}");
    is(
        ask(&other, json!({})).await,
        "pod \"default/other\" is not running on node \"n1\" named in the PodCertificateRequest",
    );
    is(
        ask(&other, json!({"nodeName": "n2", "nodeUID": uids[1]})).await,
        "PodCertificateRequest.Spec.NodeName=\"n2\", which is not the requesting node \"n1\"",
    );
    is(
        ask(&own, json!({"serviceAccountName": "admin"})).await,
        "PodCertificateRequest for pod \"default/own\" contains serviceAccountName (\"admin\") that differs from running pod (\"default\")",
    );
    is(
        ask(&own, json!({"signerName": "example.com/another"})).await,
        "pod \"default/own\" does not mount a podCertificate projected volume for signer \"example.com/another\"",
    );
    is(
        ask(&own, json!({"podName": "gone"})).await,
        "while retrieving pod \"default/gone\" named in the PodCertificateRequest: pod \"gone\" not found",
    );
    // What is wrong with the rest is for validation to say: the key is missing.
    let told = ask(&own, json!({})).await;
    assert!(told.contains("is invalid") && !told.contains("forbidden"), "{told}");
    server.stop().await;
}

#[tokio::test]
async fn bombs_do_not_go_off() {
    let server = Server::default().await;
    let admin = server.admin();
    admin.create(&config_map("target", "a", "0123456789")).await.expect("a config map");
    let path = "/api/v1/namespaces/default/configmaps/target";
    // Copies of copies: 2^n bytes for n operations.
    let doubling: Vec<Value> = (0..40)
        .flat_map(|n| {
            [
                json!({"op": "add", "path": format!("/x{}", n + 1), "value": {}}),
                json!({"op": "copy", "from": format!("/x{n}"), "path": format!("/x{}/a", n + 1)}),
                json!({"op": "copy", "from": format!("/x{n}"), "path": format!("/x{}/b", n + 1)}),
            ]
        })
        .collect();
    let mut patch = vec![json!({"op": "add", "path": "/x0", "value": "0123456789"})];
    patch.extend(doubling);
    let (code, _) = send(&server, Method::PATCH, path, "application/json-patch+json", json!(patch).to_string()).await;
    assert!(code.is_client_error(), "{code}");
    // More operations than anybody needs.
    let many = vec![json!({"op": "test", "path": "/kind", "value": "ConfigMap"}); 10_001];
    let (code, why) = send(&server, Method::PATCH, path, "application/json-patch+json", json!(many).to_string()).await;
    assert_eq!(code, StatusCode::PAYLOAD_TOO_LARGE, "{why}");
    // Nesting without an end.
    let deep = format!("{{\"data\": {}1{}}}", "{\"a\":".repeat(200_000), "}".repeat(200_000));
    let (code, _) = send(&server, Method::PATCH, path, "application/merge-patch+json", deep).await;
    assert!(code.is_client_error(), "{code}");
    // Names for names: nine levels of nine are 387 million.
    let mut yaml =
        String::from("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: bomb}\na0: &a0 [x,x,x,x,x,x,x,x,x]\n");
    for level in 1..10 {
        let last = format!("*a{}", level - 1);
        yaml.push_str(&format!("a{level}: &a{level} [{}]\n", [last.as_str(); 9].join(",")));
    }
    let (code, _) =
        send(&server, Method::POST, "/api/v1/namespaces/default/configmaps", "application/yaml", yaml).await;
    assert!(code.is_client_error(), "{code}");
    let large = format!(
        "{{\"kind\": \"ConfigMap\", \"apiVersion\": \"v1\", \"metadata\": {{\"name\": \"l\"}}, \"data\": {{\"a\": \"{}\"}}}}",
        "x".repeat(4 << 20)
    );
    let (code, _) =
        send(&server, Method::POST, "/api/v1/namespaces/default/configmaps", "application/json", large).await;
    assert_eq!(code, StatusCode::PAYLOAD_TOO_LARGE);
    // And the server is as it was.
    let kept: ConfigMap = admin.get("default", "target").await.expect("the config map");
    assert_eq!(kept.data.expect("data")["a"], "0123456789");
    admin.create(&pod("after").in_namespace("default")).await.expect("a pod");
    server.stop().await;
}
