//! What may be waited for.

use machinery::status::go_quote;
use serde_json::Value;

use crate::print::golang;
use crate::print::jsonpath::{JsonPath, relaxed};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    Created,
    Deleted,
    /// A condition of the status, and the value it is to have.
    Status(String, String),
    /// A path, and what it is to lead to; nothing means anything.
    Path(String, Option<String>),
}

impl Condition {
    pub fn parse(text: &str) -> Result<Self, String> {
        let lower = text.to_lowercase();
        if lower == "delete" {
            return Ok(Self::Deleted);
        }
        if lower == "create" {
            return Ok(Self::Created);
        }
        if let Some(rest) = text.strip_prefix("condition=") {
            let (name, value) = rest.split_once('=').unwrap_or((rest, "true"));
            return Ok(Self::Status(name.to_owned(), value.to_owned()));
        }
        if let Some(rest) = text.strip_prefix("jsonpath=") {
            return path(rest);
        }
        Err(format!("unrecognized condition: {}", go_quote(text)))
    }

    /// The object, if the condition holds; `before` is the object that was there at the beginning.
    pub fn holds(&self, object: Option<&Value>, before: &Value) -> Result<Option<Value>, String> {
        let Some(object) = object else {
            return Ok((*self == Self::Deleted).then(|| before.clone()));
        };
        let met = match self {
            Self::Created => true,
            Self::Deleted => {
                let uid = |object: &Value| machinery::value::text(object, "metadata.uid").to_owned();
                !uid(before).is_empty() && uid(before) != uid(object)
            }
            Self::Status(name, value) => status(object, name, value),
            Self::Path(path, value) => found(object, path, value.as_deref())?,
        };
        Ok(met.then(|| object.clone()))
    }
}

fn path(text: &str) -> Result<Condition, String> {
    // The value follows the last brace, or the first sign of a plain path.
    let (path, value) = match text.rfind("}=") {
        Some(end) => (&text[..=end], Some(&text[end + 2..])),
        None if text.ends_with('}') => (text, None),
        None => match sign(text) {
            Some(at) => (&text[..at], Some(&text[at + 1..])),
            None => (text, None),
        },
    };
    if value == Some("") {
        return Err(
            "jsonpath wait has to have a value after equal sign, like --for=jsonpath='{.status.readyReplicas}'=3"
                .to_owned(),
        );
    }
    let value = value.map(|value| value.trim_matches(['\'', '"']).to_owned());
    let path = relaxed(path.trim_matches(['\'', '"']))?;
    if path.is_empty() {
        return Err("jsonpath expression cannot be empty".to_owned());
    }
    JsonPath::parse(&path)?;
    Ok(Condition::Path(path, value))
}

/// Where the sign stands that parts a path from its value: not one of a comparison in a filter.
fn sign(text: &str) -> Option<usize> {
    let letters = text.as_bytes();
    let compares = |letter: Option<&u8>| letter.is_some_and(|letter| b"=!<>".contains(letter));
    (0..letters.len()).find(|&at| {
        letters[at] == b'=' && letters.get(at + 1) != Some(&b'=') && !compares(at.checked_sub(1).map(|at| &letters[at]))
    })
}

fn status(object: &Value, name: &str, value: &str) -> bool {
    // What was observed of an older generation does not count.
    let generation = machinery::value::int(object, "metadata.generation").unwrap_or_default();
    let observed = |tree: &Value, path: &str| machinery::value::int(tree, path).is_some_and(|seen| seen < generation);
    machinery::value::list(object, "status.conditions").iter().any(|condition| {
        let text = |field: &str| machinery::value::text(condition, field);
        text("type").eq_ignore_ascii_case(name)
            && text("status").eq_ignore_ascii_case(value)
            && !observed(condition, "observedGeneration")
            && !observed(object, "status.observedGeneration")
    })
}

fn found(object: &Value, path: &str, value: Option<&str>) -> Result<bool, String> {
    let parsed = JsonPath::parse(path)?;
    let results = parsed.find(object)?;
    if value.is_some() && results.len() > 1 {
        return Err("given jsonpath expression matches more than one list".to_owned());
    }
    let results: Vec<&Value> = results.iter().flatten().map(|found| &**found).collect();
    match (&results[..], value) {
        ([], _) => Ok(false),
        ([_, _, ..], Some(_)) => Err("given jsonpath expression matches more than one value".to_owned()),
        ([Value::Object(_) | Value::Array(_)], Some(_)) => {
            Err("jsonpath leads to a nested object or list which is not supported".to_owned())
        }
        (_, None) => Ok(true),
        ([one], Some(value)) => Ok(golang::print(one).trim() == value),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn conditions_hold_or_do_not() {
        let object = json!({
            "metadata": {"uid": "1", "generation": 2},
            "status": {"phase": "Running", "observedGeneration": 2, "conditions": [{"type": "Ready", "status": "True"}]},
        });
        for (text, expected) in [
            ("create", true),
            ("delete", false),
            ("condition=Ready", true),
            ("condition=ready=true", true),
            ("condition=Ready=False", false),
            ("condition=Other", false),
            ("jsonpath={.status.phase}=Running", true),
            ("jsonpath='{.status.phase}'=Running", true),
            ("jsonpath=.status.phase=Pending", false),
            ("jsonpath={.status.phase}", true),
            ("jsonpath={.status.missing}", false),
            ("jsonpath=status.conditions[?(@.type==\"Ready\")].status=True", true),
            ("jsonpath=status.conditions[?(@.type!=\"Other\")].status=False", false),
        ] {
            let condition = Condition::parse(text).expect(text);
            assert_eq!(condition.holds(Some(&object), &object).expect(text).is_some(), expected, "{text}");
        }
        assert!(Condition::Deleted.holds(None, &object).expect("an answer").is_some());
        let other = json!({"metadata": {"uid": "2"}});
        assert!(Condition::Deleted.holds(Some(&object), &other).expect("an answer").is_some());
        for odd in ["foo", "jsonpath=", "jsonpath={.a}=", "CONDITION=Ready"] {
            assert!(Condition::parse(odd).is_err(), "{odd}");
        }
    }
}
