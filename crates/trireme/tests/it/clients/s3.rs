//! Backups in a bucket: moto's S3 server, which checks every signature with AWS' own library, is the other side.

use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use testkit::build::config_map;
use testkit::{Server, ServerOptions, eventually, free_port};
use tokio::process::{Child, Command};

use super::{installed, programs};
use crate::servers::machines::Host;

const ADDRESS: &str = "s3://backups/clusters/one";

/// A bucket, and the keys to it.
struct Bucket {
    _server: Child,
    endpoint: String,
    id: String,
    secret: String,
}

impl Bucket {
    async fn make(moto: &Path) -> Self {
        let port = free_port();
        let endpoint = format!("http://127.0.0.1:{port}");
        let server = Command::new(moto)
            .args(["-H", "127.0.0.1", "-p", &port.to_string()])
            .env("INITIAL_NO_AUTH_ACTION_COUNT", "3")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("moto starts");
        eventually("moto listens", async {
            while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
        .await;
        let script = programs().join("python/s3_account.py");
        let made = Command::new(moto.with_file_name("python")).arg(script).args([&endpoint, "backups"]).output().await;
        let (success, printed) = said(&made.expect("Python runs"));
        assert!(success, "{printed}");
        let (id, secret) = printed.trim().split_once(' ').expect("two keys");
        Self { _server: server, endpoint, id: id.to_owned(), secret: secret.to_owned() }
    }

    /// Runs `trireme backup` with keys in the environment.
    async fn backup(&self, secret: &str, arguments: &[&str]) -> (bool, String) {
        self.run(secret, &[&["backup"], arguments].concat()).await
    }

    async fn run(&self, secret: &str, arguments: &[&str]) -> (bool, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trireme"));
        command.args(arguments).args(["--s3-endpoint", &self.endpoint, "--s3-region", "eu-central-1"]);
        command.env("AWS_ACCESS_KEY_ID", &self.id).env("AWS_SECRET_ACCESS_KEY", secret);
        said(&command.kill_on_drop(true).output().await.expect("the binary runs"))
    }
}

fn said(output: &Output) -> (bool, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout) + &text(&output.stderr))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backups_go_to_a_bucket_and_come_back_from_it() {
    let (Some(_), Some(moto)) = (installed("s3"), installed("venv/bin/moto_server")) else { return };
    let bucket = Bucket::make(&moto).await;
    let home = tempfile::tempdir().expect("a directory");
    let file = home.path().join("credentials");
    let keys = format!("[default]\naws_access_key_id = {}\naws_secret_access_key = {}\n", bucket.id, bucket.secret);
    std::fs::write(&file, keys).expect("a file");
    let flags = ["--disable-agent", "--disable-scheduler", "--backup-schedule", "* * * * *", "--backup-keep", "1"];
    let s3 = ["--backup-to", ADDRESS, "--s3-endpoint", &bucket.endpoint, "--s3-region", "eu-central-1"];
    let arguments = [&flags[..], &s3, &["--s3-credentials", text(&file)]].concat();
    let arguments = arguments.into_iter().map(str::to_owned).collect();
    let mut server = Server::start(ServerOptions { binary: env!("CARGO_BIN_EXE_trireme").into(), arguments }).await;
    // More than one part has room for.
    for number in 0..20 {
        let large = config_map(&format!("large-{number}"), "k", &"x".repeat(1_000_000));
        server.client().create(&large).await.expect("created");
    }
    let data = server.data_dir();

    let (made, printed) = bucket.backup("wrong", &["create", "--data-dir", text(&data), "--to", ADDRESS]).await;
    assert!(!made && printed.contains("SignatureDoesNotMatch"), "{printed}");
    assert!(printed.contains("the backup is in"), "{printed}");
    let (made, printed) = bucket.backup(&bucket.secret, &["create", "--data-dir", text(&data), "--to", ADDRESS]).await;
    assert!(made, "{printed}");
    let size = printed.split_whitespace().rev().nth(1).and_then(|number| number.parse::<u64>().ok());
    assert!(size > Some(16 << 20), "it goes in parts: {printed}");
    let name = printed.split_whitespace().next().expect("a name").to_owned();
    assert!(!data.join("backups").join(&name).exists(), "it was moved");

    // The schedule's own, and the old one goes.
    eventually("a backup by schedule", async {
        loop {
            let (listed, list) = bucket.backup(&bucket.secret, &["list", "--from", ADDRESS]).await;
            assert!(listed && list.lines().any(|line| line.starts_with(&name)), "{list}");
            if list.contains("scheduled-2") && !list.contains("scheduled-1999") {
                return;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    })
    .await;
    let log = server.log_text();
    assert!(log.contains("removed backup scheduled-19990101T000000Z-7 from s3://backups/clusters/one"), "{log}");
    assert!(!log.contains(&bucket.secret), "{log}");
    let token = std::fs::read(data.join("token")).expect("a token");

    server.kill().await;
    std::fs::remove_dir_all(&data).expect("the machine is lost");
    let (restored, printed) =
        bucket.backup(&bucket.secret, &["restore", "--data-dir", text(&data), &format!("{ADDRESS}/nothing")]).await;
    assert!(!restored && printed.contains("s3://backups/clusters/one/nothing is no backup"), "{printed}");
    let (restored, printed) =
        bucket.backup(&bucket.secret, &["restore", "--data-dir", text(&data), &format!("{ADDRESS}/{name}")]).await;
    assert!(restored && printed.starts_with(&name), "{printed}");
    assert_eq!(crate::private::open_to_others(&data), [], "it holds secrets");
    assert_eq!(std::fs::read(data.join("token")).expect("a token"), token);
    assert!(!data.join(".restore").exists());
    server.set_arguments(&["--disable-agent", "--disable-scheduler"]);
    server.spawn();
    server.ready().await;
    let large = server.client().get::<ConfigMap>("default", "large-19").await.expect("it is back");
    assert_eq!(large.data.expect("data")["k"].len(), 1_000_000);
    assert!(server.stop().await, "a clean stop:\n{}", server.log_text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_of_etcd_goes_to_a_bucket() {
    let (Some(_), Some(moto)) = (installed("s3"), installed("venv/bin/moto_server")) else { return };
    let bucket = Bucket::make(&moto).await;
    let ports = [free_port(), free_port()].map(|port| port.to_string());
    let quiet = ["--disable-agent", "--disable-controller-manager", "--disable-scheduler", "--cluster-init"];
    let own = ["--etcd-client-port", &ports[0], "--etcd-peer-port", &ports[1]];
    let arguments = quiet.iter().chain(&own).map(|&argument| argument.to_owned()).collect();
    let binary = env!("CARGO_BIN_EXE_trireme").into();
    let host = Host { server: Server::start(ServerOptions { binary, arguments }).await };
    host.client().create(&config_map("kept", "k", "v")).await.expect("created");
    let data = host.data_dir();
    let snapshot = ["etcd", "snapshot", "--data-dir", &data, "--to", ADDRESS];
    let (sent, printed) = bucket.run("wrong", &snapshot).await;
    assert!(!sent && printed.contains("SignatureDoesNotMatch"), "{printed}");
    let (sent, printed) = bucket.run(&bucket.secret, &[&snapshot[..], &["../up"]].concat()).await;
    assert!(!sent && printed.contains("is no name for a snapshot in a bucket"), "{printed}");
    let (sent, printed) = bucket.run(&bucket.secret, &snapshot).await;
    assert!(sent && printed.contains("bytes written to s3://backups/clusters/one/etcd-20"), "{printed}");
    let (sent, printed) = bucket.run(&bucket.secret, &[&snapshot[..], &["etcd.snapshot"]].concat()).await;
    assert!(sent && printed.trim().ends_with("bytes written to s3://backups/clusters/one/etcd.snapshot"), "{printed}");
    assert!(!host.etcd_dir().join("snapshot.part").exists(), "nothing of it stays here");

    // What came there, as somebody else's client reads it, is a database of etcd's, whole.
    let there = data_of(&bucket, &moto, "clusters/one/etcd.snapshot").await;
    assert_eq!(there.len().to_string(), printed.split_whitespace().next().expect("a size"));
    assert_eq!(there[16..20], 0xed0c_daed_u32.to_le_bytes(), "a database");
    let key = b"/registry/configmaps/default/kept";
    assert!(there.windows(key.len()).any(|window| window == key), "it has what was written");
}

/// What a bucket holds, read by somebody else's client.
async fn data_of(bucket: &Bucket, moto: &Path, key: &str) -> Vec<u8> {
    let script = "import boto3,sys\n\
                  it=boto3.client('s3',endpoint_url=sys.argv[1],region_name='eu-central-1')\n\
                  sys.stdout.buffer.write(it.get_object(Bucket='backups',Key=sys.argv[2])['Body'].read())";
    let mut python = Command::new(moto.with_file_name("python"));
    python.args(["-c", script, &bucket.endpoint, key]);
    python.env("AWS_ACCESS_KEY_ID", &bucket.id).env("AWS_SECRET_ACCESS_KEY", &bucket.secret);
    let output = python.output().await.expect("Python runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}
