//! Titles made from field names: `lastTransitionTime` is `Last Transition Time`, `apiURL` is `API URL`.

/// Words that are written in capitals.
const ACRONYMS: [&str; 4] = ["API", "URL", "UID", "GUID"];

/// The title of a field. A name with anything but letters and dashes in it is shown as it is.
pub fn title(field: &str) -> String {
    if field.chars().any(|letter| !letter.is_alphabetic() && letter != '-') {
        return field.to_owned();
    }
    let words: Vec<String> = merged(split(field)).into_iter().map(|word| capitalized(&word)).collect();
    words.join(" ")
}

fn capitalized(word: &str) -> String {
    let upper = word.to_uppercase();
    if ACRONYMS.contains(&&*upper) {
        return upper;
    }
    if word.to_lowercase() != word {
        return word.to_owned();
    }
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Two words that follow each other are one where the first is all capitals and the second begins with one.
fn merged(words: Vec<String>) -> Vec<String> {
    let mut merged = Vec::with_capacity(words.len());
    let mut words = words.into_iter().peekable();
    while let Some(word) = words.next() {
        let shouted = word.len() >= 2 && word.chars().all(|letter| !letter.is_alphabetic() || letter.is_uppercase());
        let joins = |next: &String| shouted && next.starts_with(|first: char| first.is_ascii() && first.is_uppercase());
        match words.next_if(joins) {
            Some(next) => merged.push(word + &next),
            None => merged.push(word),
        }
    }
    merged
}

/// The words of a name in camel case: runs of letters of one case, where the last capital before small letters belongs to these.
fn split(field: &str) -> Vec<String> {
    #[derive(Clone, Copy, PartialEq)]
    enum Case {
        Lower,
        Upper,
        Neither,
    }
    let mut runs: Vec<(Case, Vec<char>)> = Vec::new();
    for letter in field.chars() {
        let case = match letter {
            _ if letter.is_lowercase() => Case::Lower,
            _ if letter.is_uppercase() => Case::Upper,
            _ => Case::Neither,
        };
        match runs.last_mut() {
            Some((last, letters)) if *last == case => letters.push(letter),
            _ => runs.push((case, vec![letter])),
        }
    }
    for at in 1..runs.len() {
        if runs[at - 1].0 == Case::Upper && runs[at].0 == Case::Lower {
            let capital = runs[at - 1].1.pop().expect("a run is never empty before it gives its last letter");
            runs[at].1.insert(0, capital);
        }
    }
    runs.into_iter()
        .filter(|(_, letters)| !letters.is_empty())
        .map(|(_, letters)| letters.into_iter().collect())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_and_capitalized() {
        for (field, expect) in [
            ("kind", "Kind"),
            ("apiVersion", "API Version"),
            ("lastTransitionTime", "Last Transition Time"),
            ("uid", "UID"),
            ("podCIDR", "Pod CIDR"),
            ("podCIDRs", "Pod CIDRs"),
            ("HTTPGet", "HTTPGet"),
            ("f:metadata", "f:metadata"),
            ("ipv4", "ipv4"),
            ("foo-bar", "Foo - Bar"),
            ("URLs", "URLs"),
            ("baseURL", "Base URL"),
            ("", ""),
        ] {
            assert_eq!(title(field), expect, "{field}");
        }
    }
}
