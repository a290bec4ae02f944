//! How many writes were made durable together, of the last groups: for who asks right after their write.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::Revision;

/// Groups that are remembered.
const GROUPS: usize = 64;
/// Bits of a group's size; its first revision is above them.
const SIZE: u32 = 16;

/// Each a first revision and a size in one word, so that nobody reads half of one.
pub(super) struct Groups {
    next: AtomicU64,
    groups: [AtomicU64; GROUPS],
}

impl Groups {
    pub(super) const fn new() -> Self {
        Self { next: AtomicU64::new(0), groups: [const { AtomicU64::new(0) }; GROUPS] }
    }

    /// Notes a group.
    pub(super) fn note(&self, first: Revision, size: usize) {
        let size = (size as u64).min((1 << SIZE) - 1);
        let at = self.next.fetch_add(1, Ordering::Relaxed) as usize % GROUPS;
        self.groups[at].store(first << SIZE | size, Ordering::Release);
    }

    /// The size of the group with this revision; 0 if it is not remembered.
    pub(super) fn of(&self, revision: Revision) -> u64 {
        let groups = self.groups.iter().map(|group| group.load(Ordering::Acquire));
        let sizes = groups.map(|group| (group >> SIZE, group & ((1 << SIZE) - 1)));
        sizes
            .filter(|(first, size)| (*first..first + size).contains(&revision))
            .map(|(_, size)| size)
            .next()
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_groups_are_known_by_their_revisions() {
        let groups = Groups::new();
        groups.note(5, 3);
        groups.note(8, 1);
        assert_eq!([4, 5, 7, 8, 9].map(|revision| groups.of(revision)), [0, 3, 3, 1, 0]);
        (0..GROUPS as u64).for_each(|number| groups.note(100 + number, 1));
        assert_eq!((groups.of(5), groups.of(100)), (0, 1));
    }
}
