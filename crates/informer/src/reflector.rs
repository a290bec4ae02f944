//! Keeps a cache equal to what the API holds: reads everything once, then follows the changes, and starts over only when it must.
//!
//! The way through the states: `Unread` reads everything, by a streaming list where the server knows it and by pages where it does not, and becomes
//! `Watching`, or `Read` when the watch still has to be opened. A watch that ends or breaks leaves `Read` at the last revision seen (bookmarks
//! included), from which the next watch goes on. `410 Gone` leads back to `Unread`, and so does a watch that fails [`STUCK_AFTER`] times without
//! getting past a revision: whatever is wrong with what comes next, it is not passed by asking for it again. A server that is down or busy does not
//! count, since reading everything would only be more work for it. The cache keeps answering meanwhile.
//!
//! An object that cannot be read is no failure of the watch: it is set aside (`aside.rs`) and the watch goes on. A panic on the way counts as
//! a failure of the watch.

use std::borrow::Cow;
use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use client::{Event, ListParams, Undecodable, WatchParams};
use futures::{FutureExt, StreamExt};
use rustc_hash::FxBuildHasher;
use tokio_util::sync::CancellationToken;

use crate::aside;
use crate::cache::{Entry, Sink};
use crate::informers::Witness;
use crate::source::{AnySource, AnyStream};
use crate::{Backoff, Clock, Key, Phase, metrics};

/// Objects per page of a list.
const PAGE: u32 = 500;
/// The least a watch is asked to last; up to twice as long by chance, so that not all end at once.
const WATCH_SECONDS: u32 = 300;
/// A watch that lives longer than this was no failure, whatever ended it.
const HEALTHY: Duration = Duration::from_secs(10);
/// So many failures in a row at one revision, and everything is read again.
const STUCK_AFTER: u32 = 3;

/// Of whatever kind: what it does is the same for all of them, and compiled once.
pub(crate) struct Reflector {
    source: Box<dyn AnySource>,
    cache: Arc<dyn Sink>,
    clock: Arc<dyn Clock>,
    backoff: Backoff,
    /// Whether the server is thought to know streaming lists.
    streaming: bool,
    /// Where the watch failed last, and how often in a row.
    stuck: (String, u32),
    witness: Arc<Witness>,
}

enum State {
    /// What the API holds is unknown, or known too long ago to catch up.
    Unread,
    /// Everything up to a revision is in the cache.
    Read { revision: String },
    /// As `Read`, with the changes coming in.
    Watching { revision: String, stream: AnyStream, since: Duration },
}

impl Reflector {
    pub(crate) fn new(
        source: Box<dyn AnySource>,
        cache: Arc<dyn Sink>,
        clock: Arc<dyn Clock>,
        witness: Arc<Witness>,
    ) -> Self {
        let stuck = (String::new(), 0);
        Self { source, cache, clock, backoff: Backoff::reflector(), streaming: true, stuck, witness }
    }

