//! What a call to a driver may answer instead of a result.

use std::ops::Deref;

use tonic::{Code, Status};

/// A call that failed, in the words of all calls of a node ([`node::cri::Error`]), and what that means of a volume.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Error(node::cri::Error);

impl Deref for Error {
    type Target = node::cri::Error;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Error {
    pub(crate) fn new(call: &'static str, status: Status) -> Self {
        Self(node::cri::Error::new(call, status))
    }

    /// Whether nothing of the call goes on: it did not begin, or it ended without success. After any other error the driver may
    /// have done what it was asked, or be about to do it.
    pub fn is_final(&self) -> bool {
        !matches!(
            self.status.code(),
            Code::Cancelled | Code::DeadlineExceeded | Code::Unavailable | Code::ResourceExhausted | Code::Aborted
        )
    }

    /// Whether the same call can never succeed.
    pub fn is_infeasible(&self) -> bool {
        matches!(self.status.code(), Code::InvalidArgument | Code::OutOfRange | Code::NotFound)
    }

    /// Whether the volume is in the wrong state for the call: in use, where it may not be.
    pub fn is_precondition(&self) -> bool {
        self.status.code() == Code::FailedPrecondition
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_go_on_in_the_driver_is_not_final() {
        let error = |code| Error::new("NodeStageVolume", Status::new(code, "no"));
        assert_eq!(error(Code::Internal).to_string(), "rpc error: code = Internal desc = no");
        for code in [Code::Internal, Code::InvalidArgument, Code::NotFound, Code::Unimplemented, Code::Unknown] {
            assert!(error(code).is_final(), "{code:?}");
        }
        for code in [Code::DeadlineExceeded, Code::Unavailable, Code::Aborted, Code::Cancelled, Code::ResourceExhausted]
        {
            assert!(!error(code).is_final(), "{code:?}");
        }
        assert!(error(Code::OutOfRange).is_infeasible() && !error(Code::Internal).is_infeasible());
        assert!(error(Code::FailedPrecondition).is_precondition() && !error(Code::Internal).is_precondition());
    }
}
