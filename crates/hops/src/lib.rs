//! Spans of the twelve hops, from the keystroke to the served pod, in a bounded ring in memory.
//!
//! A hop is reported once it is over: what it was, which object it was about, who owns that, and how long it took. Finer stages are
//! children of a hop ([`Stage`]). The gates of the API server work before an object has a uid; their spans name the request
//! ([`Trace`]), and so does the commit, which knows both: [`about`] puts them together.
//!
//! Reporting reads the clock twice and stores twelve words: no lock, no allocation, no string. A span takes a slot of the ring by
//! counting up; who finds a slot being written by somebody a whole round behind leaves its span out. Readers take a slot only if nobody wrote
//! it meanwhile. What a hop decided is said in words only where there is something to say ([`Note`]).
//!
//! Where somebody wants them, spans are exported too, under W3C's trace context ([`export`]).

use std::collections::HashSet;
use std::fmt;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::{Duration, Instant, SystemTime};

mod context;
pub mod export;
mod label;
mod names;
mod notes;
mod trail;
mod turn;

pub use context::{Context, Rate, TRACEPARENT};
pub use label::{Label, label};
pub use names::{Hop, Stage};
pub use notes::Note;
pub use trail::trail;
pub use turn::{Decided, collects, current, decided, scope, turn, wrote};

/// How many spans are remembered; older ones go first.
const CAPACITY: usize = 16_384;

/// How far down owners are followed.
const GENERATIONS: usize = 2;

/// An object's uid as a number: the hexadecimal digits of it, which for a UUID and for the hash of a static pod are all of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Uid(u128);

impl Uid {
    /// Of a text; none of an empty one.
    pub fn of(text: &str) -> Self {
        // Two halves: shifting a hundred and twenty-eight bits once a letter is most of what a span costs.
        let (mut high, mut low) = (0_u64, 0_u64);
        for byte in text.bytes().filter(|byte| *byte != b'-') {
            // Digits and letters of either case; of what is no UUID, whatever tells it from others.
            let digit = (byte & 0xf) + 9 * (byte >> 6);
            high = (high << 4) | (low >> 60);
            low = (low << 4) ^ u64::from(digit);
        }
        Self::from_halves(high, low)
    }

    /// Whether nobody is named.
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    const fn halves(self) -> [u64; 2] {
        [(self.0 >> 64) as u64, self.0 as u64]
    }

    const fn from_halves(high: u64, low: u64) -> Self {
        Self(((high as u128) << 64) | low as u128)
    }
}

impl fmt::Display for Uid {
    /// As UUIDs are written; nothing for none.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() {
            return Ok(());
        }
        let text = format!("{:032x}", self.0);
        write!(f, "{}-{}-{}-{}-{}", &text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..])
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What ties the spans of one request together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Trace {
    number: u64,
    /// The span of the request itself, where it belongs to a trace of many processes.
    context: Context,
    parent: u64,
    link: Option<Context>,
}

impl Trace {
    pub fn begin() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self { number: NEXT.fetch_add(1, Ordering::Relaxed), ..Self::default() }
    }

    /// Says what context the request came with, and whether the sender is believed: then the request is a part of that trace. Otherwise it begins
    /// one of its own that is linked with it, so that a stranger does not decide what is exported.
    pub fn serve(&mut self, given: Option<Context>, believed: bool) {
        (self.context, self.parent, self.link) = export::served(given, believed);
    }

    /// The span of the request; none where it belongs to no trace.
    pub fn context(&self) -> Context {
        self.context
    }

    /// The span that the request is within, 0 for none, and the one that it is only linked with.
    pub fn around(&self) -> (u64, Option<Context>) {
        (self.parent, self.link)
    }
}

/// One hop, or a stage of one, that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    pub hop: Hop,
    /// Which part of it, if it is not the whole.
    pub stage: Option<Stage>,
    /// The verb or the operation, such as `create`.
    pub verb: &'static str,
    /// Who did it, where the hop alone does not say: a webhook, a policy, a controller, a container. Empty otherwise.
    pub by: &'static str,
    /// The object, where one is known by then.
    pub uid: Uid,
    /// The object's controller, where it has one.
    pub owner: Uid,
    /// The number of the request that it is a part of; 0 if it is a part of none.
    pub request: u64,
    /// The revision written or seen; 0 where there is none.
    pub revision: u64,
    /// How much: bytes of an image, writes of a commit's group. [`Span::unit`] says of what; 0 where nobody counts.
    pub amount: u64,
    /// What was decided.
    pub note: Note,
    pub start: SystemTime,
    /// How long it took.
    pub took: Duration,
}

