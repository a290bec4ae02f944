//! The etcd engine: any real etcd 3.4 or later, over gRPC. Keys are laid out as given, values are what upstream stores
//! there (and blanks, see `mark`), so a cluster can move to and from it.
//!
//! Every API server that shares the etcd sees the same revisions. What this module adds to etcd's own promises: other
//! members are tried when one fails or falls silent, nothing waits longer than a few seconds, watches outlive connections, keys that
//! expire share leases, and old history is given up in turn with whoever else uses the etcd.

mod client;
mod compact;
mod keys;
mod lease;
mod mark;
mod members;
mod proto;
mod survey;
mod transfer;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tonic::Status;

use self::client::{Client, Repeat, is_compacted, is_future, transient};
use self::keys::Keys;
use self::lease::Leases;
use self::mark::Mark;
use self::proto::{
    CompactionRequest, CompactionResponse, Compare, DeleteRangeRequest, PutRequest, RangeRequest, RangeResponse,
    Request, RequestOp, ResponseOp, TxnRequest, TxnResponse,
};
use self::watch::{Cursor, Turn};
use crate::{
    Change, Changes, Error, Event, Expect, Fence, Fenced, Kept, Op, Outcome, Page, Range, Record, Revision, Store, Txn,
    Watch,
};
pub use members::{Health, Member, Members};
pub use transfer::{to_embedded, to_etcd};

const RANGE: &str = "/etcdserverpb.KV/Range";
const TXN: &str = "/etcdserverpb.KV/Txn";
const COMPACT: &str = "/etcdserverpb.KV/Compact";
/// `Compare` by the revision of the last change.
const TARGET_MOD: i32 = 2;
/// Keys asked for at once; a range of more is read in pages of one revision.
const PAGE: usize = 10_000;
/// So many changes of the past are read at once; who wants more asks for a shorter time.
const PAST: usize = 20_000;
/// How often a range starts again when compaction overtakes its pages.
const RESTARTS: usize = 3;
/// No key and value together may be larger. etcd's own limit is usually lower, and then holds.
const MAX_TXN: usize = 8 << 20;

/// Where etcd is and how to get in.
#[derive(Debug, Clone)]
pub struct Options {
    /// `https://host:port` or `http://host:port`, one per member.
    pub endpoints: Vec<String>,
    /// PEM file of the authorities that etcd's certificates are checked against.
    pub ca_file: Option<PathBuf>,
    /// PEM file of the client certificate.
    pub cert_file: Option<PathBuf>,
    /// PEM file of the client certificate's key.
    pub key_file: Option<PathBuf>,
    /// Events that may wait for a watcher before it is ended as too slow.
    pub watch_queue: usize,
    /// What all keys begin with, `/registry` unless another is given: several clusters can share an etcd.
    pub prefix: String,
    /// How often history is given up; each time, that from before the last time goes. `None` leaves it to others.
    pub compaction: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            endpoints: Vec::new(),
            ca_file: None,
            cert_file: None,
            key_file: None,
            watch_queue: 8192,
            prefix: keys::USUAL.to_owned(),
            compaction: Some(Duration::from_secs(300)),
        }
    }
}

/// A store in an etcd cluster.
#[derive(Debug)]
pub struct Etcd {
    client: Arc<Client>,
    leases: Leases,
    watch_queue: usize,
}

impl Etcd {
    /// Prepares connections without making them: an etcd that is not there yet is no error here. Needs a tokio runtime.
    pub fn open(options: &Options) -> Result<Arc<Self>, Error> {
        let client = Arc::new(Client::new(options)?);
        let store = Arc::new(Self { client, leases: Leases::default(), watch_queue: options.watch_queue.max(1) });
        if let Some(interval) = options.compaction {
            tokio::spawn(compact::run(Arc::downgrade(&store), interval));
        }
        Ok(store)
    }

    /// Speaks to these members from now on; connections to those that stay are kept.
    pub fn set_endpoints(&self, endpoints: &[String]) -> Result<(), Error> {
        self.client.set_endpoints(endpoints)
    }

    /// Reads the certificates that it was opened with again, for connections from now on.
    pub fn reload_certificates(&self, options: &Options) -> Result<(), Error> {
        self.client.reload(options)
    }

    /// The members of this etcd, to be looked at and changed.
    pub fn members(&self) -> Members {
        Members::of(self.client.clone())
    }

