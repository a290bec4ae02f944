//! What can be done at a path, and what it is called.

/// What an operation does, in upstream's words.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Get,
    List,
    Post,
    Put,
    Patch,
    Delete,
    DeleteCollection,
    Watch,
    WatchList,
    Connect(&'static str),
}

impl Action {
    pub fn name(self) -> &'static str {
        match self {
            Action::Get => "get",
            Action::List => "list",
            Action::Post => "post",
            Action::Put => "put",
            Action::Patch => "patch",
            Action::Delete => "delete",
            Action::DeleteCollection => "deletecollection",
            Action::Watch => "watch",
            Action::WatchList => "watchlist",
            Action::Connect(_) => "connect",
        }
    }

    pub fn method(self) -> &'static str {
        match self {
            Action::Get | Action::List | Action::Watch | Action::WatchList => "get",
            Action::Post => "post",
            Action::Put => "put",
            Action::Patch => "patch",
            Action::Delete | Action::DeleteCollection => "delete",
            Action::Connect(method) => method,
        }
    }

    /// The word with which the names of operations begin.
    pub fn prefix(self) -> &'static str {
        match self {
            Action::Get => "read",
            Action::Post => "create",
            Action::Put => "replace",
            Action::DeleteCollection => "delete",
            Action::WatchList => "watch",
            other => other.name(),
        }
    }
}
