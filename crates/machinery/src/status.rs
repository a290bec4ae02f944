//! The one error of the API: every failure is a `metav1.Status` with upstream's code, reason and message.

use std::fmt;

use serde_json::{Value, json};

use crate::gvk::GroupResource;

/// Why a request failed, in the words of `metav1.StatusReason`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// 400.
    BadRequest,
    /// 401.
    Unauthorized,
    /// 403.
    Forbidden,
    /// 404.
    NotFound,
    /// 405.
    MethodNotAllowed,
    /// 406.
    NotAcceptable,
    /// 409, the name is taken.
    AlreadyExists,
    /// 409, somebody else was faster.
    Conflict,
    /// 410, the server no longer knows.
    Gone,
    /// 410, the resource version is too old.
    Expired,
    /// 413.
    RequestEntityTooLarge,
    /// 415.
    UnsupportedMediaType,
    /// 422.
    Invalid,
    /// 429.
    TooManyRequests,
    /// 500.
    InternalError,
    /// 500, try again.
    ServerTimeout,
    /// 503.
    ServiceUnavailable,
    /// 504.
    Timeout,
}

impl Reason {
    /// The HTTP status code it is answered with.
    pub const fn code(self) -> u16 {
        match self {
            Self::BadRequest => 400,
            Self::Unauthorized => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::NotAcceptable => 406,
            Self::AlreadyExists | Self::Conflict => 409,
            Self::Gone | Self::Expired => 410,
            Self::RequestEntityTooLarge => 413,
            Self::UnsupportedMediaType => 415,
            Self::Invalid => 422,
            Self::TooManyRequests => 429,
            Self::InternalError | Self::ServerTimeout => 500,
            Self::ServiceUnavailable => 503,
            Self::Timeout => 504,
        }
    }

    /// Reads the reason a server answered with.
    pub fn parse(text: &str) -> Option<Self> {
        [
            Self::BadRequest,
            Self::Unauthorized,
            Self::Forbidden,
            Self::NotFound,
            Self::MethodNotAllowed,
            Self::NotAcceptable,
            Self::AlreadyExists,
            Self::Conflict,
            Self::Gone,
            Self::Expired,
            Self::RequestEntityTooLarge,
            Self::UnsupportedMediaType,
            Self::Invalid,
            Self::TooManyRequests,
            Self::InternalError,
            Self::ServerTimeout,
            Self::ServiceUnavailable,
            Self::Timeout,
        ]
        .into_iter()
        .find(|reason| reason.to_string() == text)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

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

    const fn words(self) -> &'static str {
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

/// One entry of `details.causes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// `metav1.CauseType`.
    pub reason: String,
    pub message: String,
    /// The field, where it is about one.
    pub field: String,
}

/// `metav1.StatusDetails`, all optional.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Details {
    pub name: String,
    pub group: String,
    /// Its resource or kind.
    pub kind: String,
    pub uid: String,
    /// What went wrong, in detail.
    pub causes: Vec<Cause>,
    /// When to try again, in seconds; 0 is not said.
    pub retry_after: u32,
}

/// A failed request. The answer is [`ApiError::to_value`] with [`ApiError::code`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// The HTTP status code.
    pub code: u16,
    /// The machine-readable reason; `None` for codes that have none.
    pub reason: Option<Reason>,
    /// A reason of somebody's own, such as a webhook's, where it is none of the known ones.
    pub own_reason: Option<Box<str>>,
    /// For people and, alas, for scripts: upstream's to the letter.
    pub message: String,
    pub details: Option<Box<Details>>,
    /// `metadata.continue`: how to go on with a list whose snapshot is gone.
    pub next: Option<String>,
}

