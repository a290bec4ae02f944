//! Observes, applies what `plan` decides, and reports.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use client::DeleteOptions;
use informer::{Action, Change, Echoes, EventType, Informer, Key, Reconciler};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttachment};
use parking_lot::Mutex;

use super::figures::Collector;
use super::plan::{self, Observed, Plan, Remembered, Step};
use super::report::Taken;
use super::{disks, report};
use crate::Error;
use crate::common::meta::MetaExt;
use crate::common::storage::{self, CLAIM_INDEX, claim_values, claims_of};
use crate::common::{pods, pods::NODE_INDEX};
use crate::context::{Context, Tools};
use crate::inputs::{Inputs, present};
use crate::metrics;

const WORKERS: usize = 10;
/// How often nodes are looked at that have a disk whose volume is deleted: nothing leads from them to it.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// The index of attachments by their volume.
const VOLUME_INDEX: &str = "volume";

pub(crate) async fn start(context: Context) {
    let mut inputs = context.inputs();
    let attachments: Informer<VolumeAttachment> = inputs.read();
    let controller = AttachDetach {
        tools: context.tools.clone(),
        pods: inputs.read(),
        claims: inputs.read(),
        volumes: inputs.read(),
        nodes: inputs.read(),
        drivers: inputs.read(),
        echoes: Echoes::new(&attachments, context.tools.clock.clone()),
        attachments,
        remembered: Mutex::default(),
    };
    controller.pods.add_index(CLAIM_INDEX, claim_values);
    controller.pods.add_index(NODE_INDEX, pods::node_of);
    controller
        .attachments
        .add_index(VOLUME_INDEX, |one| one.spec.source.persistent_volume_name.clone().into_iter().collect());
    controller.attachments.add_index(NODE_INDEX, |one| vec![one.spec.node_name.clone()]);
    controller.volumes.add_index(disks::INDEX, disks::name);
    controller.nodes.add_index(disks::INDEX, disks::given);
    feed(&controller, &inputs);
    let _figures = metrics::collected(Collector {
        pods: controller.pods.clone(),
        claims: controller.claims.clone(),
        volumes: controller.volumes.clone(),
        nodes: controller.nodes.clone(),
        attachments: controller.attachments.clone(),
    });
    inputs.run(controller, WORKERS).await;
}

/// What may change where a volume should be.
fn feed(controller: &AttachDetach, inputs: &Inputs) {
    // A disk may have to be taken back though its volume is deleted.
    inputs.feed(&controller.volumes, |change| {
        let is_disk = !disks::name(change.object()).is_empty();
        if is_disk { Some(change.object().metadata.key()) } else { present(change) }
    });
    inputs.feed(&controller.claims, |change| volume_of(change.object()));
    inputs.feed(&controller.attachments, |change| {
        change.object().spec.source.persistent_volume_name.as_deref().map(Key::cluster)
    });
    let claims = controller.claims.clone();
    inputs.feed(&controller.pods, move |change| match is_moved(change) {
        true => volumes_of(change.object(), &claims),
        false => Vec::new(),
    });
    let volumes = controller.volumes.clone();
    inputs.feed(&controller.drivers, move |change| {
        let name = change.object().metadata.name().to_owned();
        let is_own = |volume: &Arc<PersistentVolume>| plan::driver(volume).is_some_and(|driver| driver == name);
        volumes.list().into_iter().filter(is_own).map(|volume| volume.metadata.key()).collect::<Vec<_>>()
    });
    let (claims, pods, attachments, volumes) = (
        controller.claims.clone(),
        controller.pods.clone(),
        controller.attachments.clone(),
        controller.volumes.clone(),
    );
    inputs.feed(&controller.nodes, move |change| {
        if !is_news(change) {
            return Vec::new();
        }
        let name = change.object().metadata.name();
        let wanted = pods.by_index(NODE_INDEX, name).into_iter().flat_map(|pod| volumes_of(&pod, &claims));
        let attached = attachments.by_index(NODE_INDEX, name).into_iter();
        let attached = attached.filter_map(|one| one.spec.source.persistent_volume_name.as_deref().map(Key::cluster));
        let given = change.before().into_iter().chain(change.after()).flat_map(|node| disks::given(node));
        let given = given.flat_map(|disk| volumes.by_index(disks::INDEX, &disk)).map(|volume| volume.metadata.key());
        wanted.chain(attached).chain(given).collect()
    });
}

