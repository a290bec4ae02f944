//! What upstream's kubectl v1.37 was seen to refuse or to say, line by line, on the same objects.

use crate::Shell;

const OBJECTS: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: 'nginx:1', ports: [{containerPort: 80}]}]}
---
apiVersion: v1
kind: ReplicationController
metadata: {name: rc1}
spec: {replicas: 0, selector: {app: rc}, template: {metadata: {labels: {app: rc}}, spec: {containers: [{name: c, image: nginx}]}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: cm1}
data: {k: v}
";

const OLD: &str = "{apiVersion: rbac.authorization.k8s.io/v1beta1, kind: ClusterRole, metadata: {name: r}, rules: []}";

#[tokio::test(flavor = "multi_thread")]
async fn what_upstream_refuses_is_refused_in_its_words() {
    let (cluster, shell) = Shell::with_cluster().await;
    std::fs::write(shell.home().join("old.yaml"), OLD).expect("a file");
    std::fs::write(shell.home().join("all.yaml"), OBJECTS).expect("a file");
    assert_eq!(shell.run("create -f all.yaml").await.code, 0);
    for (line, expected) in [
        ("create --dry-run=x", "error: Invalid dry-run value (x). Must be \"none\", \"server\", or \"client\"."),
        (
            "apply --cascade=x",
            "error: invalid cascade value (x). Must be \"background\", \"foreground\", or \"orphan\"",
        ),
        (
            "replace --cascade=x",
            "error: invalid cascade value (x). Must be \"background\", \"foreground\", or \"orphan\"",
        ),
        ("patch cm cm1 --type=x", "error: must specify --patch or --patch-file containing the contents of the patch"),
        ("delete cm --all cm1", "error: name cannot be provided when a selector is specified"),
        ("explain pods -o x", "error: unrecognized format: x"),
        ("expose deploy web --port=80 --session-affinity=x --dry-run=client", "error: unknown session affinity: x"),
        (
            "create rolebinding x --role=r --serviceaccount=:a --dry-run=client",
            "error: serviceaccount must be <namespace>:<name>",
        ),
        ("set env deploy/web -e A --dry-run=client", "error: unknown environment variable: A"),
        ("rollout undo rc/rc1", "error: no rollbacker has been implemented for \"ReplicationController\""),
        ("rollout history rc/rc1", "error: no history viewer has been implemented for \"ReplicationController\""),
        ("wait --for=condition=Ready cm/cm1 --timeout=0", "error: condition not met for configmaps/cm1"),
        (
            "auth reconcile -f old.yaml",
            "error: only rbac.authorization.k8s.io/v1 is supported: not *v1beta1.ClusterRole",
        ),
    ] {
        assert_eq!(shell.fail(line).await, format!("{expected}\n"), "{line}");
    }
    assert!(shell.ok("get cm cm1 -o name").await.starts_with("configmap/cm1"), "a refused delete deletes nothing");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_upstream_says_is_said() {
    let (cluster, shell) = Shell::with_cluster().await;
    std::fs::write(shell.home().join("all.yaml"), OBJECTS).expect("a file");
    // Reads run ahead of writes, and what a file has twice is still changed twice.
    let twice = format!("{OBJECTS}---\n{{apiVersion: v1, kind: ConfigMap, metadata: {{name: cm1}}, data: {{k: w}}}}\n");
    let said = shell.run_with("apply -f -", &twice).await;
    assert_eq!(said.err, "");
    assert_eq!(
        said.out,
        "deployment.apps/web created\nreplicationcontroller/rc1 created\nconfigmap/cm1 created\nconfigmap/cm1 configured\n"
    );
    assert_eq!(shell.ok("get cm cm1 -o jsonpath={.data.k}").await, "w");
    assert_eq!(shell.ok("rollout history deploy/web --template={{.metadata.name}}:").await, "web:");
    let image =
        shell.ok("wait --for=jsonpath=spec.template.spec.containers[?(@.name==\"c\")].image=nginx:1 deploy/web").await;
    assert_eq!(image, "deployment.apps/web condition met\n");
    let given = shell.run_with("set env deploy/web -e - --dry-run=client -o jsonpath={..env}", "A=b\n").await;
    assert_eq!(given.out, "[{\"name\":\"A\",\"value\":\"b\"}]");
    let token = shell.ok("create token default -o jsonpath={.metadata}").await;
    assert!(!token.contains("managedFields"), "{token}");
    shell.ok("rollout restart deploy/web").await;
    let again = shell.run("rollout restart deploy/web").await;
    // The clock may have ticked between the two.
    assert!(
        again.code == 0
            || again.err
                == "error: failed to create patch for web: if restart has already been triggered within the past second, please wait before attempting to trigger another\n",
        "{}",
        again.err
    );
    cluster.stop().await;
}