    async fn range_call(&self, request: RangeRequest) -> Result<RangeResponse, Status> {
        let answer: RangeResponse = self.client.call(RANGE, request, Repeat::Freely).await?;
        self.client.saw(answer.header.as_ref());
        Ok(answer)
    }

    /// The first revision that etcd still has, as the cancellation of a watch from the beginning tells it.
    async fn oldest(&self) -> Result<Revision, Error> {
        let mut cursor = Cursor::once("", 1);
        let mut reader = cursor.open(&self.client).await.map_err(|status| client::error(&status))?;
        match tokio::time::timeout(client::CALL, cursor.read(&self.client, &mut reader)).await {
            Ok(Turn::Over(Error::Compacted { oldest })) => Ok(oldest),
            Ok(Turn::Over(error)) => Err(error),
            Ok(Turn::Events(_)) => Ok(1),
            Ok(Turn::Broken(status)) => Err(client::error(&status)),
            Err(_) => Err(Error::Unavailable("etcd: a watch from the beginning got no answer".into())),
        }
    }

    /// What a failed read at `at` means.
    async fn read_error(&self, status: &Status, at: Revision) -> Error {
        let translated = if is_compacted(status) {
            self.oldest().await.map(|oldest| Error::Compacted { oldest })
        } else if is_future(status) {
            self.revision().await.map(|current| Error::Future { requested: at, current })
        } else {
            Ok(client::error(status))
        };
        translated.unwrap_or_else(|error| error)
    }

    /// Sends a compare-and-swap, behind a fence or not; the raw answer.
    ///
    /// One that may have been lost with a leader, and expects the key at a revision, is sent again: no revision comes twice, so at most one of the attempts
    /// changes anything, however late the others arrive. A key that has to be absent may be so again, and a key that was to go may have been deleted by anybody:
    /// what became of those is not known.
    async fn swap(&self, txn: &Txn, fence: Option<&Fence>) -> Result<TxnResponse, Error> {
        let size = txn.key.len() + if let Op::Put { value, .. } = &txn.op { value.len() } else { 0 };
        if size > MAX_TXN {
            return Err(Error::TooLarge);
        }
        let failed = |status: Status| client::error(&status);
        let repeatable = matches!((&txn.expect, &txn.op), (Expect::At(_), Op::Put { .. }));
        let mark = match &txn.op {
            Op::Put { value, .. } if repeatable => Mark::draw(value),
            _ => None,
        };
        let (begun, mut fresh, mut lost) = (Instant::now(), false, None);
        loop {
            let lease = match txn.op {
                Op::Put { ttl: Some(ttl), .. } => self.leases.get(&self.client, ttl).await.map_err(failed)?,
                _ => 0,
            };
            let request = request(&self.client.keys, txn, mark, fence, lease);
            match self.client.call::<_, TxnResponse>(TXN, request, Repeat::IfUnsent).await {
                Ok(answer) => {
                    self.client.saw(answer.header.as_ref());
                    let Some(status) = lost else { return Ok(answer) };
                    return settled(txn, mark, answer).ok_or_else(|| failed(status));
                }
                // It may have expired, or etcd may have been restored from before it was granted; nothing was written.
                Err(status) if lease != 0 && !fresh && status.message().contains("requested lease not found") => {
                    self.leases.forget(lease);
                    fresh = true;
                }
                Err(status)
                    if repeatable && lost.is_none() && transient(&status) && begun.elapsed() < client::CALL / 2 =>
                {
                    lost = Some(status);
                }
                Err(status) => return Err(failed(status)),
            }
        }
    }

    /// One reading of a range, page by page at the revision of the first.
    async fn pages(&self, range: &Range) -> Result<Page, (Status, Revision)> {
        let keys = &self.client.keys;
        let prefix = keys.theirs(&range.prefix);
        let end = end_of(&prefix);
        let mut at = range.at.unwrap_or(0);
        let mut after = range.after.clone();
        let (mut records, mut revision) = (Vec::new(), 0);
        loop {
            let wanted = if range.limit == 0 { PAGE } else { PAGE.min(range.limit - records.len()) };
            let request = RangeRequest {
                key: start_of(&prefix, after.as_deref().map(|after| keys.theirs(after)).as_deref()),
                range_end: end.clone(),
                limit: wanted as i64,
                revision: at as i64,
                count_only: false,
            };
            let answer = self.range_call(request).await.map_err(|status| (status, at))?;
            if revision == 0 {
                revision = if at == 0 { header(answer.header.as_ref()) } else { at };
                at = revision;
            }
            let remaining = answer.count.saturating_sub(answer.kvs.len() as i64).max(0) as u64;
            records.extend(answer.kvs.into_iter().filter_map(|kv| keys.record(kv)));
            after = records.last().map(|record: &Record| record.key.to_string());
            if remaining == 0 || records.len() == range.limit {
                return Ok(Page { records, revision, remaining });
            }
        }
    }
}

