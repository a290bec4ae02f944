//! One thing at a time for each volume of this node, whichever pods it is for.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

type Volume = (String, String);

#[derive(Debug, Default)]
pub(super) struct Locks {
    all: Mutex<HashMap<Volume, Weak<tokio::sync::Mutex<()>>>>,
}

impl Locks {
    /// Waits for the turn with a volume of a driver.
    pub(super) async fn turn(&self, driver: &str, handle: &str) -> OwnedMutexGuard<()> {
        let lock = {
            let mut all = self.all.lock();
            all.retain(|_, lock| lock.strong_count() > 0);
            let entry = all.entry((driver.to_owned(), handle.to_owned())).or_default();
            entry.upgrade().unwrap_or_else(|| {
                let lock = Arc::new(tokio::sync::Mutex::new(()));
                *entry = Arc::downgrade(&lock);
                lock
            })
        };
        lock.lock_owned().await
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn turns_with_one_volume_wait_for_each_other_and_for_no_other() {
        let locks = Locks::default();
        let first = locks.turn("d", "a").await;
        assert!(locks.turn("d", "a").now_or_never().is_none());
        let other = locks.turn("d", "b").now_or_never().expect("another volume is free");
        drop(first);
        assert!(locks.turn("d", "a").now_or_never().is_some());
        drop(other);
        drop(locks.turn("d", "c").await);
        assert_eq!(locks.all.lock().len(), 1, "what nobody holds is forgotten");
    }
}
