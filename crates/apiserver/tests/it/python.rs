//! The official Python client, unmodified, against a real server: what it does is in `client.py`.

use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use crate::server::Server;

#[tokio::test]
async fn the_python_client_works_unmodified() {
    let server = Server::default().await;
    let kubeconfig = server.kubeconfig();
    // The system's own interpreter: that is the one for which scripts/packages installs the client.
    let run = Command::new("/usr/bin/python3")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/client.py"))
        .env("KUBECONFIG", &kubeconfig)
        .env("HOME", server.path(""))
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(Duration::from_secs(180), run).await.expect("it ends").expect("python3 runs");
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}{stderr}");
    let done: Vec<&str> = stdout.lines().collect();
    assert_eq!(done, ["typed", "patches", "watch", "dynamic", "apply", "yaml", "errors"], "{stderr}");
    server.stop().await;
}
