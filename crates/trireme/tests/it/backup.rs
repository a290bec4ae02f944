//! A backup under load, the machine lost, a new one in its place.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use client::ListParams;
use k8s_openapi::api::core::v1::ConfigMap;
use testkit::build::config_map;
use testkit::{Server, ServerOptions, eventually};
use tokio_util::sync::CancellationToken;

use crate::command::run;

async fn start() -> Server {
    let arguments = ["--disable-agent", "--disable-scheduler"].map(str::to_owned).to_vec();
    Server::start(ServerOptions { binary: env!("CARGO_BIN_EXE_trireme").into(), arguments }).await
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// The numbers of those that are there.
async fn numbers(server: &Server) -> Vec<u64> {
    let list = server.client().list::<ConfigMap>("default", &ListParams::default()).await.expect("a list");
    let names = list.items.iter().filter_map(|map| map.metadata.name.as_deref()?.strip_prefix("n-")?.parse().ok());
    let mut numbers: Vec<u64> = names.collect();
    numbers.sort_unstable();
    numbers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_server_comes_back_from_a_backup_as_of_one_revision() {
    let mut server = start().await;
    // One writer, so the state of every revision is all numbers up to one of them.
    let (written, stop) = (Arc::new(AtomicU64::new(0)), CancellationToken::new());
    let writer = {
        let (client, written, stop) = (server.client(), Arc::clone(&written), stop.clone());
        tokio::spawn(async move {
            while !stop.is_cancelled() {
                let number = written.load(Ordering::SeqCst);
                client.create(&config_map(&format!("n-{number}"), "k", "v")).await.expect("created");
                written.store(number + 1, Ordering::SeqCst);
            }
        })
    };
    let progress = async |wanted: u64| {
        while written.load(Ordering::SeqCst) < wanted {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    eventually("some are written", progress(20)).await;
    let before = written.load(Ordering::SeqCst);
    let data = server.data_dir();
    let (made, said) = tokio::task::block_in_place(|| run(&["backup", "create", "--data-dir", text(&data)]));
    assert!(made, "{said}");
    let after = written.load(Ordering::SeqCst);
    eventually("more are written", progress(after + 20)).await;
    stop.cancel();
    writer.await.expect("a writer that does not panic");

    let name = said.split_whitespace().next().expect("a name");
    assert!(name.starts_with("manual-"), "{said}");
    let (listed, list) = run(&["backup", "list", "--data-dir", text(&data)]);
    assert!(listed && list.lines().count() == 1 && list.starts_with(name), "{list}");
    let kept = data.with_file_name("kept");
    std::fs::rename(data.join("backups").join(name), &kept).expect("taken elsewhere");
    assert_eq!(crate::private::open_to_others(&kept), [], "it holds secrets");
    // What the cluster's users have must be good afterwards, too.
    let credentials = std::fs::read_to_string(server.kubeconfig()).expect("a kubeconfig");
    let token = std::fs::read(data.join("token")).expect("a token");

    // A server's directory is not overwritten.
    server.kill().await;
    let (restored, said) = run(&["backup", "restore", "--data-dir", text(&data), text(&kept)]);
    assert!(!restored && said.contains("is not empty"), "{said}");
    std::fs::remove_dir_all(&data).expect("the machine is lost");
    let (restored, said) = run(&["backup", "restore", "--data-dir", text(&data), text(&kept)]);
    assert!(restored, "{said}");
    server.spawn();
    server.ready().await;
    let there = numbers(&server).await;
    let count = there.len() as u64;
    assert_eq!(there, (0..count).collect::<Vec<_>>(), "the state of one revision");
    assert!(
        (before..=after + 1).contains(&count),
        "{before} were written before it, {after} after it, {count} are in it"
    );
    assert_eq!(std::fs::read_to_string(server.kubeconfig()).expect("a kubeconfig"), credentials);
    assert_eq!(std::fs::read(data.join("token")).expect("a token"), token);
    assert!(server.stop().await, "a clean stop:\n{}", server.log_text());
}

#[tokio::test]
async fn who_may_not_gets_no_backup_and_nonsense_is_said() {
    let mut server = start().await;
    let kubectl = server.kubectl();
    let ask = ["create", "--raw", "/trireme/backups", "-f", "/dev/null"];
    let refused = kubectl.output(&[&ask[..], &["--as=somebody"]].concat(), "").await;
    assert!(!refused.success && refused.stderr.contains("cannot post path \"/trireme/backups\""), "{}", refused.stderr);
    let made = kubectl.output(&ask, "").await;
    assert!(made.success && made.stdout.contains("\"revision\""), "{}{}", made.stdout, made.stderr);
    assert!(!kubectl.output(&["get", "--raw", "/trireme/backups"], "").await.success, "it is asked for by a POST");

    let data = server.data_dir();
    let nothing = data.join("pki");
    let (restored, said) = run(&["backup", "restore", "--data-dir", "/nonexistent", text(&nothing)]);
    assert!(!restored && said.contains("is no backup"), "{said}");
    let (started, said) = run(&["server", "--data-dir", text(&data), "--backup-schedule", "every day"]);
    assert!(!started && said.contains("expected exactly 5 fields"), "{said}");
    assert!(server.stop().await, "a clean stop:\n{}", server.log_text());
    let (made, said) = run(&["backup", "create", "--data-dir", text(&data)]);
    assert!(!made && said.contains("trireme store backup"), "{said}");
}
