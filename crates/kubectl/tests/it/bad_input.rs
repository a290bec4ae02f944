//! Input that nobody should give: a clear word and exit code 1, never a panic, never for long.

use std::path::Path;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::Shell;

/// A server that gives every connection this answer, or ends it without one; its address.
async fn server(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    format!("http://{address}")
}

/// A shell whose kubeconfig has this server, and a user with a plug-in of this command.
fn shell(home: &Path, server: &str, plugin: &str) -> Shell {
    let file = home.join("kubeconfig");
    let exec = format!(
        "{{apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: /bin/sh, args: [-c, '{plugin}']}}"
    );
    let text = format!(
        "{{kind: Config, clusters: [{{name: c, cluster: {{server: '{server}'}}}}], users: [{{name: u, user: {{}}}}, {{name: p, user: {{exec: {exec}}}}}], contexts: [{{name: x, context: {{cluster: c, user: u}}}}], current-context: x}}"
    );
    std::fs::write(&file, text).expect("a file");
    Shell::new(&file, home)
}

/// Ten lists of nine each, of which every one has the one before nine times.
fn bomb() -> String {
    let mut text =
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\na: &a [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for (before, name) in ('a'..'j').zip('b'..='j') {
        let inner = vec![format!("*{before}"); 9].join(", ");
        text += &format!("{name}: &{name} [{inner}]\n");
    }
    text
}

#[tokio::test]
async fn servers_that_answer_something_else_are_told() {
    let home = tempfile::tempdir().expect("a directory");
    let html = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 18\r\nconnection: close\r\n\r\n<html>Hello</html>";
    for (answer, word) in [
        (html, "invalid character '<' looking for beginning of value"),
        ("", "Unable to connect to the server"),
        ("SSH-2.0-OpenSSH_9.2\r\n", "Unable to connect to the server"),
    ] {
        let shell = shell(home.path(), &server(answer).await, "exit 0");
        for line in ["get pods", "version", "apply -f -"] {
            let said = shell.run_with(line, "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}").await;
            assert_eq!(said.code, 1, "{line}: {said:?}");
            assert!(said.err.contains(word), "{line}: {}", said.err);
        }
    }
}

#[tokio::test]
async fn plugins_that_give_nothing_usable_are_told() {
    let home = tempfile::tempdir().expect("a directory");
    let address = server("").await;
    for plugin in ["echo garbage", "exit 3", "echo {}", "echo []", "head -c 100000 /dev/zero"] {
        let said = shell(home.path(), &address, plugin).run("get pods --user p").await;
        assert_eq!((said.code, said.out.as_str()), (1, ""), "{plugin}");
        assert!(said.err.contains("getting credentials"), "{plugin}: {}", said.err);
    }
}

#[tokio::test]
async fn files_that_are_no_configuration_are_told() {
    let home = tempfile::tempdir().expect("a directory");
    let file = home.path().join("odd");
    let long = "x: ".repeat(100_000);
    for text in ["a: [b", "\0\x01", "[]", "kind: Config\nclusters: 3", "{", &bomb(), &long] {
        std::fs::write(&file, text).expect("a file");
        let said = Shell::new(&file, home.path()).run("get pods").await;
        assert_eq!((said.code, said.out.as_str()), (1, ""), "{:.40}", text);
        let text_now = std::fs::read_to_string(&file).expect("the file");
        assert_eq!(text_now, text, "what cannot be read is not written");
    }
    let said = Shell::new(home.path(), home.path()).run("get pods").await;
    assert!(said.code == 1 && said.err.contains("is a directory"), "{}", said.err);
}

#[tokio::test]
async fn manifests_that_explode_or_are_huge_end_soon() {
    let home = tempfile::tempdir().expect("a directory");
    let html = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let shell = shell(home.path(), &server(html).await, "exit 0");
    for (input, word) in [
        (bomb(), "yaml: document contains excessive aliasing"),
        ("[".repeat(100_000), "error parsing"),
        ("{\"a\":".repeat(100_000), "error parsing"),
    ] {
        let said = shell.run_with("create --dry-run=client --validate=false -f -", &input).await;
        assert_eq!((said.code, said.out.as_str()), (1, ""), "{}", said.err);
        assert!(said.err.contains(word), "{}", said.err);
    }
    let name = "x".repeat(50_000_000);
    let huge = format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: b}}, data: {{k: '{name}'}}}}");
    let said = shell.run_with("label --local -f - -o name a=b", &huge).await;
    assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (0, "configmap/b\n", ""));
}