impl Span {
    /// What its amount counts.
    pub fn unit(&self) -> Option<&'static str> {
        match (self.hop, self.stage) {
            (_, Some(Stage::Pull)) => Some("bytes"),
            (Hop::Commit, None) => Some("writes"),
            (_, Some(Stage::Schedule)) => Some("nodes"),
            _ => None,
        }
    }
}

/// A hop under way.
#[derive(Debug, Clone, Copy)]
pub struct Timer {
    hop: Hop,
    stage: Option<Stage>,
    verb: u8,
    by: Label,
    request: u64,
    /// Its own place in a trace of many processes.
    context: Context,
    parent: u64,
    amount: u64,
    note: Note,
    start: Instant,
}

pub fn start(hop: Hop, verb: &str) -> Timer {
    Timer {
        hop,
        stage: None,
        verb: names::verb_number(verb),
        by: Label::default(),
        request: 0,
        context: Context::default(),
        parent: 0,
        amount: 0,
        note: Note::default(),
        start: Instant::now(),
    }
}

/// Starts a part of a hop.
pub fn stage(stage: Stage, verb: &str) -> Timer {
    Timer { stage: Some(stage), ..start(stage.hop(), verb) }
}

impl Timer {
    /// Says which request it is a part of.
    pub fn within(mut self, trace: Trace) -> Self {
        self.request = trace.number;
        self.after(trace.context)
    }

    /// Says which span it is a part or a consequence of.
    pub fn after(mut self, context: Context) -> Self {
        if context.sampled {
            (self.context, self.parent) = (context.child(), context.span);
        } else {
            // It is passed on all the same.
            self.context = context;
        }
        self
    }

    /// Says that it is a part of a pod's start.
    pub fn of_pod(self, uid: &str) -> Self {
        self.after(export::within_pod(Uid::of(uid)))
    }

    /// Its own place, for those who work for it.
    pub fn context(&self) -> Context {
        self.context
    }

    /// Says that what happens to this object from now on is a consequence of it. The object's controller began earlier, if at all.
    pub fn causes(&self, uid: &str, owner: &str) {
        if self.context.sampled {
            export::cause(Uid::of(uid), self.context, Uid::of(owner));
        }
    }

    /// Says how much.
    pub fn amount(mut self, amount: u64) -> Self {
        self.amount = amount;
        self
    }

    /// Says what was decided.
    pub fn note(mut self, note: Note) -> Self {
        self.note = note;
        self
    }

    /// Says who does it.
    pub fn by(mut self, label: Label) -> Self {
        self.by = label;
        self
    }

    /// Says that it began so long before it was started here.
    pub fn since(mut self, ago: Duration) -> Self {
        self.start = self.start.checked_sub(ago).unwrap_or(self.start);
        self
    }

    /// Ends the hop and reports it.
    pub fn end(self, uid: &str, owner: &str, revision: u64) {
        self.end_of(Uid::of(uid), Uid::of(owner), revision);
    }

    /// As [`Self::end`], for who has numbers.
    pub fn end_of(self, uid: Uid, owner: Uid, revision: u64) {
        let took = self.start.elapsed();
        let began = self.start.saturating_duration_since(EPOCH.1);
        let what = u64::from(self.by.number()) << 24
            | u64::from(self.hop.number()) << 16
            | u64::from(self.stage.map_or(0, |stage| stage.index() + 1)) << 8
            | u64::from(self.verb);
        let ([uid_high, uid_low], [owner_high, owner_low]) = (uid.halves(), owner.halves());
        let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let (amount, note) = (self.amount, self.note.number());
        let times = [nanos(began), nanos(took)];
        let words =
            [what, uid_high, uid_low, owner_high, owner_low, self.request, revision, times[0], times[1], amount, note];
        RING.put(words);
        if export::wanted() {
            let placed = export::Placed { own: self.context, parent: self.parent };
            read(words).iter().for_each(|span| export::hand_on(span, placed));
        }
    }