impl ApiError {
    /// An error of this reason without details.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            code: reason.code(),
            reason: Some(reason),
            own_reason: None,
            message: message.into(),
            details: None,
            next: None,
        }
    }

    fn about(mut self, resource: &GroupResource, name: &str) -> Self {
        let details = self.details.get_or_insert_default();
        details.group.clone_from(&resource.group);
        details.kind.clone_from(&resource.resource);
        name.clone_into(&mut details.name);
        self
    }

    /// The object is not there.
    pub fn not_found(resource: &GroupResource, name: &str) -> Self {
        Self::new(Reason::NotFound, format!("{resource} \"{name}\" not found")).about(resource, name)
    }

    /// Nothing is served at this path.
    pub fn no_such_path() -> Self {
        let mut error = Self::new(Reason::NotFound, "the server could not find the requested resource");
        error.details = Some(Box::default());
        error
    }

    /// The name is taken.
    pub fn already_exists(resource: &GroupResource, name: &str) -> Self {
        Self::new(Reason::AlreadyExists, format!("{resource} \"{name}\" already exists")).about(resource, name)
    }

    /// Somebody else was faster, or a precondition does not hold.
    pub fn conflict(resource: &GroupResource, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {resource} \"{name}\": {why}");
        Self::new(Reason::Conflict, message).about(resource, name)
    }

    /// A write against a version that is no longer the latest.
    pub fn stale(resource: &GroupResource, name: &str) -> Self {
        const WHY: &str = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(resource, name, WHY)
    }

    /// Not allowed, by authorization or admission.
    pub fn forbidden(resource: &GroupResource, name: &str, why: &str) -> Self {
        let message = match (resource.resource.is_empty(), name.is_empty()) {
            (true, _) => format!("forbidden: {why}"),
            (false, true) => format!("{resource} is forbidden: {why}"),
            (false, false) => format!("{resource} \"{name}\" is forbidden: {why}"),
        };
        Self::new(Reason::Forbidden, message).about(resource, name)
    }

    /// Everything that is wrong with an object, at once. `kind` is the kind, not the resource.
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let subject = GroupResource::new(group, kind);
        let message = format!("{subject} \"{name}\" is invalid: {}", aggregate(errors));
        let mut error = Self::new(Reason::Invalid, message).about(&subject, name);
        error.details.get_or_insert_default().causes = errors
            .iter()
            .map(|error| Cause {
                reason: error.reason.cause().to_owned(),
                message: error.body(),
                field: error.path.clone(),
            })
            .collect();
        error
    }

    /// The request makes no sense.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(Reason::BadRequest, message)
    }

    pub fn unauthorized() -> Self {
        Self::new(Reason::Unauthorized, "Unauthorized")
    }

    /// The resource exists, the verb on it does not.
    pub fn method_not_allowed() -> Self {
        let mut error =
            Self::new(Reason::MethodNotAllowed, "the server does not allow this method on the requested resource");
        error.details = Some(Box::default());
        error
    }

    /// History the server no longer has.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(Reason::Expired, message)
    }

    /// The body is larger than `limit` bytes.
    pub fn too_large(limit: usize) -> Self {
        Self::new(Reason::RequestEntityTooLarge, format!("Request entity too large: limit is {limit}"))
    }

    /// Too much at once; try again after so many seconds.
    pub fn too_many_requests(message: impl Into<String>, retry_after: u32) -> Self {
        Self::new(Reason::TooManyRequests, message).retry_after(retry_after)
    }

    /// The store or another part is away for the moment.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(Reason::ServiceUnavailable, message).retry_after(1)
    }

    /// It took too long; the outcome is unknown.
    pub fn timeout(message: impl Into<String>) -> Self {
        Self::new(Reason::Timeout, message)
    }

    pub fn internal(why: impl fmt::Display) -> Self {
        let mut error = Self::new(Reason::InternalError, format!("Internal error occurred: {why}"));
        error.details.get_or_insert_default().causes =
            vec![Cause { reason: String::new(), message: why.to_string(), field: String::new() }];
        error
    }

    /// Asks the client to come back after so many seconds.
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.details.get_or_insert_default().retry_after = seconds;
        self
    }

    /// Whether this is the reason.
    pub fn is(&self, reason: Reason) -> bool {
        self.reason == Some(reason)
    }

    /// The `Status` object it is answered with.
    pub fn to_value(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {},
            "status": "Failure", "message": self.message, "code": self.code,
        });
        if let Some(next) = &self.next {
            status["metadata"]["continue"] = json!(next);
        }
        if let Some(reason) = self.reason {
            status["reason"] = json!(reason.to_string());
        } else if let Some(reason) = &self.own_reason {
            status["reason"] = json!(reason);
        }
        if let Some(details) = &self.details {
            let mut shown = serde_json::Map::new();
            for (key, text) in
                [("name", &details.name), ("group", &details.group), ("kind", &details.kind), ("uid", &details.uid)]
            {
                if !text.is_empty() {
                    shown.insert(key.to_owned(), json!(text));
                }
            }
            if !details.causes.is_empty() {
                let causes = details.causes.iter().map(Cause::to_value).collect();
                shown.insert("causes".to_owned(), Value::Array(causes));
            }
            if details.retry_after > 0 {
                shown.insert("retryAfterSeconds".to_owned(), json!(details.retry_after));
            }
            status["details"] = Value::Object(shown);
        }
        status
    }

    /// Reads a `Status` that a server answered with `code`. What is no `Status` keeps the code and the text.
    pub fn from_value(code: u16, status: &Value) -> Self {
        let text = |key: &str| status[key].as_str().unwrap_or_default().to_owned();
        let details = status["details"].as_object().map(|details| {
            let text = |key: &str| details.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
            Box::new(Details {
                name: text("name"),
                group: text("group"),
                kind: text("kind"),
                uid: text("uid"),
                causes: details
                    .get("causes")
                    .and_then(Value::as_array)
                    .map(|causes| causes.iter().map(Cause::from_value).collect())
                    .unwrap_or_default(),
                retry_after: details
                    .get("retryAfterSeconds")
                    .and_then(Value::as_u64)
                    .and_then(|seconds| u32::try_from(seconds).ok())
                    .unwrap_or_default(),
            })
        });
        let next = status["metadata"]["continue"].as_str().map(str::to_owned);
        let word = text("reason");
        let reason = Reason::parse(&word);
        let own_reason = (reason.is_none() && !word.is_empty()).then(|| word.into_boxed_str());
        Self { code, reason, own_reason, message: text("message"), details, next }
    }
}

