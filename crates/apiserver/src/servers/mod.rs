//! The servers of one cluster, which share a store: who of them is alive, and where they are reached.
//!
//! Each server that is ready keeps a key below `/registry/masterleases/` alive, named after its address, as upstream's servers do in the same
//! place. The keys that there are make the endpoints of the `kubernetes` Service: whoever stops takes its key away and is gone at once; the key of
//! one that was killed goes when its time is up. Every server follows the keys and puts the endpoints right, so it does not matter who is left.
//! Besides, each has a Lease of its own in `kube-system` (`identity`).
//!
//! A store that only one process can open has one server: it writes no keys, because nobody could read them.

pub(crate) mod identity;
mod presence;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use serde_json::json;
use store::{Event, Expect, Op, Outcome, Range, Store, Txn};
use tokio::sync::{Mutex, watch};
use tokio_util::sync::CancellationToken;

pub(crate) use identity::Identity;
pub(crate) use presence::Presence;

/// Where the keys are, as upstream has them.
const PREFIX: &str = "/registry/masterleases/";
/// Seconds after which a server that says nothing is gone.
const TTL: u64 = 15;
/// How often a server says that it is there.
const RENEW: Duration = Duration::from_secs(10);
/// When a renewal that failed is tried again. The key must not go meanwhile.
const AGAIN: Duration = Duration::from_secs(1);
/// How often somebody may be faster at this server's own key: the server that it was before, and no more.
const RACES: usize = 4;

/// How the endpoints of the `kubernetes` Service come about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EndpointReconciler {
    /// This server is the only one that the store can have.
    #[default]
    Alone,
    /// All servers that keep their keys alive.
    Lease,
    /// Somebody else writes them.
    None,
}

/// Who is alive.
pub(crate) struct Servers {
    store: Arc<dyn Store>,
    own: IpAddr,
    pub(crate) reconciler: EndpointReconciler,
    live: watch::Sender<BTreeSet<IpAddr>>,
    /// What this server's key is expected to be; nothing once the server has left.
    key: Mutex<Option<Key>>,
}

#[derive(Debug, Clone, Copy)]
struct Key {
    expect: Expect,
    generation: u64,
}

impl std::fmt::Debug for Servers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Servers").field("own", &self.own).field("live", &*self.live.borrow()).finish_non_exhaustive()
    }
}

impl Servers {
    pub(crate) fn new(store: Arc<dyn Store>, own: IpAddr, reconciler: EndpointReconciler) -> Self {
        // A Service cannot point at loopback: then nobody but this host reaches the server anyway.
        let reconciler = if own.is_loopback() { EndpointReconciler::None } else { reconciler };
        let live = match reconciler {
            EndpointReconciler::Alone => BTreeSet::from([own]),
            EndpointReconciler::Lease | EndpointReconciler::None => BTreeSet::new(),
        };
        let key = Mutex::new(Some(Key { expect: Expect::Absent, generation: 0 }));
        Self { store, own, reconciler, live: watch::Sender::new(live), key }
    }

    /// The addresses of those who are alive, as far as this server knows.
    pub(crate) fn live(&self) -> BTreeSet<IpAddr> {
        self.live.borrow().clone()
    }

    /// Told when somebody comes or goes.
    pub(crate) fn changes(&self) -> watch::Receiver<BTreeSet<IpAddr>> {
        self.live.subscribe()
    }

    fn shares(&self) -> bool {
        self.reconciler == EndpointReconciler::Lease
    }

    /// Takes away what a server at this address left when it was killed: this one is not ready yet.
    pub(crate) async fn begin(&self) -> Result<(), store::Error> {
        if !self.shares() {
            return Ok(());
        }
        self.remove(Expect::Absent).await?;
        self.read().await.map(drop)
    }

    /// Says for the first time that this server is there.
    pub(crate) async fn enter(&self) -> Result<(), store::Error> {
        if !self.shares() {
            return Ok(());
        }
        self.renew().await?;
        self.read().await.map(drop)
    }

    /// Takes this server out, for good.
    pub(crate) async fn leave(&self) -> Result<(), store::Error> {
        let key = self.key.lock().await.take();
        if !self.shares() {
            return Ok(());
        }
        self.remove(key.map_or(Expect::Absent, |key| key.expect)).await?;
        self.read().await.map(drop)
    }

