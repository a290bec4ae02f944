//! The seats of all priority levels, and who waits for one. Pure: no task, no clock; whoever holds the lock says what time
//! it is and tells those who got a seat.
//!
//! A level always gets its minimum. What it may lend is shared: a level goes beyond its minimum, up to its maximum, while all
//! levels together (each counted with its minimum, or with what it uses if that is more) stay within the server's limit. So
//! seats that nobody needs are never idle, and nobody waits for a seat of its own because somebody borrowed it.
//!
//! Within a level, requests wait in queues. A flow is dealt a small hand of them, always the same one, and takes the
//! shortest; so a flow that fills its own hand leaves others at least one that is free. The queue that has had the least
//! service (in seat-seconds of virtual time) is served next.

use std::collections::VecDeque;
use std::sync::Arc;

/// What a request is thought to take until it is known, in seconds.
const ESTIMATE: f64 = 0.003;
/// The largest hand that is dealt.
pub const MAX_HAND: usize = 32;

/// Queues of a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queuing {
    pub queues: usize,
    /// How many a flow may use.
    pub hand: usize,
    /// How many requests may wait in each.
    pub length: usize,
}

/// What a level may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Its share of the server's limit.
    pub nominal: u32,
    /// What it never lends.
    pub min: u32,
    /// What it has with all that it may borrow.
    pub max: u32,
    /// Whether it is bound at all.
    pub exempt: bool,
    /// How requests wait; without, they do not.
    pub queuing: Option<Queuing>,
}

/// Why a request is sent away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// There is no seat, and the level has no queues.
    ConcurrencyLimit,
    /// Its queue is full.
    QueueFull,
    /// It waited too long.
    TimeOut,
}

impl Refusal {
    /// As figures name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ConcurrencyLimit => "concurrency-limit",
            Self::QueueFull => "queue-full",
            Self::TimeOut => "time-out",
        }
    }
}

/// Where a request has its seat or waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spot {
    pub level: usize,
    /// The queue, in a level that has some.
    pub queue: usize,
    pub width: u32,
}

/// How an arrival ends.
#[derive(Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It has its seat.
    Seated(Spot),
    /// It waits, under this number.
    Waits(Spot, u64),
    /// It is sent away.
    Refused(Refusal),
}

/// A request that waits.
#[derive(Debug)]
pub struct Waiting<T> {
    pub id: u64,
    /// How many seats it needs.
    pub width: u32,
    /// By whom it is told.
    pub ticket: T,
}

#[derive(Debug)]
pub struct Queue<T> {
    /// Who waits, oldest first.
    pub waiting: VecDeque<Waiting<T>>,
    /// Seats of its requests.
    pub used: u32,
    /// How many of its requests have a seat.
    pub executing: u32,
    /// The virtual time at which its next request starts.
    pub start: f64,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), used: 0, executing: 0, start: 0.0 }
    }
}

#[derive(Debug)]
pub struct Level<T> {
    pub name: Arc<str>,
    /// What it may use.
    pub limits: Limits,
    pub used: u32,
    /// Requests with a seat.
    pub executing: u32,
    pub waiting: u32,
    /// Its queues; a level without any has one that nobody waits in.
    pub queues: Vec<Queue<T>>,
    /// How far its virtual time has come.
    now: f64,
}

#[derive(Debug)]
pub struct Seats<T> {
    total: u32,
    levels: Vec<Option<Level<T>>>,
    waiting: u32,
    next: u64,
}

impl<T> Seats<T> {
    /// So many in all.
    pub fn new(total: u32) -> Self {
        Self { total, levels: Vec::new(), waiting: 0, next: 0 }
    }

    /// Takes in the levels that there are now; their slots, in order. A level that is gone keeps its slot until its last
    /// request has left.
    pub fn configure(&mut self, wanted: &[(Arc<str>, Limits)]) -> Vec<usize> {
        for slot in &mut self.levels {
            let Some(level) = slot else { continue };
            if wanted.iter().any(|(name, _)| *name == level.name) {
                continue;
            }
            if level.used == 0 && level.waiting == 0 {
                *slot = None;
            } else {
                level.limits = Limits { nominal: 0, min: 0, max: self.total, ..level.limits };
            }
        }
        wanted.iter().map(|(name, limits)| self.place(name, *limits)).collect()
    }

