//! Tokens in Secrets: made by a controller, believed by the server, and their use noted for the one that cleans up.

use client::{Client, Config};
use jiff::tz::TimeZone;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use testkit::build::service_account;
use testkit::{Server, ServerOptions};

fn today() -> String {
    jiff::Timestamp::now().to_zoned(TimeZone::UTC).date().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_use_of_a_token_in_a_secret_is_noted() {
    let arguments = vec!["--disable-agent".to_owned(), "--disable-scheduler".to_owned()];
    let server = Server::start(ServerOptions { binary: env!("CARGO_BIN_EXE_trireme").into(), arguments }).await;
    let client = server.client();
    let before = today();
    let tracking = client.get::<ConfigMap>("kube-system", "kube-apiserver-legacy-service-account-token-tracking").await;
    let since = tracking.expect("the server says since when").data.and_then(|data| data.get("since").cloned());
    assert!(since.is_some_and(|since| since <= before), "notes began at the first start");

    client.create(&service_account("robot")).await.expect("an account");
    let annotations = [("kubernetes.io/service-account.name".to_owned(), "robot".to_owned())];
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some("robot-token".to_owned()),
            namespace: Some("default".to_owned()),
            annotations: Some(annotations.into()),
            ..ObjectMeta::default()
        },
        type_: Some("kubernetes.io/service-account-token".to_owned()),
        ..Secret::default()
    };
    client.create(&secret).await.expect("a secret");
    let filled = testkit::object::<Secret>(&client, "default", "robot-token", "a token in the secret", |secret| {
        secret.is_some_and(|secret| secret.data.as_ref().is_some_and(|data| data.contains_key("token")))
    })
    .await
    .expect("the secret is there");
    let token = String::from_utf8(filled.data.as_ref().expect("data")["token"].0.clone()).expect("tokens are text");
    assert_eq!(filled.metadata.labels, None, "nobody used it yet");

    let mut config = Config::from_kubeconfig(server.kubeconfig()).expect("a kubeconfig");
    config.credentials = client::config::Credentials::token(&token).expect("credentials");
    let robot = Client::https(config).expect("a client");
    robot.raw("/version").await.expect("the token is believed");
    let noted = testkit::object::<Secret>(&client, "default", "robot-token", "a note of the use", |secret| {
        secret.is_some_and(|secret| secret.metadata.labels.is_some())
    })
    .await
    .expect("the secret is there");
    let note = noted.metadata.labels.as_ref().expect("labels")["kubernetes.io/legacy-token-last-used"].clone();
    assert!((before..=today()).contains(&note), "{note}");
}
