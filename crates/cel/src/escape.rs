//! Names that expressions cannot spell, and how they are spelled instead: `a.b/c` is `a__dot__b__slash__c`.

use std::borrow::Cow;

use crate::parse::RESERVED;

/// Words that mean something in the language.
const MEANINGFUL: [&str; 4] = ["true", "false", "null", "in"];

/// Whether it is a word of the language; as a name such a one stands between underscores.
pub fn is_reserved(name: &str) -> bool {
    MEANINGFUL.contains(&name) || RESERVED.contains(&name)
}

/// What stands for what cannot be spelled.
const SPELLED: [(&str, &str); 4] = [("__", "underscores"), (".", "dot"), ("-", "dash"), ("/", "slash")];

/// A name as expressions spell it; nothing for one that they cannot spell at all.
pub fn escape(name: &str) -> Option<Cow<'_, str>> {
    if name.is_empty() || name.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    if is_reserved(name) {
        return Some(Cow::Owned(format!("__{name}__")));
    }
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-/".contains(&byte)) {
        return None;
    }
    if !SPELLED.iter().any(|(text, _)| name.contains(text)) {
        return Some(Cow::Borrowed(name));
    }
    let mut escaped = String::with_capacity(name.len() + 16);
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        match SPELLED.iter().find(|(text, _)| rest.starts_with(text)) {
            Some((text, word)) => {
                escaped.extend(["__", word, "__"]);
                rest = &rest[text.len()..];
            }
            None => {
                escaped.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    Some(Cow::Owned(escaped))
}

/// The name that is spelled so; nothing for what nobody spells so.
pub fn unescape(spelled: &str) -> Option<Cow<'_, str>> {
    if !spelled.contains("__") {
        return Some(Cow::Borrowed(spelled));
    }
    let (mut name, mut rest) = (String::with_capacity(spelled.len()), spelled);
    while let Some(at) = rest.find("__") {
        let after = &rest[at + 2..];
        // A word between two pairs of underscores; what is not closed stays as it is.
        let Some(end) = after.find('_').filter(|end| *end > 0 && after[*end..].starts_with("__")) else {
            let kept = at + 1;
            name.push_str(&rest[..kept]);
            rest = &rest[kept..];
            continue;
        };
        let word = &after[..end];
        name.push_str(&rest[..at]);
        match SPELLED.iter().find(|(_, known)| *known == word) {
            Some((text, _)) => name.push_str(text),
            // A reserved word is escaped only when it is the whole name.
            None if is_reserved(word) && spelled.len() == word.len() + 4 => name.push_str(word),
            None => return None,
        }
        rest = &after[end + 2..];
    }
    name.push_str(rest);
    Some(Cow::Owned(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_spelled_and_read_back() {
        for (name, spelled) in [
            ("plain", "plain"),
            ("snake_case", "snake_case"),
            ("namespace", "__namespace__"),
            ("kubernetes.io/a-b", "kubernetes__dot__io__slash__a__dash__b"),
            ("a__b", "a__underscores__b"),
        ] {
            assert_eq!(escape(name).as_deref(), Some(spelled));
            assert_eq!(unescape(spelled).as_deref(), Some(name));
        }
        for unspeakable in ["", "1a", "a b", "é"] {
            assert_eq!(escape(unspeakable), None, "{unspeakable}");
        }
        for (spelled, name) in
            [("a__b", Some("a__b")), ("__nonsense__", None), ("__a", Some("__a")), ("x__namespace__", None)]
        {
            assert_eq!(unescape(spelled).as_deref(), name, "{spelled}");
        }
    }
}
