//! Shorthand for the tests: transactions, watches with a deadline.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use store::{Error, Event, Expect, Fence, Fenced, Op, Outcome, Page, Range, Record, Revision, Store, Txn, Watch};

/// Long enough for a busy machine; nothing waits this long unless it fails.
pub const DEADLINE: Duration = Duration::from_secs(120);

pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(DEADLINE, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what} did not happen within {DEADLINE:?}"),
    }
}

/// A store and a part of its keys that no other test uses.
#[derive(Clone)]
pub struct Fixture {
    pub store: Arc<dyn Store>,
    pub root: String,
}

impl Fixture {
    pub fn key(&self, name: &str) -> String {
        format!("{}{name}", self.root)
    }

    pub async fn txn(&self, name: &str, expect: Expect, op: Op) -> Result<Outcome, Error> {
        let txn = Txn { key: self.key(name).into(), expect, op, write: None, note: Default::default() };
        within("a transaction", self.store.txn(txn)).await
    }

    pub async fn txn_behind(&self, fence: Fence, name: &str, expect: Expect, op: Op) -> Fenced {
        let txn = Txn { key: self.key(name).into(), expect, op, write: None, note: Default::default() };
        within("a transaction", self.store.txn_behind(fence, txn)).await.unwrap()
    }

    /// Puts whatever the key holds now; answers the new revision.
    pub async fn put(&self, name: &str, value: impl Into<Bytes>) -> Revision {
        self.write(name, Op::Put { value: value.into(), ttl: None }).await
    }

    pub async fn put_ttl(&self, name: &str, value: &'static str, ttl: u64) -> Revision {
        self.write(name, Op::Put { value: value.into(), ttl: Some(ttl) }).await
    }

    pub async fn delete(&self, name: &str) -> Revision {
        self.write(name, Op::Delete).await
    }

    async fn write(&self, name: &str, op: Op) -> Revision {
        loop {
            let expect = self.get(name).await.map_or(Expect::Absent, |r| Expect::At(r.revision));
            match self.txn(name, expect, op.clone()).await.unwrap() {
                Outcome::Committed(revision) => return revision,
                Outcome::Conflict(_) => {}
            }
        }
    }

    pub async fn get(&self, name: &str) -> Option<Record> {
        self.store.get(&self.key(name)).await.unwrap()
    }

    pub async fn range(&self, range: Range) -> Result<Page, Error> {
        within("a range", self.store.range(range)).await
    }

    pub async fn all(&self) -> Page {
        self.range(Range { prefix: self.root.clone(), ..Range::default() }).await.unwrap()
    }

    pub async fn all_at(&self, at: Revision) -> Result<Page, Error> {
        self.range(Range { prefix: self.root.clone(), at: Some(at), ..Range::default() }).await
    }

    pub async fn watch(&self, after: Revision) -> Watch {
        within("a watch", self.store.watch(&self.root, after)).await.unwrap()
    }

    /// The error with which a watch begins, wherever the engine reports it.
    pub async fn watch_error(&self, after: Revision) -> Error {
        match within("a watch", self.store.watch(&self.root, after)).await {
            Err(error) => error,
            Ok(mut watch) => within("the end of a watch", watch.next()).await.unwrap().unwrap_err(),
        }
    }

    pub async fn revision(&self) -> Revision {
        self.store.revision().await.unwrap()
    }

    /// `name=value` of each record, names without the root.
    pub fn shown(&self, records: &[Record]) -> Vec<String> {
        let show = |r: &Record| format!("{}={}", &r.key[self.root.len()..], String::from_utf8_lossy(&r.value));
        records.iter().map(show).collect()
    }

    /// `name: before -> after` of an event.
    pub fn told(&self, event: &Event) -> String {
        let text = |value: Option<&Bytes>| value.map_or("-".into(), |v| String::from_utf8_lossy(v).into_owned());
        let name = &event.key[self.root.len()..];
        format!("{name}: {} -> {}", text(event.previous.as_ref().map(|p| &p.value)), text(event.value.as_ref()))
    }
}

pub async fn next(watch: &mut Watch) -> Event {
    within("an event", watch.next()).await.expect("a watch ends only with an error").unwrap()
}

pub async fn take(watch: &mut Watch, count: usize) -> Vec<Event> {
    let mut events = Vec::with_capacity(count);
    while events.len() < count {
        events.push(next(watch).await);
    }
    events
}

/// A number from the environment, for longer or particular runs.
pub fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}
