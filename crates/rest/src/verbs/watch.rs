//! Watch: initial state, backlog and live changes as one stream, with bookmarks and a time limit.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt as _, stream};
use http::StatusCode;
use kinds::convert;
use machinery::object::Object;
use machinery::rest::{Payload, Response, WatchEvent};
use machinery::status::{ApiError, FieldError};
use storage::cache::{Change, Filter, Start, Subscription, event_for};
use tokio::time::{Instant, Interval, MissedTickBehavior, Sleep};

use super::list::stored_filter;
use super::read::parse_version;
use super::{Api, Call, response};
use crate::registry::{Form, Resource};

/// How often a watcher that asked for bookmarks gets one, if there is something to tell.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);

/// What a watch is of: an extension of its answer, for the bookmarks, which have no object to say it.
#[derive(Debug, Clone)]
pub struct Watched {
    /// `apiVersion` of the objects.
    pub api_version: String,
    /// `kind` of the objects.
    pub kind: String,
}

impl Api {
    /// A stream of changes.
    pub(super) async fn watch(&self, call: &Call<'_>) -> Result<Response, ApiError> {
        super::past::refuse(call, "watch")?;
        let filter = self.filter(call)?;
        let bookmarks = call.query.flag("allowWatchBookmarks");
        let initial = self.initial_events(call)?;
        let version = call.query.get("resourceVersion");
        let start = match (version, initial) {
            // A streaming list is consistent: it starts no earlier than everything durable now.
            ("", Some(true)) => {
                self.caches.settle().await?;
                Start::Everything
            }
            ("0", Some(true)) | ("" | "0", None) => Start::Everything,
            ("" | "0", Some(false)) => Start::Now,
            (version, Some(true)) => {
                self.caches.reach(parse_version(version)?).await?;
                Start::Everything
            }
            (version, _) => {
                let revision = parse_version(version)?;
                self.caches.reach(revision).await?;
                Start::After(revision)
            }
        };
        let timeout = match call.query.int("timeoutSeconds")? {
            Some(seconds) if seconds > 0 => Duration::from_secs(seconds.unsigned_abs()),
            _ => Duration::from_secs(rand::random_range(self.shortest_watch..=2 * self.shortest_watch)),
        };
        let at = self.caches.revision();
        let stored = stored_filter(call, &filter).unwrap_or_else(|| filter.clone());
        let subscription = call.resource.cache.subscribe(&*self.store, &stored, start, at).await;
        let subscription = match subscription {
            Ok(subscription) => subscription,
            // The past is gone: said inside the stream, as upstream does, so that clients see it where they look.
            Err(error) if error.code == 410 => {
                let events = stream::iter([WatchEvent::Error(error)]).boxed();
                return Ok(response(StatusCode::OK, Payload::Watch(events)));
            }
            Err(error) => return Err(error),
        };
        let mark = initial == Some(true) && bookmarks;
        let reached = {
            let caches = self.caches.clone();
            move || caches.revision()
        };
        let form = call.resource.form.clone().map(|form| Shown { form, resource: call.resource.clone() });
        let state = Watching::new(subscription, filter, form, mark, bookmarks, timeout, reached).await?;
        let (from, to) = (call.resource.storage.clone(), call.served.facts.clone());
        let fields = call.resource.cache.fields().clone();
        let watched = Watched { api_version: to.api_version(), kind: to.kind.to_string() };
        let events = state.events().map(move |event| convert::event(&from, &to, event, &fields)).boxed();
        let mut response = response(StatusCode::OK, Payload::Watch(events));
        response.extensions_mut().insert(watched);
        Ok(response)
    }

    /// `sendInitialEvents`, with upstream's rules about what must come with it.
    fn initial_events(&self, call: &Call<'_>) -> Result<Option<bool>, ApiError> {
        let given = call.query.has("sendInitialEvents");
        let matching = call.query.get("resourceVersionMatch");
        let mut errors = Vec::new();
        if given && matching != "NotOlderThan" {
            let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            errors.push(FieldError::forbidden("resourceVersionMatch", why));
        } else if !given && !matching.is_empty() {
            let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            errors.push(FieldError::forbidden("resourceVersionMatch", why));
        }
        if !matches!(matching, "" | "NotOlderThan") {
            errors.push(FieldError::not_supported("resourceVersionMatch", matching, ["NotOlderThan"]));
        }
        if !matching.is_empty() && !call.query.get("continue").is_empty() {
            let why = "resourceVersionMatch is forbidden when continue is provided";
            errors.push(FieldError::forbidden("resourceVersionMatch", why));
        }
        if errors.is_empty() {
            Ok(given.then(|| call.query.flag("sendInitialEvents")))
        } else {
            Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", &errors))
        }
    }
}

