//! What is checked first, what is sent, and what is said of mistakes, as upstream's kubectl v1.37 was seen to do it.

use crate::Shell;

const FORMATS: &str = "allowed formats are: go-template,go-template-file,json,jsonpath,jsonpath-as-json,jsonpath-file,kyaml,name,template,templatefile,yaml\n";

const BROKEN: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 0
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: other}}
    spec: {containers: [{name: c, image: i}]}
";

#[tokio::test(flavor = "multi_thread")]
async fn flags_are_looked_at_before_objects_are() {
    let (cluster, shell) = Shell::with_cluster().await;
    for line in [
        "create role x -o nope",
        "create ingress x -o nope",
        "create service clusterip x -o nope",
        "set image -o nope x",
        "set selector -o nope x",
        "label -o nope x",
        "events -o nope",
        "auth whoami -o nope",
    ] {
        let said = shell.fail(line).await;
        assert!(said.starts_with("error: unable to match a printer suitable") && said.ends_with(FORMATS), "{said}");
    }
    for line in ["expose -f x --dry-run=perhaps", "set env -f x --dry-run=perhaps", "label -f x --dry-run=perhaps"] {
        let expected = "error: Invalid dry-run value (perhaps). Must be \"none\", \"server\", or \"client\".\n";
        assert_eq!(shell.fail(line).await, expected, "{line}");
    }
    for (line, expected) in [
        ("set image deploy/x", "Error from server (NotFound): deployments.apps \"x\" not found\n"),
        ("set selector", "error: one selector is required\n"),
        ("run --dry-run", "error: required flag(s) \"image\" not set\n"),
        ("rollout a b", "error: unknown command \"a b\"\nSee 'kubectl rollout -h' for help and examples\n"),
        ("get cm ''", "error: resource name may not be empty\n"),
        ("create token a/b", "error: failed to create token: invalid resource name \"a/b\": [may not contain '/']\n"),
        ("get cm --profile=nope", "error: unknown profile 'nope'\n"),
        ("wait deploy/x --for=create --timeout=200ms", "error: timed out waiting for the condition\n"),
        ("config view --merge=false", "error: if merge==false a precise file must be specified\n"),
    ] {
        let words: Vec<String> = line.split(' ').map(|word| word.replace("''", "")).collect();
        let (streams, out, err) = kubectl::Streams::memory(b"");
        assert_eq!(shell.start_words(words, streams).await, 1, "{line}");
        assert_eq!((out.text().as_str(), err.text().as_str()), ("", expected), "{line}");
    }
    // A limit for requests ends a watch, too.
    let said = shell.run("events --watch --request-timeout=1").await;
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    let diff = shell.run("diff --nope").await;
    assert_eq!(
        (diff.code, &*diff.err),
        (2, "error: unknown flag: --nope\nSee 'kubectl diff -h' for help and examples\n")
    );
    // A flag of a command further down stands before its name.
    let made = shell.ok("create --validate=ignore --dry-run=client -o name secret generic s1").await;
    assert_eq!(made, "secret/s1\n");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_replaced_is_restored() {
    let (cluster, shell) = Shell::with_cluster().await;
    let fine = BROKEN.replace("app: other", "app: web");
    assert_eq!(shell.run_with("apply -f -", &fine).await.out, "deployment.apps/web created\n");
    let said = shell.run_with("apply --force -f -", BROKEN).await;
    assert_eq!(said.code, 1);
    assert!(said.err.contains("`selector` does not match template `labels`"), "{}", said.err);
    assert_eq!(shell.ok("get deploy web -o jsonpath={.spec.template.metadata.labels.app}").await, "web");
    // What scale shows is what was asked for.
    assert_eq!(shell.ok("scale deploy web --replicas=3 --dry-run=client -o jsonpath={.spec.replicas}").await, "3");
    assert_eq!(shell.ok("scale deploy web --replicas=0 -o go-template='{{index .spec.replicas}}'").await, "0");
    // Files are exposed and scaled by what they say, whether the server has them or not.
    let other = fine.replace("name: web", "name: file");
    assert_eq!(
        shell.run_with("expose -f - --port=80 --dry-run=client", &other).await.out,
        "service/file exposed (dry run)\n"
    );
    let said = shell.run_with("expose -f - --port=80", &other.replace("{matchLabels: {app: web}}", "{}")).await;
    assert!(said.err.contains("invalid deployment: no selectors"), "{}", said.err);
    let said = shell.run("set env deploy/web 1A=x").await;
    assert!(said.err.starts_with("error: \"1A\" is not a valid key name: "), "{}", said.err);
    assert_eq!(
        shell.run("set env deploy/web A=b -c zz").await.err,
        "Warning: Deployment/web does not have any containers matching \"zz\"\n"
    );
    assert_eq!(shell.ok("set sa deploy web me").await, shell.ok("set sa deploy web me").await);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_about_preferences_is_answered() {
    let home = tempfile::tempdir().expect("a directory");
    let shell = Shell::new(&home.path().join("none"), home.path());
    let file = home.path().join(".kube/kuberc");
    let question = format!(
        "kuberc file not found at {}\nWould you like to generate a default kuberc file with recommended options? (y/N): ",
        file.display()
    );
    assert_eq!(shell.run_with("kuberc view", "").await.out, question);
    assert!(!file.exists());
    let said = shell.run_with("kuberc view", "y\n").await;
    assert_eq!((said.code, said.out), (0, format!("{question}Updated {}\n", file.display())));
    let shown = shell.ok("kuberc view").await;
    assert!(shown.contains("- command: apply\n  options:\n  - default: \"true\"\n    name: server-side\n"), "{shown}");
}
