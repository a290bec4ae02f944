//! Objects from their making to their end.

use crate::Shell;

const POD: &str = "
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  containers: [{name: c, image: nginx:1}]
";

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_shown_as_upstream_shows_them() {
    let (cluster, shell) = Shell::with_cluster().await;
    assert_eq!(shell.run("get pods").await.err, "No resources found in default namespace.\n");
    assert_eq!(shell.run("get pods -A").await.err, "No resources found\n");
    assert_eq!(shell.ok("create configmap a --from-literal=k=v").await, "configmap/a created\n");
    assert_eq!(shell.ok("create configmap b --from-literal=k=v --from-literal=l=w").await, "configmap/b created\n");
    let table = shell.ok("get cm --no-headers --sort-by=.metadata.name").await;
    let columns: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().take(2).collect()).collect();
    assert_eq!(columns, [["a", "1"], ["b", "2"]]);
    assert_eq!(shell.ok("get cm -o name").await, "configmap/a\nconfigmap/b\n");
    assert_eq!(shell.ok("get cm a -o jsonpath={.data.k}").await, "v");
    assert_eq!(shell.ok("get cm -o go-template='{{range .items}}{{len .data}}{{end}}'").await, "12");
    assert_eq!(
        shell.ok("get cm -o custom-columns=N:.metadata.name,L:.data.l").await,
        "N    L\na    <none>\nb    w\n"
            .replace("N    ", "N     ")
            .replace("a    ", "a     ")
            .replace("b    ", "b     ")
    );
    assert_eq!(shell.fail("get cm nope").await, "Error from server (NotFound): configmaps \"nope\" not found\n");
    assert_eq!(shell.ok("get cm nope --ignore-not-found").await, "");
    assert_eq!(shell.fail("get nope").await, "error: the server doesn't have a resource type \"nope\"\n");
    assert_eq!(
        shell.fail("get cm a -A").await,
        "error: a resource cannot be retrieved by name across all namespaces\n"
    );
    assert_eq!(
        shell.fail("create configmap a").await,
        "error: failed to create configmap: configmaps \"a\" already exists\n"
    );
    assert!(shell.ok("api-resources --api-group=apps -o name").await.contains("deployments.apps\n"));
    assert!(shell.ok("api-versions").await.contains("apps/v1\n"));
    assert!(shell.home().join(".kube/cache/discovery").is_dir(), "discovery is remembered");
    let as_nobody = shell.fail("get cm --as=nobody").await;
    assert!(
        as_nobody.starts_with("Error from server (Forbidden): configmaps is forbidden: User \"nobody\""),
        "{as_nobody}"
    );
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_applied_changed_and_deleted() {
    let (cluster, shell) = Shell::with_cluster().await;
    let file = shell.home().join("pod.yaml");
    std::fs::write(&file, POD).expect("a file");
    assert_eq!(shell.ok("create -f pod.yaml --dry-run=client").await, "pod/web created (dry run)\n");
    assert_eq!(shell.ok("apply -f pod.yaml").await, "pod/web created\n");
    assert_eq!(shell.ok("apply -f pod.yaml").await, "pod/web unchanged\n");
    std::fs::write(&file, POD.replace("nginx:1", "nginx:2").replace("app: web", "tier: front")).expect("a file");
    assert_eq!(shell.ok("apply -f pod.yaml").await, "pod/web configured\n");
    assert_eq!(
        shell.ok("get pod web -o jsonpath={.spec.containers[0].image}{.metadata.labels}").await,
        "nginx:2{\"tier\":\"front\"}"
    );
    assert_eq!(shell.ok("apply -f pod.yaml --server-side --force-conflicts").await, "pod/web serverside-applied\n");
    assert_eq!(shell.ok("label pod web a=b").await, "pod/web labeled\n");
    assert_eq!(shell.fail("label pod web a=c").await, "error: 'a' already has a value (b), and --overwrite is false\n");
    assert_eq!(shell.ok("label pod web a=c --overwrite").await, "pod/web labeled\n");
    assert_eq!(shell.ok("label pod web a-").await, "pod/web unlabeled\n");
    assert_eq!(shell.ok("annotate pod web x=y").await, "pod/web annotated\n");
    assert_eq!(shell.ok("patch pod web -p '{\"metadata\":{\"labels\":{\"p\":\"q\"}}}'").await, "pod/web patched\n");
    assert_eq!(
        shell.ok("patch pod web -p '{\"metadata\":{\"labels\":{\"p\":\"q\"}}}'").await,
        "pod/web patched (no change)\n"
    );
    let map = "{apiVersion: v1, kind: ConfigMap, metadata: {name: m}, data: {a: b}}";
    assert_eq!(
        shell.run_with("replace -f -", map).await.err,
        "Error from server (NotFound): error when replacing \"STDIN\": configmaps \"m\" not found\n"
    );
    assert_eq!(shell.run_with("create -f -", map).await.out, "configmap/m created\n");
    assert_eq!(shell.run_with("replace -f -", &map.replace("a: b", "a: c")).await.out, "configmap/m replaced\n");
    assert_eq!(shell.ok("get cm m -o jsonpath={.data}").await, "{\"a\":\"c\"}");
    assert_eq!(shell.ok("wait --for=jsonpath={.metadata.name}=web pod/web").await, "pod/web condition met\n");
    assert_eq!(
        shell.fail("wait --for=condition=Ready pod/web --timeout=100ms").await,
        "error: timed out waiting for the condition on pods/web\n"
    );
    assert_eq!(shell.ok("delete pod web --grace-period=1").await, "pod \"web\" deleted from default namespace\n");
    assert_eq!(shell.fail("delete pod web").await, "Error from server (NotFound): pods \"web\" not found\n");
    assert_eq!(shell.ok("delete pods --all").await, "No resources found\n");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_longer_applied_is_pruned() {
    let (cluster, shell) = Shell::with_cluster().await;
    let map =
        |name: &str| format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}, labels: {{set: one}}}}}}\n");
    let both = format!("{}---\n{}", map("kept"), map("old"));
    assert_eq!(
        shell.run_with("apply -f - -l set=one", &both).await.out,
        "configmap/kept created\nconfigmap/old created\n"
    );
    let said = shell.run_with("apply -f - --prune -l set=one", &map("kept")).await;
    assert_eq!((said.code, said.out.as_str()), (0, "configmap/kept unchanged\nconfigmap/old pruned\n"), "{}", said.err);
    let refused = shell.run_with("apply -f - --prune", &map("kept")).await.err;
    assert!(
        refused.starts_with("error: all resources selected for prune without explicitly passing --all."),
        "{refused}"
    );
    cluster.stop().await;
}
