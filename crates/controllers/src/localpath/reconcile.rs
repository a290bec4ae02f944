//! Observes, applies what `plan` decides, and reports.

use client::DeleteOptions;
use futures::StreamExt as _;
use informer::{Action, EventType, Informer, Key, Reconciler};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use machinery::rest::{Body, Payload};
use machinery::value;

use super::plan::{self, Observed, Plan};
use crate::Error;
use crate::common::meta::MetaExt;
use crate::common::storage::{self, SELECTED_NODE};
use crate::context::{Context, Tools};
use crate::inputs::present;

const WORKERS: usize = 2;
/// The most that is repeated of a node's answer.
const MOST_WORDS: usize = 1024;
/// Keys of volumes have this namespace; no claim can.
const VOLUMES: &str = "\u{0}volumes";

pub(crate) async fn start(context: Context) {
    let mut inputs = context.inputs();
    let controller = LocalPath {
        tools: context.tools.clone(),
        claims: inputs.watch(present),
        volumes: inputs.read(),
        classes: inputs.read(),
        nodes: inputs.read(),
        root: context.config.local_path_root.clone(),
    };
    inputs.feed(&controller.volumes, |change| change.after().map(|volume| Key::new(VOLUMES, volume.metadata.name())));
    inputs.run(controller, WORKERS).await;
}

struct LocalPath {
    tools: Tools,
    claims: Informer<PersistentVolumeClaim>,
    volumes: Informer<PersistentVolume>,
    classes: Informer<StorageClass>,
    nodes: Informer<Node>,
    root: String,
}

impl Reconciler for LocalPath {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        if key.namespace == VOLUMES {
            let volume = self.volumes.get(&Key::cluster(&key.name));
            if let Some(volume) = volume.filter(|volume| plan::is_over(volume)) {
                self.remove(&volume).await?;
            }
            return Ok(Action::Done);
        }
        let Some(observed) = self.observe(key) else { return Ok(Action::Done) };
        match plan::plan(&observed, &self.root) {
            Plan::Keep => {}
            Plan::Grow { volume, claim } => self.grow(&observed.claim, volume.as_deref(), &claim).await?,
            Plan::Provision(volume) => self.provision(&observed.claim, &volume).await?,
        }
        Ok(Action::Done)
    }
}

impl LocalPath {
    fn observe(&self, key: &Key) -> Option<Observed> {
        let claim = self.claims.get(key)?;
        let class = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
        let node = claim.metadata.annotation(SELECTED_NODE);
        Some(Observed {
            volume: storage::bound_volume(&claim, &self.volumes),
            class: class.and_then(|class| self.classes.get(&Key::cluster(class))),
            node: node.and_then(|node| self.nodes.get(&Key::cluster(node))),
            claim,
        })
    }

    async fn provision(&self, claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Result<(), Error> {
        match self.tools.client.create(volume).await {
            Ok(created) => {
                let message = format!("Successfully provisioned volume {}", created.metadata.name());
                self.tools.recorder.event(claim, EventType::Normal, "ProvisioningSucceeded", message);
                Ok(())
            }
            Err(error) if error.is_already_exists() => Ok(()),
            Err(error) => {
                let class =
                    volume.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref()).unwrap_or_default();
                let message = format!("failed to provision volume with StorageClass {class:?}: {error}");
                self.tools.recorder.event(claim, EventType::Warning, "ProvisioningFailed", message);
                Err(error.into())
            }
        }
    }

    /// The directory first: once the volume is gone, nobody knows of it.
    async fn remove(&self, volume: &PersistentVolume) -> Result<(), Error> {
        if let Some(path) = plan::removal(volume, &self.root, &self.nodes.list())
            && let Err(why) = self.tell(&path).await
        {
            self.tools.recorder.event(volume, EventType::Warning, "VolumeFailedDelete", why.clone());
            return Err(Error::Waiting(format!("directory of {}: {why}", volume.metadata.name())));
        }
        let options = DeleteOptions { uid: volume.metadata.uid.clone(), ..DeleteOptions::default() };
        match self.tools.client.delete::<PersistentVolume>("", volume.metadata.name(), &options).await {
            Err(error) if !error.is_not_found() && !error.is_conflict() => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Tells a node to remove a directory. One that does not know of such directories has none.
    async fn tell(&self, path: &str) -> Result<(), String> {
        let request = http::Request::delete(path).body(Body::Empty).map_err(|error| error.to_string())?;
        let response = self.tools.client.request(request).await.map_err(|error| error.to_string())?;
        let status = response.status();
        if status.is_success() || status == http::StatusCode::NOT_FOUND {
            return Ok(());
        }
        let why = match response.into_body() {
            Payload::Value(status) => value::text(&status, "message").to_owned(),
            Payload::Stream(mut pieces) => match pieces.next().await {
                Some(Ok(piece)) => String::from_utf8_lossy(&piece).chars().take(MOST_WORDS).collect(),
                _ => String::new(),
            },
            _ => String::new(),
        };
        Err(format!("{status}: {why}"))
    }

    /// First the volume, then the claim: a claim never has more than its volume.
    async fn grow(
        &self,
        claim: &PersistentVolumeClaim,
        larger: Option<&PersistentVolume>,
        grown: &PersistentVolumeClaim,
    ) -> Result<(), Error> {
        if let Some(larger) = larger {
            self.tools.client.update(larger).await?;
        }
        self.tools.client.update_status(grown).await?;
        self.tools.recorder.event(claim, EventType::Normal, "VolumeResizeSuccessful", "Resize volume succeeded");
        Ok(())
    }
}
