//! What goes on while it is looked at: a proxy, and pods that are debugged.

use std::io::Write;

use kubectl::Streams;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;

use crate::Shell;

/// Output whose pieces can be waited for.
struct Told(mpsc::UnboundedSender<String>);

impl Write for Told {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let _ = self.0.send(String::from_utf8_lossy(bytes).into_owned());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

async fn ask(address: &str, request: &str) -> String {
    let mut socket = tokio::net::TcpStream::connect(address).await.expect("a connection");
    socket.write_all(format!("{request}\r\nConnection: close\r\n\r\n").as_bytes()).await.expect("written");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.expect("an answer");
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_brings_credentials_and_refuses_strangers() {
    let (cluster, shell) = Shell::with_cluster().await;
    std::fs::write(shell.home().join("page.txt"), "a page").expect("a file");
    let (mut streams, _, err) = Streams::memory(b"");
    let (sender, mut told) = mpsc::unbounded_channel();
    streams.out = Box::new(Told(sender));
    let proxy = shell.start("proxy --port=0 --www=. --www-prefix=/files/", streams);
    let talk = async {
        let mut said = String::new();
        while !said.contains('\n') {
            said += &told.recv().await.expect("the proxy says where it is");
        }
        let address = said.trim().strip_prefix("Starting to serve on ").expect("an address").to_owned();
        let pods = ask(&address, "GET /api/v1/namespaces/default/pods HTTP/1.1\r\nHost: localhost").await;
        assert!(pods.starts_with("HTTP/1.1 200 OK\r\n") && pods.contains("\"PodList\""), "{pods}");
        let stranger = ask(&address, "GET /api/v1/pods HTTP/1.1\r\nHost: evil.example").await;
        assert!(stranger.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{stranger}");
        let exec = ask(&address, "POST /api/v1/namespaces/a/pods/b/exec HTTP/1.1\r\nHost: localhost").await;
        assert!(exec.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{exec}");
        let page = ask(&address, "GET /files/page.txt HTTP/1.1\r\nHost: localhost").await;
        assert!(page.ends_with("a page"), "{page}");
        // Whoever has no TLS on this machine asks through the proxy.
        let through = shell.run(&format!("-s http://{address} get ns default -o name")).await;
        assert_eq!((through.code, through.out.as_str()), (0, "namespace/default\n"), "{}", through.err);
    };
    let limit = std::time::Duration::from_secs(120);
    tokio::select! {
        code = proxy => panic!("the proxy ended with {code}: {}", err.text()),
        done = tokio::time::timeout(limit, talk) => done.expect("answers"),
    }
    cluster.stop().await;
}

const POD: &str = "
apiVersion: v1
kind: Pod
metadata: {name: p, labels: {a: b}}
spec:
  nodeName: n1
  containers: [{name: c, image: i, readinessProbe: {exec: {command: [x]}}}]
";

#[tokio::test(flavor = "multi_thread")]
async fn pods_copies_and_nodes_are_debugged() {
    let (cluster, shell) = Shell::with_cluster().await;
    assert_eq!(shell.run_with("create -f -", POD).await.out, "pod/p created\n");
    assert_eq!(shell.run_with("create -f -", "{apiVersion: v1, kind: Node, metadata: {name: n1}}").await.code, 0);
    // A log that is followed is asked for again: its container may be about to start.
    let log = shell.run("logs -f p --pod-running-timeout=1500ms").await;
    let lines: Vec<&str> = log.err.lines().collect();
    assert_eq!((log.code, lines.len(), lines.last()), (1, 3, Some(&"error: context deadline exceeded")), "{}", log.err);
    assert_eq!(lines[0], lines[1]);
    assert_eq!(shell.ok("debug p --image=busybox -c d --target=c --profile=netadmin -q -- sh -c x").await, "");
    let container = "{.spec.ephemeralContainers[0].name}{.spec.ephemeralContainers[0].targetContainerName}{.spec.ephemeralContainers[0].securityContext.capabilities.add}";
    assert_eq!(shell.ok(&format!("get pod p -o jsonpath={container}")).await, "dc[\"NET_ADMIN\",\"NET_RAW\"]");
    let named = shell.ok("debug p --image=busybox").await;
    assert!(named.starts_with("Defaulting debug container name to debugger-"), "{named}");
    assert_eq!(shell.ok("debug p --copy-to=q --set-image=*=j --same-node").await, "");
    assert_eq!(
        shell.ok("get pod q -o jsonpath={.spec.containers[*].image}{.spec.nodeName}{.metadata.labels.a}").await,
        "jn1b"
    );
    assert_eq!(shell.ok("debug p --copy-to=r --image=k -c d -q").await, "");
    let copy = shell.ok("get pod r -o jsonpath={.spec.containers[*].name}{.spec.shareProcessNamespace}{.spec.containers[0].readinessProbe}{.metadata.labels}").await;
    assert_eq!(copy, "c dtrue");
    let node = shell.ok("debug node/n1 --image=busybox --profile=sysadmin").await;
    assert!(
        node.starts_with("Creating debugging pod node-debugger-n1-")
            && node.ends_with(" with container debugger on node n1.\n"),
        "{node}"
    );
    for (line, expected) in [
        ("debug p", "error: you must specify --image when not using --copy-to.\n"),
        ("debug p --image=i --replace", "error: --replace may only be used with --copy-to.\n"),
        ("debug p --copy-to=x", "error: you must specify --image, --set-image or command arguments.\n"),
        ("debug p --image=i -t", "error: -i/--stdin is required for containers with -t/--tty=true\n"),
        ("debug p --image=i --profile=x", "error: unknown profile: x\n"),
        ("debug svc/kubernetes --image=i", "error: \"/v1, Kind=Service\" not supported by debug\n"),
        ("debug --image=i", "error: NAME or filename is required for debug\n"),
        ("exec p", "error: you must specify at least one command for the container\n"),
        ("exec -- date", "error: pod, type/name or --filename must be specified\n"),
        ("exec nope -- date", "Error from server (NotFound): pods \"nope\" not found\n"),
        ("exec p -c x -- date", "error: container x is not valid for pod p out of: c, d (ephem), DEBUGGER\n"),
        (
            "attach p -c x",
            "error: cannot attach to the container: container x is not valid for pod p out of: c, d (ephem), DEBUGGER\n",
        ),
        ("attach", "error: at least 1 argument is required for attach\n"),
        ("cp a b", "error: one of src or dest must be a remote file specification\n"),
        ("cp p:a p:b", "error: one of src or dest must be a local file specification\n"),
        ("cp nope p:/b", "error: nope doesn't exist in local filesystem\n"),
        ("cp a", "error: source and destination are required\n"),
        ("port-forward p 1", "error: unable to forward port because pod is not running. Current status=Pending\n"),
        ("port-forward p x", "error: Pod 'p' does not have a named port 'x'\n"),
        (
            "port-forward svc/kubernetes 443",
            "error: cannot attach to *v1.Service: invalid service 'kubernetes': Service is defined without a selector\n",
        ),
        ("run x --image=i --rm", "error: --rm should only be used for attached containers\n"),
        ("top pod --sort-by=x", "error: --sort-by accepts only cpu or memory\n"),
        ("top pod p -l a=b", "error: only one of NAME or selector can be provided\n"),
    ] {
        let said = shell.fail(line).await;
        let random = said.find("debugger-").map(|at| said[at..at + 22].to_owned()).unwrap_or_default();
        assert_eq!(said, expected.replace("DEBUGGER", &random), "{line}");
    }
    cluster.stop().await;
}
