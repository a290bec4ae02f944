//! Our own kubectl with real containers: commands, files and ports, over WebSockets and over SPDY.

use std::io::Write;
use std::time::Duration;

use kubectl::{Environment, Streams};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::rig::{Rig, sh};

const SOON: Duration = Duration::from_secs(60);
const LOOP: &str = "trap 'exit 0' TERM; while :; do sleep 0.1; done";

struct Said {
    code: i32,
    out: String,
    err: String,
}

fn environment(rig: &Rig, websockets: bool) -> Environment {
    let mut variables = std::collections::BTreeMap::new();
    let mut set = |name: &str, value: String| variables.insert(name.to_owned(), value);
    set("KUBECONFIG", rig.cluster.kubeconfig().display().to_string());
    set("HOME", rig.dir.path().display().to_string());
    for name in ["KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "KUBECTL_PORT_FORWARD_WEBSOCKETS"] {
        set(name, websockets.to_string());
    }
    Environment { variables, directory: rig.dir.path().to_owned(), fallback: None }
}

async fn run(rig: &Rig, websockets: bool, words: &[&str], input: &[u8]) -> Said {
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    let (streams, out, err) = Streams::memory(input);
    let ran = kubectl::run(environment(rig, websockets), &words, streams);
    let code = tokio::time::timeout(SOON, ran).await.expect("the command ends");
    Said { code, out: out.text(), err: err.text() }
}

#[tokio::test]
async fn commands_and_files_go_in_and_out_of_containers() {
    let rig = Rig::start().await;
    let mut reader = sh("reader", "echo ready; while read line; do echo got $line; done; echo end");
    reader["stdin"] = json!(true);
    reader["stdinOnce"] = json!(true);
    rig.pod("one", json!({"containers": [sh("main", LOOP), reader], "restartPolicy": "Never"})).await;
    rig.ready("one").await;
    let megabyte: String = (0..1 << 20).map(|n: u32| char::from(b'a' + (n % 26) as u8)).collect();
    let links = "mkdir -p /tmp; for name in tar test tail; do ln -s /bin/busybox /bin/$name; done";
    run(&rig, true, &["exec", "one", "-c", "main", "--", "/bin/sh", "-c", links], b"").await;
    let tree = rig.dir.path().join("tree");
    std::fs::create_dir_all(tree.join("a b/empty")).unwrap();
    std::fs::write(tree.join("a b/[x]*"), "odd").unwrap();
    std::fs::write(tree.join("big"), &megabyte).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", tree.join("link")).unwrap();
    for websockets in [true, false] {
        let exec = async |words: &[&str], input: &[u8]| {
            run(&rig, websockets, &[&["exec", "-c", "main"][..], words].concat(), input).await
        };
        let said = exec(&["one", "--", "sh", "-c", "echo out; echo err >&2; exit 3"], b"").await;
        assert_eq!((said.code, said.out.as_str()), (3, "out\n"), "{}", said.err);
        assert_eq!(said.err, "err\ncommand terminated with exit code 3\n");
        let said = exec(&["-i", "one", "--", "cat"], megabyte.as_bytes()).await;
        assert_eq!((said.code, said.out == megabyte), (0, true), "{}", said.err);
        let said = exec(&["-it", "one", "--", "cat"], b"x").await;
        assert_eq!((said.code, said.out.as_str()), (0, "x"));
        assert_eq!(said.err, "Unable to use a TTY - input is not a terminal or the right kind of file\n");
        let said = exec(&["one", "--", "/absent"], b"").await;
        assert!(said.code == 1 && said.err.starts_with("error: ") && said.err.contains("no such file"), "{}", said.err);
        let (there, back) = (format!("one:/tmp/{websockets}"), format!("back-{websockets}"));
        let said = run(&rig, websockets, &["cp", "tree", &there, "-c", "main"], b"").await;
        assert_eq!((said.code, said.err.as_str()), (0, ""), "{}", said.out);
        // What is copied to a directory goes into it.
        let said = run(&rig, websockets, &["cp", "tree/big", &there, "-c", "main"], b"").await;
        assert_eq!((said.code, said.err.as_str()), (0, ""), "{}", said.out);
        let said = run(&rig, websockets, &["cp", &there, &back, "-c", "main"], b"").await;
        assert_eq!(said.code, 0, "{} {}", said.out, said.err);
        assert!(said.err.starts_with("warning: skipping symlink: "), "{}", said.err);
        let back = rig.dir.path().join(back);
        assert_eq!(std::fs::read_to_string(back.join("a b/[x]*")).unwrap(), "odd");
        assert!(std::fs::read_to_string(back.join("big")).unwrap() == megabyte);
        assert!(back.join("a b/empty").is_dir() && !back.join("link").exists());
        let said = run(&rig, websockets, &["cp", "one:/nowhere", "x", "-c", "main"], b"").await;
        assert!(said.code != 0 && said.err.starts_with("command terminated with exit code "), "{}", said.err);
    }
    let said = run(&rig, true, &["attach", "-i", "-c", "reader", "one"], b"x\n").await;
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.out.contains("got x\n") && said.out.ends_with("end\n"), "{}", said.out);
    assert!(said.err.ends_with("If you don't see a command prompt, try pressing enter.\n"), "{}", said.err);
    rig.stop().await;
}

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