#[async_trait::async_trait]
impl Store for Etcd {
    async fn revision(&self) -> Result<Revision, Error> {
        let request = RangeRequest { key: vec![0], count_only: true, ..RangeRequest::default() };
        let answer = self.range_call(request).await.map_err(|status| client::error(&status))?;
        Ok(header(answer.header.as_ref()))
    }

    async fn get(&self, key: &str) -> Result<Option<Record>, Error> {
        let keys = &self.client.keys;
        let request = RangeRequest { key: keys.theirs(key).as_bytes().to_vec(), ..RangeRequest::default() };
        let answer = self.range_call(request).await.map_err(|status| client::error(&status))?;
        Ok(answer.kvs.into_iter().find_map(|kv| keys.record(kv)))
    }

    async fn range(&self, range: Range) -> Result<Page, Error> {
        let mut restarts = 0;
        loop {
            match self.pages(&range).await {
                Ok(page) => return Ok(page),
                // The caller asked for the present, so a newer one will do.
                Err((status, _)) if is_compacted(&status) && range.at.is_none() && restarts < RESTARTS => restarts += 1,
                Err((status, at)) => return Err(self.read_error(&status, at).await),
            }
        }
    }

    async fn txn(&self, txn: Txn) -> Result<Outcome, Error> {
        let answer = self.swap(&txn, None).await?;
        Ok(outcome(&self.client.keys, answer))
    }

