//! The one error of the API: every failure is a `metav1.Status` with upstream's code, reason and message.

mod field;

use std::fmt;

use serde_json::{Value, json};

use crate::gvk::GroupResource;
pub use field::{FieldError, FieldReason, go_quote};

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
        let message = format!("{subject} {} is invalid: {}", go_quote(name), aggregate(errors));
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
pub fn aggregate(errors: &[FieldError]) -> String {
    let mut seen = std::collections::HashSet::new();
    let messages: Vec<String> =
        errors.iter().map(FieldError::to_string).filter(|message| seen.insert(message.clone())).collect();
    match messages.as_slice() {
        [one] => one.clone(),
        _ => format!("[{}]", messages.join(", ")),
    }
}

#[cfg(test)]
mod tests;
