//! Storage: from a claim to a pod that runs with its volume, one after the other with the parts of the way, and many at once; and what
//! volumes add to the memory of the node's part.
//!
//! The driver is that of the tests, in this process, with its sidecars: what it takes itself is little, and what is
//! measured is everything between the claim and the driver's calls.

use std::time::{Duration, Instant};

use client::{Client, DeleteOptions, Event, WatchParams};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{CSIDriver, StorageClass};
use serde_json::json;
use testkit::Server;
use testkit::csi::{Driver, Sidecars, Traits};

use crate::Failure;
use crate::node::{
    IMAGE, NODE, clean, create as create_pods, delete_all, home, node_ready, running, start_agent, with_image,
};
use crate::process::private_megabytes;
use crate::report::Line;

const DRIVER: &str = "bench.csi.trireme.io";
const ONE_BY_ONE: usize = 20;
const AT_ONCE: usize = 100;
const RESIDENT: usize = 30;
const SETTLING: Duration = Duration::from_secs(15);
/// The driver's calls on the way to a pod, in their order.
const WAY: [(&str, &str); 4] = [
    ("CreateVolume", "to_create_p50_ms"),
    ("ControllerPublishVolume", "to_attach_p50_ms"),
    ("NodeStageVolume", "to_stage_p50_ms"),
    ("NodePublishVolume", "to_publish_p50_ms"),
];

pub async fn run(scale: f64) -> Result<(), Failure> {
    let count = |wanted: usize| ((wanted as f64 * scale) as usize).max(3);
    let at_once = count(AT_ONCE);
    let mut server = with_image().await?.with_arguments(&[&format!("--node-name={NODE}")]);
    server.spawn();
    server.ready().await;
    let client = server.client();
    node_ready(&client).await?;
    let data = server.data_dir();
    let driver = Driver::start(&data.join("agent/kubelet"), &data.join("driver"), DRIVER, NODE, Traits::default());
    let sidecars = sidecars(&client, &driver).await?;
    // The first one finds everything cold.
    one(&client, &driver, "warm").await?;
    one_by_one(&client, &driver, count(ONE_BY_ONE)).await?;
    take_away(&client).await?;
    let begun = Instant::now();
    for number in 0..at_once {
        create(&client, &format!("many-{number}")).await?;
    }
    running(&client, at_once).await?;
    let seconds = begun.elapsed().as_secs_f64();
    Line::new("volumes_at_once").figure("pods", at_once as f64).figure("s", seconds).print();
    take_away(&client).await?;
    drop(sidecars);
    server.stop().await;
    clean(&server.data_dir()).await?;
    memory(server.with_arguments(&["--disable-agent"]), count(RESIDENT)).await
}

/// The driver's helpers, once the kubelet has it, and what an administrator makes for it.
async fn sidecars(client: &Client, driver: &Driver) -> Result<Sidecars, Failure> {
    driver.registered().await?;
    let sidecars = Sidecars::start(client, driver).await;
    let object = json!({"metadata": {"name": DRIVER}, "spec": {"attachRequired": true}});
    made(client.create(&serde_json::from_value::<CSIDriver>(object)?).await)?;
    let class = json!({
        "metadata": {"name": "bench"}, "provisioner": DRIVER, "volumeBindingMode": "WaitForFirstConsumer",
    });
    made(client.create(&serde_json::from_value::<StorageClass>(class)?).await)?;
    Ok(sidecars)
}

/// Made before is fine.
fn made<K>(created: Result<K, client::Error>) -> Result<(), Failure> {
    match created {
        Err(error) if !error.is_already_exists() => Err(error.into()),
        _ => Ok(()),
    }
}