    async fn txn_behind(&self, fence: Fence, txn: Txn) -> Result<Fenced, Error> {
        let answer = self.swap(&txn, Some(&fence)).await?;
        Ok(fenced(&self.client.keys, &fence, answer))
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, Error> {
        watch::watch(Arc::clone(&self.client), prefix, after, self.watch_queue).await
    }

    /// Reads one watch over all keys: every revision has an event somewhere, so the one that reaches `until` ends it.
    async fn history(&self, prefix: &str, after: Revision, until: Revision, limit: usize) -> Result<Vec<Event>, Error> {
        if after >= until {
            return Ok(Vec::new());
        }
        let current = self.revision().await?;
        if until > current {
            return Err(Error::Future { requested: until, current });
        }
        let mut cursor = Cursor::once("", after);
        let mut reader = cursor.open(&self.client).await.map_err(|status| client::error(&status))?;
        let mut found = Vec::new();
        loop {
            let turn = tokio::time::timeout(client::CALL, cursor.read(&self.client, &mut reader)).await;
            let events = match turn {
                Ok(Turn::Events(events)) => events,
                Ok(Turn::Over(error)) => return Err(error),
                Ok(Turn::Broken(status)) => return Err(client::error(&status)),
                Err(_) => return Err(Error::Unavailable("etcd: history did not come to its end in time".into())),
            };
            let over = events.last().is_some_and(|event| event.revision >= until);
            found.extend(events.into_iter().filter(|e| e.revision <= until && e.key.starts_with(prefix)));
            if found.len() > limit {
                return Err(Error::TooLarge);
            }
            if over {
                return Ok(found);
            }
        }
    }

    async fn at(&self, key: &str, revision: Revision) -> Result<Option<Record>, Error> {
        let keys = &self.client.keys;
        let key = keys.theirs(key).as_bytes().to_vec();
        let request = RangeRequest { key, revision: revision as i64, ..RangeRequest::default() };
        match self.range_call(request).await {
            Ok(answer) => Ok(answer.kvs.into_iter().find_map(|kv| keys.record(kv))),
            Err(status) => Err(self.read_error(&status, revision).await),
        }
    }

    /// As far back as etcd was not compacted, which is some minutes; without times and notes, which etcd does not keep.
    async fn changes(&self, query: Changes) -> Result<Vec<Change>, Error> {
        let after = query.after.max(self.oldest().await?);
        let mut events = self.history(&query.prefix, after, query.upto, PAST).await?;
        events.retain(|event| query.concerns(&event.key));
        let changes = events.into_iter().rev().take(query.limit).map(|event| {
            let Event { key, revision, value, previous, .. } = event;
            Change { key, revision, time: None, note: bytes::Bytes::new(), value, previous }
        });
        Ok(changes.collect())
    }

    async fn moment(&self, _time: u64) -> Result<Option<Revision>, Error> {
        Ok(None)
    }

    async fn made(&self, _revision: Revision) -> Result<Option<u64>, Error> {
        Ok(None)
    }

    async fn kept(&self) -> Result<Kept, Error> {
        let (oldest, latest) = (self.oldest().await?, self.revision().await?);
        Ok(Kept { oldest, oldest_time: None, latest, latest_time: None, bytes: 0 })
    }

    async fn compact(&self, revision: Revision) -> Result<(), Error> {
        let request = CompactionRequest { revision: revision as i64 };
        match self.client.call::<_, CompactionResponse>(COMPACT, request, Repeat::Freely).await {
            Ok(CompactionResponse {}) => Ok(()),
            // Somebody has compacted further already.
            Err(status) if is_compacted(&status) => Ok(()),
            Err(status) => Err(self.read_error(&status, revision).await),
        }
    }
}

/// A compare-and-swap: the write if the key, and the one of the fence, are as expected; otherwise a read of what they are instead.
fn request(keys: &Keys, txn: &Txn, mark: Option<Mark>, fence: Option<&Fence>, lease: i64) -> TxnRequest {
    let key = keys.theirs(&txn.key).as_bytes().to_vec();
    let expected = match txn.expect {
        Expect::Absent => 0,
        Expect::At(revision) => revision as i64,
    };
    let write = match &txn.op {
        Op::Put { value, .. } => {
            let value = mark.map_or_else(|| value.clone(), |mark| mark.on(value));
            Request::Put(PutRequest { key: key.clone(), value, lease })
        }
        Op::Delete => Request::DeleteRange(DeleteRangeRequest { key: key.clone() }),
    };
    let judged = fence.map(|fence| (keys.theirs(&fence.key).as_bytes().to_vec(), fence.revision as i64));
    let compared = || [Some((key.clone(), expected)), judged.clone()].into_iter().flatten();
    let compare = |(key, revision)| Compare { result: 0, target: TARGET_MOD, key, mod_revision: Some(revision) };
    let read = |(key, _)| RequestOp { request: Some(Request::Range(RangeRequest { key, ..RangeRequest::default() })) };
    TxnRequest {
        compare: compared().map(compare).collect(),
        success: vec![RequestOp { request: Some(write) }],
        failure: compared().map(read).collect(),
    }
}

/// What became of a write that was sent twice, by the answer to the second attempt; nothing if that cannot be known.
///
/// A key that holds what was to be written does not say who wrote it, its mark does.
fn settled(txn: &Txn, mark: Option<Mark>, answer: TxnResponse) -> Option<TxnResponse> {
    if answer.succeeded {
        return Some(answer);
    }
    let found = answer.responses.first()?.range.as_ref()?.kvs.first()?;
    if let (Op::Put { value, .. }, Some(mark)) = (&txn.op, mark)
        && mark.is_on(value, &found.value)
    {
        // The first attempt did it.
        let header = proto::ResponseHeader { revision: found.mod_revision, ..answer.header? };
        return Some(TxnResponse { header: Some(header), succeeded: true, responses: Vec::new() });
    }
    // The key is untouched, and will be: the fence that has fallen stands in the way of the first attempt, too.
    matches!(txn.expect, Expect::At(expected) if found.mod_revision == expected as i64).then_some(answer)
}

/// What became of a compare-and-swap. What was read because it failed comes in the order in which it was compared.
fn outcome(keys: &Keys, answer: TxnResponse) -> Outcome {
    if answer.succeeded {
        return Outcome::Committed(header(answer.header.as_ref()));
    }
    Outcome::Conflict(answer.responses.into_iter().next().and_then(|read| found(keys, read)))
}

/// The same behind a fence. Where neither key is as expected, the fence is what counts.
fn fenced(keys: &Keys, fence: &Fence, mut answer: TxnResponse) -> Fenced {
    if answer.succeeded {
        return Fenced::Stood(outcome(keys, answer));
    }
    let judged = if answer.responses.len() > 1 { found(keys, answer.responses.swap_remove(1)) } else { None };
    if judged.as_ref().is_some_and(|judged| judged.revision == fence.revision) {
        Fenced::Stood(outcome(keys, answer))
    } else {
        Fenced::Fell(judged)
    }
}

fn found(keys: &Keys, read: ResponseOp) -> Option<Record> {
    read.range?.kvs.into_iter().find_map(|kv| keys.record(kv))
}

fn header(header: Option<&proto::ResponseHeader>) -> Revision {
    header.map_or(0, |header| header.revision as u64)
}

/// The first key of a range; etcd writes "from the very first" as a zero byte.
fn start_of(prefix: &str, after: Option<&str>) -> Vec<u8> {
    match after {
        Some(after) if after >= prefix => [after.as_bytes(), &[0]].concat(),
        _ if prefix.is_empty() => vec![0],
        _ => prefix.into(),
    }
}

/// The first key after all that start with `prefix`; etcd writes "to the very last" as a zero byte.
fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    vec![0]
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn ranges_are_etcd_s_half_open_ones() {
        assert_eq!((start_of("/a/", None), end_of("/a/")), (b"/a/".to_vec(), b"/a0".to_vec()));
        assert_eq!((start_of("", None), end_of("")), (vec![0], vec![0]));
        assert_eq!(start_of("/a/", Some("/a/b")), b"/a/b\0");
        assert_eq!(start_of("/a/", Some("/")), b"/a/");
    }

