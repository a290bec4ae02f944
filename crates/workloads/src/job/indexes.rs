//! Sets of completion indexes, written as `1,3-5,7`.

use std::collections::BTreeSet;

/// Reads a set; what is not a number, or not below the number of completions, is left out.
pub(super) fn parse(text: &str, completions: i32) -> BTreeSet<i32> {
    let mut set = BTreeSet::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (Ok(first), Ok(last)) = (first.parse::<i32>(), last.parse::<i32>()) else { continue };
        set.extend((first.max(0)..=last.min(completions - 1)).take_while(|index| *index < completions));
    }
    set
}

/// Writes a set, runs of three and more as intervals.
pub(super) fn format(set: &BTreeSet<i32>) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut run: Option<(i32, i32)> = None;
    let mut flush = |run: Option<(i32, i32)>| match run {
        None => {}
        Some((first, last)) if first == last => parts.push(first.to_string()),
        Some((first, last)) if first + 1 == last => parts.push(format!("{first},{last}")),
        Some((first, last)) => parts.push(format!("{first}-{last}")),
    };
    for index in set {
        run = match run {
            Some((first, last)) if last + 1 == *index => Some((first, *index)),
            other => {
                flush(other);
                Some((*index, *index))
            }
        };
    }
    flush(run);
    parts.join(",")
}
