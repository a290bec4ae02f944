//! What a request is about: verb, group, version, resource, name and subresource, read off its method and path.
//!
//! The rules are upstream's `RequestInfo`: every gate (authorization, flow control, audit) decides by these words.

use http::Method;
use machinery::query::Query;

/// The subject of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// Whether it is about a resource; otherwise only `verb` and `path` are set.
    pub is_resource: bool,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`, `proxy`; the lower-case method for non-resources.
    pub verb: &'static str,
    /// The path as it was asked for.
    pub path: String,
    /// The API group; empty for core.
    pub group: String,
    pub version: String,
    /// The namespace; empty for cluster-scoped requests and all namespaces.
    pub namespace: String,
    pub resource: String,
    /// The subresource, such as `status`.
    pub subresource: String,
    /// The object's name; empty for collections.
    pub name: String,
    /// The rest of the path after the subresource, for proxies.
    pub tail: Vec<String>,
    /// Whether the deprecated `/watch/` prefix was used.
    pub watch_prefix: bool,
}

impl RequestInfo {
    /// Reads a request's method, (decoded) path and query.
    pub fn of(method: &Method, path: &str, query: &Query) -> Self {
        let plain = || Self { verb: method_word(method), path: path.to_owned(), ..Self::default() };
        let mut parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let (group, version) = match parts.as_slice() {
            ["api", version, _, ..] => ("", *version),
            ["apis", group, version, _, ..] => (*group, *version),
            _ => return plain(),
        };
        let mut info = Self {
            is_resource: true,
            path: path.to_owned(),
            group: group.to_owned(),
            version: version.to_owned(),
            ..Self::default()
        };
        parts.drain(..if group.is_empty() { 2 } else { 3 });

        let verb = match *method {
            Method::POST => "create",
            Method::GET | Method::HEAD => "get",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            _ => "",
        };
        info.verb = verb;
        if parts.first() == Some(&"watch") && parts.len() > 1 {
            parts.remove(0);
            info.watch_prefix = true;
            info.verb = "watch";
        }
        // `namespaces/x` is an object; `namespaces/x/pods` is a collection inside it, unless it is one of its subresources.
        match parts.as_slice() {
            ["namespaces", namespace, "status" | "finalize"] => info.namespace = (*namespace).to_owned(),
            ["namespaces", namespace, _, ..] => {
                info.namespace = (*namespace).to_owned();
                parts.drain(..2);
            }
            ["namespaces", namespace] => info.namespace = (*namespace).to_owned(),
            _ => {}
        }
        let mut parts = parts.into_iter().map(str::to_owned);
        info.resource = parts.next().unwrap_or_default();
        info.name = parts.next().unwrap_or_default();
        info.subresource = parts.next().unwrap_or_default();
        info.tail = parts.collect();

        if info.name.is_empty() && info.verb == "get" {
            info.verb = if query.flag("watch") { "watch" } else { "list" };
        } else if info.name.is_empty() && info.verb == "delete" {
            info.verb = "deletecollection";
        }
        // A list or watch narrowed to one name is authorized by that name.
        if info.name.is_empty() && matches!(info.verb, "list" | "watch" | "deletecollection") {
            let selector = machinery::selector::field::FieldSelector::parse(query.get("fieldSelector")).ok();
            if let Some(name) = selector.as_ref().and_then(|selector| selector.requires_exact_match("metadata.name"))
                && machinery::names::is_path_segment_name(name).is_empty()
            {
                info.selected_name(name);
            }
        }
        info
    }

    fn selected_name(&mut self, name: &str) {
        name.clone_into(&mut self.name);
    }

    /// Whether it changes anything.
    pub fn is_mutating(&self) -> bool {
        !matches!(self.verb, "get" | "list" | "watch")
    }

    /// Whether it stays open for as long as the client likes.
    pub fn is_long_running(&self) -> bool {
        self.verb == "watch" || matches!(self.subresource.as_str(), "exec" | "attach" | "portforward" | "log" | "proxy")
    }
}

fn method_word(method: &Method) -> &'static str {
    match *method {
        Method::GET => "get",
        Method::HEAD => "head",
        Method::POST => "post",
        Method::PUT => "put",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        Method::OPTIONS => "options",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `verb group/version namespace resource/name/subresource`, as the method and the path say it.
    fn check(method: Method, uri: &str, expect: &str) {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        let info = RequestInfo::of(&method, path, &Query::parse(query));
        let got = format!(
            "{} {}/{} {} {}/{}/{}",
            info.verb, info.group, info.version, info.namespace, info.resource, info.name, info.subresource
        );
        assert_eq!(got, expect, "{method} {uri}");
    }

    #[test]
    fn paths_read_as_upstream_reads_them() {
        check(Method::GET, "/api/v1/namespaces", "list /v1  namespaces//");
        check(Method::GET, "/api/v1/namespaces/a", "get /v1 a namespaces/a/");
        check(Method::PUT, "/api/v1/namespaces/a/finalize", "update /v1 a namespaces/a/finalize");
        check(Method::GET, "/api/v1/namespaces/a/pods", "list /v1 a pods//");
        check(Method::GET, "/api/v1/namespaces/a/pods?watch=true", "watch /v1 a pods//");
        check(Method::GET, "/api/v1/watch/namespaces/a/pods/b", "watch /v1 a pods/b/");
        check(Method::POST, "/api/v1/namespaces/a/pods/b/binding", "create /v1 a pods/b/binding");
        check(Method::DELETE, "/apis/apps/v1/namespaces/a/deployments", "deletecollection apps/v1 a deployments//");
        check(Method::PATCH, "/apis/apps/v1/namespaces/a/deployments/b/scale", "patch apps/v1 a deployments/b/scale");
        check(Method::GET, "/api/v1/pods?fieldSelector=metadata.name%3Dx", "list /v1  pods/x/");
        check(Method::GET, "/healthz/etcd", "get /  //");
        check(Method::GET, "/apis/apps/v1", "get /  //");
    }
}
