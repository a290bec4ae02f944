//! The changes of the recent past of one resource, in a ring that can also be filled from the durable log.

use std::collections::VecDeque;
use std::sync::Arc;

use machinery::object::Object;
use store::Revision;

/// One change of one object.
#[derive(Debug)]
pub struct Change {
    pub revision: Revision,
    /// What it was; `None` if it was just created.
    pub old: Option<Arc<Object>>,
    /// What it is; `None` if it was deleted.
    pub new: Option<Arc<Object>>,
}

/// Changes in revision order, without a gap after `floor`.
#[derive(Default)]
pub struct Ring {
    floor: Revision,
    changes: VecDeque<Arc<Change>>,
    /// How far it had come when it was asked to forget last.
    mark: Revision,
}

impl Ring {
    /// The most changes kept.
    pub const CAPACITY: usize = 32_768;

    /// An empty ring that knows everything after `revision`.
    pub fn starting_at(revision: Revision) -> Self {
        Self { floor: revision, changes: VecDeque::new(), mark: 0 }
    }

    /// Every change after this revision is here.
    pub fn floor(&self) -> Revision {
        self.floor
    }

    /// The revision of the newest change, or the floor.
    pub fn last(&self) -> Revision {
        self.changes.back().map_or(self.floor, |change| change.revision)
    }

    /// Adds the newest change.
    pub fn push(&mut self, change: Arc<Change>) {
        if self.changes.len() == Self::CAPACITY
            && let Some(oldest) = self.changes.pop_front()
        {
            self.floor = oldest.revision;
        }
        self.changes.push_back(change);
    }

    /// Adds the changes after `floor` up to `end`, which was the floor when they were read.
    pub fn prepend(&mut self, floor: Revision, end: Revision, changes: Vec<Arc<Change>>) {
        // The ring moved on meanwhile, or is full: the older past has no room.
        if self.floor != end || self.changes.len() + changes.len() > Self::CAPACITY {
            return;
        }
        for change in changes.into_iter().rev() {
            self.changes.push_front(change);
        }
        self.floor = floor;
        // It is here because somebody asks for it, so it stays as long as what is news.
        self.mark = floor;
    }

    /// Takes out what was here when this was asked last. Each change keeps alive what it replaced, which nobody else needs; who comes back late reads
    /// the log. They are given to the caller, because to let go of many takes a while.
    pub fn forget(&mut self) -> Vec<Arc<Change>> {
        let old = self.changes.partition_point(|change| change.revision <= self.mark);
        let forgotten: Vec<_> = self.changes.drain(..old).collect();
        if let Some(newest) = forgotten.last() {
            self.floor = newest.revision;
            self.changes.shrink_to(2 * self.changes.len());
        }
        self.mark = self.last();
        forgotten
    }

    /// Whether no change is here.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// The changes after `revision`, if none of them is gone.
    pub fn after(&self, revision: Revision) -> Option<impl Iterator<Item = &Arc<Change>>> {
        (revision >= self.floor).then(|| {
            let from = self.changes.partition_point(|change| change.revision <= revision);
            self.changes.range(from..)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(revision: Revision) -> Arc<Change> {
        Arc::new(Change { revision, old: None, new: None })
    }

    fn after(ring: &Ring, revision: Revision) -> Option<Vec<Revision>> {
        ring.after(revision).map(|changes| changes.map(|change| change.revision).collect())
    }

    #[test]
    fn the_past_can_be_filled_in_and_has_no_gap() {
        let mut ring = Ring::starting_at(10);
        ring.push(change(12));
        ring.push(change(15));
        assert_eq!(after(&ring, 9), None);
        assert_eq!(after(&ring, 10), Some(vec![12, 15]));
        assert_eq!(after(&ring, 12), Some(vec![15]));
        ring.prepend(5, 10, vec![change(6), change(10)]);
        assert_eq!(after(&ring, 5), Some(vec![6, 10, 12, 15]));
        ring.prepend(1, 10, vec![change(2)]);
        assert_eq!(after(&ring, 1), None, "a past that does not fit the floor is refused");
    }

    #[test]
    fn what_was_asked_to_be_forgotten_twice_is_gone() {
        let mut ring = Ring::starting_at(10);
        ring.push(change(12));
        assert_eq!(ring.forget().len(), 0, "it is news");
        ring.push(change(15));
        assert_eq!(ring.forget().len(), 1);
        assert_eq!((after(&ring, 11), after(&ring, 12), ring.last()), (None, Some(vec![15]), 15));
        assert_eq!(ring.forget().len(), 1);
        assert!(ring.is_empty() && ring.last() == 15 && ring.floor() == 15);
        ring.prepend(10, 15, vec![change(12), change(15)]);
        assert_eq!(after(&ring, 10), Some(vec![12, 15]), "there is room for what somebody asks for");
        assert_eq!((ring.forget().len(), ring.forget().len()), (0, 2), "and it stays for a turn");
    }

    #[test]
    fn a_full_ring_forgets_the_oldest_and_says_so() {
        let mut ring = Ring::starting_at(0);
        for revision in 1..=Ring::CAPACITY as u64 + 2 {
            ring.push(change(revision));
        }
        assert_eq!(ring.floor(), 2);
        assert_eq!(after(&ring, 1), None);
        assert_eq!(after(&ring, 2).map(|changes| changes.len()), Some(Ring::CAPACITY));
    }
}
