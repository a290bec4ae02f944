//! What a call to the runtime may answer instead of a result.

use tonic::{Code, Status};

/// A call that failed, in the words in which users know it from `kubectl describe`.
#[derive(Debug, thiserror::Error)]
#[error("rpc error: code = {} desc = {}", code_name(.status.code()), .status.message())]
pub struct Error {
    /// The call, by its name in the contract.
    pub call: &'static str,
    pub status: Box<Status>,
}

impl Error {
    pub fn new(call: &'static str, status: Status) -> Self {
        Self { call, status: Box::new(status) }
    }

    /// An error of a runtime that is not behind gRPC.
    pub fn of(call: &'static str, code: Code, message: impl Into<String>) -> Self {
        Self::new(call, Status::new(code, message))
    }

    /// A call whose end nobody saw.
    pub fn broken(why: impl Into<String>) -> Self {
        Self::of("call", Code::Aborted, why)
    }

    /// What the runtime said, without code.
    pub fn message(&self) -> &str {
        self.status.message()
    }

    /// The thing asked for is not there.
    pub fn is_not_found(&self) -> bool {
        // containerd's CRI plugin reports some missing things as Unknown with this text.
        self.status.code() == Code::NotFound
            || (self.status.code() == Code::Unknown && self.status.message().ends_with("not found"))
    }

    /// The runtime does not know the call.
    pub fn is_unimplemented(&self) -> bool {
        self.status.code() == Code::Unimplemented
    }

    /// The runtime did not answer in time.
    pub fn is_deadline(&self) -> bool {
        self.status.code() == Code::DeadlineExceeded
    }

    pub fn is_unavailable(&self) -> bool {
        self.status.code() == Code::Unavailable
    }
}

/// The names gRPC gives its codes.
fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_reads_as_users_know_it() {
        let error = Error::of("PullImage", Code::NotFound, "no such image");
        assert_eq!(error.to_string(), "rpc error: code = NotFound desc = no such image");
        assert!(error.is_not_found() && !error.is_unimplemented());
    }
}
