//! An etcd that goes away is said so, and is used again when it is back.

use k8s_openapi::api::core::v1::ConfigMap;
use testkit::build::config_map;
use testkit::{Etcd, Server, ServerOptions, eventually};

fn options(etcd: &Etcd) -> ServerOptions {
    let arguments = ["--disable-agent", "--store", "etcd", "--etcd-servers", &etcd.endpoint()].map(str::to_owned);
    ServerOptions { binary: env!("CARGO_BIN_EXE_trireme").into(), arguments: arguments.to_vec() }
}

#[tokio::test]
async fn an_etcd_that_goes_away_is_answered_503_and_comes_back_by_itself() {
    let mut etcd = Etcd::start().await;
    let mut server = Server::start(options(&etcd)).await;
    let client = server.client();
    client.create(&config_map("before", "k", "v")).await.expect("created");
    etcd.kill().await;
    let refused = async {
        loop {
            // The first requests may still be under way in connections that do not know yet.
            match client.create(&config_map("during", "k", "v")).await {
                Err(error) if error.code() == Some(503) => return error,
                _ => tokio::task::yield_now().await,
            }
        }
    };
    let error = eventually("a refusal", refused).await;
    assert!(error.api().is_some_and(|status| status.details.as_ref().is_some_and(|details| details.retry_after > 0)));
    etcd.start_again().await;
    let accepted = async {
        while let Err(error) = client.create(&config_map("after", "k", "v")).await {
            assert!(error.code() == Some(503) || error.is_already_exists(), "{error}");
            if error.is_already_exists() {
                return;
            }
        }
    };
    eventually("etcd is used again", accepted).await;
    let kept: ConfigMap = client.get("default", "before").await.expect("kept");
    assert_eq!(kept.data.and_then(|mut data| data.remove("k")).as_deref(), Some("v"));
    assert!(server.stop().await, "{}", server.log_text());
}

#[tokio::test(flavor = "multi_thread")]
async fn of_the_past_an_etcd_has_revisions_until_they_are_compacted_and_that_is_said() {
    let etcd = Etcd::start().await;
    let mut server = Server::start(options(&etcd)).await;
    let kubeconfig = server.kubeconfig();
    let run = async |line: &str| {
        let mut command = server.command(env!("CARGO_BIN_EXE_trireme"));
        command.arg("kubectl").args(line.split(' ')).arg("--kubeconfig").arg(&kubeconfig);
        let output = command.output().await.expect("the binary");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    };
    let said = async |line: &str| run(line).await.unwrap_or_else(|error| panic!("{line}: {error}"));
    let refused = async |line: &str| run(line).await.expect_err(line);
    let client = server.client();
    let mut map = client.create(&config_map("a", "k", "1")).await.expect("created");
    let first = map.metadata.resource_version.clone().expect("a version");
    map.data = Some([("k".to_owned(), "2".to_owned())].into());
    let second = client.update(&map).await.expect("changed").metadata.resource_version.expect("a version");

    assert_eq!(said(&format!("get cm a --at {first} -o jsonpath={{.data.k}}")).await, "1");
    let table = said(&format!("get cm --at {first}")).await;
    assert!(table.starts_with("NAME "), "{table}");
    let history = said("history cm/a").await;
    let lines: Vec<&str> = history.lines().collect();
    assert!(lines.len() == 3 && lines[1].starts_with(&second), "{history}");
    let done = said(&format!("undo cm/a --to {first}")).await;
    assert!(done.ends_with("configmap/a undone\n"), "{done}");
    assert_eq!(said("get cm a -o jsonpath={.data.k}").await, "1");
    // Times and authors it does not keep.
    let no_times = refused("get cm a --at 5m").await;
    let expected = "Error from server (BadRequest): etcd keeps no times: name a revision, from ";
    assert!(no_times.starts_with(expected), "{no_times}");
    let future = refused("get cm --at 99999999").await;
    assert!(future.contains("revision 99999999 is in the future: the latest is "), "{future}");
    let kept: serde_json::Value = serde_json::from_str(&said("get --raw /trireme/history").await).expect("a document");
    assert_eq!((&kept["engine"], &kept["oldest"]["time"]), (&"etcd".into(), &serde_json::Value::Null), "{kept}");

    // Somebody compacts, as servers do every few minutes.
    let other =
        store::etcd::Etcd::open(&store::etcd::Options { endpoints: vec![etcd.endpoint()], ..Default::default() })
            .expect("etcd");
    store::Store::compact(&*other, second.parse().expect("a revision")).await.expect("a compaction");
    for what in ["cm a", "cm"] {
        let gone = refused(&format!("get {what} --at {first}")).await;
        let expected =
            format!("Error from server (Expired): revision {first} is no longer kept: the oldest that is left is ");
        assert!(gone.starts_with(&expected), "{gone}");
    }
    assert_eq!(said(&format!("get cm a --at {second} -o jsonpath={{.data.k}}")).await, "2");
    assert!(server.stop().await, "{}", server.log_text());
}

#[tokio::test]
async fn a_server_waits_for_an_etcd_that_is_not_there_yet() {
    let mut etcd = Etcd::start().await;
    let mut server = Server::start(options(&etcd)).await;
    server.kill().await;
    etcd.kill().await;
    server.spawn();
    let waiting = async {
        while !server.log_text().contains("trying again") {
            tokio::task::yield_now().await;
        }
    };
    eventually("the server says that it waits", waiting).await;
    etcd.start_again().await;
    server.ready().await;
    assert!(server.stop().await, "{}", server.log_text());
}
