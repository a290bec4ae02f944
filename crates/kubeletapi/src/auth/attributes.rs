//! What a request asks permission for: a pure mapping from method and path to a verb on subresources of this node.

use http::Method;

/// A verb on one of several subresources of the node; permission for any one of them is enough.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attributes {
    /// The API's verb; empty for methods that have none.
    pub verb: &'static str,
    /// Narrow ones first: `nodes/proxy` grants nearly everything, so nobody should need it to read a health check.
    pub subresources: Vec<&'static str>,
}

impl Attributes {
    /// Those of a request.
    pub fn of(method: &Method, path: &str) -> Self {
        let verb = match *method {
            Method::POST => "create",
            Method::GET => "get",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            _ => "",
        };
        let narrow = [
            ("/allocatedPods", "pods"),
            ("/pods", "pods"),
            ("/healthz", "healthz"),
            ("/configz", "configz"),
            ("/runningpods", "pods"),
        ];
        let wide = [
            ("/stats", "stats"),
            ("/metrics", "metrics"),
            ("/logs", "log"),
            ("/checkpoint", "checkpoint"),
            ("/statusz", "statusz"),
            ("/flagz", "configz"),
        ];
        let find = |table: &[(&str, &'static str)]| {
            table.iter().find(|(root, _)| is_below(path, root)).map(|(_, subresource)| *subresource)
        };
        let subresources = find(&narrow).into_iter().chain([find(&wide).unwrap_or("proxy")]).collect();
        Self { verb, subresources }
    }
}

/// Whether a path is `root` or below it.
fn is_below(path: &str, root: &str) -> bool {
    path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_need_the_permissions_upstream_asks_for() {
        let table: [(&str, &str, &str, &[&str]); 22] = [
            ("GET", "/pods", "get", &["pods", "proxy"]),
            ("GET", "/pods/", "get", &["pods", "proxy"]),
            ("GET", "/podsecrets", "get", &["proxy"]),
            ("GET", "/allocatedPods/ns/p", "get", &["pods", "proxy"]),
            ("GET", "/runningpods/", "get", &["pods", "proxy"]),
            ("GET", "/runningpods", "get", &["pods", "proxy"]),
            ("GET", "/healthz", "get", &["healthz", "proxy"]),
            ("GET", "/healthz/syncloop", "get", &["healthz", "proxy"]),
            ("GET", "/configz", "get", &["configz", "proxy"]),
            ("GET", "/stats/summary", "get", &["stats"]),
            ("GET", "/metrics", "get", &["metrics"]),
            ("GET", "/metrics/cadvisor", "get", &["metrics"]),
            ("GET", "/logs/messages", "get", &["log"]),
            ("POST", "/checkpoint/ns/p/c", "create", &["checkpoint"]),
            ("GET", "/statusz", "get", &["statusz"]),
            ("GET", "/flagz", "get", &["configz"]),
            ("POST", "/exec/ns/p/c", "create", &["proxy"]),
            ("GET", "/exec/ns/p/c", "get", &["proxy"]),
            ("GET", "/containerLogs/ns/p/c", "get", &["proxy"]),
            ("PUT", "/", "update", &["proxy"]),
            ("DELETE", "/whatever", "delete", &["proxy"]),
            ("OPTIONS", "/pods", "", &["pods", "proxy"]),
        ];
        for (method, path, verb, subresources) in table {
            let attributes = Attributes::of(&method.parse().unwrap(), path);
            assert_eq!((attributes.verb, attributes.subresources.as_slice()), (verb, subresources), "{method} {path}");
        }
    }
}