#[tokio::test]
async fn many_connections_go_through_one_forwarded_port() {
    let rig = Rig::start().await;
    let script = "mkdir -p /www; yes abcdefg | head -c 200000 > /www/file; exec httpd -f -p 8080 -h /www";
    let mut container = sh("main", script);
    container["readinessProbe"] = json!({"tcpSocket": {"port": 8080}, "periodSeconds": 1});
    rig.pod("one", json!({"containers": [container]})).await;
    rig.ready("one").await;
    let content = "abcdefg\n".repeat(25_000);
    for websockets in [true, false] {
        let (mut streams, _, err) = Streams::memory(b"");
        let (sender, mut told) = mpsc::unbounded_channel();
        streams.out = Box::new(Told(sender));
        let words = ["port-forward", "pod/one", ":8080", "--address=127.0.0.1"].map(str::to_owned);
        let forward = kubectl::run(environment(&rig, websockets), &words, streams);
        let talk = async {
            let mut said = String::new();
            while !said.contains('\n') {
                said += &told.recv().await.expect("it says where it listens");
            }
            let port: u16 = said.trim().split(" -> ").next().unwrap().rsplit(':').next().unwrap().parse().unwrap();
            let one = async || {
                let mut socket = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                socket.write_all(b"GET /file HTTP/1.0\r\n\r\n").await.unwrap();
                let mut answer = String::new();
                socket.read_to_string(&mut answer).await.unwrap();
                assert!(answer.ends_with(&content), "{} bytes", answer.len());
            };
            futures::future::join_all((0..20).map(|_| one())).await;
        };
        tokio::select! {
            code = forward => panic!("it ended with {code}: {}", err.text()),
            done = tokio::time::timeout(SOON, talk) => done.expect("answers"),
        }
    }
    rig.stop().await;
}

#[tokio::test]
async fn a_pod_is_run_talked_to_and_removed() {
    let rig = Rig::start().await;
    let image = "--image=registry.trireme.local/busybox:1";
    let run_it = async |words: &[&str], input: &[u8]| {
        let overrides = r#"--overrides={"spec":{"nodeName":"node-1","automountServiceAccountToken":false}}"#;
        let common =
            ["run", "one", image, overrides, "--image-pull-policy=Never", "--restart=Never", "--rm", "-q", "-i"];
        run(&rig, true, &[&common[..], words].concat(), input).await
    };
    let said =
        run_it(&["--command", "--", "/bin/busybox", "sh", "-c", "read line; echo got $line; exit 4"], b"hello\n").await;
    assert_eq!(said.code, 4, "{} {}", said.out, said.err);
    assert!(said.out.contains("got hello\n"), "{} {}", said.out, said.err);
    assert!(said.err.contains("pod default/one terminated (Error)"), "{}", said.err);
    rig.stop().await;
}
