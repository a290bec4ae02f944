//! Answers of other servers, for as long as they may be remembered, and never more than so many.
//!
//! Two generations: new answers go into the young one; when that is full it becomes the old one and what was old is
//! forgotten. An answer asked for again moves to the young one. So the bound costs no bookkeeping per answer, and what
//! is in use stays.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::{Name, RData, RecordType};

use crate::answer::Reply;

/// Answers remembered per generation.
const GENERATION: usize = 5_000;
/// No answer is remembered for longer, whatever it says of itself: pods expect changes outside to arrive.
const LONGEST: Duration = Duration::from_secs(30);
/// How long a failure is remembered, so that a dead server is not asked for every packet.
const FAILURE: Duration = Duration::from_secs(5);

/// What was asked: name (in lower case), type, and whether signatures were wanted.
pub type Key = (Name, RecordType, bool);

#[derive(Debug, Default)]
pub struct Cache {
    young: HashMap<Key, Arc<Remembered>>,
    old: HashMap<Key, Arc<Remembered>>,
}

#[derive(Debug)]
struct Remembered {
    reply: Reply,
    since: Instant,
    until: Instant,
}

impl Cache {
    /// The answer to a question, its records' times reduced by its age.
    pub fn get(&mut self, key: &Key, now: Instant) -> Option<Reply> {
        let found = match self.young.get(key) {
            Some(found) => found.clone(),
            None => {
                let found = self.old.remove(key)?;
                self.insert(key.clone(), found.clone());
                found
            }
        };
        if found.until <= now {
            self.young.remove(key);
            return None;
        }
        let mut reply = found.reply.clone();
        let age = u32::try_from(now.duration_since(found.since).as_secs()).unwrap_or(u32::MAX);
        let records = reply.answers.iter_mut().chain(&mut reply.authorities).chain(&mut reply.additionals);
        records.for_each(|record| record.ttl = record.ttl.saturating_sub(age));
        Some(reply)
    }

    /// Remembers an answer for as long as it allows.
    pub fn put(&mut self, key: Key, reply: &Reply, now: Instant) {
        let lifetime = lifetime(reply);
        if !lifetime.is_zero() {
            self.insert(key, Arc::new(Remembered { reply: reply.clone(), since: now, until: now + lifetime }));
        }
    }

    fn insert(&mut self, key: Key, remembered: Arc<Remembered>) {
        if self.young.len() >= GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, remembered);
    }
}

/// The shortest time of an answer's records; for "no such name" and "no such record" what the zone's SOA says.
fn lifetime(reply: &Reply) -> Duration {
    let negative = || {
        reply.authorities.iter().find_map(|record| match &record.data {
            RData::SOA(soa) => Some(soa.minimum.min(record.ttl)),
            _ => None,
        })
    };
    let seconds = match reply.code {
        ResponseCode::NoError if !reply.answers.is_empty() => reply.answers.iter().map(|r| r.ttl).min(),
        ResponseCode::NoError | ResponseCode::NXDomain => negative(),
        ResponseCode::ServFail => return FAILURE,
        _ => None,
    };
    Duration::from_secs(seconds.unwrap_or(0).into()).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hickory_proto::rr::Record;
    use hickory_proto::rr::rdata::{A, SOA};

    fn key(n: usize) -> Key {
        (Name::from_ascii(format!("n{n}.example.")).unwrap(), RecordType::A, false)
    }

    fn found(ttl: u32) -> Reply {
        let data = RData::A(A([192, 0, 2, 1].into()));
        Reply { answers: vec![Record::from_rdata(key(0).0, ttl, data)], ..Reply::default() }
    }

    #[test]
    fn an_answer_ages_and_goes() {
        let (mut cache, start) = (Cache::default(), Instant::now());
        cache.put(key(0), &found(20), start);
        let at = |cache: &mut Cache, seconds| {
            cache.get(&key(0), start + Duration::from_secs(seconds)).map(|reply| reply.answers[0].ttl)
        };
        assert_eq!(at(&mut cache, 0), Some(20));
        assert_eq!(at(&mut cache, 15), Some(5));
        assert_eq!(at(&mut cache, 20), None);
        cache.put(key(0), &found(3600), start);
        assert_eq!(at(&mut cache, 29), Some(3571));
        assert_eq!(at(&mut cache, 30), None);
        cache.put(key(0), &found(0), start);
        assert_eq!(at(&mut cache, 0), None);
    }

    #[test]
    fn no_is_remembered_as_long_as_its_zone_says() {
        let check = |code, minimum: Option<u32>, seconds: u64| {
            let soa = minimum.map(|m| SOA::new(key(0).0, key(0).0, 1, 1, 1, 1, m));
            let authorities = soa.map(|soa| Record::from_rdata(key(0).0, 900, RData::SOA(soa))).into_iter().collect();
            let reply = Reply { code, authorities, ..Reply::default() };
            assert_eq!(lifetime(&reply), Duration::from_secs(seconds), "{code:?} {minimum:?}");
        };
        check(ResponseCode::NXDomain, Some(10), 10);
        check(ResponseCode::NoError, Some(10), 10);
        check(ResponseCode::NXDomain, None, 0);
        check(ResponseCode::ServFail, None, 5);
        check(ResponseCode::Refused, Some(10), 0);
    }

    #[test]
    fn the_cache_is_bounded_and_keeps_what_is_asked_for() {
        let (mut cache, now) = (Cache::default(), Instant::now());
        for n in 0..GENERATION * 5 {
            cache.put(key(n), &found(30), now);
            assert!(cache.get(&key(0), now).is_some(), "after {n}");
        }
        assert!(cache.young.len() + cache.old.len() <= GENERATION * 2);
        assert!(cache.get(&key(1), now).is_none());
    }
}
