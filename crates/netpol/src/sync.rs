//! The agent of a node at work: changed objects in, transactions applied.
//!
//! Handlers note what changed. One task takes all that was noted, decides, and applies the difference; what changes meanwhile is noted
//! for the next turn. A transaction that the kernel refuses, or word of somebody else's, means that the tables are not what we
//! think: then the whole is written anew, as one transaction.
//!
//! The kubelet tells of each pod it made a sandbox for, and starts nothing in it before the rules know the pod ([`Network::attach`]).
//! Until all objects were read once nobody gets that word; rules of an earlier run stay in force meanwhile.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use informer::{Informers, Recorder, guard};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use node::nft;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::cluster_policy::{ClusterNetworkPolicy, ClusterPolicy};
use crate::compile::{Compiler, Input};
use crate::decision::{Changes, Key};
use crate::engine::{Engine, Kind};
use crate::model::{self, Alike, Direction, NodeFacts, PodFacts, Policy, PolicyName};
use crate::port::{Port, Quiet};
use crate::table::TABLE;
use crate::telling::{self, Known};
use crate::{Config, Error, Served, figures};

/// First and longest wait before a refused full write is tried again.
const RETRY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));
/// How long a module of the kernel may take to load.
const PATIENCE: Duration = Duration::from_secs(10);
/// Newer than every pod that only the API speaks of: who was given an address here has it.
const ATTACHED: i64 = 1 << 62;

/// Who writes Events.
const COMPONENT: &str = "network-policy";

/// A pod whose sandbox has addresses.
#[derive(Debug, Clone)]
pub struct Attachment {
    pub pod: Arc<Pod>,
    pub addresses: Vec<IpAddr>,
    /// Its port of the bridge, where the runtime tells.
    pub port: Option<Port>,
}

#[derive(Debug, Default)]
struct Noted {
    policies: HashMap<PolicyName, Option<Arc<NetworkPolicy>>>,
    cluster: HashMap<String, Option<Arc<ClusterNetworkPolicy>>>,
    nodes: HashMap<String, Option<Arc<Node>>>,
    namespaces: HashMap<String, Option<Arc<Namespace>>>,
    pods: HashMap<String, Option<Arc<Pod>>>,
    attached: Vec<(Attachment, oneshot::Sender<()>)>,
    detached: Vec<String>,
    ports: HashMap<String, Port>,
}

#[derive(Debug, Default)]
struct Inbox {
    noted: Mutex<Noted>,
    /// The kernel's tables are not what we wrote.
    disturbed: AtomicBool,
    wake: Notify,
}

impl Inbox {
    fn note(&self, what: impl FnOnce(&mut Noted)) {
        what(&mut self.noted.lock());
        self.wake.notify_one();
    }

    fn disturb(&self) {
        self.disturbed.store(true, Ordering::Relaxed);
        self.wake.notify_one();
    }
}

/// Where the kubelet tells of sandboxes.
#[derive(Debug, Clone)]
pub struct Network(Arc<Inbox>);

impl Network {
    /// Returns when the kernel's rules know the pod by its addresses. An error says that nobody will come to it.
    pub async fn attach(&self, attachment: Attachment) -> Result<(), Error> {
        let (done, word) = oneshot::channel();
        self.0.note(|noted| noted.attached.push((attachment, done)));
        word.await.map_err(|_| Error::Stopped)
    }

    /// The pod with this uid has this port of the bridge, as a sandbox of an earlier run shows.
    pub fn bind(&self, uid: &str, port: Port) {
        self.0.note(|noted| drop(noted.ports.insert(uid.to_owned(), port)));
    }

    /// The pod with this uid has no sandbox any more.
    pub fn detach(&self, uid: &str) {
        self.0.note(|noted| noted.detached.push(uid.to_owned()));
    }
}

/// The policies of one node.
pub struct Agent {
    config: Config,
    informers: Informers,
    known: Known,
    inbox: Arc<Inbox>,
    compiler: Compiler,
    engine: Engine,
    attached: HashMap<String, (i64, Attachment)>,
    ports: HashMap<String, Port>,
    quiet: Quiet,
    /// A policy of the cluster spoke of nodes.
    follows_nodes: bool,
    sequence: i64,
    written: bool,
}

impl Agent {
    /// An error if the engine that is wanted cannot be had.
    pub fn new(config: Config, informers: &Informers) -> Result<Self, Error> {
        let engine = Engine::open(config.engine)?;
        let inbox = Arc::new(Inbox::default());
        let known = Known::new(informers);
        listen(&known, &inbox);
        let compiler = Compiler::new(&config.node_name);
        Ok(Self {
            engine,
            config,
            informers: informers.clone(),
            known,
            inbox,
            compiler,
            attached: HashMap::new(),
            ports: HashMap::new(),
            quiet: Quiet::default(),
            follows_nodes: false,
            sequence: ATTACHED,
            written: false,
        })
    }

