//! Patches: JSON patch, merge patch and strategic merge patch. Server-side apply has a home of its own.
//!
//! A patch that fails leaves its document half changed; callers work on a copy and drop it.

pub mod echo;
pub mod json;
pub mod merge;
mod pieces;
pub mod strategic;
mod tree;

use serde_json::Value;

use crate::codec::MAX_DEPTH;
use crate::status::{ApiError, Details, Reason};

/// The most operations of one JSON patch.
pub const MAX_OPERATIONS: usize = 10_000;

/// The most bytes that the `copy` operations of one JSON patch may add up to.
pub const MAX_COPIED: usize = 3 << 20;

/// Why a patch was not applied. Its text is upstream's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// It is no patch of its type.
    #[error("{0}")]
    Malformed(String),
    /// A JSON patch with more than [`MAX_OPERATIONS`].
    #[error("The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {0}")]
    TooManyOperations(usize),
    /// It does not fit the document.
    #[error("{0}")]
    Inapplicable(String),
}

impl From<PatchError> for ApiError {
    fn from(error: PatchError) -> Self {
        match error {
            PatchError::Malformed(message) => Self::bad_request(message),
            PatchError::TooManyOperations(_) => {
                Self::new(Reason::RequestEntityTooLarge, format!("Request entity too large: {error}"))
            }
            PatchError::Inapplicable(_) => {
                // Upstream drops the text here and answers with the bare sentence for the code.
                let message = "the server rejected our request due to an error in our request";
                let mut answer = Self::new(Reason::Invalid, message);
                answer.details = Some(Box::<Details>::default());
                answer
            }
        }
    }
}

/// How deeply a value nests, counted no further than one beyond [`MAX_DEPTH`].
fn depth(value: &Value) -> usize {
    fn walk(value: &Value, left: usize) -> usize {
        let deepest = |children: &mut dyn Iterator<Item = &Value>| {
            if left == 0 { 0 } else { children.map(|child| walk(child, left - 1)).max().unwrap_or(0) }
        };
        match value {
            Value::Array(items) => 1 + deepest(&mut items.iter()),
            Value::Object(fields) => 1 + deepest(&mut fields.values()),
            _ => 0,
        }
    }
    walk(value, MAX_DEPTH)
}

/// A value as Go's `%v` prints it, which upstream's messages show.
pub fn go_print(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(go_print).collect::<Vec<_>>().join(" ")),
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_unstable_by_key(|(key, _)| *key);
            let fields: Vec<String> = fields.iter().map(|(key, value)| format!("{key}:{}", go_print(value))).collect();
            format!("map[{}]", fields.join(" "))
        }
        Value::Number(number) => go_number(number),
        Value::Bool(flag) => flag.to_string(),
    }
}

/// A number as Go prints it. One that is no `int64` is a float, and that has an exponent, of two digits at least, if it is very small or
/// a million and more.
pub(crate) fn go_number(number: &serde_json::Number) -> String {
    let float = match (number.as_i64(), number.as_f64()) {
        (None, Some(float)) => float,
        _ => return number.to_string(),
    };
    let text = format!("{float:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if !(-4..6).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    float.to_string()
}

/// What Go calls the kind of a decoded value.
pub(crate) fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
        other => go_type(other),
    }
}

/// What Go calls the type of a decoded value.
pub fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.as_i64().is_none() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// What Go's decoder calls a value of JSON.
pub fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_printed_as_go_prints_them() {
        let tree = json!({"spec": {"b": [1, "x", 1.5, 1e30, 1e-7, 1234567.5, 12345678901234567890_u64], "a": null}, "flag": true});
        let printed = "map[flag:true spec:map[a:<nil> b:[1 x 1.5 1e+30 1e-07 1.2345675e+06 1.2345678901234567e+19]]]";
        assert_eq!(go_print(&tree), printed);
    }
}
