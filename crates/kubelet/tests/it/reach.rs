//! Pods as clients of the API server reach them: through `proxy`, by their own name and by their Service's.

use futures::TryStreamExt as _;
use http::Method;
use machinery::rest::{Body, Payload};
use serde_json::json;

use crate::inside::{container, create};
use crate::rig::Rig;

/// Answers one request with its first line.
const ANSWER: &str = "#!/bin/sh
read method path rest
while read line; do test \"$line\" = \"$(printf '\\r')\" && break; done
printf 'HTTP/1.0 200 OK\\r\\nContent-Type: text/plain\\r\\n\\r\\n'
test $method = HEAD || printf '%s %s' $method $path
";

async fn ask(rig: &Rig, method: &Method, path: &str) -> String {
    let request = http::Request::builder().method(method).uri(path).body(Body::Empty).unwrap();
    let answer = match rig.admin.request(request).await {
        Ok(answer) => answer,
        Err(error) => panic!("{method} {path}: {error}"),
    };
    let status = answer.status().as_u16();
    let bytes = match answer.into_body() {
        Payload::Bytes(bytes) => bytes.to_vec(),
        Payload::Stream(stream) => stream.try_collect::<Vec<bytes::Bytes>>().await.unwrap().concat(),
        _ => Vec::new(),
    };
    format!("{status} {}", String::from_utf8_lossy(&bytes))
}

#[tokio::test]
async fn pods_and_services_answer_through_the_api_server() {
    let rig = Rig::start().await;
    let script = json!({"metadata": {"name": "script", "namespace": "default"}, "data": {"answer": ANSWER}});
    create(&rig, "", "configmaps", &script).await;
    let own = container(
        "nc -ll -p 8080 -e /script/answer",
        &json!({
            "ports": [{"name": "web", "containerPort": 8080}],
            "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1},
            "volumeMounts": [{"name": "script", "mountPath": "/script"}],
        }),
    );
    let volumes = json!([{"name": "script", "configMap": {"name": "script", "defaultMode": 0o755}}]);
    rig.pod("one", json!({"containers": [own], "volumes": volumes})).await;
    let pod = rig.ready("one").await;
    let address = pod.status.as_ref().and_then(|status| status.pod_ip.clone()).unwrap();
    let ports = json!([{"name": "http", "port": 80, "targetPort": 8080}]);
    let service = json!({"metadata": {"name": "front", "namespace": "default"}, "spec": {"ports": ports}});
    create(&rig, "", "services", &service).await;
    // Only addresses of pods are reached, and only those that the endpoint says it is.
    let target = json!({"kind": "Pod", "namespace": "default", "name": "one", "uid": pod.metadata.uid});
    let slice = json!({
        "metadata": {"name": "front-1", "namespace": "default", "labels": {"kubernetes.io/service-name": "front"}},
        "addressType": "IPv4", "endpoints": [{"addresses": [address], "conditions": {"ready": true}, "targetRef": target}],
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
    });
    create(&rig, "discovery.k8s.io", "endpointslices", &slice).await;
    for target in
        ["pods/one:8080", "pods/http:one:8080", "services/front:80", "services/front:http", "services/http:front:http"]
    {
        for method in
            [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS, Method::HEAD]
        {
            let path = format!("/some/path/with/{method}?method={method}");
            let said = ask(&rig, &method, &format!("/api/v1/namespaces/default/{target}/proxy{path}")).await;
            let wanted = if method == Method::HEAD { String::new() } else { format!("{method} {path}") };
            assert_eq!(said, format!("200 {wanted}"), "{method} {target}");
        }
        let root = ask(&rig, &Method::GET, &format!("/api/v1/namespaces/default/{target}/proxy/")).await;
        assert_eq!(root, "200 GET /", "{target}");
    }
    rig.stop().await;
}
