//! Nodes without machines: they register, renew their leases, and say of every pod bound to them what a kubelet would say.
//!
//! For scale runs (`trireme hollow-node`) and for tests of everything above the kubelet. All nodes of a process share one watch of the pods; what a pod's next step
//! is, [`pods::next`] decides, pure. A pod is not run, so annotations say what its containers would do: those of [`pods`].

pub mod nodes;
pub mod pods;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use client::{Client, DeleteOptions};
use informer::{Action, Clock, Filter, Informer, Informers, Key, Reconciler, WorkQueue};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use tokio_util::sync::CancellationToken;

use pods::Step;

/// Pods that are brought forward at the same time.
const POD_WORKERS: usize = 16;
/// Nodes that report at the same time.
const NODE_WORKERS: usize = 8;

/// Why hollow nodes cannot go on with a node or pod. It is tried again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API refused, or could not be reached.
    #[error(transparent)]
    Api(#[from] client::Error),
}

/// What the nodes are like.
#[derive(Debug, Clone)]
pub struct Options {
    pub count: usize,
    /// Their names are this, a dash and a number.
    pub prefix: String,
    pub cpu: String,
    pub memory: String,
    /// The most pods on each.
    pub pods: u32,
}

impl Options {
    /// So many nodes, of 32 CPUs, 256 GiB and 110 pods.
    pub fn new(count: usize) -> Self {
        Self { count, prefix: "hollow".to_owned(), cpu: "32".to_owned(), memory: "256Gi".to_owned(), pods: 110 }
    }

    /// The names of the nodes.
    pub fn names(&self) -> impl Iterator<Item = String> {
        (0..self.count).map(|number| format!("{}-{number}", self.prefix))
    }
}

/// Plays the nodes until it is stopped. They stay registered, and are taken for lost some time after.
pub async fn run(options: Options, client: Client, clock: Arc<dyn Clock>, stop: CancellationToken) {
    let informers = Informers::with_clock(client.clone(), clock.clone());
    let names: Arc<HashSet<String>> = Arc::new(options.names().collect());
    let nodes = WorkQueue::new("hollow-nodes", clock.clone());
    options.names().for_each(|name| nodes.add(Key::cluster(name)));
    // Somebody may delete a node under us: then it registers again, as a kubelet that is restarted would.
    let registered = informers.of::<Node>();
    let own = names.clone();
    informer::feed(&registered, &nodes, move |change| {
        let gone = change.after().is_none();
        let name = change.object().metadata.name.clone().unwrap_or_default();
        (gone && own.contains(&name)).then(|| Key::cluster(name))
    });

    let pods = WorkQueue::new("hollow-pods", clock.clone());
    let bound = informers.filtered::<Pod>(Filter::fields("spec.nodeName!="));
    informer::feed(&bound, &pods, move |change| {
        let pod = change.after()?;
        let node = pod.spec.as_ref()?.node_name.as_ref()?;
        names.contains(node).then(|| Key::of(&pod.metadata))
    });
    futures::join!(registered.synced(), bound.synced());
    let reporters = Reporters { client: client.clone(), clock: clock.clone(), options, registered };
    let kubelets = Kubelets { client, clock, pods: bound, addresses: AtomicU32::new(0) };
    futures::join!(
        informer::run("hollow-nodes", Arc::new(reporters), nodes, NODE_WORKERS, stop.clone()),
        informer::run("hollow-pods", Arc::new(kubelets), pods, POD_WORKERS, stop)
    );
}

/// The nodes' own objects and leases.
struct Reporters {
    client: Client,
    clock: Arc<dyn Clock>,
    options: Options,
    registered: Informer<Node>,
}

impl Reconciler for Reporters {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let now = self.clock.now();
        if self.registered.get(key).is_none() {
            let node = nodes::node(&key.name, &self.options, now);
            match self.client.create(&node).await {
                // A status given at creation is dropped.
                Ok(created) => drop(self.client.update_status(&Node { status: node.status, ..created }).await?),
                Err(error) if error.is_already_exists() => {
                    let found = self.client.get::<Node>("", &key.name).await?;
                    self.client.update_status(&Node { status: node.status, ..found }).await?;
                }
                Err(error) => return Err(error.into()),
            }
        } else if let Some(node) = self.registered.get(key).filter(|node| !rules::pods::is_node_ready(node)) {
            let status = nodes::node(&key.name, &self.options, now).status;
            self.client.update_status(&Node { status, ..Node::clone(&node) }).await?;
        }
        let patch = client::Patch::Merge(nodes::renewal(&key.name, now));
        match self.client.patch::<Lease>(rules::names::NODE_LEASES, &key.name, &patch).await {
            Err(error) if error.is_not_found() => drop(self.client.create(&nodes::lease(&key.name, now)).await?),
            answer => drop(answer?),
        }
        Ok(Action::After(nodes::RENEW_EVERY))
    }
}

/// What the kubelets of all the nodes would do.
struct Kubelets {
    client: Client,
    clock: Arc<dyn Clock>,
    pods: Informer<Pod>,
    addresses: AtomicU32,
}

impl Reconciler for Kubelets {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(pod) = self.pods.get(key) else { return Ok(Action::Done) };
        let now = self.clock.now();
        let outcome = match pods::next(&pod, now) {
            Step::Nothing => return Ok(Action::Done),
            Step::Wait(delay) => return Ok(Action::After(delay)),
            Step::Report(change) => {
                let address = pods::address(self.addresses.fetch_add(1, Ordering::Relaxed));
                let status = pods::status(&pod, change, &address, now);
                self.client.update_status(&Pod { status: Some(status), ..Pod::clone(&pod) }).await.map(drop)
            }
            Step::Remove => {
                let options = DeleteOptions {
                    uid: pod.metadata.uid.clone(),
                    grace_period_seconds: Some(0),
                    ..DeleteOptions::default()
                };
                self.client.delete::<Pod>(&key.namespace, &key.name, &options).await
            }
        };
        match outcome {
            // The next state of the pod is on its way through the watch.
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(Action::Done),
            outcome => outcome.map(|()| Action::Done).map_err(Error::from),
        }
    }
}
