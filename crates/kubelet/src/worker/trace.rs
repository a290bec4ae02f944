//! What led to a pod, for tracing: the API server names the span with the pod, where it is a process of its own.

use std::time::Duration;

use client::Client;
use hops::Context;
use hops::export::CAUSE;
use k8s_openapi::api::core::v1::Pod;
use machinery::rest::Body;

use crate::pod::spec;

/// A pod waits no longer for it.
const PATIENCE: Duration = Duration::from_secs(2);

/// The span of the last traced write to a pod; none where nobody knows.
pub(super) async fn cause(client: &Client, pod: &Pod) -> Option<Context> {
    if spec::is_static(pod) {
        return None;
    }
    let (namespace, name) = (pod.metadata.namespace.as_deref()?, pod.metadata.name.as_deref()?);
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
    // What the cache has is recent enough, and asks nobody else.
    let request = http::Request::get(format!("{path}?resourceVersion=0")).body(Body::Empty).ok()?;
    let answer = tokio::time::timeout(PATIENCE, client.request(request)).await.ok()?.ok()?;
    Context::parse(answer.headers().get(CAUSE)?.to_str().ok()?)
}
