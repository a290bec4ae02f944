//! A storage driver for tests: directories and loop devices behind the real contract, with every call on record and trouble made
//! to order.
//!
//! [`Driver`] serves the identity, controller and node services on one socket, and its registration on another. What it promises
//! and what others promise it is checked with every call ([`Driver::broken_promises`]): nothing is published that is not staged, nothing is unstaged
//! that is published, and no volume for one node is attached to two. [`Sidecars`] are what a real driver brings along:
//! they make volumes for claims, attach and detach them, and make them larger.

mod disks;
mod pretender;
mod services;
mod sidecars;
mod sidecars_resize;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tonic::{Code, Status};

pub use pretender::{PluginInfo, Pretender};
pub use sidecars::Sidecars;

/// What a call comes to instead of what it should.
#[derive(Debug, Clone)]
pub enum Trouble {
    /// Nothing is done, and this is answered.
    Refuse(Code, String),
    /// It is done, and this is answered all the same.
    DoneBut(Code, String),
    /// It is done after this long.
    Late(Duration),
    /// Nothing is done and nothing is ever answered.
    Hang,
}

/// One call that the driver got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// By its name in the contract.
    pub name: &'static str,
    pub volume: String,
    /// The path or the node that it is about.
    pub target: String,
    /// What came with it: the volume's context, publish context and secrets in one.
    pub context: BTreeMap<String, String>,
    pub ok: bool,
    /// When it came.
    pub at: std::time::Instant,
}

/// What the driver says it can do.
#[derive(Debug, Clone)]
pub struct Traits {
    pub stage: bool,
    pub mount_group: bool,
    pub expand: bool,
    pub max_volumes: i64,
    pub topology: BTreeMap<String, String>,
}

impl Default for Traits {
    fn default() -> Self {
        Self { stage: true, mount_group: false, expand: true, max_volumes: 0, topology: BTreeMap::new() }
    }
}

/// What is where, by volume: nodes, and places on nodes.
#[derive(Debug, Default)]
struct Ledger {
    attached: BTreeMap<String, BTreeSet<String>>,
    staged: BTreeMap<String, BTreeSet<(String, String)>>,
    published: BTreeMap<String, BTreeSet<(String, String)>>,
    broken: Vec<String>,
}

impl Ledger {
    /// Whether a volume is in one of these places on a node.
    fn is_on(places: &BTreeMap<String, BTreeSet<(String, String)>>, volume: &str, node: &str) -> bool {
        places.get(volume).is_some_and(|all| all.iter().any(|(on, _)| on == node))
    }
}

#[derive(Debug)]
struct State {
    name: String,
    node: String,
    traits: Traits,
    max_volumes: AtomicI64,
    dir: PathBuf,
    volumes: PathBuf,
    calls: watch::Sender<Vec<Call>>,
    troubles: Mutex<HashMap<&'static str, VecDeque<Trouble>>>,
    ledger: Arc<Mutex<Ledger>>,
    /// What it was told about its registration.
    registered: watch::Sender<Vec<Result<(), String>>>,
}

/// A driver that runs. Dropping it is as if it was killed: what it mounted stays.
#[derive(Debug)]
pub struct Driver {
    state: Arc<State>,
    registry: PathBuf,
    serving: Vec<tokio_util::task::AbortOnDropHandle<()>>,
}

impl Driver {
    /// A driver for a kubelet's root directory, called `name`, on the node `node`; its own data is in `dir`.
    pub fn start(root: &Path, dir: &Path, name: &str, node: &str, traits: Traits) -> Self {
        Self::make(root, dir, (name, node, traits), (dir.join("volumes"), Arc::default()))
    }

    /// The same driver on another node: it has the same volumes, and what one of them promises binds the other.
    pub fn beside(&self, root: &Path, dir: &Path, node: &str) -> Self {
        let State { name, traits, volumes, ledger, .. } = &*self.state;
        Self::make(root, dir, (name, node, traits.clone()), (volumes.clone(), ledger.clone()))
    }

    fn make(
        root: &Path,
        dir: &Path,
        (name, node, traits): (&str, &str, Traits),
        (volumes, ledger): (PathBuf, Arc<Mutex<Ledger>>),
    ) -> Self {
        std::fs::create_dir_all(dir).expect("a directory");
        std::fs::create_dir_all(&volumes).expect("a directory for volumes");
        let state = State {
            name: name.to_owned(),
            node: node.to_owned(),
            max_volumes: AtomicI64::new(traits.max_volumes),
            traits,
            dir: dir.to_owned(),
            volumes,
            calls: watch::Sender::default(),
            troubles: Mutex::default(),
            ledger,
            registered: watch::Sender::default(),
        };
        let registry = root.join("plugins_registry");
        std::fs::create_dir_all(&registry).expect("the kubelet's directory");
        let mut driver = Self { state: Arc::new(state), registry, serving: Vec::new() };
        driver.serve();
        driver
    }

    fn serve(&mut self) {
        self.serving.push(services::serve(&self.socket(), self.state.clone()));
        self.serving.push(services::serve(&self.registration_socket(), self.state.clone()));
    }