impl Cause {
    fn to_value(&self) -> Value {
        let mut cause = serde_json::Map::new();
        for (key, text) in [("reason", &self.reason), ("message", &self.message), ("field", &self.field)] {
            if !text.is_empty() {
                cause.insert(key.to_owned(), json!(text));
            }
        }
        Value::Object(cause)
    }

    fn from_value(cause: &Value) -> Self {
        let text = |key: &str| cause[key].as_str().unwrap_or_default().to_owned();
        Self { reason: text("reason"), message: text("message"), field: text("field") }
    }
}

/// Several messages in one, each once: alone it stands as it is, more stand in brackets.
pub(crate) fn aggregate(errors: &[FieldError]) -> String {
    let mut seen = std::collections::HashSet::new();
    let messages: Vec<String> =
        errors.iter().map(FieldError::to_string).filter(|message| seen.insert(message.clone())).collect();
    match messages.as_slice() {
        [one] => one.clone(),
        _ => format!("[{}]", messages.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_quoted_as_go_quotes_them() {
        for (text, quoted) in [
            ("a \"b\" \\ 'c'", r#""a \"b\" \\ 'c'""#),
            ("\n\t\r\0\u{7}\u{7f}", r#""\n\t\r\x00\a\x7f""#),
            ("\u{e9}\u{301}\u{200b}\u{2028}\u{a0}", "\"\u{e9}\u{301}\\u200b\\u2028\\u00a0\""),
            ("\u{1f980}\u{10fffe}", "\"\u{1f980}\\U0010fffe\""),
        ] {
            assert_eq!(go_quote(text), quoted);
        }
    }

    #[test]
    fn messages_are_upstreams() {
        let deployments = GroupResource::new("apps", "deployments");
        assert_eq!(ApiError::not_found(&deployments, "web").message, "deployments.apps \"web\" not found");
        let pods = GroupResource::new("", "pods");
        assert_eq!(
            ApiError::stale(&pods, "a").message,
            "Operation cannot be fulfilled on pods \"a\": the object has been modified; please apply your changes to the latest version and try again"
        );
        let port = FieldError::invalid("spec.ports[0].port", 0, "must be between 1 and 65535, inclusive");
        let kind = FieldError::not_supported("spec.type", "X", ["A", "B"]);
        assert_eq!(
            ApiError::invalid("", "Service", "s", &[port.clone(), kind, port]).message,
            "Service \"s\" is invalid: [spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive, spec.type: Unsupported value: \"X\": supported values: \"A\", \"B\"]"
        );
    }

    #[test]
    fn a_status_survives_the_wire() {
        let errors = [FieldError::required("spec", "")];
        let error = ApiError::invalid("apps", "Deployment", "web", &errors).retry_after(3);
        assert_eq!(ApiError::from_value(error.code, &error.to_value()), error);
    }
}
