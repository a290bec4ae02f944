//! Spans of the twelve hops, from the keystroke to the served pod, in a bounded ring in memory.
//!
//! A hop is reported once it is over, with where it began and what it was about. Reporting takes one short lock and no
//! allocation beyond the strings handed in, so it may sit on the hottest path. Names are stable: tools read them.

use std::collections::VecDeque;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;

/// How many spans are remembered; older ones go first.
const CAPACITY: usize = 16_384;

/// A stage on the way of a request or of what it caused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Hop {
    /// Who is it?
    Authenticate,
    /// May they now, or must they wait?
    FlowControl,
    /// May they?
    Authorize,
    /// Bytes to object.
    Decode,
    /// Mutating admission.
    Mutate,
    /// Schema and validation.
    Validate,
    /// Validating admission.
    Admit,
    /// The durable write.
    Commit,
    /// From the commit to every watcher.
    FanOut,
    /// One turn of a controller.
    Reconcile,
    /// Choosing a node.
    Schedule,
    /// Writing the choice.
    Bind,
    /// Pod sandbox, its network included.
    Sandbox,
    /// An image pull.
    Pull,
    /// Container creation.
    CreateContainer,
    /// Container start.
    StartContainer,
    /// Pod status on its way to the API server.
    Status,
    /// Endpoint to packet rules.
    Endpoint,
}

impl Hop {
    /// The stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Authenticate => "authenticate",
            Self::FlowControl => "flow-control",
            Self::Authorize => "authorize",
            Self::Decode => "decode",
            Self::Mutate => "mutate",
            Self::Validate => "validate",
            Self::Admit => "admit",
            Self::Commit => "commit",
            Self::FanOut => "fan-out",
            Self::Reconcile => "reconcile",
            Self::Schedule => "schedule",
            Self::Bind => "bind",
            Self::Sandbox => "sandbox",
            Self::Pull => "pull",
            Self::CreateContainer => "create-container",
            Self::StartContainer => "start-container",
            Self::Status => "status",
            Self::Endpoint => "endpoint",
        }
    }
}

/// One hop that is over.
#[derive(Debug, Clone)]
pub struct Span {
    /// Which.
    pub hop: Hop,
    /// The verb or the operation, such as `create`.
    pub verb: &'static str,
    /// The object's uid, where one is known by then.
    pub uid: Box<str>,
    /// The uid of the object's controller, where it has one.
    pub owner: Box<str>,
    /// The revision written or seen; 0 where there is none.
    pub revision: u64,
    /// When it began.
    pub start: SystemTime,
    /// How long it took.
    pub took: Duration,
}

/// A hop under way.
#[derive(Debug)]
pub struct Timer {
    hop: Hop,
    verb: &'static str,
    wall: SystemTime,
    start: Instant,
}

/// Starts a hop.
pub fn start(hop: Hop, verb: &'static str) -> Timer {
    Timer { hop, verb, wall: SystemTime::now(), start: Instant::now() }
}

impl Timer {
    /// Ends the hop and reports it.
    pub fn end(self, uid: &str, owner: &str, revision: u64) {
        let span = Span {
            hop: self.hop,
            verb: self.verb,
            uid: uid.into(),
            owner: owner.into(),
            revision,
            start: self.wall,
            took: self.start.elapsed(),
        };
        let mut ring = ring().lock();
        if ring.len() == CAPACITY {
            ring.pop_front();
        }
        ring.push_back(span);
    }
}

/// The remembered spans that are about this uid, as object or as owner, oldest first.
pub fn about(uid: &str) -> Vec<Span> {
    ring().lock().iter().filter(|span| *span.uid == *uid || *span.owner == *uid).cloned().collect()
}

fn ring() -> &'static Mutex<VecDeque<Span>> {
    static RING: OnceLock<Mutex<VecDeque<Span>>> = OnceLock::new();
    RING.get_or_init(Mutex::default)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_is_bounded_and_answers_by_object_and_owner() {
        for number in 0..CAPACITY as u64 + 10 {
            start(Hop::Commit, "create").end("filler", "", number);
        }
        start(Hop::Commit, "create").end("pod-1", "set-1", 7);
        start(Hop::Bind, "create").end("pod-1", "", 8);
        assert!(ring().lock().len() <= CAPACITY);
        let hops: Vec<&str> = about("pod-1").iter().map(|span| span.hop.name()).collect();
        assert_eq!(hops, ["commit", "bind"]);
        assert_eq!(about("set-1").len(), 1);
    }
}
