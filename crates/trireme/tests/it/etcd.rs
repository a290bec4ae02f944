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
