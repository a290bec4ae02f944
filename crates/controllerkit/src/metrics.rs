//! What controllers count. Families that follow events are statics of the crates that have them. What only has to be right when somebody looks (how
//! many volumes, how many nodes of a zone) is collected from the caches at that moment: a controller registers a [`Collect`] for as long as it runs.

use std::sync::{Arc, Weak};

use figures::Buckets;
use parking_lot::Mutex;

/// Latencies from a millisecond on, twice as long fifteen times.
pub const MILLISECONDS: Buckets = Buckets::Exponential { start: 0.001, factor: 2.0, count: 15 };

/// Something that knows its figures when it is asked.
pub trait Collect: Send + Sync {
    fn collect(&self, text: &mut String);
}

static COLLECTORS: Mutex<Vec<Weak<dyn Collect>>> = Mutex::new(Vec::new());

/// Asks a collector whenever somebody looks, as long as what this answers is held.
pub fn collected<C: Collect + 'static>(collector: C) -> Arc<dyn Collect> {
    let collector: Arc<dyn Collect> = Arc::new(collector);
    let mut all = COLLECTORS.lock();
    all.retain(|known| known.strong_count() > 0);
    all.push(Arc::downgrade(&collector));
    collector
}

/// Appends what every collector knows.
pub fn write(text: &mut String) {
    let collectors: Vec<Arc<dyn Collect>> = COLLECTORS.lock().iter().filter_map(Weak::upgrade).collect();
    collectors.iter().for_each(|collector| collector.collect(text));
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Answer;

    impl Collect for Answer {
        fn collect(&self, text: &mut String) {
            text.push_str("answer_of_the_test 42\n");
        }
    }

    #[test]
    fn collectors_are_asked_as_long_as_they_are_held() {
        let held = collected(Answer);
        let mut text = String::new();
        write(&mut text);
        assert!(text.contains("answer_of_the_test 42\n"));
        drop(held);
        text.clear();
        write(&mut text);
        assert!(!text.contains("answer_of_the_test"));
    }
}
