//! The kernel's side of a transaction, strict: what is deleted must be there, what is added must not.

use std::collections::{BTreeMap, BTreeSet};

/// What a sequence of transactions has left.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    elements: BTreeSet<String>,
    chains: BTreeMap<String, Vec<String>>,
    sets: BTreeMap<String, String>,
}

impl Kernel {
    /// Applies the lines of a transaction.
    pub fn apply(&mut self, text: &str) {
        for line in text.lines() {
            let words: Vec<&str> = line.splitn(6, ' ').collect();
            let [verb, what, family, _, name] = words[..5] else { panic!("{line}") };
            let (name, rest) = (format!("{family} {name}"), words.get(5).copied().unwrap_or_default());
            match (verb, what) {
                ("add", "element") => {
                    let key = |e: &str| e.split(" : ").next().unwrap_or_default().to_owned();
                    for element in list(rest) {
                        let taken = self.elements.iter().any(|e| key(e) == key(&format!("{name} {element}")));
                        assert!(!taken, "already there: {name} {element}");
                        self.elements.insert(format!("{name} {element}"));
                    }
                }
                ("delete", "element") => {
                    for key in list(rest) {
                        let (exact, valued) = (format!("{name} {key}"), format!("{name} {key} : "));
                        let before = self.elements.len();
                        self.elements.retain(|e| *e != exact && !e.starts_with(&valued));
                        assert_eq!(self.elements.len(), before - 1, "not there: {exact}");
                    }
                }
                ("add", "chain") => drop(self.chains.entry(name).or_default()),
                ("flush", "chain") => self.chains.get_mut(&name).expect(line).clear(),
                ("delete", "chain") => {
                    let (goto, rules) = (format!("goto {}", words[4]), self.chains.remove(&name).expect(line));
                    assert_eq!(rules.len() * usize::from(name.contains('/')), 0, "deleted with rules: {line}");
                    let leads = |text: &String| {
                        text.starts_with(&format!("{family} "))
                            && (text.ends_with(&goto) || text.contains(&format!("{goto} ")))
                    };
                    assert!(!self.elements.iter().any(leads), "still used: {line}");
                }
                ("add", "rule") => self.chains.get_mut(&name).expect(line).push(rest.to_owned()),
                ("add", "set") => assert_eq!(self.sets.insert(name, rest.to_owned()), None, "{line}"),
                ("delete", "set") => {
                    let word = format!("@{}", words[4]);
                    let mut rules =
                        self.chains.iter().filter(|(c, _)| c.starts_with(&format!("{family} "))).flat_map(|(_, r)| r);
                    assert!(!rules.any(|r| r.split(' ').any(|w| w == word)), "still used: {line}");
                    self.sets.remove(&name).expect(line);
                }
                _ => panic!("{line}"),
            }
        }
    }
}

fn list(text: &str) -> impl Iterator<Item = &str> {
    text.trim_start_matches("{ ").trim_end_matches(" }").split(", ")
}