    /// Says that this server is there, and follows who else is, until it is stopped.
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        if self.shares() {
            stop.run_until_cancelled(async { tokio::join!(self.keep_renewing(), self.follow()) }).await;
        }
    }

    async fn keep_renewing(&self) {
        loop {
            let wait = match self.renew().await {
                Ok(()) => RENEW,
                Err(error) => {
                    tracing::warn!(%error, "this server cannot say that it is there");
                    AGAIN
                }
            };
            tokio::time::sleep(wait).await;
        }
    }

    async fn renew(&self) -> Result<(), store::Error> {
        let mut kept = self.key.lock().await;
        let Some(key) = kept.as_mut() else { return Ok(()) };
        key.generation += 1;
        for _ in 0..RACES {
            let value = Bytes::from(value(self.own, key.generation));
            let op = Op::Put { value, ttl: Some(TTL) };
            let txn = Txn { key: self.name().into(), expect: key.expect, op, write: None, note: Default::default() };
            match self.store.txn(txn).await? {
                Outcome::Committed(revision) => {
                    key.expect = Expect::At(revision);
                    return Ok(());
                }
                Outcome::Conflict(found) => {
                    key.expect = found.map_or(Expect::Absent, |record| Expect::At(record.revision));
                }
            }
        }
        Err(store::Error::Unavailable(format!("somebody else writes {}", self.name())))
    }

    /// Takes this server's key away, whatever it is.
    async fn remove(&self, expect: Expect) -> Result<(), store::Error> {
        let mut expect = match expect {
            Expect::Absent => match self.store.get(&self.name()).await? {
                None => return Ok(()),
                Some(record) => Expect::At(record.revision),
            },
            known => known,
        };
        for _ in 0..RACES {
            match self
                .store
                .txn(Txn { key: self.name().into(), expect, op: Op::Delete, write: None, note: Default::default() })
                .await?
            {
                Outcome::Committed(_) | Outcome::Conflict(None) => return Ok(()),
                Outcome::Conflict(Some(record)) => expect = Expect::At(record.revision),
            }
        }
        Ok(())
    }

    fn name(&self) -> String {
        format!("{PREFIX}{}", self.own)
    }

    /// Reads who is there, and says as of which revision.
    async fn read(&self) -> Result<store::Revision, store::Error> {
        let page = self.store.range(Range { prefix: PREFIX.to_owned(), ..Range::default() }).await?;
        let live = page.records.iter().filter_map(|record| address(&record.key)).collect();
        self.live.send_if_modified(|known| {
            *known != live && {
                *known = live;
                true
            }
        });
        Ok(page.revision)
    }

    /// Takes in who comes and goes. A stream that breaks is begun again with what there is.
    async fn follow(&self) {
        loop {
            if let Err(error) = self.follow_once().await {
                tracing::debug!(%error, "cannot follow the other servers; trying again");
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    async fn follow_once(&self) -> Result<(), store::Error> {
        let revision = self.read().await?;
        let mut events = self.store.watch(PREFIX, revision).await?;
        while let Some(event) = events.next().await {
            let event = event?;
            self.live.send_if_modified(|live| take(live, &event));
        }
        Ok(())
    }
}

/// Takes one change over; whether somebody came or went.
fn take(live: &mut BTreeSet<IpAddr>, event: &Event) -> bool {
    match (address(&event.key), &event.value) {
        (None, _) => false,
        (Some(address), Some(_)) => live.insert(address),
        (Some(address), None) => live.remove(&address),
    }
}

/// The address that a key is named after.
fn address(key: &str) -> Option<IpAddr> {
    key.strip_prefix(PREFIX)?.parse().ok()
}

/// What upstream's servers expect of a key: Endpoints with the one address. Its generation is what a renewal changes.
fn value(own: IpAddr, generation: u64) -> String {
    json!({
        "kind": "Endpoints", "apiVersion": "v1", "metadata": {"generation": generation},
        "subsets": [{"addresses": [{"ip": own}]}],
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::embedded::{Embedded, Options};

    fn server(store: &Arc<Embedded>, last: u8) -> Servers {
        Servers::new(store.clone(), IpAddr::from([192, 0, 2, last]), EndpointReconciler::Lease)
    }

    fn names(servers: &Servers) -> Vec<String> {
        servers.live().iter().map(ToString::to_string).collect()
    }

    /// Keys and their time are the store's business, so any store will do.
    #[tokio::test]
    async fn servers_come_and_go_and_a_killed_one_leaves_nothing_behind_when_it_is_back() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = Embedded::open(directory.path(), Options::default()).expect("a store");
        let [one, two] = [1, 2].map(|last| server(&store, last));
        one.enter().await.expect("it enters");
        assert_eq!(names(&one), ["192.0.2.1"]);
        two.enter().await.expect("it enters");
        assert_eq!(names(&two), ["192.0.2.1", "192.0.2.2"]);
        // Killed, and started again: not ready yet.
        let again = server(&store, 2);
        again.begin().await.expect("it begins");
        assert_eq!(names(&again), ["192.0.2.1"]);
        again.enter().await.expect("it enters");
        again.renew().await.expect("it stays");
        one.leave().await.expect("it leaves");
        again.read().await.expect("a look");
        assert_eq!(names(&again), ["192.0.2.2"]);
        one.renew().await.expect("nothing to do");
        again.read().await.expect("a look");
        assert_eq!(names(&again), ["192.0.2.2"], "who has left does not come back by a late renewal");
    }

    #[test]
    fn keys_name_addresses() {
        assert_eq!(address("/registry/masterleases/192.0.2.1"), Some(IpAddr::from([192, 0, 2, 1])));
        assert_eq!(address("/registry/masterleases/fd00::1").map(|address| address.is_ipv6()), Some(true));
        assert_eq!(address("/registry/masterleases/other"), None);
    }
}
