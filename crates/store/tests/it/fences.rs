//! Cases of the contract: writes that depend on another key.

use futures::future::join_all;
use store::{Expect, Fence, Fenced, Op, Outcome};

use crate::contract::{committed, put};
use crate::support::Fixture;

pub async fn a_write_behind_a_fence_needs_the_other_key_as_it_was(f: Fixture) {
    let fence = |revision| Fence { key: f.key("lease").into(), revision };
    let before = f.revision().await;
    let without = f.txn_behind(fence(before), "a", Expect::Absent, put("one")).await;
    assert_eq!(without, Fenced::Fell(None), "a lease that is not there is nobody's");
    let mine = f.put("lease", "mine").await;
    let Fenced::Stood(Outcome::Committed(first)) = f.txn_behind(fence(mine), "a", Expect::Absent, put("one")).await
    else {
        panic!("the lease is as it was")
    };
    assert_eq!((first, f.get("lease").await.unwrap().revision), (mine + 1, mine), "the lease is not written");
    let held = f.get("a").await;
    let conflict = f.txn_behind(fence(mine), "a", Expect::Absent, put("two")).await;
    assert_eq!(conflict, Fenced::Stood(Outcome::Conflict(held.clone())));
    f.put("lease", "theirs").await;
    let theirs = f.get("lease").await;
    let now = f.revision().await;
    // Whatever the key itself is: it is the lease that counts.
    for (expect, op) in [(Expect::At(first), put("two")), (Expect::At(first), Op::Delete), (Expect::Absent, put("two"))]
    {
        assert_eq!(f.txn_behind(fence(mine), "a", expect, op).await, Fenced::Fell(theirs.clone()));
    }
    f.delete("lease").await;
    assert_eq!(f.txn_behind(fence(mine), "a", Expect::At(first), Op::Delete).await, Fenced::Fell(None));
    assert_eq!((f.get("a").await, f.revision().await), (held, now + 1), "nothing but the lease was written");
    let again = f.put("lease", "mine").await;
    let deleted = f.txn_behind(fence(again), "a", Expect::At(first), Op::Delete).await;
    assert_eq!(deleted, Fenced::Stood(Outcome::Committed(again + 1)));
}

/// A holder writes as fast as it can while another takes its lease: no write of the first has a revision after that.
pub async fn of_a_deposed_holder_nothing_is_written_however_close_it_is(f: Fixture) {
    for round in 0..20 {
        let mine = f.put("lease", format!("mine {round}")).await;
        let writers = (0..8).map(|writer| {
            let f = f.clone();
            async move {
                let mut last = 0;
                for number in 0.. {
                    let fence = Fence { key: f.key("lease").into(), revision: mine };
                    let name = format!("{round}-{writer}-{number}");
                    match f.txn_behind(fence, &name, Expect::Absent, put("v")).await {
                        Fenced::Stood(outcome) => last = committed(Ok(outcome)),
                        Fenced::Fell(_) => break,
                    }
                }
                last
            }
        });
        let (last, theirs) = tokio::join!(join_all(writers), f.put("lease", "theirs"));
        assert!(last.iter().all(|last| *last < theirs), "{last:?} and {theirs}");
    }
}
