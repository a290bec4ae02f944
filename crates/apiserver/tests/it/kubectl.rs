//! What users type, with a real, unmodified kubectl, and what it prints against upstream's server.

use serde_json::json;
use testkit::Kubectl;

use crate::server::Server;

const DEPLOYMENT: &str = r"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: 'nginx:1', ports: [{containerPort: 80}]}]}
";

fn config_maps(values: &[(&str, &str)]) -> String {
    let one = |(name, value): &(&str, &str)| {
        format!(
            "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, labels: {{set: one}}}}\ndata: {{k: {value}}}\n"
        )
    };
    values.iter().map(one).collect()
}

/// Runs commands in order; each must print exactly this.
async fn script(kubectl: &Kubectl, steps: &[(&[&str], &str, &str)]) {
    for (arguments, input, expected) in steps {
        let output = kubectl.output(arguments, input).await;
        let said = format!("{}{}", output.stdout, output.stderr);
        assert_eq!(said, *expected, "kubectl {}", arguments.join(" "));
    }
}

#[tokio::test]
async fn apply_client_side_and_server_side() {
    let server = Server::default().await;
    let kubectl = server.kubectl();
    let more = DEPLOYMENT.replace("replicas: 2", "replicas: 3");
    let apply: &[&str] = &["apply", "-f", "-"];
    let server_side: &[&str] = &["apply", "--server-side", "-f", "-"];
    script(
        &kubectl,
        &[
            (apply, DEPLOYMENT, "deployment.apps/web created\n"),
            (apply, DEPLOYMENT, "deployment.apps/web unchanged\n"),
            (apply, &more, "deployment.apps/web configured\n"),
            (
                &["apply", "--dry-run=server", "-f", "-"],
                DEPLOYMENT,
                "deployment.apps/web configured (server dry run)\n",
            ),
            (&["get", "deploy", "web", "-o", "jsonpath={.spec.replicas}"], "", "3"),
            // From client-side to server-side: kubectl's own past is no conflict.
            (server_side, &more, "deployment.apps/web serverside-applied\n"),
            (server_side, DEPLOYMENT, "deployment.apps/web serverside-applied\n"),
            (&["get", "deploy", "web", "-o", "jsonpath={.spec.replicas}"], "", "2"),
        ],
    )
    .await;
    // Its entry for updates went over to the one for applies.
    let managers =
        ["get", "deploy", "web", "--show-managed-fields", "-o", "jsonpath={.metadata.managedFields[*].operation}"];
    assert_eq!(kubectl.run(&managers).await, "Apply Apply");
    let conflict = kubectl.output(&["apply", "--server-side", "--field-manager=other", "-f", "-"], &more).await;
    let first = conflict.stderr.lines().next().unwrap_or_default();
    assert_eq!(first, "error: Apply failed with 1 conflict: conflict with \"kubectl\": .spec.replicas");
    let force = ["apply", "--server-side", "--field-manager=other", "--force-conflicts", "-f", "-"];
    assert_eq!(kubectl.run_with(&force, &more).await, "deployment.apps/web serverside-applied\n");
    // Both managers own what both applied; replicas changed hands.
    let conflict = kubectl.output(server_side, DEPLOYMENT).await;
    assert!(conflict.stderr.contains("conflict with \"other\": .spec.replicas"), "{}", conflict.stderr);
    server.stop().await;
}

