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

const GONE: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: g1}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: g2}
";

const OLD: &str = "{apiVersion: rbac.authorization.k8s.io/v1beta1, kind: ClusterRole, metadata: {name: r}, rules: []}";

#[tokio::test(flavor = "multi_thread")]
async fn what_upstream_refuses_is_refused_in_its_words() {
    let (cluster, shell) = Shell::with_cluster().await;
    std::fs::write(shell.home().join("old.yaml"), OLD).expect("a file");
    std::fs::write(shell.home().join("all.yaml"), OBJECTS).expect("a file");
    std::fs::write(shell.home().join("gone.yaml"), GONE).expect("a file");
    std::fs::write(shell.home().join("made.yaml"), GONE.replace("name: g", "generateName: g")).expect("a file");
    assert_eq!(shell.run("create -f all.yaml").await.code, 0);
    for (line, expected) in [
        (
            "label -f gone.yaml a=b",
            "Error from server (NotFound): configmaps \"g1\" not found\nError from server (NotFound): configmaps \"g2\" not found",
        ),
        (
            "apply -f all.yaml -l ==",
            "error: the provided selector \"==\" is not valid: found '==', expected: !, identifier, or 'end of string'",
        ),
        ("apply view-last-applied -f gone.yaml", "Error from server (NotFound): configmaps \"g1\" not found"),
        (
            "logs nope --tail=-5",
            "error: error from server (NotFound): pods \"nope\" not found in namespace \"default\"",
        ),
        (
            "logs nope --since-time=x",
            "error: parsing time \"x\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"x\" as \"2006\"",
        ),
        ("debug nope other --image=i", "Error from server (NotFound): pods \"nope\" not found"),
        (
            "certificate deny a -f gone.yaml",
            "error: resource/name arguments cannot be provided when a path is specified",
        ),
        ("create pdb p --min-available=1 --selector=a!=b", "error: \"!=\" is not a valid label selector operator"),
        ("explain pods.nope -o plaintext-openapiv2", "error: field \"nope\" does not exist"),
        ("create cm x --dry-run=", "error: Invalid dry-run value (). Must be \"none\", \"server\", or \"client\"."),
        ("autoscale deploy web --max=3 --cpu=-5%", "error: invalid percentage value: -5"),
        (
            "edit cm/cm1 -o nope",
            "error: unable to match a printer suitable for the output format \"nope\", allowed formats are: json,kyaml,yaml",
        ),
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
    let said = shell.run("wait deploy/gone cm/cm1 --for=jsonpath={.kind}=ConfigMap").await;
    assert_eq!(
        (said.code, &*said.out),
        (1, "configmap/cm1 condition met\n"),
        "what is missing keeps nobody from the others"
    );
    assert_eq!(said.err, "Error from server (NotFound): deployments.apps \"gone\" not found\n");
    let said = shell.run("diff -f made.yaml").await;
    assert_eq!((said.code, said.err.as_str()), (2, "error: resource name may not be empty\n"));
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
    let token = shell.ok("create token default").await;
    assert!(!token.ends_with('\n'), "what no terminal reads is the token alone");
    assert_eq!(shell.ok("get cm cm1 -o NAME").await, "configmap/cm1\n");
    assert!(shell.run("get --raw=").await.err.starts_with("You must specify the type of resource to get."));
    assert_eq!(
        shell.ok("create clusterrole x --verb=impersonate --resource=users --dry-run=client -o name").await,
        "clusterrole.rbac.authorization.k8s.io/x\n"
    );
    let said = shell.run("replace -f all.yaml and more").await;
    assert_eq!((said.code, said.err.as_str()), (0, ""), "arguments mean nothing to it");
    let described = shell.run("describe cm gone cm1").await;
    assert!(described.out.starts_with("Name:") && !described.out.contains("Events:"), "{}", described.out);
    assert_eq!(shell.run("proxy --accept-paths=[").await.code, 255);
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
