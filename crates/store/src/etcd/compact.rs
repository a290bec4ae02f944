//! Giving up old history in an etcd that several API servers share, ours or upstream's.
//!
//! They take turns by a compare-and-swap on one key, upstream's `compact_rev_key`: who succeeds compacts to the revision at
//! which it, or whoever was last, succeeded an interval before; who does not has been forestalled and takes note.
//! So history is kept for one interval at least and, with nobody failing, two at most.

use std::sync::Weak;
use std::time::Duration;

use super::Etcd;
use crate::{Error, Expect, Op, Outcome, Revision, Store, Txn};

const KEY: &str = "compact_rev_key";

/// What one turn leaves for the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Turn {
    /// What the key is expected to be.
    expect: Expect,
    /// Where etcd was at the end of this turn; the next one compacts to it.
    reached: Option<Revision>,
}

/// Compacts every `interval` for as long as the store is in use.
pub(super) async fn run(store: Weak<Etcd>, interval: Duration) {
    let mut turn = Turn { expect: Expect::Absent, reached: None };
    loop {
        tokio::time::sleep(interval).await;
        let Some(store) = store.upgrade() else { return };
        match take(&*store, turn).await {
            Ok(next) => turn = next,
            Err(error) => tracing::warn!(%error, "etcd was not compacted; the next turn comes"),
        }
    }
}

async fn take(store: &dyn Store, turn: Turn) -> Result<Turn, Error> {
    let value = turn.reached.unwrap_or(0).to_string().into();
    let txn = Txn {
        key: KEY.into(),
        expect: turn.expect,
        op: Op::Put { value, ttl: None },
        write: None,
        note: Default::default(),
    };
    match store.txn(txn).await? {
        Outcome::Committed(revision) => {
            if let Some(reached) = turn.reached {
                store.compact(reached).await?;
            }
            Ok(Turn { expect: Expect::At(revision), reached: Some(revision) })
        }
        Outcome::Conflict(current) => {
            let expect = current.map_or(Expect::Absent, |record| Expect::At(record.revision));
            Ok(Turn { expect, reached: Some(store.revision().await?) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::{Embedded, Options};

    /// The turns need only what every store promises, so the embedded one can stand in for etcd.
    #[tokio::test]
    async fn servers_take_turns_and_history_lasts_an_interval() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Embedded::open(dir.path(), Options::default()).expect("an empty directory opens");
        let first = Turn { expect: Expect::Absent, reached: None };
        let ours = take(&*store, first).await.expect("our first turn");
        assert_eq!(store.stats().compacted, 1, "nothing is an interval old yet");
        let theirs = take(&*store, first).await.expect("another server's first turn");
        assert_eq!(theirs, ours, "it was forestalled and takes note");
        let next = take(&*store, ours).await.expect("our second turn");
        assert_eq!(Some(store.stats().compacted), ours.reached);
        let forestalled = take(&*store, theirs).await.expect("its second turn");
        assert_eq!(Some(store.stats().compacted), ours.reached, "and does nothing but take note");
        assert_eq!(forestalled, next);
    }
}