    #[test]
    fn a_write_that_was_sent_twice_is_known_to_be_done_or_not_or_its_end_is_not_known() {
        let put = Txn {
            key: "/registry/k".into(),
            expect: Expect::At(4),
            op: Op::Put { value: "{\"by\":\"me\"}".into(), ttl: None },
            write: None,
            note: Default::default(),
        };
        let Op::Put { value, .. } = &put.op else { unreachable!("it is a put") };
        let mark = Mark::draw(value);
        let (marked, theirs) = (mark.expect("a document").on(value), Bytes::from("{\"by\":\"them\"}"));
        let answer = |revision, value: &Bytes| {
            let kv = proto::KeyValue { mod_revision: revision, value: value.to_vec(), ..Default::default() };
            let range = RangeResponse { kvs: vec![kv], ..Default::default() };
            let header = Some(proto::ResponseHeader { revision: 9, raft_term: 2 });
            TxnResponse { header, succeeded: false, responses: vec![ResponseOp { range: Some(range) }] }
        };
        let became =
            |answer| settled(&put, mark, answer).map(|answer| (answer.succeeded, header(answer.header.as_ref())));
        let done = TxnResponse { succeeded: true, responses: Vec::new(), ..answer(0, &theirs) };
        assert_eq!(became(done), Some((true, 9)), "the second attempt did it, so the first never will");
        assert_eq!(became(answer(7, &marked)), Some((true, 7)), "the first attempt did it");
        assert_eq!(became(answer(7, &theirs)), None, "it may have been written over");
        assert_eq!(became(answer(7, value)), None, "somebody else may have written the same");
        assert_eq!(became(answer(4, &theirs)), Some((false, 9)), "the fence fell before it");
        assert_eq!(became(answer(4, value)), Some((false, 9)), "what was there was to be written again");
        let gone =
            TxnResponse { responses: vec![ResponseOp { range: Some(RangeResponse::default()) }], ..answer(0, &theirs) };
        assert_eq!(became(gone), None, "it may have been deleted afterwards");
    }

    #[test]
    fn an_absent_key_is_compared_with_an_explicit_zero() {
        use prost::Message;
        let txn =
            Txn { key: "k".into(), expect: Expect::Absent, op: Op::Delete, write: None, note: Default::default() };
        let compare = request(&Keys::default(), &txn, None, None, 0).compare.remove(0);
        // Key, then the target, then tag 6 with its value: a oneof member is sent even when it is 0.
        assert_eq!(compare.encode_to_vec(), [0x10, 2, 0x1a, 1, b'k', 0x30, 0]);
    }
}
