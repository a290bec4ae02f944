//! `$(NAME)` in commands, arguments and environment values.

/// Replaces every `$(NAME)` that `lookup` knows. `$$` is a dollar sign; what is not known stays as it is written.
pub fn expand(input: &str, lookup: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(input.len());
    let mut rest = input;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            match lookup(name) {
                Some(value) => out.push_str(&value),
                None => {
                    out.push_str("$(");
                    out.push_str(name);
                    out.push(')');
                }
            }
            rest = after;
        } else {
            out.push('$');
        }
    }
    out.push_str(rest);
    out
}

/// As [`expand`], but a name that is not known is an error: a path must not hold what was not meant.
pub fn expand_strictly(input: &str, lookup: impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let missing = std::cell::RefCell::new(None);
    let expanded = expand(input, |name| {
        let found = lookup(name);
        if found.is_none() {
            missing.borrow_mut().get_or_insert_with(|| name.to_owned());
        }
        found
    });
    match missing.into_inner() {
        Some(_) => Err(format!("missing value for {input:?}")),
        None => Ok(expanded),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_replaced_and_everything_else_is_left() {
        let lookup = |name: &str| match name {
            "A" => Some("one".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
        for (input, expect) in [
            ("$(A)", "one"),
            ("x$(A)y$(A)z", "xoneyonez"),
            ("$(EMPTY)!", "!"),
            ("$(B)", "$(B)"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$one"),
            ("$$$$(A)", "$$(A)"),
            ("$(A", "$(A"),
            ("$A", "$A"),
            ("100$", "100$"),
            ("$$", "$"),
        ] {
            assert_eq!(expand(input, lookup), expect, "{input}");
        }
        assert_eq!(expand_strictly("p/$(A)", lookup), Ok("p/one".into()));
        assert!(expand_strictly("p/$(B)", lookup).is_err());
    }
}
