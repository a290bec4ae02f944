//! A request as a span of a trace of many processes: which trace it belongs to, and what collectors are told of it. As upstream has it:
//! a client is believed to be the parent if it is an administrator or a monitor; what others say is only linked with.

use std::time::SystemTime;

use hops::Context;
use hops::export::{Attribute, Ended, Kind, Part};
use http::StatusCode;
use http::header::USER_AGENT;
use machinery::rest::Peer;

use crate::exchange::Exchange;
use crate::request_info::RequestInfo;

/// Whose context is believed.
const BELIEVED: [&str; 2] = ["system:masters", "system:monitoring"];

/// The context that a request comes with: from within the process, or in its header.
pub(crate) fn given(parts: &mut http::request::Parts) -> Option<Context> {
    let within = parts.extensions.remove::<Context>();
    within.or_else(|| Context::parse(parts.headers.get(hops::TRACEPARENT)?.to_str().ok()?))
}

/// Finds out which trace the request belongs to, once it is known who sends it.
pub(crate) fn begin(exchange: &mut Exchange) {
    let in_process = matches!(exchange.peer, Peer::InProcess(_));
    let is_believed = || exchange.user.groups.iter().any(|group| BELIEVED.contains(&group.as_str()));
    let believed = in_process || is_believed();
    exchange.trace.serve(exchange.given, believed);
}

/// Tells collectors of the request, if its trace is one that they get.
pub(crate) fn ended(exchange: &Exchange, status: StatusCode) {
    let context = exchange.trace.context();
    if !context.sampled || !hops::export::exports(Part::ControlPlane) {
        return;
    }
    let (parent, link) = exchange.trace.around();
    let took = exchange.begun.elapsed();
    let text = |text: &str| Attribute::Text(text.to_owned());
    let mut attributes = vec![
        ("http.request.method", text(exchange.parts.method.as_str())),
        ("http.target", text(exchange.parts.uri.path_and_query().map_or("/", |target| target.as_str()))),
        ("http.response.status_code", Attribute::Number(status.as_u16().into())),
        ("audit-id", text(exchange.audit_id())),
    ];
    if let Some(agent) = exchange.headers().get(USER_AGENT).and_then(|agent| agent.to_str().ok()) {
        attributes.push(("user_agent.original", text(agent)));
    }
    let span = Ended {
        service: "apiserver",
        context,
        parent,
        link,
        name: name(exchange.parts.method.as_str(), &exchange.info).into(),
        kind: Kind::Server,
        start: SystemTime::now().checked_sub(took).unwrap_or(SystemTime::UNIX_EPOCH),
        took,
        attributes,
        failed: status.is_server_error(),
    };
    hops::export::export(Part::ControlPlane, span);
}

/// Method and path, with names left out: requests of one kind have one name.
fn name(method: &str, info: &RequestInfo) -> String {
    if !info.is_resource {
        return method.to_owned();
    }
    let mut name = format!("{method} {}", if info.group.is_empty() { "/api" } else { "/apis" });
    let namespace = if info.namespace.is_empty() { "" } else { "namespaces/{:namespace}" };
    let object = if info.name.is_empty() { "" } else { "{:name}" };
    for part in [&info.group, &info.version, namespace, &info.resource, object, &info.subresource] {
        if !part.is_empty() {
            name.push('/');
            name.push_str(part);
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Method;
    use machinery::query::Query;

    #[test]
    fn requests_of_one_kind_have_one_name() {
        for (method, path, expect) in [
            (
                Method::POST,
                "/apis/apps/v1/namespaces/a/deployments",
                "POST /apis/apps/v1/namespaces/{:namespace}/deployments",
            ),
            (Method::GET, "/api/v1/nodes/n/status", "GET /api/v1/nodes/{:name}/status"),
            (Method::GET, "/healthz", "GET"),
        ] {
            let info = RequestInfo::of(&method, path, &Query::parse(""));
            assert_eq!(name(method.as_str(), &info), expect);
        }
    }
}
