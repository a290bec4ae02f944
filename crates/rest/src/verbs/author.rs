//! Who writes: what is kept beside a change, so that the past can say who made it, and the request that the hop of a commit belongs to.
//!
//! The object does not say it. Its record of managers has no users and no deletions, forgets whoever owns nothing any more, and
//! anybody who may write the object may change it. So user, manager, verb and subresource go beside the value, as the note of the transaction.

use std::sync::Arc;

use bytes::Bytes;
use gates::{Exchange, Held};
use http::header::USER_AGENT;
use machinery::objectmeta;

use super::is_apply;
use crate::registry::Resource;

/// What the server does on its own account.
const SERVER: &str = "system:apiserver";
/// Between the parts of a note. No name has it.
const SEPARATOR: char = '\0';

/// Who writes.
#[derive(Clone, Copy)]
pub enum Author<'a> {
    /// Whoever sent the request.
    Request(&'a Exchange),
    /// The server itself, for the sake of what others write.
    Server,
}

/// An object that is written, and who writes it.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    pub resource: &'a Resource,
    /// In the cache.
    pub key: &'a str,
    pub by: Author<'a>,
}

impl<'a> Target<'a> {
    /// One that the server writes for itself.
    pub fn own(resource: &'a Resource, key: &'a str) -> Self {
        Self { resource, key, by: Author::Server }
    }

    /// One that a request writes.
    pub fn of(exchange: &'a Exchange, resource: &'a Arc<Resource>, key: &'a str) -> Self {
        Self { resource, key, by: Author::Request(exchange) }
    }
}

impl Author<'_> {
    pub(super) fn trace(self) -> hops::Trace {
        match self {
            Self::Request(exchange) => exchange.trace,
            Self::Server => hops::Trace::default(),
        }
    }

    /// The lease that it writes under.
    pub(super) fn held(&self) -> Option<&Held> {
        match self {
            Self::Request(exchange) => exchange.held.as_ref(),
            Self::Server => None,
        }
    }

    /// The note of a transaction.
    pub(super) fn note(self, verb: &str) -> Bytes {
        let Self::Request(exchange) = self else {
            return encode([SERVER, "", verb, ""]);
        };
        let headers = exchange.headers();
        let agent = headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
        let manager = objectmeta::field_manager(exchange.query().get("fieldManager"), agent);
        let verb = if exchange.info.verb == "patch" && is_apply(headers) { "apply" } else { exchange.info.verb };
        encode([&exchange.user.name, &manager, verb, &exchange.info.subresource])
    }
}

fn encode(parts: [&str; 4]) -> Bytes {
    let mut note = String::with_capacity(parts.iter().map(|part| part.len() + 1).sum());
    for (place, part) in parts.into_iter().enumerate() {
        if place > 0 {
            note.push(SEPARATOR);
        }
        note.extend(part.chars().filter(|letter| *letter != SEPARATOR));
    }
    note.into()
}

/// A note that was kept.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Noted {
    pub(super) user: String,
    pub(super) manager: String,
    pub(super) verb: String,
    pub(super) subresource: String,
}

impl Noted {
    /// What is not known is empty: nothing is kept of keys that expired, of writes of earlier versions, and by etcd.
    pub(super) fn read(note: &[u8]) -> Self {
        let text = String::from_utf8_lossy(note);
        let mut parts = text.split(SEPARATOR).map(str::to_owned);
        let mut next = || parts.next().unwrap_or_default();
        Self { user: next(), manager: next(), verb: next(), subresource: next() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_say_what_was_written() {
        let noted = Noted::read(&encode(["system:serviceaccount:kube-system:job", "kubectl", "patch", "status"]));
        let Noted { user, manager, verb, subresource } = &noted;
        assert_eq!(
            [user, manager, verb, subresource],
            ["system:serviceaccount:kube-system:job", "kubectl", "patch", "status"]
        );
        assert_eq!(Noted::read(&encode(["a\0b", "", "", ""])).user, "ab", "nobody can pass for somebody else");
        assert_eq!(Noted::read(b""), Noted::default());
        assert_eq!(Noted::read(b"\xff").verb, "");
    }
}
