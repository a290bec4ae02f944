//! A real, unmodified kubectl against a real server.

use testkit::Cluster;
use tokio::io::{AsyncBufReadExt as _, BufReader};

/// One object of every group that can be made without a controller, by name of its resource.
const SAMPLES: &[(&str, &str)] = &[
    ("configmaps/sample", "{apiVersion: v1, kind: ConfigMap, metadata: {name: sample}, data: {k: v}}"),
    ("services/sample", "{apiVersion: v1, kind: Service, metadata: {name: sample}, spec: {ports: [{port: 80}]}}"),
    ("pods/sample", "{apiVersion: v1, kind: Pod, metadata: {name: sample}, spec: {containers: [{name: c, image: i}]}}"),
    (
        "deployments.apps/sample",
        "{apiVersion: apps/v1, kind: Deployment, metadata: {name: sample}, spec: {selector: {matchLabels: {a: b}}, \
         template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}",
    ),
    (
        "jobs.batch/sample",
        "{apiVersion: batch/v1, kind: Job, metadata: {name: sample}, spec: {template: {spec: {restartPolicy: Never, \
         containers: [{name: c, image: i}]}}}}",
    ),
    (
        "horizontalpodautoscalers.autoscaling/sample",
        "{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: sample}, spec: {maxReplicas: 3, \
         scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: sample}}}",
    ),
    (
        "ingresses.networking.k8s.io/sample",
        "{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: sample}, spec: {defaultBackend: {service: \
         {name: sample, port: {number: 80}}}}}",
    ),
    (
        "poddisruptionbudgets.policy/sample",
        "{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: sample}, spec: {minAvailable: 1, selector: \
         {matchLabels: {a: b}}}}",
    ),
    (
        "roles.rbac.authorization.k8s.io/sample",
        "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: sample}, rules: [{apiGroups: [''], \
         resources: [pods], verbs: [get]}]}",
    ),
    (
        "storageclasses.storage.k8s.io/sample",
        "{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: sample}, provisioner: example.com/none}",
    ),
    (
        "priorityclasses.scheduling.k8s.io/sample",
        "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: sample}, value: 5}",
    ),
    (
        "leases.coordination.k8s.io/sample",
        "{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: sample}, spec: {holderIdentity: me}}",
    ),
    (
        "endpointslices.discovery.k8s.io/sample",
        "{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: sample}, addressType: IPv4, endpoints: \
         [{addresses: [10.0.0.1]}], ports: [{port: 80}]}",
    ),
    (
        "runtimeclasses.node.k8s.io/sample",
        "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: sample}, handler: runc}",
    ),
    (
        "validatingwebhookconfigurations.admissionregistration.k8s.io/sample",
        "{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: sample}}",
    ),
    (
        "flowschemas.flowcontrol.apiserver.k8s.io/sample",
        "{apiVersion: flowcontrol.apiserver.k8s.io/v1, kind: FlowSchema, metadata: {name: sample}, spec: \
         {priorityLevelConfiguration: {name: sample}, matchingPrecedence: 500}}",
    ),
];

