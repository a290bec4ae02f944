//! Names that spans carry as a number: webhooks, policies, controllers, containers.
//!
//! A name is kept for good once it was seen, because spans that are read later point at it; so there is a limit to how many are kept, and
//! to how long one may be. Users name webhooks: past the limit a span has no name, and nothing else changes.

use std::collections::HashMap;
use std::sync::{LazyLock, PoisonError, RwLock};

/// How many names are kept.
const MOST: usize = 2048;
/// How many letters of a name are kept.
const LONGEST: usize = 128;

/// A name that a span can carry; the default is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Label(u16);

#[derive(Default)]
struct Known {
    numbers: HashMap<&'static str, u16>,
    names: Vec<&'static str>,
}

static KNOWN: LazyLock<RwLock<Known>> = LazyLock::new(RwLock::default);

/// The label of a name. Whoever reports often asks once and keeps it.
pub fn label(name: &str) -> Label {
    let name = shortened(name);
    if name.is_empty() {
        return Label::default();
    }
    if let Some(number) = KNOWN.read().unwrap_or_else(PoisonError::into_inner).numbers.get(name) {
        return Label(*number);
    }
    Label(KNOWN.write().unwrap_or_else(PoisonError::into_inner).number(name))
}

impl Known {
    /// The number of a name, which gets one unless there are too many; 0 for those without.
    fn number(&mut self, name: &str) -> u16 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        if self.names.len() == MOST {
            return 0;
        }
        let kept: &'static str = Box::leak(name.into());
        self.names.push(kept);
        let number = self.names.len() as u16;
        self.numbers.insert(kept, number);
        number
    }
}

fn shortened(name: &str) -> &str {
    name.char_indices().nth(LONGEST).map_or(name, |(end, _)| &name[..end])
}

impl Label {
    pub(crate) const NONE: Self = Self(0);

    pub(crate) const fn number(self) -> u16 {
        self.0
    }

    pub(crate) const fn from_number(number: u16) -> Self {
        Self(number)
    }

    /// What it stands for; nothing for none.
    pub fn name(self) -> &'static str {
        let Some(at) = usize::from(self.0).checked_sub(1) else { return "" };
        KNOWN.read().unwrap_or_else(PoisonError::into_inner).names.get(at).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_names_and_long_ones_are_cut_at_a_letter() {
        let web = label("webhook.example.com");
        assert_eq!((label("webhook.example.com"), web.name()), (web, "webhook.example.com"));
        assert_eq!((label(""), Label::default().name()), (Label::default(), ""));
        assert_eq!(label(&"é".repeat(1000)).name().chars().count(), LONGEST);
    }

    #[test]
    fn after_so_many_names_there_are_no_new_ones_and_those_that_are_known_stay() {
        let mut known = Known::default();
        let numbers: Vec<u16> = (0..=MOST).map(|number| known.number(&format!("name-{number}"))).collect();
        assert_eq!((numbers[0], numbers[MOST - 1], numbers[MOST]), (1, MOST as u16, 0));
        assert_eq!(known.number("name-0"), 1);
    }
}
