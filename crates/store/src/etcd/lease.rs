//! Leases for keys that expire. Keys of about the same life share one: a lease per event would cost etcd more than the event.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tonic::Status;

use super::client::{Client, Repeat};
use super::proto::{LeaseGrantRequest, LeaseGrantResponse};

/// A lease outlives the keys it was made for by at most this, and at most by a twentieth of their life.
const EXTRA: u64 = 60;
/// Keys that share a lease.
const KEYS: u32 = 1000;
/// Different lives remembered. There are two in a cluster; others come and go.
const LIVES: usize = 16;

#[derive(Debug, Clone, Copy)]
struct Lease {
    id: i64,
    ttl: u64,
    expires: Instant,
    keys: u32,
}

impl Lease {
    /// Does it end neither before nor much after a key made now that lives for `ttl`?
    fn serves(&self, ttl: u64, now: Instant) -> bool {
        let end = now + Duration::from_secs(ttl);
        self.ttl == ttl && self.keys < KEYS && self.expires >= end
    }
}

/// The leases in use.
#[derive(Debug, Default)]
pub(super) struct Leases {
    shared: Mutex<Vec<Lease>>,
}

impl Leases {
    /// A lease for one more key that lives for `ttl` seconds.
    pub(super) async fn get(&self, client: &Client, ttl: u64) -> Result<i64, Status> {
        let ttl = ttl.max(1);
        {
            let (now, mut shared) = (Instant::now(), self.shared.lock());
            if let Some(lease) = shared.iter_mut().find(|lease| lease.serves(ttl, now)) {
                lease.keys += 1;
                return Ok(lease.id);
            }
        }
        let granted = ttl.saturating_add(extra(ttl));
        let request = LeaseGrantRequest { ttl: i64::try_from(granted).unwrap_or(i64::MAX) };
        // Counted from before the grant, so that it is never thought to last longer than it does.
        let now = Instant::now();
        let answer: LeaseGrantResponse = client.call("/etcdserverpb.Lease/LeaseGrant", request, Repeat::Freely).await?;
        if extra(ttl) > 0 {
            let mut shared = self.shared.lock();
            shared.retain(|lease| lease.ttl != ttl && lease.expires > now);
            if shared.len() >= LIVES {
                shared.remove(0);
            }
            shared.push(Lease { id: answer.id, ttl, expires: now + Duration::from_secs(granted), keys: 1 });
        }
        Ok(answer.id)
    }

    /// Forgets a lease that etcd does not know (any more).
    pub(super) fn forget(&self, id: i64) {
        self.shared.lock().retain(|lease| lease.id != id);
    }
}

fn extra(ttl: u64) -> u64 {
    (ttl / 20).min(EXTRA)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_shared_while_it_lasts_long_enough() {
        let made = Instant::now();
        let lease = Lease { id: 1, ttl: 3600, expires: made + Duration::from_secs(3660), keys: 1 };
        assert!(lease.serves(3600, made));
        assert!(lease.serves(3600, made + Duration::from_secs(60)));
        assert!(!lease.serves(3600, made + Duration::from_secs(61)));
        assert!(!lease.serves(3500, made), "a shorter life has its own");
        assert!(!Lease { keys: KEYS, ..lease }.serves(3600, made));
    }

    #[test]
    fn short_lives_are_not_stretched() {
        assert_eq!([1, 19, 20, 600, 3600, u64::MAX].map(extra), [0, 0, 1, 30, 60, 60]);
    }
}
