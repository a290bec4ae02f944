//! The difference of two texts as a unified diff, as upstream shows what may not change: blocks are matched as Python's `difflib`
//! (and Go's port of it) matches them, so that the same lines are shown.

use std::collections::HashMap;
use std::fmt::Write as _;

/// Lines shown around a change.
const CONTEXT: usize = 3;
/// From so many lines on, those that are everywhere begin no match.
const MANY: usize = 200;

/// A run of equal lines: where it begins on either side, and how long it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block {
    old: usize,
    new: usize,
    len: usize,
}

/// The hunks of a unified diff, without the names of files; empty if the texts are the same.
pub fn unified(old: &str, new: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.split('\n').collect(), new.split('\n').collect());
    let mut shown = String::new();
    for group in grouped(&changes(&old, &new)) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let range = |from: usize, to: usize| match to - from {
            1 => format!("{}", from + 1),
            0 => format!("{from},0"),
            length => format!("{},{length}", from + 1),
        };
        let (before, after) = (range(first.old.0, last.old.1), range(first.new.0, last.new.1));
        // Writing to a string cannot fail.
        let _ = writeln!(shown, "@@ -{before} +{after} @@");
        for change in &group {
            let mut put = |sign: char, lines: &[&str]| {
                lines.iter().for_each(|line| {
                    let _ = writeln!(shown, "{sign}{line}");
                });
            };
            if change.equal {
                put(' ', &old[change.old.0..change.old.1]);
            } else {
                put('-', &old[change.old.0..change.old.1]);
                put('+', &new[change.new.0..change.new.1]);
            }
        }
    }
    shown
}

/// A stretch of both sides that is equal, or is not.
#[derive(Clone, Copy, Debug)]
struct Change {
    equal: bool,
    old: (usize, usize),
    new: (usize, usize),
}

fn changes(old: &[&str], new: &[&str]) -> Vec<Change> {
    let mut changes = Vec::new();
    let (mut at_old, mut at_new) = (0, 0);
    for block in blocks(old, new) {
        if at_old < block.old || at_new < block.new {
            changes.push(Change { equal: false, old: (at_old, block.old), new: (at_new, block.new) });
        }
        (at_old, at_new) = (block.old + block.len, block.new + block.len);
        if block.len > 0 {
            changes.push(Change { equal: true, old: (block.old, at_old), new: (block.new, at_new) });
        }
    }
    changes
}

/// Changes that are near each other, with their context.
fn grouped(changes: &[Change]) -> Vec<Vec<Change>> {
    let (mut groups, mut group) = (Vec::new(), Vec::new());
    let last = changes.len().saturating_sub(1);
    for (at, change) in changes.iter().enumerate() {
        let mut change = *change;
        if change.equal && at == 0 {
            change.old.0 = change.old.0.max(change.old.1.saturating_sub(CONTEXT));
            change.new.0 = change.new.0.max(change.new.1.saturating_sub(CONTEXT));
        }
        if change.equal && at == last {
            change.old.1 = change.old.1.min(change.old.0 + CONTEXT);
            change.new.1 = change.new.1.min(change.new.0 + CONTEXT);
        }
        if change.equal && change.old.1 - change.old.0 > 2 * CONTEXT {
            let mut tail = change;
            tail.old.1 = change.old.1.min(change.old.0 + CONTEXT);
            tail.new.1 = change.new.1.min(change.new.0 + CONTEXT);
            group.push(tail);
            groups.push(std::mem::take(&mut group));
            change.old.0 = change.old.0.max(change.old.1.saturating_sub(CONTEXT));
            change.new.0 = change.new.0.max(change.new.1.saturating_sub(CONTEXT));
        }
        group.push(change);
    }
    groups.push(group);
    groups.retain(|group| group.iter().any(|change| !change.equal));
    groups
}

