//! Commands that start programs of the user's, and those that say what was found out.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use testkit::Cluster;

use crate::Shell;

const MAP: &str = "{apiVersion: v1, kind: ConfigMap, metadata: {name: m}, data: {a: b}}";

fn script(directory: &Path, name: &str, text: &str) -> String {
    let path = directory.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("a file");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("a mode");
    path.display().to_string()
}

/// A shell that finds programs in its home, and puts there what is temporary.
async fn start() -> (Cluster, Shell) {
    let (cluster, shell) = Shell::with_cluster().await;
    let home = shell.home().display().to_string();
    let path = format!("{home}:{}", std::env::var("PATH").unwrap_or_default());
    (cluster, shell.with("PATH", &path).with("TMPDIR", &home))
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_edited_until_they_are_accepted() {
    let (cluster, plain) = start().await;
    let change = script(plain.home(), "change", "sed -i 's/a: b/a: c/' \"$1\"");
    assert_eq!(plain.run_with("create -f -", MAP).await.out, "configmap/m created\n");
    let edits = plain.clone().with("KUBE_EDITOR", &change);
    assert_eq!(edits.ok("edit cm m").await, "configmap/m edited\n");
    assert_eq!(plain.ok("get cm m -o jsonpath={.data.a}").await, "c");
    let said = edits.run("edit cm/m").await;
    assert_eq!((said.code, said.err.as_str()), (0, "Edit cancelled, no changes made.\n"));
    let empties = plain.clone().with("EDITOR", &script(plain.home(), "empty", ": > \"$1\""));
    assert_eq!(empties.run("edit cm m").await.err, "Edit cancelled, saved file was empty.\n");
    let breaks = script(plain.home(), "breaks", "grep -q 'x: .$' \"$1\" || echo '  - x: [' >> \"$1\"");
    let broken = plain.clone().with("EDITOR", &breaks).run("edit cm m").await;
    assert_eq!(broken.code, 1);
    assert!(broken.err.ends_with("error: Edit cancelled, no valid changes were saved.\n"), "{}", broken.err);
    // What the server refuses is shown once more, and nothing is changed then.
    let first =
        script(plain.home(), "first", "grep -q 'bad key' \"$1\" || sed -i 's/a: c/a: c\\n  bad key: x/' \"$1\"");
    let invalid = plain.clone().with("EDITOR", &first).run("edit cm m").await;
    assert_eq!(invalid.code, 1, "{}", invalid.err);
    assert!(
        invalid.err.starts_with("error: configmaps \"m\" is invalid\nA copy of your changes has been stored to "),
        "{}",
        invalid.err
    );
    assert!(invalid.err.ends_with("error: Edit cancelled, no valid changes were saved.\n"), "{}", invalid.err);
    assert_eq!(plain.run("edit cm nope").await.err, "Error from server (NotFound): configmaps \"nope\" not found\n");
    let renames = script(plain.home(), "renames", "sed -i 's/name: m/name: n/' \"$1\"");
    let renamed = plain.clone().with("EDITOR", &renames).run("edit cm m").await;
    assert!(renamed.err.ends_with("error: At least one of apiVersion, kind and name was changed\n"), "{}", renamed.err);
    let patch = plain.clone().with("EDITOR", "sed -i 's/a: c/a: d/'").ok("edit cm m --output-patch").await;
    assert_eq!(patch, "Patch: {\"data\":{\"a\":\"d\"}}\nconfigmap/m edited\n");
    let creates = plain.clone().with("EDITOR", "sed -i 's/name: m/name: made/'");
    assert_eq!(creates.run_with("create --edit -f -", MAP).await.out, "configmap/made created\n");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_apply_would_change_is_shown() {
    let (cluster, shell) = start().await;
    let new = shell.run_with("diff -f -", MAP).await;
    assert_eq!(new.code, 1, "{}", new.err);
    assert!(new.out.contains("+data:\n+  a: b\n"), "{}", new.out);
    assert_eq!(shell.run_with("apply -f -", MAP).await.out, "configmap/m created\n");
    let same = shell.run_with("diff -f -", MAP).await;
    assert_eq!((same.code, same.out.as_str(), same.err.as_str()), (0, "", ""));
    let changed = shell.run_with("diff -f -", &MAP.replace("a: b", "a: c")).await;
    assert_eq!(changed.code, 1);
    assert!(changed.out.contains("-  a: b\n+  a: c\n"), "{}", changed.out);
    let served = shell.run_with("diff --server-side --force-conflicts -f -", &MAP.replace("a: b", "a: c")).await;
    assert!(served.out.contains("-  a: b\n+  a: c\n"), "{}", served.out);
    let secret = "{apiVersion: v1, kind: Secret, metadata: {name: s}, stringData: {k: open}}";
    assert_eq!(shell.run_with("apply -f -", secret).await.out, "secret/s created\n");
    let hidden = shell.run_with("diff -f -", &secret.replace("open", "other")).await;
    assert!(hidden.out.contains("*** (before)") && !hidden.out.contains("b3Blbg=="), "{}", hidden.out);
    let made = shell.run_with("diff -f -", &secret.replace("name: s", "name: new")).await;
    assert!(
        made.out.contains("\n-null\n+apiVersion: v1\n"),
        "a new Secret is compared with nothing, hidden: {}",
        made.out
    );
    assert!(!new.out.contains("-null"), "what is not hidden has no head: {}", new.out);
    let mine = script(shell.home(), "mine", "echo compared; exit 0");
    let own = shell.clone().with("KUBECTL_EXTERNAL_DIFF", &mine);
    assert_eq!(own.run_with("diff -f -", MAP).await.out, "compared\n");
    let failed = shell.run("diff -f nope.yaml").await;
    assert_eq!((failed.code, failed.err.as_str()), (2, "error: the path \"nope.yaml\" does not exist\n"));
    let left: Vec<_> =
        std::fs::read_dir(shell.home()).expect("files").flatten().map(|entry| entry.file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().contains("LIVE")), "{left:?}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_on_the_path_are_commands() {
    let home = tempfile::tempdir().expect("a directory");
    script(home.path(), "kubectl-foo", "echo foo \"$@\"; echo err >&2; exit 3");
    script(home.path(), "kubectl-foo-bar_baz", "echo deep \"$@\"");
    script(home.path(), "kubectl-create-thing", "echo thing \"$@\"");
    script(home.path(), "kubectl-get", "echo never");
    let path = format!("{}:/bin:/usr/bin", home.path().display());
    let shell = Shell::new(Path::new("/nonexistent"), home.path()).with("PATH", &path);
    let said = shell.run("foo a --b").await;
    assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (3, "foo a --b\n", "err\n"));
    assert_eq!(shell.ok("foo bar-baz x -y").await, "deep x -y\n");
    assert_eq!(shell.ok("create thing a").await, "thing a\n");
    let unknown = shell.run("unheardof").await;
    assert_eq!((unknown.code, unknown.err.as_str()), (1, "error: unknown command \"unheardof\" for \"kubectl\"\n"));
    let odd = shell.run("-n x foo").await;
    assert_eq!((odd.code, odd.err.as_str()), (1, "Error: flags cannot be placed before plugin name: -n\n"));
    let listed = Shell::new(Path::new("/nonexistent"), home.path()).with("PATH", &home.path().display().to_string());
    let listed = listed.run("plugin list --name-only").await;
    assert_eq!(
        listed.out,
        "The following compatible plugins are available:\n\nkubectl-create-thing\nkubectl-foo\nkubectl-foo-bar_baz\nkubectl-get\n"
    );
    assert_eq!(
        listed.err,
        "  - warning: kubectl-create-thing overwrites existing command: \"kubectl create\"\n  - warning: kubectl-get overwrites existing command: \"kubectl get\"\nerror: 2 plugin warnings were found\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_are_reconciled_and_clusters_dumped() {
    let (cluster, shell) = Shell::with_cluster().await;
    let role = "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: r, namespace: new}, rules: [{verbs: [get], apiGroups: [''], resources: [pods]}]}";
    let made = shell.run_with("auth reconcile -f -", role).await;
    assert_eq!(
        (made.code, made.out.as_str(), made.err.as_str()),
        (
            0,
            "role.rbac.authorization.k8s.io/r reconciled\n",
            "\treconciliation required create\n\tmissing rules added:\n\t\t{Verbs:[get] APIGroups:[] Resources:[pods] ResourceNames:[] NonResourceURLs:[]}\n"
        )
    );
    let again = shell.run_with("auth reconcile -f -", role).await;
    assert_eq!((again.out.as_str(), again.err.as_str()), ("role.rbac.authorization.k8s.io/r reconciled\n", ""));
    let more = shell.run_with("auth reconcile -f - --remove-extra-permissions", &role.replace("[get]", "[list]")).await;
    assert!(more.err.contains("\textra rules removed:\n\t\t{Verbs:[get]"), "{}", more.err);
    assert_eq!(shell.ok("get role r -n new -o jsonpath={.rules[0].verbs}").await, "[\"list\"]");
    assert_eq!(
        shell.fail("auth reconcile -f x --dry-run=server").await,
        "error: --dry-run=server for command reconcile is not supported yet\n"
    );
    let dumped = shell.ok("cluster-info dump --output-directory=dump --namespaces=default -o yaml").await;
    assert_eq!(dumped, "Cluster info dumped to dump\n");
    let services = std::fs::read_to_string(shell.home().join("dump/default/services.yaml")).expect("a file");
    assert!(services.contains("name: kubernetes\n"), "{services}");
    let mode = std::fs::metadata(shell.home().join("dump/nodes.yaml")).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let all = shell.ok("cluster-info dump").await;
    assert!(all.contains("\"kind\": \"EventList\""), "{all}");
    cluster.stop().await;
}