/// Whether a pod came to a node, or left it.
fn is_moved(change: &Change<Pod>) -> bool {
    let place = |pod: Option<&Arc<Pod>>| {
        pod.filter(|pod| !pods::is_terminal(pod)).and_then(|pod| pods::node_name(pod).map(str::to_owned))
    };
    place(change.before()) != place(change.after())
}

/// Whether something about a node changed that decides about volumes. Its signs of life do not.
fn is_news(change: &Change<Node>) -> bool {
    let about = |node: Option<&Arc<Node>>| {
        node.map(|node| {
            let status = node.status.clone().unwrap_or_default();
            let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone());
            let annotations = node.metadata.annotations.clone();
            (status.volumes_in_use, status.volumes_attached, rules::pods::is_node_ready(node), taints, annotations)
        })
    };
    about(change.before()) != about(change.after())
}

fn volume_of(claim: &PersistentVolumeClaim) -> Option<Key> {
    claim.spec.as_ref()?.volume_name.as_deref().filter(|name| !name.is_empty()).map(Key::cluster)
}

fn volumes_of(pod: &Pod, claims: &Informer<PersistentVolumeClaim>) -> Vec<Key> {
    claims_of(pod).iter().filter_map(|key| volume_of(&*claims.get(key)?)).collect()
}

fn told_of_force(volume: &str, node: &str, forced: Option<&'static str>) {
    if let Some(reason) = forced {
        metrics::FORCED_DETACHES.increment(&[reason]);
        tracing::info!(volume, node, reason, "force detaching");
    }
}

struct AttachDetach {
    tools: Tools,
    pods: Informer<Pod>,
    claims: Informer<PersistentVolumeClaim>,
    volumes: Informer<PersistentVolume>,
    nodes: Informer<Node>,
    drivers: Informer<CSIDriver>,
    attachments: Informer<VolumeAttachment>,
    /// Attachments that were made and that the cache does not show yet.
    echoes: Echoes<VolumeAttachment>,
    remembered: Mutex<HashMap<String, Remembered>>,
}

impl Reconciler for AttachDetach {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(observed) = self.observe(key) else {
            self.remembered.lock().remove(&key.name);
            return Ok(Action::Done);
        };
        // An attachment that is not seen yet would be made again for another node. Its echo brings the volume back here.
        if !self.echoes.observed(key) {
            return Ok(Action::Done);
        }
        let plan = plan::plan(&observed, self.tools.clock.now());
        let gone = self.volumes.get(key).is_none().then_some(LOOK_AGAIN);
        let again = plan.again.into_iter().chain(gone).min();
        self.apply(key, &observed, plan).await?;
        Ok(Action::after(again))
    }
}

impl AttachDetach {
    fn observe(&self, key: &Key) -> Option<Observed> {
        let remembered = self.remembered.lock().get(&key.name).cloned().unwrap_or_default();
        let given = || remembered.given.as_ref().map(|(volume, _)| volume.clone());
        let volume = plan::as_attached(&self.volumes.get(key).or_else(given)?)?;
        let unique = plan::name_on_nodes(&volume)?;
        let source = volume.spec.as_ref().and_then(|spec| spec.csi.as_ref());
        let driver = source.and_then(|source| self.drivers.get(&Key::cluster(&source.driver)));
        let pods = self.users(&volume);
        let attachments = self.attachments.by_index(VOLUME_INDEX, &key.name);
        let names = pods.iter().filter_map(|pod| pods::node_name(pod)).map(str::to_owned);
        let names = names.chain(attachments.iter().map(|one| one.spec.node_name.clone()));
        let holders =
            self.nodes.by_index(disks::INDEX, &unique).into_iter().map(|node| node.metadata.name().to_owned());
        let names = names.chain(holders).chain(remembered.given.iter().flat_map(|(_, nodes)| nodes.clone()));
        let nodes = names.filter_map(|name| Some((name.clone(), self.nodes.get(&Key::cluster(name))?))).collect();
        Some(Observed { volume, driver, pods, attachments, nodes, remembered })
    }