    fn place(&mut self, name: &Arc<str>, limits: Limits) -> usize {
        let known = self.levels.iter().position(|level| level.as_ref().is_some_and(|level| level.name == *name));
        let queues = limits.queuing.map_or(1, |queuing| queuing.queues.max(1));
        if let Some(slot) = known {
            let level = self.levels[slot].as_mut().expect("just found");
            level.limits = limits;
            // Queues beyond the new number are dealt to nobody and empty themselves.
            if level.queues.len() < queues {
                level.queues.resize_with(queues, Queue::default);
            }
            return slot;
        }
        let mut list = Vec::new();
        list.resize_with(queues, Queue::default);
        let level = Level { name: name.clone(), limits, used: 0, executing: 0, waiting: 0, queues: list, now: 0.0 };
        match self.levels.iter().position(Option::is_none) {
            Some(free) => {
                self.levels[free] = Some(level);
                free
            }
            None => {
                self.levels.push(Some(level));
                self.levels.len() - 1
            }
        }
    }

    /// The levels that there are.
    pub fn levels(&self) -> impl Iterator<Item = &Level<T>> {
        self.levels.iter().flatten()
    }

    /// How many requests wait in all.
    pub fn waiting(&self) -> u32 {
        self.waiting
    }

    /// How many seats a level could use now.
    pub fn limit(&self, name: &str) -> u32 {
        let Some(level) = self.levels().find(|level| &*level.name == name) else { return 0 };
        let others: u32 = self.reserved(|other| *other.name != *name);
        level.limits.max.min(self.total.saturating_sub(others)).max(level.limits.min)
    }

    fn reserved(&self, counts: impl Fn(&Level<T>) -> bool) -> u32 {
        let bound = self.levels().filter(|level| !level.limits.exempt && counts(level));
        bound.map(|level| level.used.max(level.limits.min)).sum()
    }

    fn has_room(&self, slot: usize, width: u32) -> bool {
        let Some(level) = &self.levels[slot] else { return false };
        let (limits, wanted) = (&level.limits, level.used + width);
        // Even the widest request gets its turn: alone.
        if limits.exempt || wanted <= limits.min || (level.used == 0 && limits.max > 0) {
            return true;
        }
        wanted <= limits.max && self.reserved(|other| !Arc::ptr_eq(&other.name, &level.name)) + wanted <= self.total
    }

    /// A request arrives. `flow` is a hash of its flow.
    pub fn arrive(&mut self, slot: usize, flow: u64, width: u32, ticket: impl FnOnce() -> T) -> Arrival {
        let Some(level) = &self.levels[slot] else { return Arrival::Refused(Refusal::ConcurrencyLimit) };
        let queuing = level.limits.queuing;
        let queue = queuing.map_or(0, |queuing| shortest(level, flow, queuing));
        let spot = Spot { level: slot, queue, width };
        if level.waiting == 0 && self.has_room(slot, width) {
            self.seat(spot);
            return Arrival::Seated(spot);
        }
        let Some(queuing) = queuing else { return Arrival::Refused(Refusal::ConcurrencyLimit) };
        let id = self.next;
        let level = self.levels[slot].as_mut().expect("looked at above");
        let lane = &mut level.queues[queue];
        if lane.waiting.len() >= queuing.length {
            return Arrival::Refused(Refusal::QueueFull);
        }
        if lane.waiting.is_empty() && lane.executing == 0 {
            // A queue that was idle has no claim on the past.
            lane.start = lane.start.max(level.now);
        }
        lane.waiting.push_back(Waiting { id, width, ticket: ticket() });
        level.waiting += 1;
        self.waiting += 1;
        self.next += 1;
        Arrival::Waits(spot, id)
    }

    fn seat(&mut self, spot: Spot) {
        let level = self.levels[spot.level].as_mut().expect("a spot is of a level that is there");
        level.used += spot.width;
        level.executing += 1;
        let queue = &mut level.queues[spot.queue];
        if queue.executing == 0 && queue.waiting.is_empty() {
            queue.start = queue.start.max(level.now);
        }
        queue.used += spot.width;
        queue.executing += 1;
        level.now = level.now.max(queue.start);
        queue.start += f64::from(spot.width) * ESTIMATE;
    }

