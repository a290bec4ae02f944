//! Field selectors: equality and inequality on the few fields that a kind makes selectable.

use std::fmt;

use crate::object::Meta;

/// One condition on one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// The field, as a dotted path.
    pub field: String,
    /// What it is compared with.
    pub value: String,
    /// Whether the field must differ from the value instead of having it.
    pub negated: bool,
}

/// Conditions on fields that must all hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FieldSelector {
    requirements: Vec<Requirement>,
}

impl FieldSelector {
    /// Selects every object.
    pub fn everything() -> Self {
        Self::default()
    }

    /// Selects by one field alone.
    pub fn equals(field: impl Into<String>, value: impl Into<String>) -> Self {
        Self { requirements: vec![Requirement { field: field.into(), value: value.into(), negated: false }] }
    }

    /// Reads the syntax of `?fieldSelector=`. The error is upstream's message.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut terms: Vec<&str> = split(text).into_iter().filter(|term| !term.is_empty()).collect();
        terms.sort_unstable();
        let requirement = |term: &str| {
            let (field, negated, value) =
                operands(term).ok_or_else(|| format!("invalid selector: '{text}'; can't understand '{term}'"))?;
            Ok(Requirement { field: field.to_owned(), value: unescape(value)?, negated })
        };
        Ok(Self { requirements: terms.into_iter().map(requirement).collect::<Result<_, String>>()? })
    }

    /// With other names of the fields. The error is the field for which there is none.
    pub fn renamed(mut self, name: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        for requirement in &mut self.requirements {
            match name(&requirement.field) {
                Some(field) => requirement.field = field,
                None => return Err(std::mem::take(&mut requirement.field)),
            }
        }
        Ok(self)
    }

    /// Whether it selects every object.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// The conditions: the server refuses those on fields that the kind does not make selectable.
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// The first field that is not among those supported, as the error that upstream answers with.
    pub fn unsupported(&self, supported: impl Fn(&str) -> bool) -> Option<String> {
        let requirement = self.requirements.iter().find(|requirement| !supported(&requirement.field))?;
        Some(format!("field label not supported: {}", requirement.field))
    }

    /// Whether fields, seen through their look-up, satisfy all conditions. An unset field is the empty string.
    pub fn matches<'a>(&self, lookup: impl Fn(&str) -> &'a str) -> bool {
        self.requirements
            .iter()
            .all(|requirement| (lookup(&requirement.field) == requirement.value) != requirement.negated)
    }

    /// Whether the fields of a stored object satisfy all conditions.
    pub fn matches_meta(&self, meta: &Meta) -> bool {
        self.matches(|path| meta.field(path))
    }

    /// The only value that a field may have, if there is just one.
    pub fn requires_exact_match(&self, field: &str) -> Option<&str> {
        let exact = |requirement: &&Requirement| requirement.field == field && !requirement.negated;
        self.requirements.iter().find(exact).map(|requirement| requirement.value.as_str())
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, Requirement { field, value, negated }) in self.requirements.iter().enumerate() {
            let (comma, operator) = (if at > 0 { "," } else { "" }, if *negated { "!=" } else { "=" });
            write!(f, "{comma}{field}{operator}")?;
            for letter in value.chars() {
                if matches!(letter, '\\' | ',' | '=') {
                    f.write_str("\\")?;
                }
                write!(f, "{letter}")?;
            }
        }
        Ok(())
    }
}

/// The terms between commas that no backslash escapes.
fn split(text: &str) -> Vec<&str> {
    let (mut terms, mut start, mut escaped) = (Vec::new(), 0, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b',' => {
                terms.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

/// The field, whether the operator is an inequality, and the value as it was written.
fn operands(term: &str) -> Option<(&str, bool, &str)> {
    let at = term.char_indices().map(|(at, _)| at).find(|&at| {
        let rest = &term[at..];
        rest.starts_with('=') || rest.starts_with("!=")
    })?;
    let (field, rest) = term.split_at(at);
    let (negated, value) = match rest.strip_prefix("!=") {
        Some(value) => (true, value),
        None => (false, rest.strip_prefix("==").or(rest.strip_prefix('=')).unwrap_or(rest)),
    };
    Some((field, negated, value))
}

fn unescape(value: &str) -> Result<String, String> {
    let mut plain = String::with_capacity(value.len());
    let mut letters = value.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some(escaped @ ('\\' | ',' | '=')) => plain.push(escaped),
                Some(other) => return Err(format!("invalid field selector: invalid escape sequence: \\{other}")),
                None => return Err("invalid field selector: invalid escape sequence: \\".to_owned()),
            },
            // Upstream prints the number of the character, not the character.
            ',' | '=' => {
                return Err(format!("invalid field selector: unescaped character in value: {}", u32::from(letter)));
            }
            other => plain.push(other),
        }
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_parse_print_and_match() {
        let selector = FieldSelector::parse("status.phase!=Failed,spec.nodeName==n1").expect("a selector");
        assert_eq!(selector.to_string(), "spec.nodeName=n1,status.phase!=Failed");
        assert_eq!(selector.requires_exact_match("spec.nodeName"), Some("n1"));
        assert_eq!(selector.requires_exact_match("status.phase"), None);
        let on = |node: &'static str, phase: &'static str| {
            selector.matches(|path| if path == "spec.nodeName" { node } else { phase })
        };
        assert!(on("n1", ""));
        assert!(!on("n1", "Failed"));
        assert!(!on("", "Running"));
        assert!(FieldSelector::parse("").expect("empty").is_empty());
        assert!(FieldSelector::parse(",").expect("empty").is_empty());
        assert_eq!(
            selector.unsupported(|field| field == "spec.nodeName").as_deref(),
            Some("field label not supported: status.phase")
        );
    }

    #[test]
    fn escapes_are_undone_and_redone() {
        let selector = FieldSelector::parse(r"a=b\,c\=d\\").expect("a selector");
        assert_eq!(selector.requirements()[0].value, r"b,c=d\");
        assert_eq!(selector.to_string(), r"a=b\,c\=d\\");
    }

    #[test]
    fn bad_selectors_get_upstreams_words() {
        for (text, message) in [
            ("a", "invalid selector: 'a'; can't understand 'a'"),
            ("a=b,c", "invalid selector: 'a=b,c'; can't understand 'c'"),
            (r"a=\x", r"invalid field selector: invalid escape sequence: \x"),
            (r"a=b\", r"invalid field selector: invalid escape sequence: \"),
            ("a===b", "invalid field selector: unescaped character in value: 61"),
        ] {
            assert_eq!(FieldSelector::parse(text).expect_err(text), message);
        }
    }
}