#[tokio::test]
async fn every_verb_works_on_a_sample_of_every_group() {
    let cluster = Cluster::start().await;
    let kubectl = cluster.kubectl();
    for (resource, manifest) in SAMPLES {
        // Without the line before it kubectl would take a flow mapping for JSON.
        let manifest = format!("---\n{manifest}");
        let made = kubectl.run_with(&["create", "--validate=false", "-f", "-"], &manifest).await;
        assert!(made.ends_with(" created\n"), "{resource}: {made}");
        let table = kubectl.run(&["get", resource]).await;
        assert!(table.contains("NAME") && table.contains("sample"), "{resource}: {table}");
        let name = kubectl.run(&["get", resource, "-o", "name"]).await;
        assert!(name.trim().ends_with("/sample"), "{resource}: {name}");
        assert!(kubectl.run(&["label", resource, "tier=one"]).await.ends_with(" labeled\n"));
        assert!(kubectl.run(&["annotate", resource, "note=two"]).await.ends_with(" annotated\n"));
        let merge = r#"{"metadata":{"labels":{"merged":"yes"}}}"#;
        assert!(kubectl.run(&["patch", resource, "--type=merge", "-p", merge]).await.ends_with(" patched\n"));
        let operations = r#"[{"op":"add","path":"/metadata/labels/json","value":"yes"}]"#;
        assert!(kubectl.run(&["patch", resource, "--type=json", "-p", operations]).await.ends_with(" patched\n"));
        let labels = kubectl.run(&["get", resource, "-o", "jsonpath={.metadata.labels}"]).await;
        for label in [r#""tier":"one""#, r#""merged":"yes""#, r#""json":"yes""#] {
            assert!(labels.contains(label), "{resource}: {labels}");
        }
        let whole = kubectl.run(&["get", resource, "-o", "json"]).await;
        let changed = whole.replace(r#""tier": "one""#, r#""tier": "two""#);
        assert_ne!(whole, changed, "{resource}");
        let replaced = kubectl.run_with(&["replace", "--validate=false", "-f", "-"], &changed).await;
        assert!(replaced.ends_with(" replaced\n"), "{resource}: {replaced}");
        let (kind, _) = resource.split_once('/').expect("kind/name");
        let selected = kubectl.run(&["get", kind, "-l", "tier=two", "-o", "name"]).await;
        assert!(selected.trim().ends_with("/sample"), "{resource}: {selected}");
        let deleted = kubectl.run(&["delete", resource, "--wait=false"]).await;
        assert!(deleted.contains(" deleted"), "{resource}: {deleted}");
    }
    cluster.stop().await;
}

#[tokio::test]
async fn discovery_lists_resources_and_versions() {
    let cluster = Cluster::start().await;
    let kubectl = cluster.kubectl();
    let versions = kubectl.run(&["api-versions"]).await;
    for version in ["v1", "apps/v1", "batch/v1", "networking.k8s.io/v1", "storage.k8s.io/v1"] {
        assert!(versions.lines().any(|line| line == version), "{version}: {versions}");
    }
    let resources = kubectl.run(&["api-resources"]).await;
    for line in ["pods", "deployments", "nodes", "customresourcedefinitions", "events"] {
        assert!(resources.lines().any(|resource| resource.starts_with(line)), "{line}: {resources}");
    }
    let short = kubectl.run(&["get", "po,svc,deploy", "--ignore-not-found"]).await;
    assert!(short.contains("service/kubernetes"), "{short}");
    let version = kubectl.run(&["version", "-o", "json"]).await;
    assert!(version.contains("v1.37"), "{version}");
    assert_eq!(kubectl.run(&["get", "--raw", "/readyz"]).await, "ok");
    assert!(kubectl.run(&["get", "--raw", "/api/v1/namespaces/default"]).await.contains("\"name\":\"default\""));
    cluster.stop().await;
}

#[tokio::test]
async fn a_watch_prints_changes_as_they_happen() {
    let cluster = Cluster::start().await;
    let kubectl = cluster.kubectl();
    kubectl.run(&["create", "configmap", "first"]).await;
    let mut watch = kubectl.spawn(&["get", "configmaps", "-w", "--output-watch-events", "--no-headers"]);
    let mut lines = BufReader::new(watch.stdout.take().expect("piped")).lines();
    let mut next = async || testkit::eventually("a line", lines.next_line()).await.expect("output").expect("no end");
    let words = |line: &str| line.split_whitespace().take(2).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(&next().await), ["ADDED", "first"]);
    kubectl.run(&["create", "configmap", "second"]).await;
    assert_eq!(words(&next().await), ["ADDED", "second"]);
    kubectl.run(&["label", "configmap", "second", "a=b"]).await;
    assert_eq!(words(&next().await), ["MODIFIED", "second"]);
    kubectl.run(&["delete", "configmap", "first"]).await;
    assert_eq!(words(&next().await), ["DELETED", "first"]);
    watch.kill().await.expect("kubectl was running");
    cluster.stop().await;
}

#[tokio::test]
async fn failures_read_as_kubectl_users_know_them() {
    let cluster = Cluster::start().await;
    let kubectl = cluster.kubectl();
    let cases: &[(&[&str], &str)] = &[
        (&["get", "pod", "nobody"], "Error from server (NotFound): pods \"nobody\" not found\n"),
        (&["get", "nonsense"], "error: the server doesn't have a resource type \"nonsense\"\n"),
        (
            &["create", "namespace", "default"],
            "Error from server (AlreadyExists): namespaces \"default\" already exists\n",
        ),
        (
            &["delete", "namespace", "kube-system"],
            "Error from server (Forbidden): namespaces \"kube-system\" is forbidden: this namespace may not be deleted\n",
        ),
        (
            &["get", "--raw", "/nowhere"],
            "Error from server (NotFound): the server could not find the requested resource\n",
        ),
    ];
    for (arguments, expected) in cases {
        assert_eq!(kubectl.fail(arguments).await, *expected, "kubectl {}", arguments.join(" "));
    }
    cluster.stop().await;
}

const CONTROLLER: &str = "
apiVersion: v1
kind: ReplicationController
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {app: web}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: 'web:1', ports: [{containerPort: 80}]}]}
";