    /// Who keeps policies on this node.
    pub fn engine(&self) -> Kind {
        self.engine.kind()
    }

    /// Where the kubelet tells of sandboxes.
    pub fn network(&self) -> Network {
        Network(self.inbox.clone())
    }

    /// Keeps the rules of this node until told to end. The rules stay.
    pub async fn run(mut self, shutdown: CancellationToken) -> Result<(), Error> {
        bridge().await?;
        // Ends with this function, however it ends.
        let mut listeners = JoinSet::new();
        listeners.spawn(watch_tables(self.inbox.clone()));
        tokio::select! {
            () = self.known.synced() => {}
            () = shutdown.cancelled() => return Ok(()),
        }
        self.inbox.wake.notify_one();
        let mut counting = false;
        loop {
            if self.written && !counting {
                counting = true;
                listeners.spawn(telling::count(self.known.clone(), self.recorder()));
            }
            tokio::select! {
                () = self.inbox.wake.notified() => {}
                () = shutdown.cancelled() => return Ok(()),
            }
            tokio::select! {
                () = self.guarded_turn() => {}
                // A transaction is whole or not at all, so leaving in the middle of a turn harms nothing.
                () = shutdown.cancelled() => return Ok(()),
            }
        }
    }

    fn recorder(&self) -> Recorder {
        let (client, clock) = (self.informers.client().clone(), self.informers.clock().clone());
        Recorder::new(client, COMPONENT, Some(&self.config.node_name), clock)
    }

    /// A turn after whose panic the tables may be anything: after a while all is decided and written anew.
    async fn guarded_turn(&mut self) {
        let node = self.config.node_name.clone();
        if guard::caught("network policy", &node, self.turn()).await.is_none() {
            self.written = false;
            tokio::time::sleep(RETRY.1).await;
            self.inbox.disturb();
        }
    }

    async fn turn(&mut self) {
        let begun = Instant::now();
        let noted = std::mem::take(&mut *self.inbox.noted.lock());
        let mut ports = nft::Elements::default();
        let (mut inputs, done) = self.inputs(noted, &mut ports);
        self.follow_nodes(&mut inputs).await;
        if self.inbox.disturbed.swap(false, Ordering::Relaxed) || !self.written {
            self.rewrite().await;
        } else {
            let changes = self.compiler.update(inputs);
            if !ports.is_empty() || moves(&changes) {
                self.quiet.change(&mut ports, &self.compiler, self.ports.values());
            }
            if let Err(error) = self.engine.change(&self.compiler, &changes, ports).await {
                tracing::warn!(%error, "the kernel's rules are not what they were; writing all of them");
                self.rewrite().await;
            }
        }
        figures::TURNS.observe(&[], begun.elapsed().as_secs_f64());
        for word in done {
            // Nobody waits any more: then nothing was started.
            let _ = word.send(());
        }
    }

    /// What was noted, as the decision takes it.
    fn inputs(&mut self, noted: Noted, ports: &mut nft::Elements) -> (Vec<Input>, Vec<oneshot::Sender<()>>) {
        let mut inputs = Vec::new();
        for (name, policy) in noted.policies {
            inputs.push(Input::Policy(name, policy.and_then(|policy| Policy::of(&policy))));
        }
        for (name, policy) in noted.cluster {
            let read = policy.and_then(|policy| ClusterPolicy::of(&policy));
            for doubt in read.iter().flat_map(|policy| &policy.doubts) {
                tracing::warn!(policy = name, "a ClusterNetworkPolicy is not understood: {doubt}");
            }
            inputs.push(Input::ClusterPolicy(name, read));
        }
        inputs.extend(noted.nodes.into_iter().map(|(name, node)| Input::Node(name, node.map(|n| NodeFacts::of(&n)))));
        for (name, namespace) in noted.namespaces {
            inputs.push(Input::Namespace(name, namespace.and_then(|n| model::namespace(&n)).map(|(_, labels)| labels)));
        }
        let mut pods = noted.pods;
        let mut done = Vec::new();
        let gone = pods.iter().filter(|(_, pod)| pod.is_none()).map(|(uid, _)| uid.clone());
        for uid in gone.chain(noted.detached).collect::<Vec<_>>() {
            Port::change(ports, self.ports.remove(&uid).as_ref(), None);
            if let Some((_, before)) = self.attached.remove(&uid) {
                pods.entry(uid).or_insert_with(|| self.shown(&before.pod));
            }
        }
        let mut bound = noted.ports;
        for (attachment, word) in noted.attached {
            let uid = attachment.pod.metadata.uid.clone().unwrap_or_default();
            bound.extend(attachment.port.clone().map(|port| (uid.clone(), port)));
            pods.entry(uid.clone()).or_insert_with(|| Some(attachment.pod.clone()));
            self.sequence += 1;
            self.attached.insert(uid, (self.sequence, attachment));
            done.push(word);
        }
        for (uid, port) in bound {
            let before = self.ports.insert(uid, port.clone());
            Port::change(ports, before.as_ref(), Some(&port));
        }
        inputs.extend(pods.into_iter().map(|(uid, pod)| {
            let facts = pod.and_then(|pod| self.facts(&uid, &pod));
            Input::Pod(uid, facts)
        }));
        (inputs, done)
    }

