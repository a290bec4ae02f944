//! The audit log across SIGKILL: no acknowledged change is without its line, and every line is whole.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use testkit::build::config_map;
use testkit::{Server, ServerOptions, eventually};
use tokio::sync::Notify;
use tokio::task::JoinSet;

const WRITERS: usize = 8;
const ROUNDS: usize = 3;
const PER_ROUND: usize = 100;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_acknowledged_change_is_without_its_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let policy = directory.path().join("policy.yaml");
    let text = "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Metadata, resources: [{resources: [configmaps]}]}]}";
    std::fs::write(&policy, text).expect("a file");
    let log = directory.path().join("audit.log");
    let path = |path: &std::path::Path| path.to_str().expect("a path in UTF-8").to_owned();
    let mut arguments: Vec<String> =
        ["--disable-agent", "--disable-controller-manager", "--disable-scheduler"].map(str::to_owned).to_vec();
    arguments.extend(["--audit-policy-file".to_owned(), path(&policy), "--audit-log-path".to_owned(), path(&log)]);
    let mut server = Server::start(ServerOptions { binary: env!("CARGO_BIN_EXE_trireme").into(), arguments }).await;
    let acknowledged: Arc<Mutex<Vec<String>>> = Arc::default();
    for round in 0..ROUNDS {
        let enough = Arc::new(Notify::new());
        let before = acknowledged.lock().len();
        let mut writers = JoinSet::new();
        for writer in 0..WRITERS {
            let (client, acknowledged, enough) = (server.client(), Arc::clone(&acknowledged), Arc::clone(&enough));
            writers.spawn(async move {
                for number in 0.. {
                    let name = format!("r{round}-w{writer}-n{number}");
                    // The server goes away in the middle of one of these.
                    if client.create(&config_map(&name, "k", "v")).await.is_err() {
                        return;
                    }
                    let mut acknowledged = acknowledged.lock();
                    acknowledged.push(name);
                    if acknowledged.len() >= before + PER_ROUND {
                        enough.notify_one();
                    }
                }
            });
        }
        eventually("enough writes", enough.notified()).await;
        server.kill().await;
        eventually("the writers notice", async { while writers.join_next().await.is_some() {} }).await;
        server.spawn();
        server.ready().await;
    }
    let text = std::fs::read_to_string(&log).expect("a log");
    let (whole, rest) = text.rsplit_once('\n').expect("lines");
    assert!(rest.is_empty(), "the log ends with a whole line, also after a kill in the middle: {rest}");
    let written: HashSet<String> = whole
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("every line is JSON"))
        .filter(|event| event["stage"] == "ResponseComplete" && event["responseStatus"]["code"] == 201)
        .filter_map(|event| event["objectRef"]["name"].as_str().map(str::to_owned))
        .collect();
    let acknowledged = std::mem::take(&mut *acknowledged.lock());
    assert!(acknowledged.len() >= ROUNDS * PER_ROUND);
    let missing: Vec<&String> = acknowledged.iter().filter(|name| !written.contains(*name)).collect();
    assert!(missing.is_empty(), "{} acknowledged changes have no line: {missing:?}", missing.len());
    assert!(server.stop().await, "{}", server.log_text());
}
