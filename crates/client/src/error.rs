//! Why a call failed, with the questions that callers ask about it.

use std::time::Duration;

use machinery::ApiError;
use machinery::status::Reason;

use crate::config;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server answered with a `Status`.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// No answer: the server cannot be reached, or the connection broke. Whether a write took place is unknown.
    #[error("cannot talk to the API server: {0}")]
    Transport(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// No answer in time. Whether a write took place is unknown.
    #[error("no answer from the API server within {} seconds", .0.as_secs())]
    Timeout(Duration),
    /// The answer is not what was asked for.
    #[error("answer cannot be read as {what}: {source}")]
    Decode {
        /// What it should have been.
        what: &'static str,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// The answer is of another nature than what was asked for, such as an object where a watch was opened.
    #[error("answer is not {0}")]
    Unexpected(&'static str),
    /// The object cannot be encoded.
    #[error("object cannot be encoded: {0}")]
    Encode(#[source] serde_json::Error),
    /// The server sent more than the client is ready to hold.
    #[error("answer is larger than {limit} bytes")]
    TooLarge {
        /// The limit that was passed.
        limit: usize,
    },
    /// An object without `metadata.name` was to be updated.
    #[error("{0} has no metadata.name")]
    Unnamed(&'static str),
    /// The request has a name or a header that HTTP cannot carry.
    #[error("request cannot be built: {0}")]
    Request(#[from] http::Error),
    /// A write of a process that led and no longer does. It was not sent.
    #[error("{method} {path} was not sent: this process no longer leads")]
    Fenced {
        /// What was to be done.
        method: String,
        path: String,
    },
    /// The credentials or the server's address are unusable.
    #[error(transparent)]
    Config(#[from] config::Error),
}

impl Error {
    pub(crate) fn transport(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Transport(source.into())
    }

    fn is(&self, reason: Reason) -> bool {
        matches!(self, Self::Api(error) if error.is(reason))
    }

    /// The object, or the resource, is not there.
    pub fn is_not_found(&self) -> bool {
        self.is(Reason::NotFound)
    }

    /// Somebody else was faster, or a precondition did not hold.
    pub fn is_conflict(&self) -> bool {
        self.is(Reason::Conflict)
    }

    /// The name is taken.
    pub fn is_already_exists(&self) -> bool {
        self.is(Reason::AlreadyExists)
    }

    /// The server no longer has the history that was asked for: list again.
    pub fn is_gone(&self) -> bool {
        self.is(Reason::Expired) || self.is(Reason::Gone) || self.code() == Some(410)
    }

    /// Not allowed, by authorization or admission.
    pub fn is_forbidden(&self) -> bool {
        self.is(Reason::Forbidden)
    }

    /// The object is refused as it is.
    pub fn is_invalid(&self) -> bool {
        self.is(Reason::Invalid)
    }

    /// The server asks to slow down.
    pub fn is_too_many_requests(&self) -> bool {
        // A server that is too busy to make a Status has only the code.
        self.is(Reason::TooManyRequests) || self.code() == Some(429)
    }

    /// Nobody answered, or somebody who could not reach the server or is about to stop. What was asked is not at fault.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Transport(_) | Self::Timeout(_)) || matches!(self.code(), Some(502..=504))
    }

    /// The HTTP status code, where the server answered.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Api(error) => Some(error.code),
            _ => None,
        }
    }

    /// The server's answer, where it is one.
    pub fn api(&self) -> Option<&ApiError> {
        match self {
            Self::Api(error) => Some(error),
            _ => None,
        }
    }
}
