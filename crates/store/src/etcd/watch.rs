//! A watch on etcd that outlives its connection.
//!
//! It asks from the last revision it has delivered, inclusive, and drops what it had: so etcd itself tells whether
//! anything in between was compacted, even at the very border. Fragments of one answer are delivered together, so that
//! a revision is delivered whole or not at all and resuming is exact. Progress is never taken for a place to resume from: it only says that
//! the member is there and has come as far as the others, and it is asked for when the store is known to have gone on and nothing comes.
//! A member that stays behind, frozen or cut off, is left for another long before its connection is found to be dead.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::time::Instant;
use tonic::Status;

use super::client::{self, Client, LATE, Repeat, Watching, is_compacted, transient};
use super::keys::Keys;
use super::mark;
use super::proto::{self, ProgressRequest, RangeRequest, RangeResponse, WatchCreateRequest, WatchRequest};
use super::{RANGE, end_of, start_of};
use crate::{Error, Event, Record, Revision, Watch};

/// A watch that could not be taken up again for so long ends.
const PATIENCE: Duration = Duration::from_secs(60);
/// A member that has not come as far as the store is known to be is left after so long, if it sends nothing new meanwhile. One after the other gets twice as
/// long: where there is much to catch up with, whoever is left too soon begins again.
const BEHIND: Duration = Duration::from_millis(1200);
/// After so many it is no longer.
const MOST_LEFT: u32 = 6;
/// Waits between two attempts to take it up.
const BACKOFF: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_millis(50),
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_secs(1),
];

/// Which events, and how far they have been delivered.
#[derive(Debug, Clone)]
pub(super) struct Cursor {
    prefix: String,
    reached: Revision,
    /// How long its first member may be behind.
    patience: Duration,
    /// How many were left since one was not.
    left: u32,
}

/// One turn of reading.
pub(super) enum Turn {
    /// Events after what was reached before, in order; whole revisions.
    Events(Vec<Event>),
    /// The watch is over.
    Over(Error),
    /// The connection is; the watch can be taken up again.
    Broken(Status),
}

/// An open stream of answers to one cursor.
pub(super) struct Reader {
    watching: Watching,
    fragments: Vec<proto::Event>,
    /// How far the member says that it is.
    progress: Revision,
    behind: Option<Behind>,
}

/// The member is known to be behind.
#[derive(Debug, Clone, Copy)]
struct Behind {
    since: Instant,
    /// How far it had to come.
    wanted: Revision,
    /// When it is asked (again): etcd has no answer for a watch that it has not caught up with yet.
    ask: Instant,
}

/// Waits until a member that is `here` has stayed behind for too long. Dropped and begun again with every answer.
async fn left_behind(
    client: &Client,
    requests: &mpsc::Sender<WatchRequest>,
    here: Revision,
    state: &mut Option<Behind>,
    patience: Duration,
) {
    if state.is_some_and(|behind| behind.wanted <= here) {
        *state = None;
    }
    if state.is_none() {
        let mut newest = client.newest();
        let Ok(wanted) = newest.wait_for(|newest| *newest > here).await.map(|newest| *newest) else {
            // The client is there for as long as its watches are.
            return std::future::pending().await;
        };
        let since = Instant::now();
        *state = Some(Behind { since, wanted, ask: since + LATE });
    }
    let Some(behind) = state.as_mut() else { return };
    let end = behind.since + patience;
    while behind.ask < end {
        tokio::time::sleep_until(behind.ask).await;
        let _ = requests.try_send(WatchRequest { create: None, progress: Some(ProgressRequest {}) });
        behind.ask += LATE;
    }
    tokio::time::sleep_until(end).await;
}

impl Cursor {
    pub(super) fn new(prefix: &str, after: Revision) -> Self {
        Self { prefix: prefix.to_owned(), reached: after, patience: BEHIND, left: 0 }
    }

    /// Of who reads from one member, and has a limit of its own for each answer.
    pub(super) fn once(prefix: &str, after: Revision) -> Self {
        Self { patience: PATIENCE, ..Self::new(prefix, after) }
    }

