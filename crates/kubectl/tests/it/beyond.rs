//! Sets, preferences, completion and traces; and what upstream's kubectl does not have.

use testkit::Cluster;

use crate::Shell;

fn map(name: &str) -> String {
    format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}}}}}\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn members_of_a_set_that_are_no_longer_applied_go() {
    let (cluster, shell) = Shell::with_cluster().await;
    let shell = shell.with("KUBECTL_APPLYSET", "true");
    let apply = "apply -n default --prune --applyset=my-set -f -";
    let both = format!("{}---\n{}", map("kept"), map("old"));
    let said = shell.run_with(apply, &both).await;
    assert_eq!((said.code, said.out.as_str()), (0, "configmap/kept created\nconfigmap/old created\n"), "{}", said.err);
    let parent = shell
        .ok("get secret my-set -o go-template='{{range $k, $v := .metadata.annotations}}{{$k}}={{$v}} {{end}}'")
        .await;
    assert!(parent.contains("applyset.kubernetes.io/contains-group-kinds=ConfigMap "), "{parent}");
    assert!(parent.contains("applyset.kubernetes.io/tooling=kubectl/v1.37"), "{parent}");
    let said = shell.run_with(apply, &map("kept")).await;
    assert_eq!((said.code, said.out.as_str()), (0, "configmap/kept unchanged\nconfigmap/old pruned\n"), "{}", said.err);
    assert_eq!(
        shell.run_with("apply --prune --applyset=my-set -f -", &both).await.err,
        "error: namespace is required to use namespace-scoped ApplySet\n"
    );
    let refused = shell.run_with("apply -n default --prune --applyset=configmaps/kept -f -", &both).await.err;
    assert_eq!(
        refused,
        "error: ApplySet parent object \"configmaps./kept\" already exists and is missing required annotation \"applyset.kubernetes.io/tooling\"\n"
    );
    let parent = shell.run_with("apply -n default --prune --applyset=services/x -f -", &both).await.err;
    assert_eq!(parent, "error: resource \"v1, Resource=services\" is not permitted as an ApplySet parent\n");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn preferences_give_defaults_and_aliases() {
    let (cluster, shell) = Shell::with_cluster().await;
    let file = shell.home().join(".kube/kuberc").display().to_string();
    let set = "kuberc set --section defaults --command get --option output=name";
    assert_eq!(shell.ok(set).await, format!("Updated {file}\n"));
    assert_eq!(
        shell.fail(set).await,
        "error: defaults for command \"get\" already exist, use --overwrite to replace\n"
    );
    shell.ok("kuberc set --section aliases --name getns --command get --prependarg ns --option output=jsonpath={.metadata.name}").await;
    assert_eq!(shell.ok("get ns default").await, "namespace/default\n");
    assert_eq!(shell.ok("get ns default -o jsonpath={.kind}").await, "Namespace");
    assert_eq!(shell.ok("getns default").await, "default");
    let view = shell.ok("kuberc view").await;
    assert!(view.starts_with("aliases:\n- command: get\n  name: getns\n"), "{view}");
    let said = shell.fail("get ns --kuberc=nope").await;
    assert!(said.starts_with("error occurred while applying preferences kuberc error kuberc: open "), "{said}");
    let off = Shell::of(&cluster, shell.home()).with("KUBERC", "off");
    assert!(off.ok("get ns default").await.starts_with("NAME "));
    assert_eq!(
        shell.fail("kuberc set --section x").await,
        "error: --section must be \"defaults\", \"aliases\", or \"credentialplugin\", got: x\n"
    );
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_completed_from_the_cluster() {
    let (cluster, shell) = Shell::with_cluster().await;
    assert_eq!(shell.run_with("create -f -", &map("first")).await.code, 0);
    assert_eq!(shell.run_with("create -f -", &map("fitting")).await.code, 0);
    let complete = async |words: &[&str]| {
        let words: Vec<String> = [&["__complete"], words].concat().iter().map(|word| (*word).to_owned()).collect();
        let (streams, out, err) = kubectl::Streams::memory(b"");
        let code = shell.start_words(words, streams).await;
        assert_eq!(code, 0, "{}", err.text());
        out.text()
    };
    assert_eq!(complete(&["get", "configmaps", "fi"]).await, "first\nfitting\n:4\n");
    assert_eq!(complete(&["get", "cm/fir"]).await, "cm/first\n:4\n");
    assert_eq!(complete(&["get", "configmaps", "first", "f"]).await, "fitting\n:4\n");
    assert_eq!(complete(&["get", "-n", "kube-sy"]).await, "kube-system\n:4\n");
    assert_eq!(complete(&["get", "deploym"]).await, "deployments.apps\n:4\n");
    assert_eq!(complete(&["scale", "depl"]).await, "deployment\n:4\n");
    assert_eq!(complete(&["get", "pods,deploym"]).await, "pods,deployments.apps\n:4\n");
    assert_eq!(complete(&["rollout", "status", "de"]).await, "deployment\n:4\n");
    assert_eq!(complete(&["patch", "--subresource", "s"]).await, "status\nscale\n:4\n");
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: dear}, spec: {containers: [{name: c, image: i}]}}";
    assert_eq!(shell.run_with("create -f -", pod).await.code, 0);
    assert_eq!(complete(&["cp", "de"]).await, "default/\ndear:\n:2\n");
    assert_eq!(complete(&["cp", "default/d"]).await, "default/dear:\n:2\n");
    assert_eq!(complete(&["cp", "./"]).await, ":0\n");
    assert!(complete(&["config", "use-context", ""]).await.ends_with(":4\n"));
    shell.ok("kuberc set --section=aliases --name=maps --command=get --prependarg=configmaps").await;
    assert_eq!(complete(&["maps", "fir"]).await, "first\n:4\n", "an alias is completed as what it stands for");
    assert_eq!(complete(&["map"]).await, "maps\talias for get\n:4\n");
    for name in ["bash", "zsh", "fish", "powershell"] {
        assert!(shell.ok(&format!("completion {name}")).await.contains("__complete"), "{name}");
    }
    assert_eq!(
        shell.fail("completion csh").await,
        "error: Unsupported shell type \"csh\".\nSee 'kubectl completion -h' for help and examples\n"
    );
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_clusters_are_asked_at_once_and_pods_explained() {
    let (one, two) = (Cluster::start().await, Cluster::start().await);
    let home = tempfile::tempdir().expect("a directory");
    let (first, second) = (Shell::of(&one, home.path()), Shell::of(&two, home.path()));
    assert_eq!(first.run_with("create -f -", &map("here")).await.code, 0);
    assert_eq!(second.run_with("create -f -", &map("there")).await.code, 0);
    for (name, cluster) in [("a", &one), ("b", &two)] {
        let raw = Shell::of(cluster, home.path()).ok("config view --raw --flatten -o json").await;
        let mut tree: serde_json::Value = serde_json::from_str(&raw).expect("a document");
        tree["clusters"][0]["name"] = name.into();
        tree["users"][0]["name"] = name.into();
        tree["contexts"][0]["name"] = name.into();
        tree["contexts"][0]["context"]["cluster"] = name.into();
        tree["contexts"][0]["context"]["user"] = name.into();
        tree["current-context"] = "a".into();
        let file = home.path().join(name);
        std::fs::write(&file, tree.to_string()).expect("a file");
    }
    let paths = format!("{}:{}", home.path().join("a").display(), home.path().join("b").display());
    let both = Shell::of(&one, home.path()).with("KUBECONFIG", &paths);
    let table = both.ok("get cm --contexts a,b --field-selector metadata.name!=kube-root-ca.crt").await;
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().take(3).collect()).collect();
    assert_eq!(rows, [["CONTEXT", "NAME", "DATA"], ["a", "here", "0"], ["b", "there", "0"]]);
    assert_eq!(
        both.fail("get cm --contexts a,b -o yaml").await,
        "error: --contexts can only be used with tables and with -o name\n"
    );

    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: i}]}}";
    assert_eq!(first.run_with("create -f -", pod).await.code, 0);
    let why = first.ok("why p").await;
    assert!(why.starts_with("Pod default/p is not Ready (Pending).\n") && why.contains("Scheduler    NO"), "{why}");
    let traced = first.run_with("apply --trace -f -", &map("traced")).await;
    assert_eq!((traced.code, traced.out.as_str()), (0, "configmap/traced created\n"), "{}", traced.err);
    assert!(traced.err.contains("   7  etcd Txn") && traced.err.contains("configmap/traced"), "{}", traced.err);
    let verbose = first.run("get ns default -o name -v=8").await;
    assert_eq!(verbose.out, "namespace/default\n");
    assert!(verbose.err.contains("\"Request\" verb=\"GET\" url=\"https://"), "{}", verbose.err);
    assert!(verbose.err.contains("\"Response Body\" body="), "{}", verbose.err);
    one.stop().await;
    two.stop().await;
}
