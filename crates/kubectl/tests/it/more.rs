//! Workloads, nodes, rights and texts.

use crate::Shell;

const DEPLOYMENT: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {a: b}}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: c, image: nginx}]
";

#[tokio::test(flavor = "multi_thread")]
async fn templates_are_changed_in_part() {
    let (cluster, shell) = Shell::with_cluster().await;
    assert_eq!(shell.run_with("apply -f -", DEPLOYMENT).await.out, "deployment.apps/web created\n");
    assert_eq!(shell.ok("set image deploy/web c=nginx:2").await, "deployment.apps/web image updated\n");
    assert_eq!(shell.ok("set image deploy/web c=nginx:2").await, "", "nothing is different");
    assert_eq!(shell.fail("set image deploy/web x=nginx:2").await, "error: unable to find container named \"x\"\n");
    assert_eq!(shell.ok("set env deploy/web A=b C=d").await, "deployment.apps/web env updated\n");
    assert_eq!(shell.ok("set env deploy/web A-").await, "deployment.apps/web env updated\n");
    assert_eq!(shell.ok("set env deploy/web --list").await, "# Deployment web, container c\nC=d\n");
    assert_eq!(
        shell.ok("set resources deploy web --limits=cpu=100m").await,
        "deployment.apps/web resource requirements updated\n"
    );
    assert_eq!(shell.ok("set sa deploy web default").await, "deployment.apps/web serviceaccount updated\n");
    let container = shell.ok("get deploy web -o jsonpath={.spec.template.spec.containers[0].image}{.spec.template.spec.containers[0].resources.limits.cpu}").await;
    assert_eq!(container, "nginx:2100m");
    assert_eq!(shell.ok("scale deploy web --replicas=3").await, "deployment.apps/web scaled\n");
    assert_eq!(
        shell.fail("scale deploy web --replicas=2 --current-replicas=5").await,
        "error: Expected replicas to be 5, was 3\n"
    );
    assert_eq!(shell.ok("rollout pause deploy/web").await, "deployment.apps/web paused\n");
    assert_eq!(shell.fail("rollout pause deploy/web").await, "error: deployments.apps \"web\" is already paused\n");
    assert_eq!(shell.ok("rollout resume deploy/web").await, "deployment.apps/web resumed\n");
    assert_eq!(shell.ok("rollout restart deploy/web").await, "deployment.apps/web restarted\n");
    let status = shell.ok("rollout status deploy/web --watch=false").await;
    assert_eq!(status, "Waiting for deployment spec update to be observed...\n");
    assert_eq!(shell.ok("expose deploy web --port=80").await, "service/web exposed\n");
    assert_eq!(shell.ok("get svc web -o jsonpath={.spec.selector}").await, "{\"app\":\"web\"}");
    assert_eq!(shell.ok("run p --image=nginx").await, "pod/p created\n");
    assert_eq!(shell.fail("logs p").await, "Error from server (BadRequest): pod p does not have a host assigned\n");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_cordoned_tainted_and_drained() {
    let (cluster, shell) = Shell::with_cluster().await;
    let node = "{apiVersion: v1, kind: Node, metadata: {name: n1}}";
    assert_eq!(shell.run_with("create -f -", node).await.out, "node/n1 created\n");
    assert_eq!(shell.ok("cordon n1").await, "node/n1 cordoned\n");
    assert_eq!(shell.ok("cordon n1").await, "node/n1 already cordoned\n");
    assert_eq!(shell.ok("uncordon n1").await, "node/n1 uncordoned\n");
    assert_eq!(shell.ok("taint nodes n1 a=b:NoSchedule").await, "node/n1 tainted\n");
    assert_eq!(
        shell.fail("taint nodes n1 a=c:NoSchedule").await,
        "error: node n1 already has a taint(s) with same effect(s) and --overwrite is false\n"
    );
    assert_eq!(shell.ok("taint nodes n1 a-").await, "node/n1 untainted\n");
    let pod =
        "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {nodeName: n1, containers: [{name: c, image: i}]}}";
    assert_eq!(shell.run_with("create -f -", pod).await.out, "pod/p created\n");
    let refused = shell.run("drain n1").await;
    assert_eq!(refused.code, 1);
    assert!(
        refused.err.contains("cannot delete Pods that declare no controller (use --force to override): default/p"),
        "{}",
        refused.err
    );
    let drained = shell.run("drain n1 --force --dry-run=client").await;
    assert_eq!(
        (drained.code, drained.out.as_str()),
        (0, "node/n1 already cordoned (dry run)\nevicting pod default/p (dry run)\nnode/n1 drained (dry run)\n")
    );
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_fields_and_objects_are_told() {
    let (cluster, shell) = Shell::with_cluster().await;
    assert_eq!(shell.ok("auth can-i get pods").await, "yes\n");
    let no = shell.run("auth can-i get pods --as=nobody").await;
    assert_eq!((no.code, no.out.as_str(), no.err.as_str()), (1, "no\n", ""));
    assert!(shell.ok("auth whoami").await.starts_with("ATTRIBUTE"));
    assert_eq!(
        shell.ok("create rolebinding rb --clusterrole=view --user=u").await,
        "rolebinding.rbac.authorization.k8s.io/rb created\n",
        "--user is the subject here, not a user of the kubeconfig"
    );
    assert_eq!(
        shell.ok("set subject rolebinding rb --user=v").await,
        "rolebinding.rbac.authorization.k8s.io/rb subjects updated\n"
    );
    let field = shell.ok("explain pods.spec.restartPolicy").await;
    assert!(field.starts_with("KIND:       Pod\nVERSION:    v1\n\nFIELD: restartPolicy <string>\nENUM:\n    Always\n    Never\n    OnFailure\n\nDESCRIPTION:\n"), "{field}");
    assert_eq!(shell.run("explain pods.nope").await.err, "error: field \"nope\" does not exist\n");
    let described = shell.ok("describe sa default").await;
    assert!(described.starts_with("Name:                default\nNamespace:           default\n"), "{described}");
    assert_eq!(shell.fail("describe pod nope").await, "Error from server (NotFound): pods \"nope\" not found\n");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kustomizations_are_built_and_applied() {
    let (cluster, shell) = Shell::with_cluster().await;
    std::fs::create_dir(shell.home().join("k")).expect("a directory");
    let write = |name: &str, text: &str| std::fs::write(shell.home().join("k").join(name), text).expect("a file");
    write("kustomization.yaml", "namePrefix: a-\nresources: [map.yaml]\n");
    write("map.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: x}}\n");
    assert_eq!(shell.ok("kustomize k").await, "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a-x\n");
    assert_eq!(shell.run("get -k k").await.err, "Error from server (NotFound): configmaps \"a-x\" not found\n");
    assert_eq!(shell.ok("apply -k k").await, "configmap/a-x created\n");
    assert_eq!(shell.ok("get -k k -o name").await, "configmap/a-x\n");
    assert_eq!(shell.fail("apply -k k -f x").await, "error: only one of -f or -k can be specified\n");
    assert_eq!(shell.ok("delete -k k").await, "configmap \"a-x\" deleted from default namespace\n");
    assert_eq!(shell.run_with("apply -f -", DEPLOYMENT).await.out, "deployment.apps/web created\n");
    assert_eq!(
        shell.ok("autoscale deploy web --max=5 --cpu=70%").await,
        "horizontalpodautoscaler.autoscaling/web autoscaled\n"
    );
    cluster.stop().await;
}

const NULLS: &str = "{apiVersion: v1, kind: ConfigMap, metadata: {name: nulls, annotations: {x: null}}}";

#[tokio::test(flavor = "multi_thread")]
async fn annotations_that_are_null_are_empty_texts() {
    let (cluster, shell) = Shell::with_cluster().await;
    assert_eq!(shell.run_with("apply -f -", NULLS).await.out, "configmap/nulls created\n");
    let remembered = shell.ok("apply view-last-applied cm/nulls -o json").await;
    assert!(remembered.contains("\"annotations\": {\n      \"x\": \"\"\n"), "{remembered}");
    assert_eq!(shell.run_with("apply -f -", NULLS).await.out, "configmap/nulls unchanged\n");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_only_shown_is_neither_asked_for_nor_remembered() {
    let (cluster, shell) = Shell::with_cluster().await;
    std::fs::create_dir(shell.home().join("k")).expect("a directory");
    let write = |name: &str, text: &str| std::fs::write(shell.home().join("k").join(name), text).expect("a file");
    write("kustomization.yaml", "namePrefix: a-\nresources: [map.yaml]\n");
    write("map.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: x}}\n");
    assert_eq!(shell.ok("scale --replicas=2 --dry-run=client -k k").await, "configmap/a-x scaled (dry run)\n");
    assert_eq!(shell.run_with("apply -f -", DEPLOYMENT).await.out, "deployment.apps/web created\n");
    assert_eq!(
        shell.ok("autoscale deploy web --max=5 --dry-run=client").await,
        "horizontalpodautoscaler.autoscaling/web created (dry run)\n"
    );
    for line in ["set image deploy/web *=other --dry-run=client -o json", "rollout pause deploy/web -o json"] {
        let typed = "{\n    \"kind\": \"Deployment\",\n    \"apiVersion\": \"apps/v1\",\n    \"metadata\": {\n        \"name\": \"web\",\n";
        assert!(shell.ok(line).await.starts_with(typed), "{line}: fields have the order of Go's types");
    }
    let shown = shell.ok("autoscale deploy web --max=5 --dry-run=client --save-config -o yaml").await;
    assert!(!shown.contains("annotations"), "{shown}");
    let saved = shell.ok("autoscale deploy web --max=5 --dry-run=server --save-config -o yaml").await;
    assert!(saved.contains("last-applied-configuration: |\n      {\"kind\":\"HorizontalPodAutoscaler\""), "{saved}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_template_is_looked_at_where_upstream_looks() {
    let (cluster, shell) = Shell::with_cluster().await;
    assert_eq!(shell.ok("config view --template={{.kind}}").await, "Config");
    assert_eq!(
        shell.ok("cluster-info dump --namespaces=default --template={{.kind}},").await,
        "NodeList,EventList,ReplicationControllerList,ServiceList,DaemonSetList,DeploymentList,ReplicaSetList,PodList,"
    );
    assert!(shell.ok("auth whoami --template={{.kind}}").await.starts_with("ATTRIBUTE"));
    assert_eq!(shell.ok("events -w --request-timeout=1s").await, "", "no headers above nothing");
    assert!(shell.ok("cluster-info dump --namespaces=default -o yaml").await.contains("\n---\napiVersion: v1\n"));
    assert!(shell.ok("get --raw https://elsewhere.example/version").await.contains("\"minor\": \"37\""));
    let pod = shell.ok("explain pods.spec.restartPolicy -o plaintext-openapiv2").await;
    assert!(
        pod.starts_with("KIND:     Pod\nVERSION:  v1\n\nFIELD:    restartPolicy <string>\n\nDESCRIPTION:\n     "),
        "{pod}"
    );
    assert_eq!(shell.run_with("apply -f -", DEPLOYMENT).await.out, "deployment.apps/web created\n");
    let uid = shell.ok("get deploy web -o jsonpath={.metadata.uid}").await;
    // No controller runs here: this is what it would make.
    let revision = format!(
        "{{apiVersion: apps/v1, kind: ReplicaSet, metadata: {{name: web-1, labels: {{app: web}}, \
          annotations: {{deployment.kubernetes.io/revision: '1'}}, \
          ownerReferences: [{{apiVersion: apps/v1, kind: Deployment, name: web, uid: {uid}, controller: true}}]}}, \
          spec: {{selector: {{matchLabels: {{app: web}}}}, template: {{metadata: {{labels: {{app: web}}}}, \
          spec: {{containers: [{{name: c, image: i}}]}}}}}}}}"
    );
    assert_eq!(shell.run_with("create -f -", &revision).await.out, "replicaset.apps/web-1 created\n");
    let history = "rollout history deploy/web -o yaml";
    assert!(shell.ok(history).await.contains("name: web-1\n"));
    assert!(!shell.ok(history).await.contains("managedFields"));
    assert!(shell.ok(&format!("{history} --show-managed-fields")).await.contains("  managedFields:\n"));
    cluster.stop().await;
}