    /// Opens a stream from where the cursor is.
    pub(super) async fn open(&self, client: &Client) -> Result<Reader, Status> {
        let prefix = client.keys.theirs(&self.prefix);
        let create = WatchCreateRequest {
            key: start_of(&prefix, None),
            range_end: end_of(&prefix),
            // 0 would mean "from now on".
            start_revision: self.reached.max(1) as i64,
            prev_kv: true,
            fragment: true,
        };
        let watching = client.watch(create).await?;
        Ok(Reader { watching, fragments: Vec::new(), progress: 0, behind: None })
    }

    /// Waits for the next answer and takes it in.
    pub(super) async fn read(&mut self, client: &Client, reader: &mut Reader) -> Turn {
        loop {
            let Watching { answers, requests } = &mut reader.watching;
            let here = self.reached.max(reader.progress);
            let patience = (self.patience * 2_u32.pow(self.left)).min(PATIENCE);
            let answer = tokio::select! {
                biased;
                answer = answers.message() => answer,
                () = left_behind(client, requests, here, &mut reader.behind, patience) => {
                    self.left = MOST_LEFT.min(self.left + 1);
                    Err(Status::unavailable("the watch's member is behind"))
                }
            };
            let answer = match answer {
                Ok(Some(answer)) => answer,
                Ok(None) => return Turn::Broken(Status::unavailable("the watch's connection was closed")),
                Err(status) => return Turn::Broken(status),
            };
            if answer.compact_revision != 0 {
                return Turn::Over(Error::Compacted { oldest: answer.compact_revision as u64 });
            }
            if answer.canceled {
                return Turn::Broken(Status::unavailable(answer.cancel_reason));
            }
            if answer.events.is_empty() {
                reader.progress = answer.header.map_or(0, |header| header.revision.max(0) as Revision);
            } else {
                reader.behind = None;
            }
            if reader.behind.is_none_or(|behind| behind.wanted <= reader.progress) {
                self.left = 0;
            }
            reader.fragments.extend(answer.events);
            if answer.fragment || reader.fragments.is_empty() {
                continue;
            }
            let reached = self.reached;
            let received: Vec<_> = std::mem::take(&mut reader.fragments)
                .into_iter()
                .filter_map(|event| Received::read(&client.keys, event))
                .filter(|one| one.event.revision > reached)
                .collect();
            let mut events = Vec::with_capacity(received.len());
            for event in received {
                match event.complete(client).await {
                    Ok(event) => events.push(event),
                    // Nothing of this answer is delivered, so it is asked for again whole.
                    Err(status) => return Turn::Broken(status),
                }
            }
            if let Some(last) = events.last() {
                self.reached = last.revision;
                return Turn::Events(events);
            }
        }
    }
}

/// An event as it came from etcd.
struct Received {
    event: Event,
    /// It changed a key that was there, but does not say what the key held.
    lacks_previous: bool,
}

impl Received {
    /// `None` for a key that is nothing of ours.
    fn read(keys: &Keys, event: proto::Event) -> Option<Self> {
        let kv = event.kv?;
        let deleted = event.kind == 1;
        let lacks_previous = event.prev_kv.is_none() && (deleted || kv.create_revision != kv.mod_revision);
        let revision = kv.mod_revision as u64;
        let key: Arc<str> = keys.ours(kv.key)?.into();
        let value = (!deleted).then(|| mark::without(kv.value));
        let previous = event.prev_kv.map(|previous| Record {
            key: Arc::clone(&key),
            value: mark::without(previous.value),
            revision: previous.mod_revision as u64,
        });
        Some(Self { event: Event { key, revision, value, previous, write: None }, lacks_previous })
    }

