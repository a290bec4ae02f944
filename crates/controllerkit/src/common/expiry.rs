//! Objects that go when their time is over.

use std::time::Duration;

use informer::clock;
use jiff::Timestamp;

/// What becomes of an object with this end.
#[derive(Debug, PartialEq, Eq)]
pub enum Expiry {
    Never,
    In(Duration),
    Now,
}

pub fn expiry(end: Option<Timestamp>, now: Timestamp) -> Expiry {
    match end.map(|end| clock::since(end, now)) {
        None => Expiry::Never,
        Some(left) if left.is_zero() => Expiry::Now,
        Some(left) => Expiry::In(left),
    }
}