    /// Pods that use the claim that the volume is bound to.
    fn users(&self, volume: &PersistentVolume) -> Vec<Arc<Pod>> {
        let Some(claim) = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()) else { return Vec::new() };
        let key = Key::new(claim.namespace.clone().unwrap_or_default(), claim.name.clone().unwrap_or_default());
        let bound = self.claims.get(&key).and_then(|claim| storage::bound_volume(&claim, &self.volumes));
        if bound.is_none_or(|bound| bound.metadata.name() != volume.metadata.name()) {
            return Vec::new();
        }
        let mut pods = self.pods.by_index(CLAIM_INDEX, &key.to_string());
        pods.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        pods
    }

    async fn apply(&self, key: &Key, observed: &Observed, plan: Plan) -> Result<(), Error> {
        let unique = plan::name_on_nodes(&observed.volume).unwrap_or_default();
        self.remember(key, plan.remembered);
        for step in plan.steps {
            match step {
                Step::Attach(attachment) => match self.tools.client.create(&*attachment).await {
                    Ok(made) => self.echoes.wrote(key, &made),
                    Err(error) if error.is_already_exists() => {}
                    Err(error) => return Err(error.into()),
                },
                Step::Report { node, users } => {
                    let reported = report::write(&self.tools.client, &node, &unique, true).await?;
                    if reported.is_some_and(|reported| reported.changed) {
                        let message = format!("AttachVolume.Attach succeeded for volume {:?} ", key.name);
                        for pod in users {
                            let reason = "SuccessfulAttachVolume";
                            self.tools.recorder.event(&*pod, EventType::Normal, reason, message.clone());
                        }
                    }
                }
                Step::Detach { node, attachment, uid, forced } => {
                    let now = report::write(&self.tools.client, &node, &unique, false).await?;
                    // Between what the cache shows and that word the node may have begun to use it.
                    if forced.is_none() && now.is_some_and(|reported| plan::is_in_use(&reported.node, &unique)) {
                        return Err(Error::Waiting(format!("node {node} uses volume {}", key.name)));
                    }
                    told_of_force(&key.name, &node, forced);
                    self.delete(key, &attachment, uid).await?;
                }
                Step::Take { node, forced } => {
                    if report::take(&self.tools.client, &node, &unique, forced.is_some()).await? == Taken::No {
                        return Err(Error::Waiting(format!("node {node} uses volume {}", key.name)));
                    }
                    told_of_force(&key.name, &node, forced);
                    self.given_back(key, &node);
                }
                Step::Ask { attachment, uid } => self.ask(key, &attachment, &uid).await?,
                Step::Tell { pod, kind, reason, message } => self.tools.recorder.event(&*pod, kind, reason, message),
            }
        }
        Ok(())
    }

    /// The node does not have the disk any more.
    fn given_back(&self, key: &Key, node: &str) {
        let mut all = self.remembered.lock();
        let Some(remembered) = all.get_mut(&key.name) else { return };
        if let Some((_, nodes)) = &mut remembered.given {
            nodes.remove(node);
        }
        remembered.given.take_if(|(_, nodes)| nodes.is_empty());
    }

    async fn delete(&self, key: &Key, attachment: &str, uid: String) -> Result<(), Error> {
        // Before the API knows: whatever becomes of the answer, it may have been deleted.
        self.remembered.lock().entry(key.name.clone()).or_default().deleted.insert(uid.clone());
        let options = DeleteOptions { uid: Some(uid.clone()), ..DeleteOptions::default() };
        match self.tools.client.delete::<VolumeAttachment>("", attachment, &options).await {
            Err(error) if !error.is_not_found() => {
                self.ask(key, attachment, &uid).await?;
                Err(error.into())
            }
            _ => Ok(()),
        }
    }

    /// Whether an attachment is going; one that is not was never told to.
    async fn ask(&self, key: &Key, attachment: &str, uid: &str) -> Result<(), Error> {
        let found = match self.tools.client.get::<VolumeAttachment>("", attachment).await {
            Err(error) if error.is_not_found() => return Ok(()),
            other => other?,
        };
        if found.metadata.uid() == uid && !found.metadata.is_deleting() {
            if let Some(remembered) = self.remembered.lock().get_mut(&key.name) {
                remembered.deleted.remove(uid);
            }
            return Err(Error::Waiting(format!("attachment {attachment} is not deleted")));
        }
        Ok(())
    }

    fn remember(&self, key: &Key, remembered: Remembered) {
        let mut all = self.remembered.lock();
        if remembered == Remembered::default() {
            all.remove(&key.name);
        } else {
            all.insert(key.name.clone(), remembered);
        }
    }
}
