//! What a hop decided, in words. Words are made only for spans that have something to say, and the ring of them is bounded as the spans' is:
//! a span has the number of its words, and when the words have been overwritten it has none.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many are remembered; older ones go first.
const CAPACITY: usize = 4096;
/// How many letters of one are kept.
pub(crate) const LONGEST: usize = 240;

/// Words that a span can carry; the default is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Note(u64);

struct Kept {
    number: u64,
    words: String,
}

/// The last so many.
struct Ring<const SIZE: usize> {
    next: AtomicU64,
    kept: [Mutex<Kept>; SIZE],
}

static RING: Ring<CAPACITY> = Ring::new();

/// Said so often that it has a number of its own.
const NOTHING: u64 = 1;
const FIRST: u64 = 2;

impl<const SIZE: usize> Ring<SIZE> {
    const fn new() -> Self {
        let kept = [const { Mutex::new(Kept { number: 0, words: String::new() }) }; SIZE];
        Self { next: AtomicU64::new(FIRST), kept }
    }

    fn at(&self, number: u64) -> MutexGuard<'_, Kept> {
        self.kept[(number % SIZE as u64) as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, words: fmt::Arguments<'_>) -> Note {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut kept = self.at(number);
        kept.words.clear();
        // Writing ends early when there is no more room, and that is all that can go wrong.
        let _ = fmt::write(&mut Bounded(&mut kept.words), words);
        kept.number = if kept.words.is_empty() { 0 } else { number };
        Note(kept.number)
    }

    fn words(&self, Note(number): Note) -> String {
        match number {
            0 => String::new(),
            NOTHING => "nothing to do".to_owned(),
            _ => {
                let kept = self.at(number);
                if kept.number == number { kept.words.clone() } else { String::new() }
            }
        }
    }
}

impl Note {
    /// There was nothing to do. Costs nothing to say.
    pub const NOTHING_TO_DO: Self = Self(NOTHING);

    /// Keeps words; none for none.
    pub fn of(words: fmt::Arguments<'_>) -> Self {
        RING.keep(words)
    }

    pub(crate) const fn number(self) -> u64 {
        self.0
    }

    pub(crate) const fn from_number(number: u64) -> Self {
        Self(number)
    }

    /// The words; none for those that are no longer remembered.
    pub fn words(self) -> String {
        RING.words(self)
    }
}

/// Takes so many letters and no more.
pub(crate) struct Bounded<'a>(pub(crate) &'a mut String);

impl fmt::Write for Bounded<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // Bytes are at least as many as letters, and cheaper to know.
        if self.0.len() + text.len() <= LONGEST {
            self.0.push_str(text);
            return Ok(());
        }
        let room = LONGEST.saturating_sub(self.0.chars().count() + 1);
        self.0.extend(text.chars().take(room));
        if !self.0.ends_with('…') {
            self.0.push('…');
        }
        Err(fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_kept_until_so_many_others_were() {
        let ring = Ring::<4>::new();
        let first = ring.keep(format_args!("created {} pods", 3));
        assert_eq!(ring.words(first), "created 3 pods");
        assert_eq!(Note::NOTHING_TO_DO.words(), "nothing to do");
        assert_eq!((Note::default().words(), ring.keep(format_args!(""))), (String::new(), Note::default()));
        let others = [1, 2, 3].map(|number| ring.keep(format_args!("{number}")));
        assert_eq!(ring.words(first), "", "it was overwritten, and nobody is told somebody else's words");
        assert_eq!(others.map(|note| ring.words(note)), ["1", "2", "3"]);
    }

    #[test]
    fn long_words_are_cut() {
        let long = Note::of(format_args!("{}{}", "é".repeat(200), "x".repeat(1000))).words();
        assert!(long.chars().count() <= LONGEST && long.ends_with('…'), "{long}");
    }
}
