//! The attach-detach controller among many attachments: what one change costs, and that it writes nothing when nothing changes.
//!
//! No node runs. A change is an attachment that nobody wants, which the controller finds and deletes; the others were made by hand, so it leaves them
//! alone, and each is about a volume of its own.

use std::time::{Duration, Instant};

use client::{Client, Event, ListParams, WatchParams};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use serde_json::json;
use testkit::Server;

use crate::report::Line;
use crate::{Failure, start};

const DRIVER: &str = "bench.csi.trireme.io";
const MANY: usize = 10_000;
const CHANGES: usize = 15;
/// How long the idle controller is watched.
const IDLE: Duration = Duration::from_secs(10);
/// How long the binder may take for all volumes.
const PATIENCE: Duration = Duration::from_secs(120);

pub async fn run(scale: f64) -> Result<(), Failure> {
    let many = ((MANY as f64 * scale) as usize).max(10);
    let mut server = Server::start(start(&["--disable-agent", "--disable-scheduler"])).await;
    let client = server.client();
    let alone = median_change(&client, "alone").await?;
    let mut making = futures::stream::iter(0..many)
        .map(|number| {
            let (client, name) = (client.clone(), format!("other-{number}"));
            async move { create(&client, &name, &name).await }
        })
        .buffer_unordered(64);
    while making.try_next().await?.is_some() {}
    drop(making);
    let among_many = median_change(&client, "among-many").await?;
    Line::new("detach_cost")
        .figure("attachments", many as f64)
        .figure("alone_ms", alone.as_secs_f64() * 1e3)
        .figure("among_many_ms", among_many.as_secs_f64() * 1e3)
        // Small times vary; what must not be seen is a cost that grew with the ten thousand others.
        .at_most("among_many_ms", (alone.as_secs_f64() * 1e3 * 1.5).max(20.0))
        .print();
    settled(&client).await?;
    let writes = writes(&client).await?;
    Line::new("attachments_idle")
        .figure("attachments", many as f64)
        .figure("writes", writes as f64)
        .at_most("writes", 0.0)
        .print();
    server.stop().await;
    Ok(())
}

/// A volume, and an attachment of it to a node that does not exist.
async fn create(client: &Client, volume: &str, attachment: &str) -> Result<(), Failure> {
    let object = json!({"metadata": {"name": volume}, "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "",
        "csi": {"driver": DRIVER, "volumeHandle": volume},
    }});
    client.create(&serde_json::from_value::<PersistentVolume>(object)?).await?;
    let object = json!({"metadata": {"name": attachment}, "spec": {
        "attacher": DRIVER, "nodeName": "none", "source": {"persistentVolumeName": volume},
    }});
    client.create(&serde_json::from_value::<VolumeAttachment>(object)?).await?;
    Ok(())
}

/// How long an attachment that nobody wants stays, most of the time.
async fn median_change(client: &Client, prefix: &str) -> Result<Duration, Failure> {
    let mut all = Vec::new();
    for number in 0..CHANGES {
        let volume = format!("{prefix}-{number}");
        let name = csi::names::attachment(&volume, DRIVER, "none");
        let params = WatchParams { field_selector: format!("metadata.name={name}"), ..WatchParams::default() };
        let mut events = client.watch::<VolumeAttachment>("", &params).await?;
        let begun = Instant::now();
        create(client, &volume, &name).await?;
        while let Some(event) = events.next().await {
            if let Event::Deleted(_) = event? {
                break;
            }
        }
        all.push(begun.elapsed());
    }
    all.sort_unstable();
    Ok(all[all.len() / 2])
}

/// Waits until every volume has the phase that the binder gives it once: until then not everybody is idle.
async fn settled(client: &Client) -> Result<(), Failure> {
    let begun = Instant::now();
    loop {
        let volumes = client.list::<PersistentVolume>("", &ListParams::default()).await?.items;
        let is_settled = |volume: &PersistentVolume| {
            volume.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Available"))
        };
        if volumes.iter().all(|volume| is_settled(volume)) {
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            return Err("the binder does not come to an end".into());
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// How often volumes and attachments are written while nobody asks for anything.
async fn writes(client: &Client) -> Result<usize, Failure> {
    let now = client.list::<VolumeAttachment>("", &ListParams { limit: Some(1), ..ListParams::default() }).await?;
    let params = WatchParams { resource_version: Some(now.revision), ..WatchParams::default() };
    let attachments = client.watch::<VolumeAttachment>("", &params).await?.map(drop);
    let volumes = client.watch::<PersistentVolume>("", &params).await?.map(drop);
    let mut events = futures::stream::select(attachments.boxed(), volumes.boxed());
    let mut writes = 0;
    let counting = async {
        while events.next().await.is_some() {
            writes += 1;
        }
    };
    let _ = tokio::time::timeout(IDLE, counting).await;
    Ok(writes)
}
