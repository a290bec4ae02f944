//! Paths and queries of the API, percent-encoded where a name could break out of its segment.

use std::fmt::{self, Display, Write as _};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// What RFC 3986 calls unreserved stays readable.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Where a resource lives: `/api/v1/namespaces/default/pods`.
pub(crate) fn collection(group: &str, version: &str, namespace: &str, resource: &str) -> String {
    let mut path = String::with_capacity(64);
    if group.is_empty() {
        path.push_str("/api/");
    } else {
        path.push_str("/apis/");
        path.push_str(group);
        path.push('/');
    }
    path.push_str(version);
    if !namespace.is_empty() {
        path.push_str("/namespaces/");
        push(&mut path, namespace);
    }
    path.push('/');
    path.push_str(resource);
    path
}

/// Appends a name, and a subresource where one is meant.
pub(crate) fn item(mut collection: String, name: &str, subresource: &str) -> String {
    collection.push('/');
    push(&mut collection, name);
    if !subresource.is_empty() {
        collection.push('/');
        collection.push_str(subresource);
    }
    collection
}

fn push(path: &mut String, segment: &str) {
    path.extend(utf8_percent_encode(segment, RESERVED));
}

/// A query string; empty when nothing was added, otherwise with its question mark.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Query(String);

impl Query {
    /// Adds a parameter unless its value is empty.
    pub(crate) fn text(self, key: &str, value: &str) -> Self {
        self.option(key, (!value.is_empty()).then_some(value))
    }

    /// Adds a parameter that is there.
    pub(crate) fn option(mut self, key: &str, value: Option<impl Display>) -> Self {
        if let Some(value) = value {
            let separator = if self.0.is_empty() { '?' } else { '&' };
            let value = value.to_string();
            write!(self.0, "{separator}{key}={}", utf8_percent_encode(&value, RESERVED))
                .expect("writing to a string cannot fail");
        }
        self
    }
}

impl Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_segment() {
        let pods = collection("", "v1", "default", "pods");
        assert_eq!(pods, "/api/v1/namespaces/default/pods");
        assert_eq!(item(pods, "../x?y", "log"), "/api/v1/namespaces/default/pods/..%2Fx%3Fy/log");
        assert_eq!(collection("apps", "v1", "", "deployments"), "/apis/apps/v1/deployments");
        let role = item(collection("rbac.authorization.k8s.io", "v1", "", "clusterroles"), "system:node", "");
        assert_eq!(role, "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode");
    }
}
