//! Command lines with all that upstream's kubectl v1.37 was seen to answer to them, on the same objects.

use crate::Shell;

/// A line, its exit code, and what it writes to standard output and to standard error.
type Line = (&'static str, i32, &'static str, &'static str);

const OBJECTS: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: cm1, labels: {app: a, tier: front}}
data: {k: v, l: '1'}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: cm2}
data: {multi: \"a\\nb\\n\"}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: dep, labels: {app: dep}}
spec:
  replicas: 2
  selector: {matchLabels: {app: dep}}
  template:
    metadata: {labels: {app: dep}}
    spec: {containers: [{name: c, image: 'nginx:1', ports: [{containerPort: 80}]}]}
";

async fn check(shell: &Shell, lines: &[Line]) {
    for (line, code, out, err) in lines {
        let said = shell.run(line).await;
        assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (*code, *out, *err), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_read_as_upstream_reads_them() {
    let (cluster, shell) = Shell::with_cluster().await;
    shell.ok("create namespace there").await;
    let said = shell.run_with("apply -n there -f -", OBJECTS).await;
    assert_eq!(said.err, "");
    let lines: &[Line] = &[
        (
            "get cm,deploy cm1 -n there -o name",
            1,
            "configmap/cm1\n",
            "Error from server (NotFound): deployments.apps \"cm1\" not found\n",
        ),
        ("get cm nope -n nowhere", 1, "", "Error from server (NotFound): namespaces \"nowhere\" not found\n"),
        ("get cm nope -n there", 1, "", "Error from server (NotFound): configmaps \"nope\" not found\n"),
        ("get cm,", 1, "", "error: the server doesn't have a resource type \"\"\n"),
        ("get cm -n there --sort-by=.nope", 0, "", "No resources found in there namespace.\n"),
        (
            "get cm,deploy -n there --sort-by=.metadata.name",
            1,
            "",
            "error: couldn't find any field with path \"{.metadata.name}\" in the list of objects\n",
        ),
        (
            "get deploy -n there --subresource=scale",
            1,
            "",
            "error: subresource cannot be used when bulk resources are specified\n",
        ),
        ("get --raw api", 1, "", "error: --raw must be a valid URL path: parse \"api\": invalid URI for request\n"),
        (
            "get cm -n there -o custom-columns-file=nope",
            1,
            "",
            "error: error reading template nope, open nope: no such file or directory\n",
        ),
        (
            "get cm cm1 -n there -o go-template={{.a",
            1,
            "",
            "error: error parsing template {{.a, template: output:1: unclosed action\n",
        ),
    ];
    check(&shell, lines).await;
    let kyaml = shell.ok("get cm cm2 -n there -o kyaml").await;
    assert!(kyaml.contains("    multi: \"\\\n       a\\n\\\n       b\\n\\\n      \",\n"), "{kyaml}");
    let table = shell.ok("get cm -n there -L app,tier --no-headers").await;
    let ends: Vec<&str> = table.lines().map(|line| line.trim_end().rsplit("  ").next().unwrap_or_default()).collect();
    assert!(!table.contains("<none>") && ends[0].trim() == "front", "{table}");
    let sorted = shell.run("get cm -n there --sort-by=.data").await;
    assert_eq!((sorted.code, sorted.out.as_str()), (1, ""));
    assert!(sorted.err.ends_with("sorter.go:375] Field {.data} in [][][]reflect.Value is an unsortable type: interface, err: unsortable type: map[string]interface {}\n"), "{}", sorted.err);
    let one = shell.run("get cm cm1 -n there -w --request-timeout=300ms -o name").await;
    assert_eq!((one.code, one.out.as_str(), one.err.as_str()), (0, "configmap/cm1\n", ""));
    let plain = shell.run("get cm cm1 -n there -w --request-timeout=1 -v=5 -o name").await;
    assert_eq!((plain.code, plain.out.as_str()), (0, "configmap/cm1\n"));
    assert!(plain.err.contains("err=\"net/http: request canceled (Client.Timeout or context"), "{}", plain.err);
    let events = shell.run("get cm cm1 -n there -w --request-timeout=300ms --output-watch-events -o json").await;
    assert!(events.out.starts_with("{\"type\":\"ADDED\",\"object\":{\"apiVersion\":\"v1\""), "{}", events.out);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_written_as_upstream_writes_them() {
    let (cluster, shell) = Shell::with_cluster().await;
    std::fs::write(shell.home().join("cm.yaml"), OBJECTS).expect("a file");
    std::fs::write(shell.home().join("cut.json"), "{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\"").expect("a file");
    std::fs::write(shell.home().join("text.yaml"), "hello\n").expect("a file");
    std::fs::write(
        shell.home().join("odd.yaml"),
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: bad\ndata:\n  a: [\n",
    )
    .expect("a file");
    let lines: &[Line] = &[
        ("apply -f cut.json", 1, "", "error: error parsing cut.json: unexpected EOF\n"),
        (
            "apply -f odd.yaml",
            1,
            "",
            "error: error parsing odd.yaml: error converting YAML to JSON: yaml: line 3: did not find expected ',' or '}'\n",
        ),
        (
            "apply -f text.yaml",
            1,
            "",
            "error: error validating \"text.yaml\": error validating data: invalid object to validate; if you choose to ignore these errors, turn validation off with --validate=false\n",
        ),
        ("apply -f - -f -", 1, "", "error: standard input cannot be used for multiple arguments\n"),
        (
            "apply -f cm.yaml --cascade=bad",
            1,
            "",
            "error: invalid cascade value (bad). Must be \"background\", \"foreground\", or \"orphan\"\n",
        ),
        (
            "apply -f cm.yaml --applyset=x",
            1,
            "",
            "error: unknown flag: --applyset\nSee 'kubectl apply --help' for usage.\n",
        ),
        (
            "apply -f cm.yaml --prune -l app=a --prune-allowlist=bad",
            1,
            "",
            "error: invalid GroupVersionKind format: bad, please follow <group/version/kind>\n",
        ),
        ("delete --raw x", 1, "", "error: --raw must be a valid URL path: parse \"x\": invalid URI for request\n"),
        ("delete --all", 1, "", "error: at least one resource must be specified to use a selector\n"),
        ("delete cm --all -l a=b", 1, "", "error: setting 'all' parameter but found a non empty selector. \n"),
        ("create pdb x --min-available=x --selector=a=b", 1, "", "error: invalid format specified for min-available\n"),
        ("create service externalname x --external-name=Bad_", 1, "", "error: invalid service external name Bad_\n"),
        (
            "create clusterrole x --verb=use --resource=pods",
            1,
            "",
            "error: can not perform 'use' on 'pods' in group ''\n",
        ),
        (
            "set image deploy/dep c=x --local",
            1,
            "",
            "error: you must specify resources by --filename when --local is set.\nExample resource specifications include:\n   '-f rsrc.yaml'\n   '--filename=rsrc.json'\n",
        ),
        ("run x --image=i --overrides={", 1, "", "error: Invalid JSON Patch\n"),
        ("run x --image=i --pod-running-timeout=0", 1, "", "error: --pod-running-timeout must be higher than zero\n"),
    ];
    check(&shell, lines).await;
    assert_eq!(
        shell.run_with("set env -f - -", "A=b").await.err,
        "error: standard input cannot be used for multiple arguments\n"
    );
    // What follows the dashes is the command, not an object.
    assert_eq!(shell.fail("exec -f cm.yaml -- date").await, "error: cannot exec into multiple objects at a time\n");
    let pod = shell.ok("run x --image=i --dry-run=client -o jsonpath={.spec.nodeName} --override-type=json --overrides='[{\"op\":\"add\",\"path\":\"/spec/nodeName\",\"value\":\"z\"}]'").await;
    assert_eq!(pod, "z");
    let said = shell.run("apply -f cm.yaml --record").await;
    assert_eq!(said.err, "Flag --record has been deprecated, --record will be removed in the future\n");
    assert_eq!(said.out, "configmap/cm1 created\nconfigmap/cm2 created\ndeployment.apps/dep created\n");
    assert_eq!(
        shell.ok("get cm cm1 -o jsonpath={.metadata.annotations.kubernetes\\.io/change-cause}").await,
        "kubectl apply --filename=cm.yaml --record=true"
    );
    assert_eq!(shell.ok("apply set-last-applied -f cm.yaml --dry-run=client").await.lines().count(), 3);
    assert_eq!(shell.run("replace -f cm.yaml --force").await.err, "");
    assert_eq!(shell.run_with("set env deploy/dep -", "# why\nA=b\n").await.out, "deployment.apps/dep env updated\n");
    assert_eq!(shell.ok("set env deploy/dep --list").await, "# Deployment dep, container c\nA=b\n");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn server_side_apply_takes_over_from_client_side_apply() {
    let (cluster, shell) = Shell::with_cluster().await;
    let map = |data: &str| format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: m}}, data: {{{data}}}}}");
    assert_eq!(shell.run_with("apply -f -", &map("a: b, c: d")).await.out, "configmap/m created\n");
    let said = shell.run_with("apply --server-side -f -", &map("a: b")).await;
    assert_eq!((said.out.as_str(), said.err.as_str()), ("configmap/m serverside-applied\n", ""));
    // What client-side apply owned is gone with the file's line, because nobody else owns it.
    assert_eq!(shell.ok("get cm m -o jsonpath={.data}").await, "{\"a\":\"b\"}");
    let managers = shell.ok("get cm m --show-managed-fields -o jsonpath='{range .metadata.managedFields[*]}{.manager} {.operation},{end}'").await;
    let mut managers: Vec<&str> = managers.split_terminator(',').collect();
    managers.sort_unstable();
    assert_eq!(managers, ["kubectl Apply", "kubectl-last-applied Apply"]);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn revisions_are_shown_with_their_templates() {
    let (cluster, shell) = Shell::with_cluster().await;
    shell.run_with("apply -f -", OBJECTS).await;
    let uid = shell.ok("get deploy dep -o jsonpath={.metadata.uid}").await;
    // No controller runs here: this is what it would make.
    let revision = format!(
        "
apiVersion: apps/v1
kind: ReplicaSet
metadata:
  name: dep-1
  labels: {{app: dep, pod-template-hash: '1'}}
  annotations: {{deployment.kubernetes.io/revision: '1', kubernetes.io/change-cause: because}}
  ownerReferences: [{{apiVersion: apps/v1, kind: Deployment, name: dep, uid: {uid}, controller: true}}]
spec:
  selector: {{matchLabels: {{app: dep, pod-template-hash: '1'}}}}
  template:
    metadata: {{labels: {{app: dep, pod-template-hash: '1'}}}}
    spec: {{containers: [{{name: c, image: 'nginx:1', ports: [{{containerPort: 80}}]}}]}}
"
    );
    assert_eq!(shell.run_with("create -f -", &revision).await.out, "replicaset.apps/dep-1 created\n");
    assert_eq!(
        shell.ok("rollout history deploy/dep --revision=1").await,
        "deployment.apps/dep with revision #1\nPod Template:\n  Labels:\tapp=dep\n\tpod-template-hash=1\n  Annotations:\tkubernetes.io/change-cause: because\n  Containers:\n   c:\n    Image:\tnginx:1\n    Port:\t80/TCP\n    Host Port:\t0/TCP\n    Environment:\t<none>\n    Mounts:\t<none>\n  Volumes:\t<none>\n  Node-Selectors:\t<none>\n  Tolerations:\t<none>\n\n"
    );
    let lines: &[Line] = &[
        (
            "rollout history cm/cm1",
            1,
            "",
            "error: error retrieving history for \"ConfigMap\", no visitor method exists for { ConfigMap}\n",
        ),
        ("rollout history deploy/dep -o name", 0, "replicaset.apps/dep-1\n", ""),
        (
            "rollout undo cm/cm2",
            1,
            "",
            "Warning: resource configmaps/cm2 was previously managed with 'kubectl apply'. Rolling back will not update the kubectl.kubernetes.io/last-applied-configuration annotation, which may cause unexpected behavior on future 'kubectl apply' operations. Consider using 'kubectl apply' with your previous configuration file instead.\nerror: error retrieving rollbacker for \"ConfigMap\", no visitor method exists for { ConfigMap}\n",
        ),
    ];
    check(&shell, lines).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_read_from_urls() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let (cluster, shell) = Shell::with_cluster().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let at = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut request = vec![0; 4096];
            let read = socket.read(&mut request).await.unwrap_or_default();
            let request = String::from_utf8_lossy(&request[..read]).into_owned();
            let body = "{apiVersion: v1, kind: ConfigMap, metadata: {name: far}}";
            let answer = match request.split(' ').nth(1) {
                Some("/far.yaml") => {
                    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
                }
                Some("/moved.yaml") => {
                    "HTTP/1.1 302 Found\r\nLocation: /far.yaml\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                        .to_owned()
                }
                _ => "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_owned(),
            };
            assert!(!request.to_lowercase().contains("authorization"), "no credentials go elsewhere");
            let _ = socket.write_all(answer.as_bytes()).await;
        }
    });
    assert_eq!(shell.ok(&format!("apply -f {at}/far.yaml")).await, "configmap/far created\n");
    assert_eq!(shell.ok(&format!("apply -f {at}/moved.yaml")).await, "configmap/far unchanged\n");
    assert_eq!(
        shell.fail(&format!("apply -f {at}/nope.yaml")).await,
        format!("error: unable to read URL \"{at}/nope.yaml\", server reported 404 Not Found, status code=404\n")
    );
    cluster.stop().await;
}
