//! Moving a store from the embedded engine into an etcd and back, while no server has either open.
//!
//! Objects keep their revisions: `resourceVersion` is what clients compare and resume from, and one that counted from the beginning again would let old ones
//! pass for new. An etcd counts its own writes, so a fresh one is given as many as it takes: each object is written at the very revision that it had, and
//! what lies between is filled with writes of a key that is gone in the end. History before the last revision does not move: who resumes from an earlier one
//! is told `410 Gone`, and reads everything again.

use std::collections::HashMap;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};

use super::proto::{
    DeleteRangeRequest, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse, Nothing, PutRequest, RangeRequest,
};
use super::{Etcd, Repeat, client, end_of, header, start_of};
use crate::admin::{self, Summary};
use crate::embedded::{self, ORIGIN, Snapshot};
use crate::{Error, Expect, Op, Outcome, Record, Revision, Store, Txn};

const PUT: &str = "/etcdserverpb.KV/Put";
const DELETE: &str = "/etcdserverpb.KV/DeleteRange";
const TIME_TO_LIVE: &str = "/etcdserverpb.Lease/LeaseTimeToLive";
/// What revisions between objects are filled with.
const FILLER: &str = "/trireme.moving";
/// Writes under way at once, where their order does not matter.
const AT_ONCE: usize = 256;
const PAGE: usize = 5_000;

/// Writes everything in the embedded store at `dir`, which nobody has open, into a fresh etcd.
pub async fn to_etcd(dir: &Path, etcd: &Etcd) -> Result<Summary, Error> {
    let (mut snapshot, summary) = embedded::inspect(dir)?;
    if etcd.revision().await? != ORIGIN {
        return Err(Error::Unavailable(
            "this etcd has been written to already: only a fresh one can be moved into".into(),
        ));
    }
    snapshot.records.sort_unstable_by_key(|(record, _)| record.revision);
    let now = milliseconds();
    let mut reached = ORIGIN;
    for (record, expires) in snapshot.records {
        fill(etcd, &mut reached, record.revision - 1).await?;
        let ttl = (expires != 0).then(|| (expires.saturating_sub(now) / 1000).max(1));
        let (key, op) = (record.key, Op::Put { value: record.value, ttl });
        match etcd.txn(Txn { key, expect: Expect::Absent, op, write: None, note: Default::default() }).await? {
            Outcome::Committed(revision) if revision == record.revision => reached = revision,
            _ => return Err(Error::Unavailable("somebody else writes into this etcd".into())),
        }
    }
    fill(etcd, &mut reached, snapshot.revision).await?;
    let gone = DeleteRangeRequest { key: FILLER.into() };
    etcd.client.call::<_, Nothing>(DELETE, gone, Repeat::IfUnsent).await.map_err(|status| client::error(&status))?;
    // Who has seen everything up to the end resumes there; who has not cannot.
    if snapshot.revision > ORIGIN + 1 {
        etcd.compact(snapshot.revision - 1).await?;
    }
    Ok(summary)
}

/// Takes up every revision until this one.
async fn fill(etcd: &Etcd, reached: &mut Revision, until: Revision) -> Result<(), Error> {
    let put = |_| async {
        let request = PutRequest { key: FILLER.into(), value: Bytes::new(), lease: 0 };
        etcd.client.call::<_, Nothing>(PUT, request, Repeat::IfUnsent).await.map_err(|status| client::error(&status))
    };
    futures::stream::iter(*reached..until).map(put).buffer_unordered(AT_ONCE).try_collect::<Vec<_>>().await?;
    *reached = until.max(*reached);
    Ok(())
}

/// Writes everything in an etcd into a new embedded store at `dir`.
pub async fn to_embedded(etcd: &Etcd, dir: &Path) -> Result<Summary, Error> {
    let (mut records, mut revision, mut after): (Vec<(Record, i64)>, Revision, Option<String>) = Default::default();
    let keys = &etcd.client.keys;
    let prefix = keys.theirs("/registry/");
    loop {
        let request = RangeRequest {
            key: start_of(&prefix, after.as_deref().map(|after| keys.theirs(after)).as_deref()),
            range_end: end_of(&prefix),
            limit: PAGE as i64,
            revision: revision as i64,
            count_only: false,
        };
        let answer = etcd.range_call(request).await.map_err(|status| client::error(&status))?;
        if revision == 0 {
            revision = header(answer.header.as_ref());
        }
        let more = answer.count > answer.kvs.len() as i64;
        for kv in answer.kvs {
            let lease = kv.lease;
            records.extend(keys.record(kv).map(|record| (record, lease)));
        }
        after = records.last().map(|(record, _)| record.key.to_string());
        if !more {
            break;
        }
    }
    let mut ends: HashMap<i64, u64> = HashMap::from([(0, 0)]);
    for (_, lease) in &records {
        if !ends.contains_key(lease) {
            ends.insert(*lease, end(etcd, *lease).await?);
        }
    }
    let records = records.into_iter().map(|(record, lease)| (record, ends.get(&lease).copied().unwrap_or(0))).collect();
    embedded::private_directory(dir).map_err(|error| Error::Unavailable(format!("{}: {error}", dir.display())))?;
    let file = dir.with_extension("moving");
    admin::write_backup(&file, Snapshot { revision, records })?;
    let restored = admin::restore(&file, dir);
    let _ = std::fs::remove_file(&file);
    restored
}

/// When a lease ends.
async fn end(etcd: &Etcd, lease: i64) -> Result<u64, Error> {
    let request = LeaseTimeToLiveRequest { id: lease };
    let answer: LeaseTimeToLiveResponse =
        etcd.client.call(TIME_TO_LIVE, request, Repeat::Freely).await.map_err(|status| client::error(&status))?;
    Ok(milliseconds() + 1000 * u64::try_from(answer.ttl).unwrap_or(1).max(1))
}

/// Since 1970, as the embedded store counts.
fn milliseconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
