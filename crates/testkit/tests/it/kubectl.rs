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
