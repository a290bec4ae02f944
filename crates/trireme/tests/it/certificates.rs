//! Certificates become others while the server runs, and connections go on.

use std::time::Duration;

use client::{Client, Config};
use k8s_openapi::api::core::v1::Namespace;
use testkit::{Server, ServerOptions, eventually};
use tokio::process::Command;

/// The serial number of the certificate that a new connection is shown.
async fn shown(server: &Server) -> String {
    let connect = format!(
        "openssl s_client -connect 127.0.0.1:{} </dev/null 2>/dev/null | openssl x509 -noout -serial",
        server.port()
    );
    let output = Command::new("sh").args(["-c", &connect]).output().await.expect("openssl (Debian: openssl)");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_listed_and_renewed_by_command() {
    let binary: std::path::PathBuf = env!("CARGO_BIN_EXE_trireme").into();
    let arguments = vec!["--disable-agent".to_owned()];
    let server = Server::start(ServerOptions { binary: binary.clone(), arguments }).await;
    let old = shown(&server).await;
    let run = async |words: &[&str]| {
        let mut command = Command::new(&binary);
        command.arg("certificates").args(words).arg("--data-dir").arg(server.data_dir());
        let output = command.output().await.expect("the binary");
        (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    let (listed, table) = run(&["list"]).await;
    assert!(listed && table.contains("\napiserver "), "{table}");
    let (renewed, said) = run(&["renew", "apiserver"]).await;
    assert!(renewed && said.starts_with("apiserver: to be made anew\n"), "{said}");
    eventually("a new certificate is shown", async {
        while shown(&server).await == old {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    let (refused, said) = run(&["renew", "ca"]).await;
    assert!(!refused && said.contains("ca is an authority"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_believes_the_certificate_that_was_put_down_believes_the_server() {
    let folder = tempfile::tempdir().expect("a directory");
    let directory = folder.path().join("certificates");
    let text = |name: &str| std::fs::read_to_string(directory.join(name)).unwrap_or_default();
    let arguments = vec!["--disable-agent".to_owned(), "--cert-dir".to_owned(), directory.display().to_string()];
    let server = Server::start(ServerOptions { binary: env!("CARGO_BIN_EXE_trireme").into(), arguments }).await;
    let asked = async || {
        let mut command = Command::new("curl");
        command.args(["-sS", "--cacert"]).arg(directory.join("apiserver.crt"));
        let output = command.arg(format!("https://127.0.0.1:{}/readyz", server.port())).output().await;
        String::from_utf8_lossy(&output.expect("curl (Debian: curl)").stdout).into_owned()
    };
    assert_eq!(asked().await, "ok");
    let key = std::fs::read_to_string(server.data_dir().join("pki/apiserver.key")).expect("a key");
    assert_eq!(text("apiserver.key"), key);
    let old = text("apiserver.crt");
    std::fs::remove_file(server.data_dir().join("pki/apiserver.crt")).expect("it was there");
    eventually("the new one is put down", async {
        while text("apiserver.crt") == old {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    assert_eq!(asked().await, "ok");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_server_shows_a_new_certificate_when_it_is_told_to_look() {
    let arguments = vec!["--disable-agent".to_owned()];
    let server = Server::start(ServerOptions { binary: env!("CARGO_BIN_EXE_trireme").into(), arguments }).await;
    let (old, client) = (shown(&server).await, server.client());
    assert!(old.starts_with("serial="), "{old}");
    client.get::<Namespace>("", "default").await.expect("an answer");
    // What is not there is made again, as what is about to end is.
    for name in ["apiserver.crt", "admin.crt"] {
        std::fs::remove_file(server.data_dir().join("pki").join(name)).expect("it was there");
    }
    let kubeconfig = std::fs::read_to_string(server.kubeconfig()).expect("a kubeconfig");
    let id = server.id().expect("it runs").to_string();
    let told = Command::new("kill").args(["-HUP", &id]).status().await;
    assert!(told.is_ok_and(|status| status.success()));
    eventually("a new certificate is shown", async {
        while shown(&server).await == old {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    client.get::<Namespace>("", "default").await.expect("the old connection goes on");
    eventually("the administrator has a new one, too", async {
        while std::fs::read_to_string(server.kubeconfig()).is_ok_and(|text| text == kubeconfig) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    let renewed = Client::https(Config::from_kubeconfig(server.kubeconfig()).expect("a kubeconfig")).expect("a client");
    renewed.get::<Namespace>("", "default").await.expect("it is believed");
}