/// The node's part as a process of its own, with pods that have no volumes, and then with as many that have one each.
async fn memory(mut server: Server, pods: usize) -> Result<(), Failure> {
    server.spawn();
    server.ready().await;
    let client = server.client();
    let home = home(&server)?;
    client.delete::<Node>("", NODE, &DeleteOptions::default()).await?;
    let agent = start_agent(&server, home.path())?;
    let id = agent.id().ok_or("the agent is gone")?;
    node_ready(&client).await?;
    // What is given back comes back within seconds; what was needed once is there the second time.
    let settled = async || tokio::time::sleep(SETTLING).await;
    for _ in 0..2 {
        create_pods(&client, "plain", pods, false).await?;
        running(&client, pods).await?;
        settled().await;
        delete_all(&client).await?;
    }
    create_pods(&client, "plain", pods, false).await?;
    running(&client, pods).await?;
    settled().await;
    let without = private_megabytes(id)?;
    delete_all(&client).await?;
    let driver =
        Driver::start(&home.path().join("agent/kubelet"), &home.path().join("driver"), DRIVER, NODE, Traits::default());
    let sidecars = sidecars(&client, &driver).await?;
    for number in 0..pods {
        create(&client, &format!("resident-{number}")).await?;
    }
    running(&client, pods).await?;
    settled().await;
    let with = private_megabytes(id)?;
    Line::new("volumes_memory")
        .figure("pods", pods as f64)
        .figure("without_megabytes", without)
        .figure("with_megabytes", with)
        .figure("added_megabytes", with - without)
        .at_most("added_megabytes", 3.0)
        .print();
    take_away(&client).await?;
    drop((sidecars, agent));
    server.stop().await;
    clean(home.path()).await
}

async fn one_by_one(client: &Client, driver: &Driver, count: usize) -> Result<(), Failure> {
    let (mut whole, mut parts) = (Vec::new(), vec![Vec::new(); WAY.len()]);
    for number in 0..count {
        let (took, way) = one(client, driver, &format!("one-{number}")).await?;
        whole.push(took);
        way.into_iter().zip(&mut parts).for_each(|(part, all)| all.push(part));
    }
    let mut line = Line::new("claim_to_running").latencies(&mut whole);
    for ((_, name), mut part) in WAY.into_iter().zip(parts) {
        part.sort_unstable();
        line = line.figure(name, part[part.len() / 2].as_secs_f64() * 1e3);
    }
    line.at_most("p50_ms", 600.0).print();
    Ok(())
}

/// A claim and a pod at once; how long until the pod runs, and until each of the driver's calls.
async fn one(client: &Client, driver: &Driver, name: &str) -> Result<(Duration, Vec<Duration>), Failure> {
    let params = WatchParams { field_selector: format!("metadata.name={name}"), ..WatchParams::default() };
    let mut events = client.watch::<Pod>("default", &params).await?;
    let (sent, before) = (Instant::now(), driver.calls().len());
    create(client, name).await?;
    while let Some(event) = events.next().await {
        let (Event::Added(pod) | Event::Modified(pod)) = event? else { continue };
        if pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running") {
            let (took, calls) = (sent.elapsed(), driver.calls());
            let reached = |name: &str| calls[before..].iter().find(|call| call.name == name).map(|call| call.at);
            let way = WAY.iter().map(|(name, _)| reached(name).map(|at| at - sent).unwrap_or_default());
            return Ok((took, way.collect()));
        }
    }
    Err("the watch ended".into())
}

async fn create(client: &Client, name: &str) -> Result<(), Failure> {
    let claim = json!({"metadata": {"name": name, "namespace": "default"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "bench", "resources": {"requests": {"storage": "1Gi"}},
    }});
    client.create(&serde_json::from_value::<PersistentVolumeClaim>(claim)?).await?;
    let pod = json!({"metadata": {"name": name, "namespace": "default"}, "spec": {
        "terminationGracePeriodSeconds": 1,
        "containers": [{
            "name": "main", "image": IMAGE, "command": ["sh", "-c", "trap 'exit 0' TERM; sleep 86400 & wait"],
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        }],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}],
    }});
    client.create(&serde_json::from_value::<Pod>(pod)?).await?;
    Ok(())
}

async fn take_away(client: &Client) -> Result<(), Failure> {
    delete_all(client).await?;
    for claim in client.list::<PersistentVolumeClaim>("default", &Default::default()).await?.items {
        let name = claim.metadata.name.clone().unwrap_or_default();
        client.delete::<PersistentVolumeClaim>("default", &name, &DeleteOptions::default()).await?;
    }
    testkit::objects::<PersistentVolume>(client, "", "no volumes", <[_]>::is_empty).await;
    Ok(())
}
