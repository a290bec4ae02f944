//! Why a command failed, and the words and the exit code with which it says so.

use machinery::ApiError;
use machinery::status::{Reason, go_quote};

/// What went wrong. Scripts read these messages, so every variant is written as upstream writes it.
#[derive(Debug)]
pub enum Failure {
    /// Said with `error: ` before it.
    Message(String),
    /// Said as it is.
    Plain(String),
    Api(ApiError),
    /// No server answers at this host.
    Refused(String),
    /// The server could not be asked.
    Unreachable(String),
    /// The server has no such resource.
    NoMatch {
        resource: String,
        group: String,
        version: String,
    },
    /// The configuration cannot be used, for these reasons.
    Configuration(Vec<String>),
    /// Several things, one after the other.
    Many(Vec<Failure>),
    /// Everything was said; this is the exit code.
    Exit(i32),
    /// A message with an exit code of its own.
    WithCode(String, i32),
    /// A failure with text for standard output, which comes before it.
    After(String, Box<Failure>),
}

pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    pub fn message(text: impl Into<String>) -> Self {
        Self::Message(text.into())
    }

    /// A mistake on the command line, with the pointer to help that upstream adds.
    pub fn usage(path: &str, text: impl std::fmt::Display) -> Self {
        Self::Message(format!("{text}\nSee '{path} -h' for help and examples"))
    }

    /// With text for standard output before it.
    pub fn after(self, text: String) -> Self {
        if text.is_empty() { self } else { Self::After(text, Box::new(self)) }
    }

    /// What standard output gets before the failure is told.
    pub fn printed(&self) -> &str {
        match self {
            Self::After(text, _) => text,
            _ => "",
        }
    }

    /// Several failures as one; none is no failure.
    pub fn all(mut failures: Vec<Failure>) -> Outcome {
        match failures.len() {
            0 => Ok(()),
            1 => Err(failures.remove(0)),
            _ => Err(Self::Many(failures)),
        }
    }

    /// What went wrong with one or several of many things: said without `error: `, even where it is one.
    pub fn each(failures: Vec<Failure>) -> Outcome {
        if failures.is_empty() { Ok(()) } else { Err(Self::Many(failures)) }
    }

    /// Several failures in one line.
    pub fn together(failures: Vec<Failure>) -> Vec<Failure> {
        if failures.len() < 2 {
            return failures;
        }
        let all: Vec<String> = failures.iter().map(Self::bare).collect();
        vec![Self::Message(format!("[{}]", all.join(", ")))]
    }

    /// Adds what was being done with which source, as upstream does for files.
    pub fn about(self, verb: &str, source: &str) -> Self {
        if source.is_empty() {
            return self;
        }
        let words = |message: &str| format!("error when {verb} {}: {message}", go_quote(source));
        match self {
            Self::Api(mut error) => {
                error.message = words(&error.message);
                Self::Api(error)
            }
            other => Self::Message(words(&other.bare())),
        }
    }

    /// Said without `error: `, as upstream says it where nobody wrapped the error.
    pub fn without_prefix(self) -> Self {
        match self {
            Self::NoMatch { .. } => {
                let line = self.line();
                Self::Plain(line.strip_prefix("error: ").map_or(line.clone(), str::to_owned))
            }
            other => other,
        }
    }

    pub fn is(&self, reason: Reason) -> bool {
        matches!(self, Self::Api(error) if error.is(reason))
    }

    pub fn is_not_found(&self) -> bool {
        self.is(Reason::NotFound)
    }

    /// The message without `error: ` or `Error from server`.
    pub fn bare(&self) -> String {
        match self {
            Self::Message(text) | Self::Plain(text) | Self::WithCode(text, _) => text.clone(),
            Self::Api(error) => error.message.clone(),
            other => other.render().trim_end().to_owned(),
        }
    }

    /// What is written to standard error; a newline is added where there is none.
    pub fn render(&self) -> String {
        match self {
            Self::Exit(_) => String::new(),
            Self::After(_, failure) => failure.render(),
            Self::Api(error) if error.is(Reason::Invalid) => invalid(error),
            Self::Configuration(reasons) => multiline("Error in configuration: ", reasons),
            Self::Many(failures) => failures.iter().map(|failure| failure.among() + "\n").collect(),
            Self::WithCode(text, _) => text.clone(),
            other => other.line(),
        }
    }

    pub fn code(&self) -> i32 {
        match self {
            Self::Exit(code) | Self::WithCode(_, code) => *code,
            Self::After(_, failure) => failure.code(),
            _ => 1,
        }
    }

    /// One failure among others: without a prefix of its own, unless the server made it.
    fn among(&self) -> String {
        match self {
            Self::Message(text) => text.clone(),
            Self::NoMatch { .. } => self.line().trim_start_matches("error: ").to_owned(),
            other => other.line(),
        }
    }

    /// The standard form of a failure.
    fn line(&self) -> String {
        match self {
            Self::Message(text) if text.starts_with("error: ") => text.clone(),
            Self::Message(text) => format!("error: {text}"),
            Self::Plain(text) => text.clone(),
            Self::Api(error) => from_server(error),
            Self::Refused(host) => {
                format!("The connection to the server {host} was refused - did you specify the right host or port?")
            }
            Self::Unreachable(why) => format!("Unable to connect to the server: {why}"),
            Self::NoMatch { resource, group, version } => {
                let mut text = format!("the server doesn't have a resource type {}", go_quote(resource));
                match (group.is_empty(), version.is_empty()) {
                    (false, false) => {
                        text += &format!(" in group {} and version {}", go_quote(group), go_quote(version));
                    }
                    (false, true) => text += &format!(" in group {}", go_quote(group)),
                    (true, false) => text += &format!(" in version {}", go_quote(version)),
                    (true, true) => {}
                }
                format!("error: {text}")
            }
            Self::Configuration(reasons) => reasons.join(", "),
            Self::Many(failures) => failures.iter().map(Self::line).collect::<Vec<_>>().join("\n"),
            Self::Exit(_) => String::new(),
            Self::WithCode(text, _) => text.clone(),
            Self::After(_, failure) => failure.line(),
        }
    }
}