#[tokio::test]
async fn prune_diff_edit_and_labels() {
    let server = Server::default().await;
    let kubectl = server.kubectl();
    let (both, one) = (config_maps(&[("a", "v"), ("b", "v")]), config_maps(&[("a", "v")]));
    let prune: &[&str] = &["apply", "--prune", "-l", "set=one", "--prune-allowlist=core/v1/ConfigMap", "-f", "-"];
    script(
        &kubectl,
        &[
            (prune, &both, "configmap/a created\nconfigmap/b created\n"),
            (prune, &one, "configmap/a unchanged\nconfigmap/b pruned\n"),
            (&["get", "configmap", "-l", "set=one", "-o", "name"], "", "configmap/a\n"),
            (&["diff", "-f", "-"], &one, ""),
            (&["label", "configmap", "a", "tier=x"], "", "configmap/a labeled\n"),
            (
                &["label", "configmap", "a", "tier=y"],
                "",
                "error: 'tier' already has a value (x), and --overwrite is false\n",
            ),
            (&["label", "configmap", "a", "--overwrite", "tier=y"], "", "configmap/a labeled\n"),
            (&["label", "configmap", "a", "--overwrite", "tier=y"], "", "configmap/a not labeled\n"),
            (
                &[
                    "get",
                    "configmap",
                    "a",
                    "-L",
                    "tier",
                    "--no-headers",
                    "-o",
                    "custom-columns=N:.metadata.name,T:.metadata.labels.tier",
                ],
                "",
                "a     y\n",
            ),
            (&["label", "configmap", "a", "tier-"], "", "configmap/a unlabeled\n"),
        ],
    )
    .await;
    let changed = one.replace("k: v", "k: w");
    let diff = kubectl.output(&["diff", "-f", "-"], &changed).await;
    assert!(!diff.success);
    let lines: Vec<&str> =
        diff.stdout.lines().filter(|line| line.starts_with("-  ") || line.starts_with("+  ")).collect();
    assert_eq!(lines, ["-  k: v", "+  k: w"], "{}", diff.stdout);
    let server_side = kubectl.output(&["diff", "--server-side", "--force-conflicts", "-f", "-"], &changed).await;
    assert!(server_side.stdout.contains("-  k: v\n+  k: w\n"), "{}{}", server_side.stdout, server_side.stderr);

    let editor = kubectl.clone().with_env("KUBE_EDITOR", "sed -i -e 's/k: v/k: edited/'");
    script(
        &editor,
        &[
            (&["edit", "configmap", "a"], "", "configmap/a edited\n"),
            (&["edit", "configmap", "a"], "", "Edit cancelled, no changes made.\n"),
            (&["get", "configmap", "a", "-o", "jsonpath={.data.k}"], "", "edited"),
        ],
    )
    .await;
    server.stop().await;
}

#[tokio::test]
async fn output_formats() {
    let server = Server::default().await;
    let kubectl = server.kubectl();
    kubectl.run_with(&["create", "-f", "-"], DEPLOYMENT).await;
    kubectl.run(&["expose", "deployment", "web", "--port=80", "--cluster-ip=10.96.0.77"]).await;
    let age = |text: &str| {
        // Ages are the one thing that differs from run to run.
        let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        lines
            .map(|words| {
                let words: Vec<&str> = words
                    .into_iter()
                    .map(|word| {
                        if word.ends_with('s') && word[..word.len() - 1].parse::<u32>().is_ok() { "AGE" } else { word }
                    })
                    .collect();
                words.join(" ")
            })
            .collect::<Vec<_>>()
            .join("\n")
    };
    let wide = kubectl.run(&["get", "deployment,service", "web", "-o", "wide"]).await;
    assert_eq!(
        age(&wide),
        "NAME READY UP-TO-DATE AVAILABLE AGE CONTAINERS IMAGES SELECTOR\n\
         deployment.apps/web 0/2 0 0 AGE web nginx:1 app=web\n\
         \n\
         NAME TYPE CLUSTER-IP EXTERNAL-IP PORT(S) AGE SELECTOR\n\
         service/web ClusterIP 10.96.0.77 <none> 80/TCP AGE app=web"
    );
    script(
        &kubectl,
        &[
            (&["get", "svc", "web", "-o", "jsonpath={.spec.ports[0].port}/{.spec.type}"], "", "80/ClusterIP"),
            (
                &["get", "svc", "web", "-o", "custom-columns=NAME:.metadata.name,IP:.spec.clusterIP"],
                "",
                "NAME   IP\nweb    10.96.0.77\n",
            ),
            (&["get", "deploy", "web", "-o", "go-template={{.metadata.name}}"], "", "web"),
            (&["get", "deploy", "web", "-o", "name"], "", "deployment.apps/web\n"),
        ],
    )
    .await;
    let yaml = kubectl.run(&["get", "service", "web", "-o", "yaml"]).await;
    let spec = yaml.split_once("spec:\n").expect("a spec").1;
    assert_eq!(
        spec,
        "  clusterIP: 10.96.0.77\n  clusterIPs:\n  - 10.96.0.77\n  internalTrafficPolicy: Cluster\n  ipFamilies:\n  - IPv4\n  \
         ipFamilyPolicy: SingleStack\n  ports:\n  - port: 80\n    protocol: TCP\n    targetPort: 80\n  selector:\n    app: web\n  \
         sessionAffinity: None\n  type: ClusterIP\nstatus:\n  loadBalancer: {}\n"
    );
    let described = kubectl.run(&["describe", "service", "web"]).await;
    assert_eq!(
        described,
        "Name:                     web\nNamespace:                default\nLabels:                   app=web\nAnnotations:              <none>\n\
         Selector:                 app=web\nType:                     ClusterIP\nIP Family Policy:         SingleStack\nIP Families:              IPv4\n\
         IP:                       10.96.0.77\nIPs:                      10.96.0.77\nPort:                     <unset>  80/TCP\n\
         TargetPort:               80/TCP\nEndpoints:                <none>\nSession Affinity:         None\n\
         Internal Traffic Policy:  Cluster\nEvents:                   <none>\n"
    );
    for kind in ["deployment/web", "namespace/default", "serviceaccount/default", "clusterrole/view"] {
        let described = kubectl.run(&["describe", kind]).await;
        assert!(described.starts_with("Name:"), "{described}");
    }
    server.stop().await;
}

