//! The informers of one process: one watch and one cache per kind and filter, however many components ask.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use client::{Client, Kind, Undecodable};
use parking_lot::Mutex;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::cache::Sink;
use crate::reflector::Reflector;
use crate::source::{AnySource, Objects};
use crate::{Clock, EventType, Informer, Recorder, Source};

/// Writes Events about objects that cannot be read. Most processes never have one to write.
#[derive(Default)]
pub(crate) struct Witness {
    /// Through what they are written; nowhere without.
    api: Option<(Client, Arc<dyn Clock>)>,
    recorder: OnceLock<Recorder>,
}

impl Witness {
    pub(crate) fn report(&self, odd: &Undecodable) {
        let Some((client, clock)) = &self.api else { return };
        let recorder = self.recorder.get_or_init(|| Recorder::new(client.clone(), "trireme", None, clock.clone()));
        let message = format!("The object cannot be decoded and is set aside: {}", odd.error);
        recorder.event_about(*odd.object.clone(), EventType::Warning, "FailedDecode", message);
    }
}

/// Which objects of a kind an informer holds. Empty parts do not restrict.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Filter {
    pub namespace: String,
    /// A label selector, as in a URL.
    pub label_selector: String,
    /// A field selector, such as `spec.nodeName=n1`.
    pub field_selector: String,
}

impl Filter {
    /// Only the objects of a namespace.
    pub fn namespace(namespace: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), ..Self::default() }
    }

    /// Only the objects that a field selector picks.
    pub fn fields(selector: impl Into<String>) -> Self {
        Self { field_selector: selector.into(), ..Self::default() }
    }

    /// Only the objects that a label selector picks.
    pub fn labels(selector: impl Into<String>) -> Self {
        Self { label_selector: selector.into(), ..Self::default() }
    }
}

/// Hands out the shared informers. Cheap to clone; the watches end when the last clone goes.
#[derive(Clone)]
pub struct Informers {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    clock: Arc<dyn Clock>,
    witness: Arc<Witness>,
    running: Mutex<HashMap<(TypeId, Filter), Box<dyn Any + Send>>>,
    stop: DropGuard,
}

impl Informers {
    /// Informers that read through this client, on the machine's clock.
    pub fn new(client: Client) -> Self {
        Self::with_clock(client, crate::clock::Real::shared())
    }

    /// Informers that wait by this clock.
    pub fn with_clock(client: Client, clock: Arc<dyn Clock>) -> Self {
        let stop = CancellationToken::new().drop_guard();
        let witness = Witness { recorder: OnceLock::new(), api: Some((client.clone(), clock.clone())) };
        Self { inner: Arc::new(Inner { client, clock, witness: Arc::new(witness), running: Mutex::default(), stop }) }
    }

    /// The informer of all objects of a kind. Its watch starts with the first call.
    pub fn of<K: Kind>(&self) -> Informer<K> {
        self.filtered(Filter::default())
    }

    /// The informer of the objects of a kind that pass a filter.
    pub fn filtered<K: Kind>(&self, filter: Filter) -> Informer<K> {
        let mut running = self.inner.running.lock();
        let id = (TypeId::of::<K>(), filter.clone());
        if let Some(informer) = running.get(&id).and_then(|known| known.downcast_ref::<Informer<K>>()) {
            return informer.clone();
        }
        let informer = self.spawn(Objects::<K>::new(self.inner.client.clone(), filter));
        running.insert(id, Box::new(informer.clone()));
        informer
    }

    /// An informer, of its own, of any source.
    pub fn spawn<S: Source>(&self, source: S) -> Informer<S::Object> {
        self.spawn_until(source, &CancellationToken::new())
    }

    /// As [`Informers::spawn`], for sources that may go while the process lives on, such as the objects of a custom resource.
    pub fn spawn_until<S: Source>(&self, source: S, until: &CancellationToken) -> Informer<S::Object> {
        let informer = Informer::empty(source.name());
        self.reflect(Box::new(source), informer.shared().clone(), until.clone());
        informer
    }

    /// Keeps a cache filled from a source.
    fn reflect(&self, source: Box<dyn AnySource>, cache: Arc<dyn Sink>, until: CancellationToken) {
        let (stop, inner) = (self.stopped().clone(), &self.inner);
        let reflector = Reflector::new(source, cache.clone(), inner.clock.clone(), inner.witness.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = until.cancelled() => {}
                () = reflector.run(stop) => {}
                () = cache.cool() => {}
            }
        });
    }

    /// The client behind it.
    pub fn client(&self) -> &Client {
        &self.inner.client
    }

    /// The clock it waits by.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.inner.clock
    }

    fn stopped(&self) -> &CancellationToken {
        self.inner.stop.token()
    }
}
