//! What is wrong with a field, in the words and with the quotes that upstream uses.

use std::fmt;

use serde_json::Value;

/// What is wrong with a field, in the words of `field.ErrorType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FieldReason {
    /// Something it refers to does not exist.
    NotFound,
    Required,
    Duplicate,
    Invalid,
    /// Not one of the values there are.
    NotSupported,
    /// Well formed, but not allowed here.
    Forbidden,
    TooLong,
    TooMany,
    /// Of another type than the schema says.
    TypeInvalid,
    Internal,
}

impl FieldReason {
    /// `metav1.CauseType`.
    pub const fn cause(self) -> &'static str {
        match self {
            Self::NotFound => "FieldValueNotFound",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::Internal => "InternalError",
        }
    }

    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::NotFound => "Not found",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::Internal => "Internal error",
        }
    }
}

/// One thing wrong with one field. It prints as upstream prints it: `spec.ports[0].port: Invalid value: 0: must be ...`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    pub reason: FieldReason,
    /// Where, such as `spec.containers[0].image`.
    pub path: String,
    /// The offending value as JSON would show it, where upstream shows one.
    pub value: Option<Value>,
    /// What would be right.
    pub detail: String,
    /// The value as it is printed, where that is not what JSON shows.
    pub shown: Option<String>,
}

impl FieldError {
    pub fn required(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { reason: FieldReason::Required, path: path.into(), value: None, detail: detail.into(), shown: None }
    }

    pub fn invalid(path: impl Into<String>, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self {
            reason: FieldReason::Invalid,
            path: path.into(),
            value: Some(value.into()),
            detail: detail.into(),
            shown: None,
        }
    }

    /// A field of the wrong type.
    pub fn type_invalid(path: impl Into<String>, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self {
            reason: FieldReason::TypeInvalid,
            path: path.into(),
            value: Some(value.into()),
            detail: detail.into(),
            shown: None,
        }
    }

    /// A value given twice.
    pub fn duplicate(path: impl Into<String>, value: impl Into<Value>) -> Self {
        Self {
            reason: FieldReason::Duplicate,
            path: path.into(),
            value: Some(value.into()),
            detail: String::new(),
            shown: None,
        }
    }

    /// A reference to what does not exist.
    pub fn not_found(path: impl Into<String>, value: impl Into<Value>) -> Self {
        Self {
            reason: FieldReason::NotFound,
            path: path.into(),
            value: Some(value.into()),
            detail: String::new(),
            shown: None,
        }
    }

    /// A field that may not be set, or not so.
    pub fn forbidden(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { reason: FieldReason::Forbidden, path: path.into(), value: None, detail: detail.into(), shown: None }
    }

    /// A value outside of the supported ones.
    pub fn not_supported<'a>(
        path: impl Into<String>,
        value: impl Into<Value>,
        supported: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let supported: Vec<String> = supported.into_iter().map(|value| format!("{value:?}")).collect();
        let detail =
            if supported.is_empty() { String::new() } else { format!("supported values: {}", supported.join(", ")) };
        Self { reason: FieldReason::NotSupported, path: path.into(), value: Some(value.into()), detail, shown: None }
    }

    /// A text beyond its longest length.
    pub fn too_long(path: impl Into<String>, most: usize) -> Self {
        let unit = if most == 1 { "byte" } else { "bytes" };
        Self {
            reason: FieldReason::TooLong,
            path: path.into(),
            value: None,
            detail: format!("may not be more than {most} {unit}"),
            shown: None,
        }
    }

    /// A list beyond its longest length.
    pub fn too_many(path: impl Into<String>, actual: usize, most: usize) -> Self {
        let unit = if most == 1 { "item" } else { "items" };
        Self {
            reason: FieldReason::TooMany,
            path: path.into(),
            value: Some(Value::from(actual)),
            detail: format!("must have at most {most} {unit}"),
            shown: None,
        }
    }

    /// The message without the path, as `details.causes[].message` has it.
    pub fn body(&self) -> String {
        let mut body = self.reason.words().to_owned();
        if let Some(value) = &self.value {
            let shown = match (&self.shown, value) {
                (Some(shown), _) => shown.clone(),
                (None, Value::String(text)) => go_quote(text),
                (None, other) => crate::codec::json::html_safe(&other.to_string()),
            };
            body.push_str(": ");
            body.push_str(&shown);
        }
        if !self.detail.is_empty() {
            body.push_str(": ");
            body.push_str(&self.detail);
        }
        body
    }
}

/// A text in quotes as Go's `%q` writes it.
pub fn go_quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{b}' => quoted.push_str("\\v"),
            '\u{c}' => quoted.push_str("\\f"),
            ' '..='~' => quoted.push(letter),
            '\0'..='\u{7f}' => quoted.push_str(&format!("\\x{:02x}", u32::from(letter))),
            // Rust knows the same letters as printable, once they do not stand first.
            _ if !format!("a{letter}").escape_debug().to_string().contains('\\') => quoted.push(letter),
            '\u{80}'..='\u{ffff}' => quoted.push_str(&format!("\\u{:04x}", u32::from(letter))),
            _ => quoted.push_str(&format!("\\U{:08x}", u32::from(letter))),
        }
    }
    quoted.push('"');
    quoted
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() { f.write_str(&self.body()) } else { write!(f, "{}: {}", self.path, self.body()) }
    }
}