#[tokio::test]
async fn every_kind_is_explained() {
    let server = Server::default().await;
    let kubectl = server.kubectl();
    let resources = kubectl.run(&["api-resources", "--no-headers"]).await;
    assert!(resources.lines().count() > 60, "{resources}");
    for line in resources.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, .., version, _, _] = words[..] else { panic!("{line}") };
        let version = format!("--api-version={version}");
        let text = kubectl.run(&["explain", name, &version]).await;
        assert!(text.contains("KIND:") && text.contains("VERSION:"), "{name}: {text}");
        assert!(text.contains("DESCRIPTION:\n") && !text.contains("<empty>"), "{name} is described: {text}");
        let tree = kubectl.run(&["explain", "--recursive", name, &version]).await;
        assert!(tree.contains("FIELDS:\n") && tree.contains("\n  apiVersion\t<string>\n"), "{name}: {tree}");
    }
    let field = kubectl.run(&["explain", "deployment.spec.replicas"]).await;
    assert_eq!(
        field,
        "GROUP:      apps\nKIND:       Deployment\nVERSION:    v1\n\nFIELD: replicas <integer>\n\n\nDESCRIPTION:\n    \
         Number of desired pods. This is a pointer to distinguish between explicit\n    zero and not specified. Defaults to 1.\n    \n\n"
    );
    server.stop().await;
}

