//! What a third pass beside upstream's kubectl v1.37 found, line by line: both were run against servers with the same objects.

use crate::Shell;

const OBJECTS: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 0
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: 'nginx:1'}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: cm1}
data: {k: v}
---
apiVersion: v1
kind: Service
metadata: {name: svc}
spec: {ports: [{port: 80}], selector: {app: web}}
---
apiVersion: v1
kind: Node
metadata: {name: n1}
";

#[tokio::test(flavor = "multi_thread")]
async fn refusals_are_upstreams() {
    let (cluster, shell) = Shell::with_cluster().await;
    std::fs::write(shell.home().join("all.yaml"), OBJECTS).expect("a file");
    assert_eq!(shell.run("create -f all.yaml").await.code, 0);
    shell.ok("create deploy other --image=i --replicas=0").await;
    // What flags say is only judged where there is a pod.
    shell.ok("run p --image=i").await;
    for (line, expected) in [
        (
            "create clusterrole a --aggregation-rule=a --dry-run=client",
            "error: invalid argument \"a\" for \"--aggregation-rule\" flag: malformed pair, expect string=string\nSee 'kubectl create clusterrole --help' for usage.",
        ),
        ("create -f all.yaml --raw /x -o yaml", "error: --raw and --output are mutually exclusive"),
        ("delete --raw /x -f nosuch", "error: open nosuch: no such file or directory"),
        (
            "delete pods p --now --force",
            "error: --force and --grace-period greater than 0 cannot be specified together",
        ),
        (
            "cordon --selector=",
            "error: You must provide one or more resources by argument or filename.\nExample resource specifications include:\n   '-f rsrc.yaml'\n   '--filename=rsrc.json'\n   '<resource> <name>'\n   '<resource>'",
        ),
        ("apply -k . -R", "error: the -k flag can't be used with -f or -R"),
        ("get pods -f nosuch.yaml", "error: the path \"nosuch.yaml\" does not exist"),
        ("scale deploy/web deploy/other --replicas=1 --current-replicas=9", "error: Expected replicas to be 9, was 0"),
        ("convert -f x", "error: unknown command \"convert\" for \"kubectl\""),
        (
            "auth can-i get pods p",
            "error: you must specify two arguments: verb resource or verb resource/resourceName.\nSee 'kubectl auth can-i -h' for help and examples.",
        ),
        ("logs deploy/web --pod-running-timeout=10ms", "error: timed out waiting for the condition"),
        ("logs p --all-containers x", "error: --all-containers=true should not be specified with container name x"),
        ("wait cm cm1 --for=CONDITION=x", "error: unrecognized condition: \"CONDITION=x\""),
        ("taint node/n1 a=b:NoSchedule", "the server doesn't have a resource type \"node/n1\""),
    ] {
        assert_eq!(shell.fail(line).await, format!("{expected}\n"), "{line}");
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn words_are_upstreams() {
    let (cluster, shell) = Shell::with_cluster().await;
    std::fs::write(shell.home().join("all.yaml"), OBJECTS).expect("a file");
    assert_eq!(shell.run("create -f all.yaml").await.code, 0);
    let missing = shell.run("apply -f all.yaml").await.err;
    assert!(missing.contains("Warning: resource deployments/web is missing the kubectl"), "{missing}");
    for line in [
        "create service nodeport a --tcp=80 --save-config --dry-run=client -o yaml",
        "run a --image=i --save-config --dry-run=client -o yaml",
    ] {
        let made = shell.ok(line).await;
        assert!(!made.contains("last-applied"), "{line}: {made}");
    }
    assert_eq!(shell.ok("set selector svc svc app=web").await, "service/svc selector updated\n");
    assert_eq!(shell.run("set env deploy/web --from=cm/cm1").await.err, "Warning: key k transferred to K\n");
    let listed = "# Deployment web, container c\n";
    assert_eq!(
        shell.ok("set env deploy/web --list").await,
        format!("{listed}# K from configmap cm1, key k\n"),
        "references are told as they are"
    );
    assert_eq!(shell.ok("set env deploy/web --list --resolve A=b").await, format!("{listed}K=v\nA=b\n"));
    shell.ok("delete cm cm1").await;
    let unresolved = shell.run("set env deploy/web --list --resolve").await;
    assert_eq!(unresolved.err, "error retrieving reference for K: configmaps \"cm1\" not found\n");
    let kyaml = shell.ok("create cm a --from-literal=k=v --dry-run=client -o kyaml").await;
    assert!(kyaml.starts_with("---\n{\n  kind: \"ConfigMap\",\n  apiVersion: \"v1\",\n"), "{kyaml}");
    cluster.stop().await;
}

/// A pod that nothing ends: its node is nobody's, and a finalizer holds it.
const HELD: &str = "{apiVersion: v1, kind: Pod, metadata: {name: p, finalizers: [example.com/held]}, spec: {nodeName: n1, terminationGracePeriodSeconds: 0, containers: [{name: c, image: i}]}}";

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_does_not_wait_for_what_has_been_ending_for_long() {
    let (cluster, shell) = Shell::with_cluster().await;
    std::fs::write(shell.home().join("all.yaml"), OBJECTS).expect("a file");
    assert_eq!(shell.run("create -f all.yaml").await.code, 0);
    assert_eq!(shell.run_with("create -f -", HELD).await.out, "pod/p created\n");
    let drained = shell.run("drain n1 --force --skip-wait-for-delete-timeout=1").await;
    assert_eq!(drained.code, 0, "{}", drained.err);
    assert_eq!(
        drained.out,
        "node/n1 cordoned\nevicting pod default/p\npod \"p\" has DeletionTimestamp older than 1 seconds, skipping\nnode/n1 drained\n"
    );
    // From now on it is left out from the beginning.
    assert_eq!(
        shell.ok("drain n1 --skip-wait-for-delete-timeout=1").await,
        "node/n1 already cordoned\nnode/n1 drained\n"
    );
    cluster.stop().await;
}

/// Two pods of which a budget protects the first.
const PROTECTED: &str = "
{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: b}, spec: {maxUnavailable: 0, selector: {matchLabels: {a: b}}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: a, labels: {a: b}}, spec: {nodeName: n1, containers: [{name: c, image: i}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: z}, spec: {nodeName: n1, terminationGracePeriodSeconds: 0, containers: [{name: c, image: i}]}}
";

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_a_budget_protects_does_not_keep_the_others() {
    let (cluster, shell) = Shell::with_cluster().await;
    shell.run_with("create -f -", "{apiVersion: v1, kind: Node, metadata: {name: n1}}").await;
    assert_eq!(shell.run_with("create -f -", PROTECTED).await.code, 0);
    let status = r#"patch pod a --subresource=status -p {"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}"#;
    shell.ok(status).await;
    // Nobody here counts what a budget allows.
    let counted = r#"patch pdb b --subresource=status --type=merge -p {"status":{"observedGeneration":1,"disruptionsAllowed":0,"currentHealthy":1,"desiredHealthy":1,"expectedPods":1}}"#;
    shell.ok(counted).await;
    let drained = shell.run("drain n1 --force --timeout=2s").await;
    assert_eq!(drained.code, 1, "{}", drained.err);
    assert_eq!(
        drained.out, "node/n1 cordoned\nevicting pod default/a\nevicting pod default/z\npod/z evicted\n",
        "{}",
        drained.err
    );
    let why = "error when evicting pods/\"a\" -n \"default\": global timeout reached: 2s";
    assert!(drained.err.contains(why), "{}", drained.err);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_delete_and_get_need_not_list() {
    let (cluster, shell) = Shell::with_cluster().await;
    for line in [
        "create cm a",
        "create role deleter --verb=get,delete --resource=configmaps",
        "create rolebinding deleter --role=deleter --user=jane",
        "delete cm a --as=jane",
    ] {
        shell.ok(line).await;
    }
    shell.ok("create cm a").await;
    let patch = "patch cm a --type=merge -p {\"metadata\":{\"finalizers\":[\"example.com/held\"]}}";
    shell.ok(patch).await;
    let waited = shell.run("delete cm a --as=jane --wait=false").await;
    assert_eq!((waited.code, waited.err.as_str()), (0, ""), "{}", waited.out);
    let late = shell.run("wait cm a --for=delete --timeout=0").await;
    assert_eq!(late.err, "error: condition not met for configmaps/a\n");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fourth_pass_found_the_order_of_refusals() {
    let (cluster, shell) = Shell::with_cluster().await;
    std::fs::write(shell.home().join("all.yaml"), OBJECTS).expect("a file");
    std::fs::write(shell.home().join("half.yaml"), format!("{OBJECTS}---\nmetadata: {{name: x}}\n")).expect("a file");
    assert_eq!(shell.run("create -f all.yaml").await.code, 0);
    let missing = "error: You must provide one or more resources by argument or filename.\nExample resource specifications include:\n   '-f rsrc.yaml'\n   '--filename=rsrc.json'\n   '<resource> <name>'\n   '<resource>'";
    for (line, expected) in [
        (
            "annotate -o nope",
            "error: one or more resources must be specified as <resource> <name> or <resource>/<name>",
        ),
        ("delete -o nope", missing),
        ("apply view-last-applied -o nope", missing),
        ("options --nope", "error: unknown flag: --nope\nRun 'kubectl options' without flags."),
        (
            "get --help=maybe",
            "error: invalid argument \"maybe\" for \"-h, --help\" flag: strconv.ParseBool: parsing \"maybe\": invalid syntax\nSee 'kubectl get --help' for usage.",
        ),
        ("create deployment d --dry-run=nope", "error: required flag(s) \"image\" not set"),
        ("create cronjob j --image=i --dry-run", "error: required flag(s) \"schedule\" not set"),
        (
            "run r --image=bad:image:x --dry-run=client",
            "error: invalid image name \"bad:image:x\": invalid reference format",
        ),
        (
            "run r --image=i --overrides=[] --dry-run=client",
            "error: couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }",
        ),
        ("cluster-info dump -o name", "error: list types are not supported by name printing: *v1.NodeList"),
        ("describe deploy/web cm/nope", "Error from server (NotFound): configmaps \"nope\" not found"),
    ] {
        assert_eq!(shell.fail(line).await, format!("{expected}\n"), "{line}");
    }
    let address =
        "expose deploy web --port=80 --load-balancer-ip=1.2.3.4 --dry-run=client -o jsonpath={.spec.loadBalancerIP}";
    assert_eq!(shell.ok(address).await, "");
    assert_eq!(shell.ok(&format!("{address} --type=LoadBalancer")).await, "1.2.3.4");
    assert_eq!(shell.ok("run r --image=h:5/a/b:c --dry-run=client -o name").await, "pod/r\n");
    // What one file has wrong hides nothing of the others.
    let half = shell.run("get -f half.yaml --no-headers").await;
    assert!(half.code == 1 && half.out.contains("cm1 ") && half.err.contains("Object 'Kind' is missing"), "{half:?}");
    shell.ok("create cm cm2").await;
    let both = shell.run("get cm cm1 cm2 -w --no-headers").await;
    assert_eq!(both.err, "error: you may only watch a single resource or type of resource at a time\n");
    assert_eq!(both.out.lines().count(), 2, "{}", both.out);
    let watched = shell.run("get cm cm1 -w --output-watch-events -o json --request-timeout=300ms").await;
    assert!(watched.out.contains("\"managedFields\":["), "an event is shown as it is: {}", watched.out);
    let init = r#"{"spec":{"template":{"spec":{"initContainers":[{"name":"i","image":"i"}]}}}}"#;
    shell.ok(&format!("patch deploy web -p '{init}'")).await;
    shell.ok("set resources deploy web --limits=cpu=1").await;
    assert_eq!(shell.ok("get deploy web -o jsonpath={..limits.cpu}").await, "1 1", "containers of both kinds");
    let asked = shell.run("describe deploy web -v=6").await.err;
    assert!(asked.contains("involvedObject.name%3Dweb"), "queries are escaped as Go escapes them: {asked}");
    assert!(shell.run("__complete help ge").await.out.starts_with("get\t"));
    cluster.stop().await;
}