    /// Watches nodes as soon as a policy speaks of them; whom it means is known before it is in force.
    async fn follow_nodes(&mut self, inputs: &mut Vec<Input>) {
        let speaks =
            |input: &Input| matches!(input, Input::ClusterPolicy(_, Some(policy)) if policy.nodes().next().is_some());
        if !self.follows_nodes && inputs.iter().any(speaks) {
            self.follows_nodes = true;
            listen_to_nodes(&self.known, &self.inbox);
            self.known.nodes().synced().await;
            inputs.extend(self.nodes());
        }
    }

    fn nodes(&self) -> Vec<Input> {
        let nodes = self.known.nodes().list();
        let named = nodes.iter().filter_map(|node| Some((node.metadata.name.clone()?, NodeFacts::of(node))));
        named.map(|(name, node)| Input::Node(name, Some(node))).collect()
    }

    /// The pod as the API shows it, without its addresses: it has none any more.
    fn shown(&self, pod: &Pod) -> Option<Arc<Pod>> {
        let key = informer::Key::of(&pod.metadata);
        let shown = self.known.pods.get(&key).filter(|shown| shown.metadata.uid == pod.metadata.uid)?;
        let mut shown = Pod::clone(&shown);
        if let Some(status) = &mut shown.status {
            (status.pod_ip, status.pod_ips) = (None, None);
        }
        Some(Arc::new(shown))
    }

    fn facts(&self, uid: &str, pod: &Pod) -> Option<PodFacts> {
        let Some((sequence, attachment)) = self.attached.get(uid) else { return PodFacts::of(pod, &[]) };
        let facts = PodFacts::of(pod, &attachment.addresses)?;
        Some(PodFacts { created: *sequence, node: self.config.node_name.clone(), ..facts })
    }

    /// Decides everything anew and writes it as one transaction, until the kernel takes it.
    async fn rewrite(&mut self) {
        self.written = false;
        let mut wait = RETRY.0;
        loop {
            let mut inputs: Vec<Input> = Vec::new();
            let mut attached: HashMap<&String, &Arc<Pod>> =
                self.attached.iter().map(|(uid, (_, attachment))| (uid, &attachment.pod)).collect();
            for pod in self.known.pods.each() {
                let Some(uid) = pod.metadata.uid.clone() else { continue };
                // What the API says of it is newer than what came with its network.
                attached.remove(&uid);
                let facts = self.facts(&uid, &pod);
                inputs.push(Input::Pod(uid, facts));
            }
            inputs.extend(attached.into_iter().map(|(uid, pod)| Input::Pod(uid.clone(), self.facts(uid, pod))));
            let namespaces = self.known.namespaces.list();
            inputs.extend(
                namespaces.iter().filter_map(|n| model::namespace(n)).map(|(n, l)| Input::Namespace(n, Some(l))),
            );
            let policies = self.known.policies.list();
            inputs
                .extend(policies.iter().filter_map(|p| Policy::of(p)).map(|p| Input::Policy(p.name.clone(), Some(p))));
            let cluster = self.known.cluster.list();
            let cluster = cluster.iter().filter_map(|policy| ClusterPolicy::of(policy));
            inputs.extend(cluster.map(|policy| Input::ClusterPolicy(policy.name.clone(), Some(policy))));
            self.follow_nodes(&mut inputs).await;
            if self.follows_nodes {
                inputs.extend(self.nodes());
            }
            inputs.extend(self.config.served.iter().enumerate().map(|(n, served)| served_input(n, served)));
            self.compiler = Compiler::new(&self.config.node_name);
            self.compiler.update(inputs);
            let ports: Vec<Port> = self.ports.values().cloned().collect();
            let served: Vec<IpAddr> = self.config.served.iter().map(|served| served.address).collect();
            let applied = self.engine.replace(&self.compiler, &served, &ports).await;
            match applied {
                Ok(()) => {
                    self.quiet = Quiet::default();
                    let mut written = nft::Elements::default();
                    self.quiet.change(&mut written, &self.compiler, ports.iter());
                    break;
                }
                Err(error) => tracing::error!(%error, ?wait, "cannot write the rules of network policies"),
            }
            figures::FAILURES.increment(&[]);
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(RETRY.1);
        }
        self.written = true;
        figures::REWRITES.increment(&[]);
    }
}