    /// Stops serving, as a kill would; the sockets stay behind as files.
    pub fn kill(&mut self) {
        self.serving.clear();
    }

    /// Serves again, with what is on disk.
    pub fn revive(&mut self) {
        self.kill();
        self.serve();
    }

    /// Stops serving and takes its registration away.
    pub fn unregister(&mut self) {
        self.kill();
        let _ = std::fs::remove_file(self.registration_socket());
    }

    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// What all of its services listen on.
    pub fn socket(&self) -> PathBuf {
        self.state.dir.join("csi.sock")
    }

    fn registration_socket(&self) -> PathBuf {
        self.registry.join(format!("{}-reg.sock", self.state.name))
    }

    /// Takes so many volumes on its node from now on.
    pub fn take(&self, max_volumes: i64) {
        self.state.max_volumes.store(max_volumes, Ordering::Relaxed);
    }

    /// The next call of that name comes to this; several are taken in turn.
    pub fn trouble(&self, call: &'static str, trouble: Trouble) {
        self.state.troubles.lock().entry(call).or_default().push_back(trouble);
    }

    /// Waits until the driver was registered, or refused.
    pub async fn registered(&self) -> Result<(), String> {
        let mut changes = self.state.registered.subscribe();
        let all = crate::eventually("a registration", changes.wait_for(|all| !all.is_empty())).await;
        all.expect("the driver is there").last().cloned().expect("not empty")
    }

    /// All calls so far.
    pub fn calls(&self) -> Vec<Call> {
        self.state.calls.borrow().clone()
    }

    /// The names of the calls about one volume, in their order.
    pub fn names(&self, volume: &str) -> Vec<&'static str> {
        self.calls().iter().filter(|call| call.volume == volume).map(|call| call.name).collect()
    }

    /// Waits until the calls are as wanted.
    pub async fn until(&self, what: &str, wanted: impl Fn(&[Call]) -> bool) -> Vec<Call> {
        let mut calls = self.state.calls.subscribe();
        let met = calls.wait_for(|calls| wanted(calls));
        match tokio::time::timeout(Duration::from_secs(120), met).await {
            Ok(calls) => calls.expect("the driver is there").clone(),
            Err(_) => panic!("{what} did not happen: {:#?}", self.calls()),
        }
    }

    /// Promises of the contract that somebody broke.
    pub fn broken_promises(&self) -> Vec<String> {
        self.state.ledger.lock().broken.clone()
    }

    /// Volumes that are attached, staged or published somewhere.
    pub fn in_use(&self) -> Vec<String> {
        let ledger = self.state.ledger.lock();
        let attached = ledger.attached.iter().filter(|(_, nodes)| !nodes.is_empty());
        let attached = attached.map(|(volume, nodes)| format!("{volume}: {nodes:?}"));
        let places = ledger.staged.iter().chain(&ledger.published).filter(|(_, places)| !places.is_empty());
        attached.chain(places.map(|(volume, places)| format!("{volume}: {places:?}"))).collect()
    }

    /// Where the files of a volume are.
    pub fn contents(&self, volume: &str) -> PathBuf {
        self.state.volumes.join(volume)
    }

    /// Devices that show the image of a volume, or of one that was deleted.
    pub fn devices(&self) -> Vec<String> {
        let volumes = self.state.volumes.canonicalize().unwrap_or_else(|_| self.state.volumes.clone());
        let listing = std::fs::read_dir("/sys/block").into_iter().flatten().flatten();
        let shows = listing.filter_map(|entry| {
            let image = std::fs::read_to_string(entry.path().join("loop/backing_file")).ok()?;
            Path::new(image.trim()).starts_with(&volumes).then(|| format!("{:?}: {image}", entry.file_name()))
        });
        shows.collect()
    }

    /// Volumes that exist.
    pub fn volumes(&self) -> Vec<String> {
        let listing = std::fs::read_dir(&self.state.volumes).into_iter().flatten().flatten();
        listing.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }
}

impl State {
    /// Does a call, with the trouble that was ordered for it, and puts it on record.
    async fn call<T>(&self, mut call: Call, work: impl FnOnce() -> Result<T, Status>) -> Result<T, Status> {
        let trouble = self.troubles.lock().get_mut(call.name).and_then(VecDeque::pop_front);
        let result = match trouble {
            None => work(),
            Some(Trouble::Refuse(code, message)) => Err(Status::new(code, message)),
            Some(Trouble::DoneBut(code, message)) => work().and(Err(Status::new(code, message))),
            Some(Trouble::Late(by)) => {
                tokio::time::sleep(by).await;
                work()
            }
            Some(Trouble::Hang) => {
                self.calls.send_modify(|calls| calls.push(call.clone()));
                std::future::pending().await
            }
        };
        call.ok = result.is_ok();
        self.calls.send_modify(|calls| calls.push(call));
        result
    }

    fn broken(&self, promise: String) -> Status {
        self.ledger.lock().broken.push(promise.clone());
        Status::failed_precondition(promise)
    }
}