    /// A request leaves its seats after so many seconds.
    pub fn leave(&mut self, spot: Spot, seconds: f64) {
        let Some(level) = &mut self.levels[spot.level] else { return };
        level.used -= spot.width;
        level.executing -= 1;
        let queue = &mut level.queues[spot.queue];
        queue.used -= spot.width;
        queue.executing -= 1;
        // What was estimated is put right.
        queue.start += f64::from(spot.width) * (seconds - ESTIMATE);
    }

    /// A request stops waiting. Whether it still waited.
    pub fn give_up(&mut self, spot: Spot, id: u64) -> bool {
        let Some(level) = &mut self.levels[spot.level] else { return false };
        let waiting = &mut level.queues[spot.queue].waiting;
        let Some(at) = waiting.iter().position(|request| request.id == id) else { return false };
        waiting.remove(at);
        level.waiting -= 1;
        self.waiting -= 1;
        true
    }

    /// Seats whoever can be seated now; their tickets.
    pub fn dispatch(&mut self) -> Vec<T> {
        let mut seated = Vec::new();
        while self.waiting > 0 {
            let Some(spot) = self.next_spot() else { break };
            self.seat(spot);
            let level = self.levels[spot.level].as_mut().expect("just chosen");
            let request = level.queues[spot.queue].waiting.pop_front().expect("its head was chosen");
            level.waiting -= 1;
            self.waiting -= 1;
            seated.push(request.ticket);
        }
        seated
    }

    /// The next to be seated: of the level that has the least of its share, in the queue that had the least service.
    fn next_spot(&self) -> Option<Spot> {
        let levels = self.levels.iter().enumerate();
        let waiting =
            levels.filter_map(|(slot, level)| Some((slot, level.as_ref().filter(|level| level.waiting > 0)?)));
        let heads = waiting.filter_map(|(slot, level)| {
            let lanes = level.queues.iter().enumerate();
            let heads = lanes.filter_map(|(queue, lane)| Some((queue, lane.start, lane.waiting.front()?.width)));
            let finish = |start: f64, width: u32| start + f64::from(width) * ESTIMATE;
            let (queue, _, width) =
                heads.min_by(|one, other| finish(one.1, one.2).total_cmp(&finish(other.1, other.2)))?;
            let share = f64::from(level.used) / f64::from(level.limits.nominal.max(1));
            self.has_room(slot, width).then_some((share, Spot { level: slot, queue, width }))
        });
        heads.min_by(|one, other| one.0.total_cmp(&other.0)).map(|(_, spot)| spot)
    }
}

/// The queue of a flow's hand with the least work.
fn shortest<T>(level: &Level<T>, flow: u64, queuing: Queuing) -> usize {
    let mut hand = [0; MAX_HAND];
    let hand = deal(flow, queuing.queues, queuing.hand, &mut hand);
    let work = |queue: &Queue<T>| queue.used + queue.waiting.iter().map(|request| request.width).sum::<u32>();
    hand.iter().copied().min_by_key(|queue| work(&level.queues[*queue])).unwrap_or(0)
}

/// Deals a hand of different queues: each card is drawn from those that are left, by the next digits of the hash.
pub fn deal(mut hash: u64, queues: usize, size: usize, hand: &mut [usize; MAX_HAND]) -> &[usize] {
    let size = size.min(queues).min(MAX_HAND);
    for dealt in 0..size {
        let left = (queues - dealt) as u64;
        let mut card = usize::try_from(hash % left).expect("less than the number of queues");
        hash /= left;
        // The cards before it that are not larger are missing from the deck.
        let mut taken: [usize; MAX_HAND] = *hand;
        let taken = &mut taken[..dealt];
        taken.sort_unstable();
        for before in taken.iter() {
            if *before <= card {
                card += 1;
            }
        }
        hand[dealt] = card;
    }
    &hand[..size]
}

#[cfg(test)]
mod tests;
