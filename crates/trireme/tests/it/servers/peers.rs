//! Two servers of one cluster, one of which does not have a group: what it cannot answer the other one does, on behalf of whoever asked.

use std::time::Duration;

use client::{Client, Event, ListParams, WatchParams};
use futures::StreamExt as _;
use k8s_openapi::api::batch::v1::CronJob;
use machinery::rest::{Body, Payload};
use serde_json::{Value, json};
use testkit::eventually;

use super::machines::{Host, Machines, PORT};
use super::relay::Relay;
use super::step;

const QUIET: [&str; 2] = ["--disable-controller-manager", "--disable-scheduler"];
const LACKS: [&str; 2] = ["--runtime-config", "batch/v1=false"];
const JOBS: &str = "/apis/batch/v1/namespaces/default/cronjobs";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Status and body of a GET with some headers.
async fn get(client: &Client, path: &str, headers: &[(&str, &str)]) -> (u16, String) {
    let request = headers.iter().fold(http::Request::get(path), |request, (name, value)| request.header(*name, *value));
    let answer = client.request(request.body(Body::Empty).expect("a request")).await.expect("an answer");
    let (parts, payload) = answer.into_parts();
    let body = match payload {
        Payload::Bytes(bytes) => bytes.to_vec(),
        Payload::Stream(stream) => {
            let pieces: Vec<_> = stream.map(|piece| piece.expect("a piece").to_vec()).collect().await;
            pieces.concat()
        }
        Payload::Value(value) => value.to_string().into_bytes(),
        _ => panic!("an answer over HTTPS is bytes"),
    };
    (parts.status.as_u16(), String::from_utf8(body).expect("UTF-8"))
}

fn cron_job(name: &str) -> CronJob {
    let container = json!({"name": "c", "image": "i"});
    let pod = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
    let spec = json!({"schedule": "@yearly", "jobTemplate": {"spec": {"template": pod}}});
    serde_json::from_value(json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec}))
        .expect("a CronJob")
}

fn groups(discovery: &str) -> Vec<String> {
    let tree: Value = serde_json::from_str(discovery).expect("a document");
    let items = tree["items"].as_array().expect("groups");
    items.iter().filter_map(|item| Some(item["metadata"]["name"].as_str()?.to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_passes_on_what_only_a_peer_can_answer() {
    let machines = Machines::make('p', 2).await;
    let mut one = machines.server(1, &[&["--cluster-init"][..], &QUIET].concat()).await;
    let mut two = machines.join(2, &one, &[&QUIET[..], &LACKS].concat()).await;
    let (has, lacks) = (one.client(), two.client());

    step("what the other server has is found out");
    eventually("the second server passes requests on", async {
        while get(&lacks, JOBS, &[]).await.0 != 200 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    let (status, said) = get(&lacks, JOBS, &[("x-kubernetes-peer-proxied", "true")]).await;
    assert_eq!(status, 404, "a request is passed on once: {said}");
    assert_eq!(get(&lacks, "/apis/example.com/v1/things", &[]).await.0, 404, "nobody has it");

    step("objects are written and watched through it");
    let listed = lacks.list::<CronJob>("default", &ListParams::default()).await.expect("a list");
    let params = WatchParams { resource_version: Some(listed.revision), ..WatchParams::default() };
    let mut events = lacks.watch::<CronJob>("default", &params).await.expect("a watch");
    lacks.create(&cron_job("through")).await.expect("created");
    has.create(&cron_job("direct")).await.expect("created");
    has.get::<CronJob>("default", "through").await.expect("it is there");
    let mut seen = Vec::new();
    eventually("both are seen", async {
        while seen.len() < 2 {
            if let Some(Ok(Event::Added(job))) = events.next().await {
                seen.push(job.metadata.name.clone().unwrap_or_default());
            }
        }
    })
    .await;
    assert_eq!(seen, ["through", "direct"]);
    drop(events);

    step("on behalf of who asked");
    let (status, said) = get(&lacks, JOBS, &[("impersonate-user", "jane")]).await;
    assert!(status == 403 && said.contains("User \\\"jane\\\" cannot list"), "{status}: {said}");
    // Whom a client claims to be is never passed on.
    let forged = [("x-remote-user", "jane"), ("x-remote-group", "system:masters")];
    assert_eq!(get(&lacks, JOBS, &forged).await.0, 200, "it is the administrator who asks");

    step("discovery has all that can be asked for");
    let (_, all) = get(&lacks, "/apis", &[("accept", AGGREGATED)]).await;
    assert!(groups(&all).contains(&"batch".to_owned()), "{all}");
    let (_, own) = get(&lacks, "/apis", &[("accept", &format!("{AGGREGATED};profile=nopeer"))]).await;
    assert!(!groups(&own).contains(&"batch".to_owned()), "{own}");
    let (_, figures) = get(&lacks, "/metrics", &[]).await;
    let counted = r#"apiserver_rerouted_request_total{code="201",group="batch",version="v1",resource="cronjobs"} 1"#;
    assert!(figures.contains(counted), "{figures}");

    step("a peer that is gone");
    one.server.kill().await;
    let (status, said) = get(&lacks, JOBS, &[]).await;
    assert!(status == 503 && said.contains("connect"), "{status}: {said}");
    one.start_again_with(&QUIET).await;
    eventually("it is back", async {
        while get(&lacks, JOBS, &[]).await.0 != 200 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    elsewhere_and_believed_by_file(&machines, &mut one, &mut two).await;
}

/// Where a server says that its peers reach it, and whom a file says that they believe.
async fn elsewhere_and_believed_by_file(machines: &Machines, one: &mut Host, two: &mut Host) {
    step("at another address");
    let relay = Relay::to((machines.host(), 0).into(), (machines.address(1), PORT).into()).await;
    let (ip, port) = (relay.address.ip().to_string(), relay.address.port().to_string());
    let advertised = ["--peer-advertise-ip", &ip, "--peer-advertise-port", &port];
    assert!(one.server.stop().await, "{}", one.server.log_text());
    one.start_again_with(&[&QUIET[..], &advertised].concat()).await;
    let lacks = two.client();
    eventually("it is asked there", async {
        while get(&lacks, JOBS, &[]).await.0 != 200 || relay.connections() == 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    assert_eq!(one.listed().await, [1, 2].map(|number| machines.address(number).to_string()), "for peers alone");

    step("an authority that vouches for no server");
    let authority = |name: &str| one.server.data_dir().join("pki").join(name).display().to_string();
    let (other, own) = (authority("front-proxy-ca.crt"), authority("ca.crt"));
    assert!(two.server.stop().await, "{}", two.server.log_text());
    two.start_again_with(&[&QUIET[..], &LACKS, &["--peer-ca-file", &other]].concat()).await;
    let failed = r#"apiserver_peer_discovery_sync_errors_total{type="fetch_discovery"}"#;
    eventually("the peer is not believed", async {
        while !get(&two.client(), "/metrics", &[]).await.1.contains(failed) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    assert_eq!(get(&two.client(), JOBS, &[]).await.0, 404);
    step("and the one that does");
    assert!(two.server.stop().await, "{}", two.server.log_text());
    two.start_again_with(&[&QUIET[..], &LACKS, &["--peer-ca-file", &own]].concat()).await;
    eventually("the peer is believed", async {
        while get(&two.client(), JOBS, &[]).await.0 != 200 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}