    /// Ends the hop of a request whose object has no uid yet.
    pub fn end_unnamed(self) {
        self.end_of(Uid::default(), Uid::default(), 0);
    }
}

/// The remembered spans that are about this uid or what it owns, and those of the requests that wrote these; oldest first.
pub fn about(uid: &str) -> Vec<Span> {
    let uid = Uid::of(uid);
    if uid.is_none() {
        return Vec::new();
    }
    let all = RING.all();
    let mut family = HashSet::from([uid]);
    // A Deployment owns a ReplicaSet, which owns pods.
    for _ in 0..GENERATIONS {
        let owned: Vec<Uid> = all
            .iter()
            .filter(|span| family.contains(&span.owner) && !span.uid.is_none())
            .map(|span| span.uid)
            .collect();
        family.extend(owned);
    }
    let concerns = |span: &Span| family.contains(&span.uid) || family.contains(&span.owner);
    let requests: HashSet<u64> =
        all.iter().filter(|span| concerns(span) && span.request != 0).map(|span| span.request).collect();
    let of_request = |span: &Span| span.uid.is_none() && requests.contains(&span.request);
    let mut found: Vec<Span> = all.into_iter().filter(|span| concerns(span) || of_request(span)).collect();
    found.sort_by_key(|span| (span.start, span.hop.number()));
    found
}

/// When the process looked at both clocks: spans hold how long after it they began.
static EPOCH: LazyLock<(SystemTime, Instant)> = LazyLock::new(|| (SystemTime::now(), Instant::now()));

const WORDS: usize = 11;

/// One span as numbers. `turn` is odd while it is written.
struct Slot {
    turn: AtomicU64,
    words: [AtomicU64; WORDS],
}

struct Ring {
    next: AtomicU64,
    slots: [Slot; CAPACITY],
}

/// In the pages that the kernel makes when they are first touched: a process without spans has none.
static RING: Ring = Ring {
    next: AtomicU64::new(0),
    slots: [const { Slot { turn: AtomicU64::new(0), words: [const { AtomicU64::new(0) }; WORDS] } }; CAPACITY],
};

impl Ring {
    fn put(&self, words: [u64; WORDS]) {
        let at = self.next.fetch_add(1, Ordering::Relaxed);
        let slot = &self.slots[(at % CAPACITY as u64) as usize];
        let turn = slot.turn.load(Ordering::Relaxed);
        let taken = turn.is_multiple_of(2)
            && slot.turn.compare_exchange(turn, turn + 1, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if !taken {
            return;
        }
        fence(Ordering::Release);
        for (place, word) in slot.words.iter().zip(words) {
            place.store(word, Ordering::Relaxed);
        }
        slot.turn.store(turn + 2, Ordering::Release);
    }

    fn all(&self) -> Vec<Span> {
        self.slots.iter().filter_map(Slot::read).collect()
    }
}

impl Slot {
    fn read(&self) -> Option<Span> {
        let turn = self.turn.load(Ordering::Acquire);
        if turn == 0 || turn % 2 == 1 {
            return None;
        }
        let words = std::array::from_fn(|at| self.words[at].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        if self.turn.load(Ordering::Relaxed) != turn {
            return None;
        }
        read(words)
    }
}

/// A span of its numbers.
fn read(words: [u64; WORDS]) -> Option<Span> {
    let [what, uid_high, uid_low, owner_high, owner_low, request, revision, began, took, amount, note] = words;
    Some(Span {
        hop: Hop::from_number((what >> 16) as u8)?,
        stage: Stage::from_index(((what >> 8) as u8).wrapping_sub(1)),
        verb: names::verb_name(what as u8),
        by: Label::from_number((what >> 24) as u16).name(),
        uid: Uid::from_halves(uid_high, uid_low),
        owner: Uid::from_halves(owner_high, owner_low),
        request,
        revision,
        amount,
        note: Note::from_number(note),
        start: EPOCH.0 + Duration::from_nanos(began),
        took: Duration::from_nanos(took),
    })
}

#[cfg(test)]
mod tests;