/// The commands of upstream's guides, on an API server alone.
#[tokio::test]
async fn what_guides_tell_users_to_type() {
    let cluster = Cluster::start().await;
    let kubectl = cluster.kubectl();
    kubectl.run_with(&["create", "-f", "-"], CONTROLLER).await;
    // Columns are as wide as their widest line.
    let describe = async |kind: &str, name: &str, lines: &[&str]| {
        let described = kubectl.run(&["describe", kind, name]).await;
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        for line in lines {
            assert!(described.lines().any(|found| words(found) == *line), "{line:?} in:\n{described}");
        }
    };
    let lines = ["Name: web", "Selector: app=web", "Replicas: 0 current / 2 desired", "Image: web:1"];
    describe("rc", "web", &lines).await;
    kubectl.run(&["expose", "rc", "web", "--name=front", "--port=1234", "--target-port=80"]).await;
    let ports = kubectl
        .run(&["get", "service", "front", "-o", "jsonpath={.spec.ports[0].port}-{.spec.ports[0].targetPort}"])
        .await;
    assert_eq!(ports, "1234-80");
    assert!(kubectl.run(&["scale", "rc", "web", "--current-replicas=2", "--replicas=3"]).await.ends_with(" scaled\n"));

    kubectl.run(&["run", "one", "--image=web:1", "--restart=Never", "--labels=app=one"]).await;
    assert_eq!(kubectl.run(&["get", "pod", "one", "-o", "jsonpath={.spec.restartPolicy}"]).await, "Never");
    let image = ["get", "pod", "one", "-o", "jsonpath={.spec.containers[0].image}"];
    let other = r#"{"spec":{"containers":[{"name":"one","image":"web:2"}]}}"#;
    kubectl.run(&["patch", "pod", "one", "-p", other, "--dry-run=server"]).await;
    assert_eq!(kubectl.run(&image).await, "web:1", "only a dry run");
    let whole = kubectl.run(&["get", "pod", "one", "-o", "json"]).await;
    kubectl.run_with(&["replace", "-f", "-"], &whole.replace("web:1", "web:3")).await;
    assert_eq!(kubectl.run(&image).await, "web:3");
    kubectl.run(&["patch", "pod", "one", "-p", r#"{"metadata":{"annotations":{"x":"y"}}}"#]).await;
    kubectl.run(&["label", "pods", "-l", "app=one", "tier=front"]).await;
    assert_eq!(
        kubectl.run(&["get", "pod", "one", "-o", "jsonpath={.metadata.annotations.x}{.metadata.labels.tier}"]).await,
        "yfront"
    );
    describe("pod", "one", &["Name: one", "Status: Pending", "Annotations: x: y", "Image: web:3"]).await;
    describe("namespace", "default", &["Status: Active"]).await;
    let info = kubectl.run(&["cluster-info"]).await;
    assert!(
        info.contains("Kubernetes control plane") && info.contains(&cluster.address().port().to_string()),
        "{info}"
    );
    kubectl.run(&["delete", "rc,service,pod", "--all", "--wait=false"]).await;
    assert_eq!(kubectl.run(&["get", "rc,pods", "-o", "name"]).await, "");
    cluster.stop().await;
}

/// What a plain HTTP client gets for `/api/`.
async fn api(mut stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    stream.write_all(b"GET /api/ HTTP/1.0\r\nHost: localhost\r\n\r\n").await.expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    answer
}

#[tokio::test]
async fn kubectl_serves_the_api_on_a_port_and_on_a_socket() {
    let cluster = Cluster::start().await;
    let kubectl = cluster.kubectl();
    let mut serving = kubectl.spawn(&["proxy", "--port=0"]);
    let mut lines = BufReader::new(serving.stdout.take().expect("piped")).lines();
    let line = testkit::eventually("a line", lines.next_line()).await.expect("output").expect("no end");
    let address = line.rsplit(' ').next().expect("an address").to_owned();
    let answer = api(tokio::net::TcpStream::connect(&address).await.expect("it listens")).await;
    assert!(answer.contains("\"APIVersions\""), "{answer}");
    serving.kill().await.expect("kubectl was running");

    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("api.sock");
    let mut serving = kubectl.spawn(&["proxy", &format!("--unix-socket={}", socket.display())]);
    let mut lines = BufReader::new(serving.stdout.take().expect("piped")).lines();
    testkit::eventually("a line", lines.next_line()).await.expect("output").expect("no end");
    let answer = api(tokio::net::UnixStream::connect(&socket).await.expect("it listens")).await;
    assert!(answer.contains("\"APIVersions\""), "{answer}");
    serving.kill().await.expect("kubectl was running");
    cluster.stop().await;
}