/// Notes what changes.
fn listen(known: &Known, inbox: &Arc<Inbox>) {
    let note = inbox.clone();
    known.policies.subscribe(move |change| {
        let meta = &change.object().metadata;
        let name = PolicyName {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
        };
        note.note(|noted| drop(noted.policies.insert(name, change.after().cloned())));
    });
    let note = inbox.clone();
    known.cluster.subscribe(move |change| {
        // What became of a policy is no part of it.
        let spec = |policy: Option<&Arc<ClusterNetworkPolicy>>| policy.map(|policy| policy.spec.clone());
        if spec(change.before()) != spec(change.after()) {
            let name = change.object().metadata.name.clone().unwrap_or_default();
            note.note(|noted| drop(noted.cluster.insert(name, change.after().cloned())));
        }
    });
    let note = inbox.clone();
    known.namespaces.subscribe(move |change| {
        let labels = |namespace: Option<&Arc<Namespace>>| namespace.and_then(|n| model::namespace(n));
        if labels(change.before()) != labels(change.after()) {
            let name = change.object().metadata.name.clone().unwrap_or_default();
            note.note(|noted| drop(noted.namespaces.insert(name, change.after().cloned())));
        }
    });
    let note = inbox.clone();
    known.pods.subscribe(move |change| {
        // Most changes to pods are of their status.
        let facts = |pod: Option<&Arc<Pod>>| pod.and_then(|pod| PodFacts::of(pod, &[]));
        if change.after().is_none() || facts(change.before()) != facts(change.after()) {
            let uid = change.object().metadata.uid.clone().unwrap_or_default();
            note.note(|noted| drop(noted.pods.insert(uid, change.after().cloned())));
        }
    });
}

/// Notes what changes about nodes.
fn listen_to_nodes(known: &Known, inbox: &Arc<Inbox>) {
    let note = inbox.clone();
    known.nodes().subscribe(move |change| {
        // Most changes to nodes are of their conditions.
        let facts = |node: Option<&Arc<Node>>| node.map(|node| NodeFacts::of(node));
        if facts(change.before()) != facts(change.after()) {
            let name = change.object().metadata.name.clone().unwrap_or_default();
            note.note(|noted| drop(noted.nodes.insert(name, change.after().cloned())));
        }
    });
}

/// Whether a pod became isolated from what comes in, or is no longer.
fn moves(changes: &Changes) -> bool {
    let mut keys = changes.remove.keys().chain(changes.add.keys());
    keys.any(|key| matches!(key, Key::Ruleset(Direction::Ingress, _)))
}

/// Makes bridges hand what crosses them to the IP rules. Where they cannot, two pods of a node would pass by every policy.
async fn bridge() -> Result<(), Error> {
    let switch = |name: &str| std::fs::write(format!("/proc/sys/net/bridge/{name}"), "1");
    if switch("bridge-nf-call-iptables").is_err() {
        // Built in, or loaded already, or not to be had: the switch says.
        let _ = node::run::output("modprobe", &["br_netfilter"], b"", PATIENCE).await;
        switch("bridge-nf-call-iptables").map_err(Error::Bridge)?;
    }
    match switch("bridge-nf-call-ip6tables") {
        // A kernel without IPv6 has nothing to judge.
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::Bridge(error)),
        _ => Ok(()),
    }
}

/// A Service that nodes answer themselves stands for the pods that would answer it elsewhere.
fn served_input(number: usize, served: &Served) -> Input {
    let alike =
        Alike { namespace: served.namespace.clone(), labels: served.labels.clone(), ports: served.ports.clone() };
    let facts = PodFacts {
        name: served.namespace.clone(),
        alike: Arc::new(alike),
        addresses: [served.address].into(),
        node: String::new(),
        created: 0,
    };
    Input::Pod(format!("served/{number}"), Some(facts))
}

/// Notes whenever somebody else changes our tables.
async fn watch_tables(inbox: Arc<Inbox>) {
    let watched = async { nft::Changes::open()?.on_change(TABLE, || inbox.disturb()).await };
    let Err(error): std::io::Result<Infallible> = watched.await;
    tracing::warn!(%error, "nobody tells when the rules of network policies are changed");
}