fn from_server(error: &ApiError) -> String {
    let reason = match (&error.reason, &error.own_reason) {
        (Some(Reason::Unauthorized), _) => {
            return format!("error: You must be logged in to the server ({})", error.message);
        }
        (Some(reason), _) => reason.to_string(),
        (None, Some(own)) => own.to_string(),
        (None, None) => return format!("Error from server: {}", error.message),
    };
    format!("Error from server ({reason}): {}", error.message)
}

fn invalid(error: &ApiError) -> String {
    let Some(details) = &error.details else {
        return if error.message.is_empty() {
            "The request is invalid".to_owned()
        } else {
            format!("The request is invalid: {}", error.message)
        };
    };
    let subject = if !details.kind.is_empty() || !details.name.is_empty() {
        format!("The {} {} is invalid", details.kind, go_quote(&details.name))
    } else if !error.message.is_empty() && details.causes.is_empty() {
        format!("The request is invalid: {}", error.message)
    } else {
        "The request is invalid".to_owned()
    };
    if details.causes.is_empty() {
        return subject;
    }
    let mut causes: Vec<String> = Vec::new();
    for cause in &details.causes {
        let text = format!("{}: {}", cause.field, cause.message);
        if !causes.contains(&text) {
            causes.push(text);
        }
    }
    multiline(&format!("{subject}: "), &causes)
}

fn multiline(prefix: &str, reasons: &[String]) -> String {
    match reasons {
        [one] => format!("{prefix}{one}\n"),
        many => many.iter().fold(format!("{prefix}\n"), |text, reason| text + &format!("* {reason}\n")),
    }
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        Self::Api(error)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Message(error.to_string())
    }
}

/// How Go words an error of the operating system.
pub fn os_error(operation: &str, path: &str, error: &std::io::Error) -> String {
    let why = match error.kind() {
        std::io::ErrorKind::NotFound => "no such file or directory".to_owned(),
        std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        std::io::ErrorKind::IsADirectory => "is a directory".to_owned(),
        std::io::ErrorKind::NotADirectory => "not a directory".to_owned(),
        std::io::ErrorKind::AlreadyExists => "file exists".to_owned(),
        _ => error.to_string(),
    };
    format!("{operation} {path}: {why}")
}

#[cfg(test)]
mod tests {
    use machinery::gvk::GroupResource;
    use machinery::status::FieldError;

    use super::*;

    #[test]
    fn failures_are_said_as_scripts_expect_them() {
        let cases: [(Failure, &str); 8] = [
            (Failure::message("no"), "error: no"),
            (Failure::message("error: no"), "error: no"),
            (
                ApiError::not_found(&GroupResource::new("apps", "deployments"), "a").into(),
                "Error from server (NotFound): deployments.apps \"a\" not found",
            ),
            (
                ApiError::new(Reason::Unauthorized, "Unauthorized").into(),
                "error: You must be logged in to the server (Unauthorized)",
            ),
            (
                Failure::Refused("localhost:8080".to_owned()),
                "The connection to the server localhost:8080 was refused - did you specify the right host or port?",
            ),
            (
                ApiError::invalid("", "Pod", "a", &[FieldError::required("spec.containers", "")]).into(),
                "The Pod \"a\" is invalid: spec.containers: Required value\n",
            ),
            (Failure::Configuration(vec!["a".to_owned(), "b".to_owned()]), "Error in configuration: \n* a\n* b\n"),
            (Failure::Many(vec![Failure::message("a"), Failure::message("b")]), "a\nb\n"),
        ];
        for (failure, expected) in cases {
            assert_eq!(failure.render(), expected);
        }
    }

    #[test]
    fn a_source_is_named_before_what_went_wrong() {
        let error = Failure::from(ApiError::new(Reason::Conflict, "late")).about("creating", "a.yaml");
        assert_eq!(error.render(), "Error from server (Conflict): error when creating \"a.yaml\": late");
        assert_eq!(Failure::message("x").about("creating", "").render(), "error: x");
    }
}