    /// The event with its previous value. etcd 3.4 leaves it out at times, for instance of events it sends soon after a
    /// member's start; so it is read, unless compaction has taken it by now.
    async fn complete(self, client: &Client) -> Result<Event, Status> {
        let Self { mut event, lacks_previous } = self;
        if lacks_previous {
            let revision = event.revision as i64 - 1;
            let key = client.keys.theirs(&event.key).as_bytes().to_vec();
            let request = RangeRequest { key, revision, ..RangeRequest::default() };
            event.previous = match client.call::<_, RangeResponse>(RANGE, request, Repeat::Freely).await {
                Ok(answer) => answer.kvs.into_iter().find_map(|kv| client.keys.record(kv)),
                Err(status) if is_compacted(&status) => None,
                Err(status) => return Err(status),
            };
        }
        Ok(event)
    }
}

/// A watch that takes itself up again. The first connection is waited for; after that `client` is used from a task.
pub(super) async fn watch(client: Arc<Client>, prefix: &str, after: Revision, queue: usize) -> Result<Watch, Error> {
    let mut cursor = Cursor::new(prefix, after);
    let mut reader = cursor.open(&client).await.map_err(|status| client::error(&status))?;
    let (sender, receiver) = mpsc::channel(queue);
    // Read by a task whether or not anybody takes the events: a reader who waits must not fill the connection's window.
    tokio::spawn(async move {
        let lagged = loop {
            let turn = tokio::select! {
                turn = cursor.read(&client, &mut reader) => turn,
                () = sender.closed() => return,
            };
            let status = match turn {
                Turn::Events(events) => match offer(&sender, events) {
                    Ok(()) => continue,
                    Err(Offer::Full) => break Error::Lagged,
                    Err(Offer::Gone) => return,
                },
                Turn::Over(error) => break error,
                Turn::Broken(status) => status,
            };
            tracing::debug!(%status, "etcd watch broken; taking it up again");
            let resumed = tokio::select! {
                resumed = resume(&client, &cursor) => resumed,
                () = sender.closed() => return,
            };
            match resumed {
                Ok(resumed) => reader = resumed,
                Err(error) => break error,
            }
        };
        drop(reader);
        // Waits until the queue has room: the error comes after everything that was delivered.
        let _ = sender.send(Err(lagged)).await;
    });
    Ok(Box::pin(futures::stream::unfold(receiver, |mut receiver| async move {
        let item = receiver.recv().await?;
        Some((item, receiver))
    })))
}

async fn resume(client: &Client, cursor: &Cursor) -> Result<Reader, Error> {
    let (start, mut attempt) = (Instant::now(), 0);
    loop {
        tokio::time::sleep(BACKOFF[attempt.min(BACKOFF.len() - 1)]).await;
        attempt += 1;
        match cursor.open(client).await {
            Ok(reader) => return Ok(reader),
            Err(status) if transient(&status) && start.elapsed() < PATIENCE => {}
            Err(status) => return Err(client::error(&status)),
        }
    }
}

enum Offer {
    Full,
    Gone,
}

fn offer(sender: &mpsc::Sender<Result<Event, Error>>, events: Vec<Event>) -> Result<(), Offer> {
    for event in events {
        sender.try_send(Ok(event)).map_err(|e| match e {
            TrySendError::Full(_) => Offer::Full,
            TrySendError::Closed(_) => Offer::Gone,
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::Options;
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_member_that_is_behind_is_asked_until_it_is_left() {
        let endpoints = vec!["http://127.0.0.1:1".to_owned()];
        let client = Client::new(&Options { endpoints, ..Options::default() }).expect("a client");
        client.saw(Some(&proto::ResponseHeader { revision: 9, raft_term: 1 }));
        let (requests, mut asked) = mpsc::channel(8);
        let (begun, mut state) = (Instant::now(), None);
        left_behind(&client, &requests, 4, &mut state, 2 * BEHIND).await;
        let took = begun.elapsed();
        assert!((2 * BEHIND..2 * BEHIND + LATE).contains(&took), "{took:?}");
        let times = std::iter::from_fn(|| asked.try_recv().ok()).count();
        assert_eq!(times, 4, "every half second: etcd may have had no answer for it the first time");
        // Who has come as far as the store is known to have is never left.
        let there = left_behind(&client, &requests, 9, &mut state, BEHIND);
        assert!(tokio::time::timeout(PATIENCE, there).await.is_err());
    }
}
