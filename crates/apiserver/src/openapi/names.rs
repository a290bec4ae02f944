//! How operations and tags call groups.

/// A group's name in tags: `core`, `apps`, `rbacAuthorization`.
pub(super) fn group_tag(group: &str) -> String {
    if group.is_empty() {
        return "core".to_owned();
    }
    let mut parts = group.strip_suffix(".k8s.io").unwrap_or(group).split(['.', '-']);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |tag, part| tag + &capital(part))
}

/// A word with a capital letter.
pub(super) fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_ascii_uppercase().to_string() + letters.as_str())
}