#[tokio::test]
async fn workloads_are_changed_scaled_undone_and_awaited() {
    let server = Server::default().await;
    let kubectl = server.kubectl();
    script(
        &kubectl,
        &[
            (&["create", "-f", "-"], DEPLOYMENT, "deployment.apps/web created\n"),
            (&["set", "image", "deployment/web", "web=nginx:2"], "", "deployment.apps/web image updated\n"),
            (&["set", "env", "deployment/web", "MODE=fast"], "", "deployment.apps/web env updated\n"),
            (
                &["set", "resources", "deployment/web", "--limits=cpu=1"],
                "",
                "deployment.apps/web resource requirements updated\n",
            ),
            (&["scale", "deployment/web", "--replicas=4"], "", "deployment.apps/web scaled\n"),
            (
                &["scale", "deployment/web", "--current-replicas=3", "--replicas=5"],
                "",
                "error: Expected replicas to be 3, was 4\n",
            ),
            (
                &[
                    "get",
                    "deploy",
                    "web",
                    "-o",
                    "jsonpath={.spec.replicas} {.spec.template.spec.containers[0].image} {.metadata.generation}",
                ],
                "",
                "4 nginx:2 5",
            ),
            (&["rollout", "pause", "deployment/web"], "", "deployment.apps/web paused\n"),
            (&["rollout", "resume", "deployment/web"], "", "deployment.apps/web resumed\n"),
            (
                &["autoscale", "deployment/web", "--max=5", "--cpu-percent=80"],
                "",
                "horizontalpodautoscaler.autoscaling/web autoscaled\n",
            ),
        ],
    )
    .await;
    // What the Deployment controller would leave behind: a ReplicaSet per revision.
    let uid = kubectl.run(&["get", "deploy", "web", "-o", "jsonpath={.metadata.uid}"]).await;
    for (revision, image) in [("1", "nginx:1"), ("2", "nginx:2")] {
        let set = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": {"name": format!("web-{revision}"), "labels": {"app": "web", "pod-template-hash": revision},
                "annotations": {"deployment.kubernetes.io/revision": revision},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": uid, "controller": true}]},
            "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "web", "pod-template-hash": revision}}, "template": {
                "metadata": {"labels": {"app": "web", "pod-template-hash": revision}},
                "spec": {"containers": [{"name": "web", "image": image}]}}},
        });
        let made = server.post("/apis/apps/v1/namespaces/default/replicasets", &set).await;
        assert_eq!(made.status, 201, "{}", made.text());
    }
    kubectl.run(&["annotate", "deployment", "web", "deployment.kubernetes.io/revision=2"]).await;
    script(
        &kubectl,
        &[
            (
                &["rollout", "history", "deployment/web"],
                "",
                "deployment.apps/web \nREVISION  CHANGE-CAUSE\n1         <none>\n2         <none>\n\n",
            ),
            (&["rollout", "undo", "deployment/web", "--to-revision=1"], "", "deployment.apps/web rolled back\n"),
            (&["get", "deploy", "web", "-o", "jsonpath={.spec.template.spec.containers[0].image}"], "", "nginx:1"),
        ],
    )
    .await;
    let available = r#"{"status":{"conditions":[{"type":"Available","status":"True","lastTransitionTime":null,"lastUpdateTime":null}]}}"#;
    kubectl.run(&["patch", "deploy", "web", "--subresource=status", "--type=merge", "-p", available]).await;
    script(
        &kubectl,
        &[
            (
                &["wait", "--for=condition=Available", "deploy/web", "--timeout=60s"],
                "",
                "deployment.apps/web condition met\n",
            ),
            (
                &["wait", "--for=jsonpath={.spec.replicas}=4", "deploy/web", "--timeout=60s"],
                "",
                "deployment.apps/web condition met\n",
            ),
            (&["delete", "deploy", "web"], "", "deployment.apps \"web\" deleted\n"),
            (&["wait", "--for=delete", "deploy/web", "--timeout=60s"], "", ""),
        ],
    )
    .await;
    server.stop().await;
}

#[tokio::test]
async fn what_is_wrong_is_named_before_anything_is_written() {
    let server = Server::default().await;
    let kubectl = server.kubectl();
    let unknown =
        DEPLOYMENT.replace("replicas: 2", "replicas: 2\n  nonsense: true").replace("image:", "imagee: x, image:");
    let dry: &[&str] = &["create", "--dry-run=server", "-f", "-"];
    script(
        &kubectl,
        &[
            (dry, DEPLOYMENT, "deployment.apps/web created (server dry run)\n"),
            (&["get", "deploy", "web", "--ignore-not-found"], "", ""),
            (
                &["create", "--validate=strict", "-f", "-"],
                &unknown,
                "Error from server (BadRequest): error when creating \"STDIN\": Deployment in version \"v1\" cannot be handled as a \
                 Deployment: strict decoding error: unknown field \"spec.nonsense\", unknown field \
                 \"spec.template.spec.containers[0].imagee\"\n",
            ),
            (
                &["create", "--validate=warn", "-f", "-"],
                &unknown,
                "deployment.apps/web created\nWarning: unknown field \"spec.nonsense\"\nWarning: unknown field \
                 \"spec.template.spec.containers[0].imagee\"\n",
            ),
            (
                &["create", "-f", "-"],
                &config_maps(&[("Bad_Name", "v")]),
                "The ConfigMap \"Bad_Name\" is invalid: metadata.name: Invalid value: \"Bad_Name\": a lowercase RFC 1123 subdomain must \
                 consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character \
                 (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')\n",
            ),
        ],
    )
    .await;
    let twice =
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"twice"},"data":{"a":"1"},"data":{"a":"2"}}"#;
    let path = "/api/v1/namespaces/default/configmaps?fieldValidation=";
    let refused = server.send(http::Method::POST, &format!("{path}Strict"), &[], twice).await;
    assert_eq!(
        refused.message(),
        "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: duplicate field \"data\""
    );
    let warned = server.send(http::Method::POST, &format!("{path}Warn"), &[], twice).await;
    assert_eq!((warned.status, warned.warnings()), (201, vec!["duplicate field \"data\"".to_owned()]));
    server.stop().await;
}