    /// Goes on until stopped.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut state = State::Unread;
        while let Some(next) = stop.run_until_cancelled(self.guarded(state)).await {
            state = next;
        }
        self.cache.set_phase(Phase::Stopped);
    }

    /// One step, which a mistake of ours in reading one object must not end for all others.
    async fn guarded(&mut self, state: State) -> State {
        let revision = match &state {
            State::Unread => None,
            State::Read { revision } | State::Watching { revision, .. } => Some(revision.clone()),
        };
        if let Ok(next) = AssertUnwindSafe(self.step(state)).catch_unwind().await {
            return next;
        }
        metrics::panicked("an informer", &self.source.name());
        self.cache.set_phase(Phase::BackingOff);
        self.clock.sleep(self.backoff.delay()).await;
        revision.map_or(State::Unread, |revision| self.failed_at(revision))
    }

    async fn step(&mut self, state: State) -> State {
        match state {
            State::Unread => {
                self.cache.set_phase(if self.cache.has_synced() { Phase::Relisting } else { Phase::Listing });
                match self.read_everything().await {
                    Ok(next) => next,
                    Err(error) => {
                        self.back_off("list", &error).await;
                        State::Unread
                    }
                }
            }
            State::Read { revision } => {
                let params = watch_params(Some(revision.clone()));
                match self.source.watch(params).await {
                    Ok(stream) => self.watching(revision, stream),
                    Err(error) => {
                        let at_fault = !error.is_unreachable() && !error.is_too_many_requests();
                        self.after_error(revision, &error, at_fault).await
                    }
                }
            }
            State::Watching { revision, mut stream, since } => match stream.next().await {
                Some(Ok(event)) => {
                    let revision = self.take(event).unwrap_or(revision);
                    State::Watching { revision, stream, since }
                }
                // Whatever ends a watch that lived for long is no sign of what comes next.
                Some(Err(error)) => self.after_error(revision, &error, !self.healthy(since)).await,
                // The server ends a watch when its time is up, which is no error; one that ends at once, again and again, is.
                None if self.healthy(since) => {
                    self.backoff.reset();
                    State::Read { revision }
                }
                None => {
                    self.cache.set_phase(Phase::BackingOff);
                    self.clock.sleep(self.backoff.delay()).await;
                    self.failed_at(revision)
                }
            },
        }
    }

    fn healthy(&self, since: Duration) -> bool {
        self.clock.monotonic().saturating_sub(since) >= HEALTHY
    }

    fn watching(&mut self, revision: String, stream: AnyStream) -> State {
        self.cache.set_phase(Phase::Watching { revision: revision.clone() });
        State::Watching { revision, stream, since: self.clock.monotonic() }
    }

    /// Takes one event over; answers the revision it brought.
    fn take(&mut self, event: Event<dyn Entry>) -> Option<String> {
        self.backoff.reset();
        match event {
            Event::Added(item) | Event::Modified(item) => {
                let revision = item.revision().map(Cow::into_owned);
                let odd = self.cache.apply(item);
                odd.iter().for_each(|odd| self.report(odd));
                revision
            }
            Event::Deleted(item) => {
                let revision = item.revision().map(Cow::into_owned);
                self.cache.remove(item);
                revision
            }
            Event::Bookmark { revision, .. } => {
                self.cache.set_phase(Phase::Watching { revision: revision.clone() });
                Some(revision)
            }
            Event::Undecodable { object, deleted } => {
                let revision = object.object.resource_version.clone();
                if deleted {
                    self.cache.remove_unread(&object);
                } else {
                    self.cache.set_aside(object).iter().for_each(|odd| self.report(odd));
                }
                revision
            }
        }
    }

    /// Says once that an object cannot be read.
    fn report(&self, odd: &Undecodable) {
        let (source, object) = (self.source.name(), aside::key(odd));
        let (revision, error) = (odd.object.resource_version.as_deref().unwrap_or_default(), &odd.error);
        tracing::error!(source, %object, revision, error, "cannot be decoded; it is set aside until it can be");
        self.witness.report(odd);
    }

    async fn after_error(&mut self, revision: String, error: &client::Error, at_fault: bool) -> State {
        if error.is_gone() {
            tracing::debug!(
                source = self.source.name(),
                revision,
                "the revision is no longer served: reading everything again"
            );
            return State::Unread;
        }
        self.back_off("watch", error).await;
        if at_fault { self.failed_at(revision) } else { State::Read { revision } }
    }

    /// The watch failed after a revision: it is tried again from there, unless that was of no use too often.
    fn failed_at(&mut self, revision: String) -> State {
        let (at, times) = &mut self.stuck;
        if *at != revision {
            (*at, *times) = (revision.clone(), 0);
        }
        *times += 1;
        if *times < STUCK_AFTER {
            return State::Read { revision };
        }
        *times = 0;
        let source = self.source.name();
        metrics::STUCK.increment(&[&source]);
        tracing::warn!(source, revision, "the watch cannot get past a revision: reading everything again");
        State::Unread
    }

    async fn back_off(&mut self, what: &str, error: &client::Error) {
        let delay = self.backoff.delay();
        tracing::warn!(source = self.source.name(), %error, ?delay, "cannot {what}; trying again");
        self.cache.set_phase(Phase::BackingOff);
        self.clock.sleep(delay).await;
    }

    async fn read_everything(&mut self) -> Result<State, client::Error> {
        if self.streaming {
            match self.read_by_stream().await {
                Ok(state) => return Ok(state),
                // Servers before streaming lists reject the parameter, and those whose etcd is too old for them fail. Whatever the reason is, a list may do;
                // if it does not, it says why.
                Err(error) if matches!(error.code(), Some(400 | 422 | 500 | 501)) => self.streaming = false,
                Err(error) => return Err(error),
            }
        }
        self.read_by_pages().await
    }

    /// The watch sends what there is, then a bookmark, then goes on with the changes.
    async fn read_by_stream(&mut self) -> Result<State, client::Error> {
        let params = WatchParams { send_initial_events: true, ..watch_params(None) };
        let mut stream = self.source.watch(params).await?;
        let mut objects: HashMap<Key, Arc<dyn Entry>, FxBuildHasher> = HashMap::default();
        let mut undecodable: HashMap<Key, Undecodable, FxBuildHasher> = HashMap::default();
        while let Some(event) = stream.next().await {
            match event? {
                Event::Added(item) | Event::Modified(item) => {
                    let key = item.key();
                    undecodable.remove(&key);
                    objects.insert(key, item);
                }
                Event::Deleted(item) => {
                    let key = item.key();
                    undecodable.remove(&key);
                    objects.remove(&key);
                }
                Event::Undecodable { object, deleted } => {
                    let key = aside::key(&object);
                    objects.remove(&key);
                    undecodable.remove(&key);
                    if !deleted {
                        undecodable.insert(key, object);
                    }
                }
                Event::Bookmark { revision, initial_events_end: true } => {
                    self.replace(objects.into_values().collect(), undecodable.into_values().collect()).await;
                    return Ok(self.watching(revision, stream));
                }
                Event::Bookmark { .. } => {}
            }
        }
        // Cut off before the end of the initial events. What came so far is not the whole, so none of it counts.
        self.read_by_pages().await
    }

    async fn read_by_pages(&mut self) -> Result<State, client::Error> {
        let mut params = ListParams { limit: Some(PAGE), ..ListParams::default() };
        let (mut objects, mut undecodable) = (Vec::new(), Vec::new());
        loop {
            let list = match self.source.list(params.clone()).await {
                // The pages' revision was compacted on the way: one large answer instead.
                Err(error) if error.is_gone() && params.next.is_some() => {
                    objects.clear();
                    undecodable.clear();
                    params = ListParams::default();
                    continue;
                }
                answer => answer?,
            };
            objects.extend(list.items);
            undecodable.extend(list.undecodable);
            if list.next.is_none() {
                self.replace(objects, undecodable).await;
                return Ok(State::Read { revision: list.revision });
            }
            params.next = list.next;
        }
    }

    /// The cache holds this from now on, and what cannot be read is reported.
    async fn replace(&self, objects: Vec<Arc<dyn Entry>>, undecodable: Vec<Undecodable>) {
        self.cache.replace(objects, undecodable).await.iter().for_each(|odd| self.report(odd));
    }
}

fn watch_params(revision: Option<String>) -> WatchParams {
    WatchParams {
        resource_version: revision,
        bookmarks: true,
        timeout_seconds: Some(WATCH_SECONDS + rand::random_range(0..WATCH_SECONDS)),
        ..WatchParams::default()
    }
}

#[cfg(test)]
mod tests;
