//! Field selectors: equality and inequality on the few fields that a kind makes selectable.

use std::fmt;

use crate::object::{FieldPaths, Meta};

/// One condition on one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// The field, as a dotted path.
    pub field: String,
    /// What it is compared with.
    pub value: String,
    /// Whether the field must differ from the value instead of having it.
    pub negated: bool,
    /// What an object has that does not set the field.
    unset: &'static str,
}

/// Conditions on fields that must all hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FieldSelector {
    requirements: Vec<Requirement>,
}

impl FieldSelector {
    pub fn everything() -> Self {
        Self::default()
    }

    /// Selects by one field alone.
    pub fn equals(field: impl Into<String>, value: impl Into<String>) -> Self {
        Self { requirements: vec![Requirement { field: field.into(), value: value.into(), negated: false, unset: "" }] }
    }

    /// Reads the syntax of `?fieldSelector=`. The error is upstream's message.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut terms: Vec<&str> = split(text).into_iter().filter(|term| !term.is_empty()).collect();
        terms.sort_unstable();
        let requirement = |term: &str| {
            let (field, negated, value) =
                operands(term).ok_or_else(|| format!("invalid selector: '{text}'; can't understand '{term}'"))?;
            Ok(Requirement { field: field.to_owned(), value: unescape(value)?, negated, unset: "" })
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

    /// The same for a kind with these fields: one that is not set has its type's empty value, as upstream's field sets say. The error is a field
    /// that the kind does not have.
    pub fn of_kind(mut self, kind: &FieldPaths) -> Result<Self, String> {
        for requirement in &mut self.requirements {
            match kind.get(&requirement.field) {
                Some(field) => requirement.unset = field.unset,
                None if matches!(&*requirement.field, "metadata.name" | "metadata.namespace") => {}
                None => return Err(std::mem::take(&mut requirement.field)),
            }
        }
        Ok(self)
    }

    /// The conditions on fields that pass, without the others.
    pub fn only(&self, pass: impl Fn(&str) -> bool) -> Self {
        let requirements = self.requirements.iter().filter(|requirement| pass(&requirement.field));
        Self { requirements: requirements.cloned().collect() }
    }

    /// Whether it selects every object.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// The conditions: the server refuses those on fields that the kind does not make selectable.
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// Whether fields, seen through their look-up, satisfy all conditions.
    pub fn matches<'a>(&self, lookup: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|requirement| {
            let value = lookup(&requirement.field).unwrap_or(requirement.unset);
            (value == requirement.value) != requirement.negated
        })
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
        for (at, Requirement { field, value, negated, .. }) in self.requirements.iter().enumerate() {
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
    use crate::object::{Field, Object};
    use serde_json::json;

    #[test]
    fn selectors_parse_print_and_match() {
        let selector = FieldSelector::parse("status.phase!=Failed,spec.nodeName==n1").expect("a selector");
        assert_eq!(selector.to_string(), "spec.nodeName=n1,status.phase!=Failed");
        assert_eq!(selector.requires_exact_match("spec.nodeName"), Some("n1"));
        assert_eq!(selector.requires_exact_match("status.phase"), None);
        let on = |node: &'static str, phase: &'static str| {
            selector.matches(|path| Some(if path == "spec.nodeName" { node } else { phase }))
        };
        assert!(on("n1", ""));
        assert!(!on("n1", "Failed"));
        assert!(!on("", "Running"));
        assert!(FieldSelector::parse("").expect("empty").is_empty());
        assert!(FieldSelector::parse(",").expect("empty").is_empty());
        let kind = FieldPaths::new(&[Field::text("spec.nodeName")]);
        assert_eq!(selector.clone().of_kind(&kind), Err("status.phase".to_owned()));
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

    #[test]
    fn a_field_that_is_not_set_has_its_types_empty_value() {
        const FIELDS: [Field; 5] = [
            Field::text("reportingComponent"),
            Field::flag("spec.unschedulable"),
            Field::count_found_at("status.successful", &["status.succeeded"]),
            Field::text_found_at("source", &["source.component", "reportingComponent"]),
            Field::text("spec.nodeName"),
        ];
        let kind = FieldPaths::new(&FIELDS);
        let selects = |text: &str, object: &serde_json::Value| {
            let selector = FieldSelector::parse(text).and_then(|selector| selector.of_kind(&kind)).expect(text);
            selector.matches_meta(Object::from_value(object, 1, &kind).expect("an object").meta())
        };
        let bare = json!({"metadata": {"name": "a"}});
        let full = json!({"spec": {"unschedulable": true, "nodeName": "n"}, "status": {"succeeded": 2},
            "source": {"component": "kubelet"}, "reportingComponent": "other"});
        let reported = json!({"source": {"component": ""}, "reportingComponent": "other"});
        for (text, object, selected) in [
            ("spec.unschedulable=false", &bare, true),
            ("spec.unschedulable=", &bare, false),
            ("spec.unschedulable!=true", &bare, true),
            ("spec.unschedulable=false", &full, false),
            ("status.successful=0", &bare, true),
            ("status.successful=2", &full, true),
            ("source=", &bare, true),
            ("source=kubelet,spec.nodeName=n", &full, true),
            ("source=other", &full, false),
            ("source=other,reportingComponent=other", &reported, true),
            ("spec.nodeName=,metadata.name=a", &bare, true),
        ] {
            assert_eq!(selects(text, object), selected, "{text} {object}");
        }
    }
}
