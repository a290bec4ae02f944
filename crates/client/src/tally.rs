//! What a turn of a controller wrote, for its span. Where nobody collects it, nothing is looked at.

use http::Method;
use machinery::rest::Request;

/// A write under way.
pub(crate) struct Write {
    verb: &'static str,
    /// `pods`, `pods/status`.
    resource: String,
}

impl Write {
    /// What a request writes, if somebody wants to know.
    pub(crate) fn of(request: &Request) -> Option<Self> {
        if !hops::collects() {
            return None;
        }
        let verb = match *request.method() {
            Method::POST => "created",
            Method::PUT | Method::PATCH => "updated",
            Method::DELETE => "deleted",
            _ => return None,
        };
        Some(Self { verb, resource: resource(request.uri().path())? })
    }

    pub(crate) fn count(self) {
        hops::wrote(self.verb, &self.resource);
    }
}

/// The resource of a path, with its subresource.
fn resource(path: &str) -> Option<String> {
    let mut parts = path.split('/').filter(|part| !part.is_empty()).skip_while(|part| !matches!(*part, "api" | "apis"));
    let skipped = if parts.next()? == "api" { 1 } else { 2 };
    let parts: Vec<&str> = parts.skip(skipped).collect();
    match parts[..] {
        // `namespaces/a/finalize` is of the namespace itself.
        ["namespaces", _, resource, _, subresource, ..] => Some(format!("{resource}/{subresource}")),
        ["namespaces", _, subresource @ ("status" | "finalize")] => Some(format!("namespaces/{subresource}")),
        ["namespaces", _, resource, ..] | [resource] | [resource, _] => Some(resource.to_owned()),
        [resource, _, subresource, ..] => Some(format!("{resource}/{subresource}")),
        [] => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_a_resource() {
        for (path, expect) in [
            ("/api/v1/namespaces/a/pods", Some("pods")),
            ("/api/v1/namespaces/a/pods/b", Some("pods")),
            ("/api/v1/namespaces/a/pods/b/binding", Some("pods/binding")),
            ("/apis/apps/v1/namespaces/a/deployments/b/status", Some("deployments/status")),
            ("/api/v1/nodes/n/status", Some("nodes/status")),
            ("/api/v1/namespaces", Some("namespaces")),
            ("/api/v1/namespaces/a", Some("namespaces")),
            ("/api/v1/namespaces/a/finalize", Some("namespaces/finalize")),
            ("/prefix/apis/apps/v1/deployments", Some("deployments")),
            ("/healthz", None),
            ("/api/v1", None),
        ] {
            assert_eq!(resource(path).as_deref(), expect, "{path}");
        }
    }
}
