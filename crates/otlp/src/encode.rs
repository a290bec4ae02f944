//! Spans as messages: those of one service together, each with its place in its trace. Pure.

use std::time::{Duration, SystemTime};

use hops::Context;
use hops::export::{Attribute, Ended, Kind};

use crate::v1::{
    AnyValue, ExportTraceServiceRequest, InstrumentationScope, KeyValue, Link, Resource, ResourceSpans, ScopeSpans,
    Span, SpanKind, Status, StatusCode, any_value,
};

/// The name of upstream's instrumentation.
const SCOPE: &str = "k8s.io/component-base/tracing";
/// W3C's flag of traces that are exported.
const SAMPLED: u32 = 1;

/// One request with all of these. `instance` tells this process from others of its service.
pub(crate) fn request(spans: Vec<Ended>, instance: &str) -> ExportTraceServiceRequest {
    let mut services: Vec<(&'static str, Vec<Span>)> = Vec::new();
    for ended in spans {
        let service = ended.service;
        let span = span(ended);
        match services.iter_mut().find(|(name, _)| *name == service) {
            Some((_, spans)) => spans.push(span),
            None => services.push((service, vec![span])),
        }
    }
    let resource_spans = services.into_iter().map(|(service, spans)| ResourceSpans {
        resource: Some(Resource {
            attributes: vec![text("service.name", service), text("service.instance.id", instance)],
        }),
        scope_spans: vec![ScopeSpans {
            scope: Some(InstrumentationScope { name: SCOPE.to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() }),
            spans,
        }],
    });
    ExportTraceServiceRequest { resource_spans: resource_spans.collect() }
}

fn span(ended: Ended) -> Span {
    let start = ended.start.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let kind = match ended.kind {
        Kind::Internal => SpanKind::Internal,
        Kind::Server => SpanKind::Server,
        Kind::Client => SpanKind::Client,
    };
    let code = if ended.failed { StatusCode::Error } else { StatusCode::Unset };
    let attribute = |(key, value): (&str, Attribute)| match value {
        Attribute::Text(value) => text(key, &value),
        Attribute::Number(value) => pair(key, any_value::Value::IntValue(value)),
    };
    Span {
        trace_id: trace_id(ended.context),
        span_id: span_id(ended.context.span),
        parent_span_id: if ended.parent == 0 { Vec::new() } else { span_id(ended.parent) },
        name: ended.name.into_owned(),
        kind: kind.into(),
        start_time_unix_nano: nanos(start),
        end_time_unix_nano: nanos(start.saturating_add(ended.took)),
        attributes: ended.attributes.into_iter().map(attribute).collect(),
        links: ended.link.into_iter().map(link).collect(),
        status: Some(Status { message: String::new(), code: code.into() }),
        flags: SAMPLED,
    }
}

fn link(context: Context) -> Link {
    Link { trace_id: trace_id(context), span_id: span_id(context.span), flags: u32::from(context.sampled) }
}

fn trace_id(context: Context) -> Vec<u8> {
    context.trace.to_be_bytes().to_vec()
}

fn span_id(span: u64) -> Vec<u8> {
    span.to_be_bytes().to_vec()
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn text(key: &str, value: &str) -> KeyValue {
    pair(key, any_value::Value::StringValue(value.to_owned()))
}

fn pair(key: &str, value: any_value::Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }) }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn ended(service: &'static str, span: u64, parent: u64) -> Ended {
        Ended {
            service,
            context: Context { trace: 0xab, span, sampled: true },
            parent,
            link: None,
            name: "hop".into(),
            kind: Kind::Internal,
            start: SystemTime::UNIX_EPOCH + Duration::from_nanos(5),
            took: Duration::from_nanos(7),
            attributes: vec![("webhook", Attribute::Text("side.car".into())), ("bytes", Attribute::Number(3))],
            failed: false,
        }
    }

    #[test]
    fn spans_of_a_service_are_together_and_ids_are_bytes_from_the_left() {
        let link = Some(Context { trace: 1, span: 2, sampled: false });
        let server = Ended { kind: Kind::Server, link, failed: true, ..ended("apiserver", 0x0102, 0) };
        let request = request(vec![ended("apiserver", 3, 0x0102), ended("kubelet", 4, 3), server], "one");
        let shown: Vec<(usize, &Resource)> = request
            .resource_spans
            .iter()
            .map(|one| (one.scope_spans[0].spans.len(), one.resource.as_ref().expect("a resource")))
            .collect();
        assert_eq!((shown[0].0, shown[1].0), (2, 1));
        assert_eq!(shown[1].1.attributes, [text("service.name", "kubelet"), text("service.instance.id", "one")]);
        let [child, server] = &request.resource_spans[0].scope_spans[0].spans[..] else { panic!("{request:?}") };
        assert_eq!(server.span_id, [0, 0, 0, 0, 0, 0, 1, 2]);
        assert_eq!((&child.parent_span_id, child.trace_id.len()), (&server.span_id, 16));
        assert!(server.parent_span_id.is_empty());
        assert_eq!(
            (server.kind(), server.status.as_ref().map(Status::code)),
            (SpanKind::Server, Some(StatusCode::Error))
        );
        assert_eq!(server.links[0].span_id, [0, 0, 0, 0, 0, 0, 0, 2]);
        assert_eq!((child.start_time_unix_nano, child.end_time_unix_nano), (5, 12));
        assert_eq!(child.attributes[1], pair("bytes", any_value::Value::IntValue(3)));
    }
}
