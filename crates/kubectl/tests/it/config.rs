//! `kubectl config` on files, without any server.

use crate::Shell;

#[tokio::test]
async fn a_kubeconfig_is_made_changed_and_taken_apart() {
    let home = tempfile::tempdir().expect("a directory");
    let file = home.path().join("config");
    let shell = Shell::new(&file, home.path());
    let shown = file.display().to_string();
    assert_eq!(
        shell.ok("config set-cluster c1 --server=https://1.2.3.4:6443 --insecure-skip-tls-verify=true").await,
        "Cluster \"c1\" set.\n"
    );
    assert_eq!(shell.ok("config set-credentials u1 --token=abc").await, "User \"u1\" set.\n");
    assert_eq!(
        shell.ok("config set-context x1 --cluster=c1 --user=u1 --namespace=foo").await,
        "Context \"x1\" created.\n"
    );
    assert_eq!(shell.ok("config set-context x1 --namespace=bar").await, "Context \"x1\" modified.\n");
    assert_eq!(shell.fail("config current-context").await, "error: current-context is not set\n");
    assert_eq!(shell.ok("config use-context x1").await, "Switched to context \"x1\".\n");
    assert_eq!(
        shell.ok("config get-contexts").await,
        "CURRENT   NAME   CLUSTER   AUTHINFO   NAMESPACE\n*         x1     c1        u1         bar\n"
    );
    let view = shell.ok("config view").await;
    assert!(view.contains("token: REDACTED") && !view.contains("abc"), "{view}");
    assert!(shell.ok("config view --raw").await.contains("token: abc"));
    assert_eq!(shell.ok("config view --minify -o jsonpath={..namespace}").await, "bar");
    assert_eq!(shell.fail("config use-context nope").await, "error: no context exists with the name: \"nope\"\n");
    assert_eq!(shell.fail("config set foo.bar x").await, "error: unable to parse foo.bar after [] at api.Config\n");
    assert_eq!(shell.ok("config rename-context x1 x2").await, "Context \"x1\" renamed to \"x2\".\n");
    assert_eq!(shell.ok("config current-context").await, "x2\n");
    assert_eq!(shell.ok("config delete-user u1").await, format!("deleted user u1 from {shown}\n"));
    assert_eq!(shell.fail("config delete-user u1").await, format!("error: cannot delete user u1, not in {shown}\n"));
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&file).expect("the file"));
    assert_eq!(mode & 0o777, 0o600, "nobody else may read it");
}

#[tokio::test]
async fn command_lines_that_cannot_be_read_are_refused() {
    let home = tempfile::tempdir().expect("a directory");
    let shell = Shell::new(&home.path().join("none"), home.path());
    for (line, expected) in [
        ("get --foo", "error: unknown flag: --foo\nSee 'kubectl get --help' for usage.\n"),
        ("config foo", "error: unknown command \"foo\"\nSee 'kubectl config -h' for help and examples\n"),
        ("create foo", "error: Unexpected args: [foo]\nSee 'kubectl create -h' for help and examples\n"),
        ("gett pods", "error: unknown command \"gett\" for \"kubectl\"\n\nDid you mean this?\n\tset\n\tget\n"),
        (
            "get pods --request-timeout=x",
            "error: Invalid timeout value. Timeout must be a single integer in seconds, or an integer followed by a corresponding time unit (e.g. 1s | 2m | 3h)\n",
        ),
    ] {
        let said = shell.fail(line).await;
        if line.starts_with("gett") {
            assert!(
                said.starts_with("error: unknown command \"gett\" for \"kubectl\"\n\nDid you mean this?\n"),
                "{said}"
            );
            continue;
        }
        assert_eq!(said, expected, "{line}");
    }
    let refused = shell.fail("get pods -s https://127.0.0.1:1").await;
    assert_eq!(
        refused,
        "The connection to the server 127.0.0.1:1 was refused - did you specify the right host or port?\n"
    );
}