/// The equal runs in order, adjacent ones joined, and an empty one at the end.
fn blocks(old: &[&str], new: &[&str]) -> Vec<Block> {
    let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
    for (at, line) in new.iter().enumerate() {
        places.entry(line).or_default().push(at);
    }
    if new.len() >= MANY {
        let most = new.len() / 100 + 1;
        places.retain(|_, places| places.len() <= most);
    }
    let mut found = Vec::new();
    // The two sides of a match are looked at in turn; a stack, since texts may be long.
    let mut open = vec![(0, old.len(), 0, new.len())];
    while let Some((old_from, old_to, new_from, new_to)) = open.pop() {
        let block = longest(old, new, &places, (old_from, old_to), (new_from, new_to));
        if block.len == 0 {
            continue;
        }
        found.push(block);
        open.push((old_from, block.old, new_from, block.new));
        open.push((block.old + block.len, old_to, block.new + block.len, new_to));
    }
    found.sort_unstable_by_key(|block| (block.old, block.new));
    let mut joined: Vec<Block> = Vec::with_capacity(found.len() + 1);
    for block in found {
        match joined.last_mut() {
            Some(last) if last.old + last.len == block.old && last.new + last.len == block.new => last.len += block.len,
            _ => joined.push(block),
        }
    }
    joined.push(Block { old: old.len(), new: new.len(), len: 0 });
    joined
}

/// The longest run that is equal on both sides, the earliest of several.
fn longest(
    old: &[&str],
    new: &[&str],
    places: &HashMap<&str, Vec<usize>>,
    (old_from, old_to): (usize, usize),
    (new_from, new_to): (usize, usize),
) -> Block {
    let mut best = Block { old: old_from, new: new_from, len: 0 };
    // How long the run is that ends at a line of the new side.
    let mut ends: HashMap<usize, usize> = HashMap::new();
    for (at, line) in old.iter().enumerate().take(old_to).skip(old_from) {
        let mut now = HashMap::new();
        for &place in places.get(line).into_iter().flatten().filter(|place| (new_from..new_to).contains(*place)) {
            let len = place.checked_sub(1).and_then(|before| ends.get(&before)).copied().unwrap_or(0) + 1;
            now.insert(place, len);
            if len > best.len {
                best = Block { old: at + 1 - len, new: place + 1 - len, len };
            }
        }
        ends = now;
    }
    // Lines that begin no match may still belong to one.
    while best.old > old_from && best.new > new_from && old[best.old - 1] == new[best.new - 1] {
        best = Block { old: best.old - 1, new: best.new - 1, len: best.len + 1 };
    }
    while best.old + best.len < old_to
        && best.new + best.len < new_to
        && old[best.old + best.len] == new[best.new + best.len]
    {
        best.len += 1;
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_shown_with_three_lines_around_them() {
        let old = "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk";
        assert_eq!(unified(old, old), "");
        assert_eq!(unified(old, &old.replace('e', "E")), "@@ -2,7 +2,7 @@\n b\n c\n d\n-e\n+E\n f\n g\n h\n");
        assert_eq!(unified(old, &old.replace("a\n", "")), "@@ -1,4 +1,3 @@\n-a\n b\n c\n d\n");
        let two = old.replace('a', "A").replace('k', "K");
        assert_eq!(unified(old, &two), "@@ -1,4 +1,4 @@\n-a\n+A\n b\n c\n d\n@@ -8,4 +8,4 @@\n h\n i\n j\n-k\n+K\n");
    }

    #[test]
    fn lines_that_are_everywhere_begin_no_match_in_a_long_text() {
        let old: String = (0..300).map(|at| if at % 2 == 0 { "{\n".to_owned() } else { format!("{at}\n") }).collect();
        let new = old.replace("\n151\n", "\nx\n");
        assert_eq!(unified(&old, &new), "@@ -149,7 +149,7 @@\n {\n 149\n {\n-151\n+x\n {\n 153\n {\n");
    }
}
