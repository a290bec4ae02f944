//! The two rounds of mutation: who was asked, and who must be asked again because others changed the object since. Pure.

use machinery::Value;

/// Who is asked by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asker {
    Webhooks,
    Policies,
}

/// What is remembered over both rounds.
#[derive(Debug, Default)]
pub struct Rounds {
    second: bool,
    changed: bool,
    webhooks: Asked,
    policies: Asked,
}

#[derive(Debug, Default)]
struct Asked {
    /// Asked so far, willing to be asked again.
    before: Vec<String>,
    /// To be asked again.
    again: Vec<String>,
    /// The object as all of them left it.
    left: Option<Value>,
}

impl Asked {
    fn require_again(&mut self) {
        self.again.append(&mut self.before);
    }
}

impl Rounds {
    fn of(&mut self, asker: Asker) -> &mut Asked {
        match asker {
            Asker::Webhooks => &mut self.webhooks,
            Asker::Policies => &mut self.policies,
        }
    }

    /// 0 or 1.
    pub fn number(&self) -> u8 {
        u8::from(self.second)
    }

    /// Whether somebody changed the object, so that everybody gets a second round; begins it.
    pub fn again(&mut self) -> bool {
        let again = self.changed && !self.second;
        self.second |= again;
        again
    }

    /// Before anybody is asked: in the second round, a change by plug-ins meanwhile concerns everybody.
    pub fn enter(&mut self, asker: Asker, object: Option<&Value>) {
        if self.second && self.of(asker).left.as_ref() != object {
            self.of(asker).require_again();
        }
    }

    /// Whether somebody is to be asked in this round.
    pub fn asks(&self, asker: Asker, id: &str) -> bool {
        let asked = match asker {
            Asker::Webhooks => &self.webhooks,
            Asker::Policies => &self.policies,
        };
        !self.second || asked.again.iter().any(|known| known == id)
    }

    /// Somebody was asked, and changed the object or did not; it may be willing to be asked again.
    pub fn asked(&mut self, asker: Asker, id: &str, changed: bool, willing: bool) {
        if changed {
            self.changed = true;
            self.of(asker).require_again();
        }
        if willing {
            self.of(asker).before.push(id.to_owned());
        }
    }

    /// Everybody was asked. Only a first round that changed something is followed by another.
    pub fn leave(&mut self, asker: Asker, object: Option<&Value>) {
        let second = self.second;
        let asked = self.of(asker);
        if !second && !asked.before.is_empty() {
            asked.left = object.cloned();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Asks `a`, `b` and `c`, of whom `changes` change; everybody is willing. Returns who is asked again.
    fn again(changes: &[&str], plugins_change: bool) -> Vec<&'static str> {
        let mut rounds = Rounds::default();
        rounds.enter(Asker::Webhooks, Some(&json!(0)));
        for id in ["a", "b", "c"] {
            assert!(rounds.asks(Asker::Webhooks, id));
            rounds.asked(Asker::Webhooks, id, changes.contains(&id), true);
        }
        rounds.leave(Asker::Webhooks, Some(&json!(1)));
        if !rounds.again() {
            return Vec::new();
        }
        rounds.enter(Asker::Webhooks, Some(&json!(if plugins_change { 2 } else { 1 })));
        let asked = ["a", "b", "c"].into_iter().filter(|id| rounds.asks(Asker::Webhooks, id)).collect();
        assert!(!rounds.again(), "there is no third round");
        asked
    }

    #[test]
    fn those_before_a_change_are_asked_again() {
        assert_eq!(again(&[], false), Vec::<&str>::new());
        assert_eq!(again(&["a"], false), Vec::<&str>::new(), "nobody was asked before it, and it knows its own change");
        assert_eq!(again(&["b"], false), ["a"]);
        assert_eq!(again(&["a", "c"], false), ["a", "b"]);
        assert_eq!(again(&["a"], true), ["a", "b", "c"], "the plug-ins changed it again");
    }
}
