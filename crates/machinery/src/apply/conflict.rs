//! What an apply fails with, in upstream's words.

use super::managed::Id;
use super::path::Element;
use crate::status::{ApiError, Cause, Details, Reason};

/// One field over which an apply and another manager disagree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    pub(super) manager: Id,
    pub(super) path: Vec<Element>,
}

impl Conflict {
    /// The field, such as `.spec.replicas`.
    pub fn path(&self) -> String {
        self.path.iter().map(Element::to_string).collect()
    }

    /// Who owns it, as messages name them: `"kubectl" using apps/v1`.
    pub fn manager(&self) -> String {
        self.manager.to_string()
    }
}

/// Why an apply failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It makes no sense for this object.
    #[error("{0}")]
    Malformed(String),
    /// It would change what others own.
    #[error("{}", conflict_message(.0))]
    Conflict(Vec<Conflict>),
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        match error {
            Error::Malformed(_) => ApiError::bad_request(message),
            Error::Conflict(conflicts) => {
                let cause = |conflict: &Conflict| Cause {
                    reason: "FieldManagerConflict".to_owned(),
                    message: format!("conflict with {}", conflict.manager),
                    field: conflict.path(),
                };
                let mut answer = ApiError::new(Reason::Conflict, message);
                let causes = conflicts.iter().map(cause).collect();
                answer.details = Some(Box::new(Details { causes, ..Details::default() }));
                answer
            }
        }
    }
}

fn conflict_message(conflicts: &[Conflict]) -> String {
    if let [one] = conflicts {
        return format!("Apply failed with 1 conflict: conflict with {}: {}", one.manager, one.path());
    }
    let mut lines = Vec::new();
    for group in conflicts.chunk_by(|a, b| a.manager == b.manager) {
        lines.push(format!("conflicts with {}:", group[0].manager));
        lines.extend(group.iter().map(|conflict| format!("- {}", conflict.path())));
    }
    format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
}