struct Watching<R> {
    /// Events that can be sent at once.
    ready: VecDeque<WatchEvent>,
    subscription: Subscription,
    filter: Filter,
    /// One timer for its whole life: events are many, and setting a timer for each is dear.
    deadline: Pin<Box<Sleep>>,
    /// Ticks when a bookmark is due, for watchers that asked for bookmarks.
    bookmarks: Option<Interval>,
    /// The revision the watcher knows it has come to.
    reported: u64,
    /// How far the caches are.
    reached: R,
    /// How stored objects are shown, where that is not as they are.
    shown: Option<Shown>,
}

/// How a version of a custom resource shows what is stored.
struct Shown {
    form: Arc<Form>,
    resource: Arc<Resource>,
}

impl Shown {
    async fn show(&self, objects: Vec<Arc<Object>>) -> Result<Vec<Arc<Object>>, ApiError> {
        // On the heap: every watch, of other kinds too, would have room for a conversion in it all its life.
        Box::pin(self.form.show_all(objects, self.resource.cache.len())).await
    }

    /// What a change is for a watcher of this version.
    async fn event(&self, filter: &Filter, change: &Change) -> Option<WatchEvent> {
        let both = change.old.iter().chain(&change.new).cloned().collect();
        match self.show(both).await {
            Ok(shown) => {
                let mut shown = shown.into_iter();
                let old = change.old.as_ref().and_then(|_| shown.next());
                event_for(filter, &Change { revision: change.revision, old, new: shown.next() })
            }
            Err(error) => Some(WatchEvent::Error(error)),
        }
    }
}

impl<R: Fn() -> u64 + Send + 'static> Watching<R> {
    async fn new(
        mut subscription: Subscription,
        filter: Filter,
        shown: Option<Shown>,
        mark_initial_end: bool,
        bookmarks: bool,
        timeout: Duration,
        reached: R,
    ) -> Result<Self, ApiError> {
        let mut initial = std::mem::take(&mut subscription.initial);
        if let Some(shown) = &shown {
            initial = shown.show(initial).await?;
            initial.retain(|object| filter.matches(object));
        }
        let mut ready: VecDeque<WatchEvent> = initial.into_iter().map(WatchEvent::Added).collect();
        let backlog = std::mem::take(&mut subscription.backlog);
        match &shown {
            Some(shown) => {
                for change in &backlog {
                    ready.extend(shown.event(&filter, change).await);
                }
            }
            None => ready.extend(backlog.iter().filter_map(|change| event_for(&filter, change))),
        }
        let reported = subscription.revision;
        if mark_initial_end {
            ready.push_back(WatchEvent::Bookmark { revision: reported, initial_events_end: true });
        }
        let bookmarks = bookmarks.then(|| {
            let mut interval = tokio::time::interval_at(Instant::now() + BOOKMARK_EVERY, BOOKMARK_EVERY);
            interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
            interval
        });
        let deadline = Box::pin(tokio::time::sleep(timeout));
        Ok(Self { ready, subscription, filter, deadline, bookmarks, reported, reached, shown })
    }

    fn events(self) -> impl Stream<Item = WatchEvent> + Send + 'static {
        stream::unfold(self, |mut watching| async move { watching.next().await.map(|event| (event, watching)) })
    }

    async fn next(&mut self) -> Option<WatchEvent> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            let tick = async {
                match &mut self.bookmarks {
                    Some(interval) => interval.tick().await,
                    None => std::future::pending().await,
                }
            };
            // What the caches had reached before the queue was found empty has all been delivered.
            let reached = (self.reached)();
            tokio::select! {
                biased;
                change = self.subscription.live.recv() => {
                    let change = change?;
                    self.reported = change.revision;
                    self.ready.extend(match &self.shown {
                        Some(shown) => shown.event(&self.filter, &change).await,
                        None => event_for(&self.filter, &change),
                    });
                }
                () = self.deadline.as_mut() => return None,
                _ = tick => {
                    if reached > self.reported {
                        self.reported = reached;
                        return Some(WatchEvent::Bookmark { revision: reached, initial_events_end: false });
                    }
                }
            }
        }
    }
}