/// Whether a process runs: one that ended and was not waited for does not.
fn runs(process: &str) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    state.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['Z', 'X']))
}

#[tokio::test]
async fn a_plugin_that_hangs_has_no_more_time_than_the_request() {
    let home = tempfile::tempdir().expect("a directory");
    let number = home.path().join("process");
    let plugin = format!("echo $$ > {}; exec sleep 600", number.display());
    let shell = shell(home.path(), &server("").await, &plugin);
    let said = shell.run("get pods --user p --request-timeout=500ms").await;
    assert_eq!((said.code, said.out.as_str()), (1, ""));
    assert!(said.err.contains("Client.Timeout exceeded"), "{}", said.err);
    let process = std::fs::read_to_string(&number).expect("the plug-in ran").trim().to_owned();
    let gone = async {
        while runs(&process) {
            tokio::task::yield_now().await;
        }
    };
    testkit::eventually("the plug-in is gone", gone).await;
}

#[tokio::test]
async fn what_a_plugin_gave_and_the_server_refuses_is_told() {
    let home = tempfile::tempdir().expect("a directory");
    let refused = "HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let address = server(refused).await;
    let old = r#"{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "t", "expirationTimestamp": "2020-01-01T00:00:00Z"}}"#;
    let file = home.path().join("credential");
    std::fs::write(&file, old).expect("a file");
    let shell = shell(home.path(), &address, &format!("cat {}", file.display()));
    let said = shell.run("get pods --user p").await;
    assert_eq!((said.code, said.out.as_str()), (1, ""));
    assert!(said.err.contains("You must be logged in to the server"), "{}", said.err);
    std::fs::write(&file, old.replace("2020-01-01T00:00:00Z", "yesterday")).expect("a file");
    let said = shell.run("get pods --user p").await;
    assert!(said.code == 1 && said.err.contains("getting credentials"), "{}", said.err);
}

/// A server that knows these paths and nothing else; its address. What it answers is what a server of another version would.
async fn of_version(minor: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let read = stream.read(&mut request).await.unwrap_or_default();
            let line = String::from_utf8_lossy(&request[..read]).into_owned();
            let path = line.split([' ', '?']).nth(1).unwrap_or_default().to_owned();
            let version = format!("{{\"major\":\"1\",\"minor\":\"{minor}\",\"gitVersion\":\"v1.{minor}.0\"}}");
            let body = match path.as_str() {
                "/version" => version.as_str(),
                "/api" => r#"{"kind":"APIVersions","versions":["v1"]}"#,
                "/apis" => r#"{"kind":"APIGroupList","groups":[],"later":{"unknown":true}}"#,
                "/api/v1" => {
                    r#"{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"pods","singularName":"","namespaced":true,"kind":"Pod","verbs":["get","list"],"later":1}]}"#
                }
                // It knows nothing of tables.
                "/api/v1/namespaces/default/pods" => {
                    r#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[{"metadata":{"name":"old","creationTimestamp":"2020-01-01T00:00:00Z"}}]}"#
                }
                _ => "",
            };
            let status = if body.is_empty() { "404 Not Found" } else { "200 OK" };
            let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}", body.len());
            let _ = stream.write_all(format!("{head}\r\nconnection: close\r\n\r\n{body}").as_bytes()).await;
        }
    });
    format!("http://{address}")
}

#[tokio::test]
async fn servers_of_other_versions_are_spoken_to() {
    for (minor, warned) in [("20", true), ("36", false), ("99", true)] {
        let home = tempfile::tempdir().expect("a directory");
        let shell = shell(home.path(), &of_version(minor).await, "exit 0");
        let said = shell.run("version").await;
        assert!(said.code == 0 && said.out.ends_with(&format!("Server Version: v1.{minor}.0\n")), "{said:?}");
        let warning = format!(
            "Warning: version difference between client (1.37) and server (1.{minor}) exceeds the supported minor version skew of +/-1\n"
        );
        assert_eq!(said.err, if warned { warning } else { String::new() });
        let pods = shell.run("get pods").await;
        assert!(pods.code == 0 && pods.out.starts_with("NAME   AGE\nold    "), "{pods:?}");
        let missing = shell.run("get widgets").await;
        assert_eq!(
            (missing.code, missing.err.as_str()),
            (1, "error: the server doesn't have a resource type \"widgets\"\n")
        );
        let refused = shell.run("get pods old").await;
        assert_eq!(
            refused.err,
            "Error from server (NotFound): the server could not find the requested resource (get pods old)\n"
        );
    }
}
