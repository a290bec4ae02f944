//! What the runtime reports on its own: containers that start, end, run out of memory or vanish.
//!
//! Two sources say the same: the CRI's own stream, where the runtime has it, and containerd's event service, which has
//! been there longer. Either way an event is only a hint that something changed; the reader asks for the state.

use std::time::Duration;

use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use prost::Message;
use tonic::Request;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;

use super::{Error, v1};

#[allow(clippy::all, clippy::unwrap_used)]
mod containerd {
    tonic::include_proto!("containerd.services.events.v1");
}

/// Something happened to a container (or to a sandbox, which is a container to the runtime).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Id of the container or sandbox.
    pub id: String,
    pub kind: EventKind,
}

/// What can happen to a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// Its first process runs.
    Started,
    /// Its first process ended.
    Exited,
    /// A process of it was killed for want of memory.
    OutOfMemory,
    Removed,
}

/// How long the CRI's stream may be silent before it counts as established: servers send no header before the first
/// event, but refuse an unknown call at once.
const PROBE: Duration = Duration::from_millis(500);
/// The topic of an event of our own, by which we know that containerd's stream reaches us.
const MARKER: &str = "/trireme/subscribed";
/// Where the CRI keeps its things in containerd.
pub(super) const NAMESPACE: &str = "k8s.io";

/// The stream of the CRI, or of containerd where the runtime has no stream of the CRI.
pub(super) async fn subscribe(channel: Channel) -> Result<BoxStream<'static, Result<Event, Error>>, Error> {
    let mut cri = v1::runtime_service_client::RuntimeServiceClient::new(channel.clone());
    let mut call = Box::pin(async move { cri.get_container_events(v1::GetEventsRequest {}).await });
    let established = match tokio::time::timeout(PROBE, &mut call).await {
        Ok(Ok(response)) => response.into_inner().boxed(),
        Ok(Err(status)) if status.code() == tonic::Code::Unimplemented => return subscribe_containerd(channel).await,
        Ok(Err(status)) => return Err(Error::new("GetContainerEvents", status)),
        Err(_) => stream::once(call).map_ok(tonic::Response::into_inner).try_flatten().boxed(),
    };
    let read = |item: Result<_, tonic::Status>| match item {
        Ok(event) => from_cri(event).map(Ok),
        Err(status) => Some(Err(Error::new("GetContainerEvents", status))),
    };
    Ok(established.filter_map(move |item| futures::future::ready(read(item))).boxed())
}

async fn subscribe_containerd(channel: Channel) -> Result<BoxStream<'static, Result<Event, Error>>, Error> {
    let mut events = containerd::events_client::EventsClient::new(channel.clone());
    let filter = format!(
        r#"namespace=={NAMESPACE},topic~="^/(tasks/(start|exit|delete|oom)|containers/delete|trireme/subscribed)$""#
    );
    let request = containerd::SubscribeRequest { filters: vec![filter] };
    let call = async move { events.subscribe(request).await };
    let mut stream = stream::once(call).map_ok(tonic::Response::into_inner).try_flatten().boxed();
    // What happens before the subscription is in force would be lost without a trace, so we wait for it: until one of
    // our own markers comes back.
    let mut early = Vec::new();
    loop {
        let item = tokio::select! {
            item = stream.next() => item,
            marked = mark(channel.clone()) => match marked {
                Ok(()) => continue,
                Err(status) => return Err(Error::new("Publish", status)),
            },
        };
        match item {
            Some(Ok(envelope)) if envelope.topic == MARKER => break,
            Some(Ok(envelope)) => early.push(Ok(envelope)),
            Some(Err(status)) => return Err(Error::new("Subscribe", status)),
            None => return Err(Error::of("Subscribe", tonic::Code::Unavailable, "the event stream ended")),
        }
    }
    let read = |item: Result<containerd::Envelope, tonic::Status>| match item {
        Ok(envelope) => from_containerd(&envelope).map(Ok),
        Err(status) => Some(Err(Error::new("Subscribe", status))),
    };
    Ok(stream::iter(early).chain(stream).filter_map(move |item| futures::future::ready(read(item))).boxed())
}

/// Publishes a marker and gives it a moment to come back.
async fn mark(channel: Channel) -> Result<(), tonic::Status> {
    let event = containerd::Payload { type_url: "trireme/subscribed".to_owned(), value: Vec::new() };
    let mut request = Request::new(containerd::PublishRequest { topic: MARKER.to_owned(), event: Some(event) });
    request.metadata_mut().insert("containerd-namespace", MetadataValue::from_static(NAMESPACE));
    containerd::events_client::EventsClient::new(channel).publish(request).await?;
    tokio::time::sleep(Duration::from_millis(10)).await;
    Ok(())
}

fn from_cri(event: v1::ContainerEventResponse) -> Option<Event> {
    let kind = match event.container_event_type() {
        v1::ContainerEventType::ContainerCreatedEvent => return None,
        v1::ContainerEventType::ContainerStartedEvent => EventKind::Started,
        v1::ContainerEventType::ContainerStoppedEvent => EventKind::Exited,
        v1::ContainerEventType::ContainerDeletedEvent => EventKind::Removed,
    };
    Some(Event { id: event.container_id, kind })
}

/// An envelope that is not about a container's first process says nothing.
fn from_containerd(envelope: &containerd::Envelope) -> Option<Event> {
    let value = envelope.event.as_ref()?.value.as_slice();
    let (id, kind) = match envelope.topic.as_str() {
        "/tasks/start" => (containerd::TaskStart::decode(value).ok()?.container_id, EventKind::Started),
        "/tasks/oom" => (containerd::TaskOom::decode(value).ok()?.container_id, EventKind::OutOfMemory),
        "/tasks/exit" => {
            let exit = containerd::TaskExit::decode(value).ok()?;
            if exit.id != exit.container_id {
                return None;
            }
            (exit.container_id, EventKind::Exited)
        }
        "/tasks/delete" => {
            // Sent once the shim has let go of the task, which is when the CRI knows the exit code for sure.
            let delete = containerd::TaskDelete::decode(value).ok()?;
            if !delete.id.is_empty() && delete.id != delete.container_id {
                return None;
            }
            (delete.container_id, EventKind::Exited)
        }
        "/containers/delete" => (containerd::ContainerDelete::decode(value).ok()?.id, EventKind::Removed),
        _ => return None,
    };
    Some(Event { id, kind })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(topic: &str, payload: impl Message, expect: Option<(&str, EventKind)>) {
        let event = containerd::Payload { type_url: String::new(), value: payload.encode_to_vec() };
        let envelope = containerd::Envelope { namespace: "k8s.io".into(), topic: topic.into(), event: Some(event) };
        let expect = expect.map(|(id, kind)| Event { id: id.into(), kind });
        assert_eq!(from_containerd(&envelope), expect, "{topic}");
    }

    #[test]
    fn containerd_events_are_read_by_their_topic() {
        let exit = |id: &str| containerd::TaskExit { container_id: "c".into(), id: id.into() };
        check("/tasks/start", containerd::TaskStart { container_id: "c".into() }, Some(("c", EventKind::Started)));
        check("/tasks/exit", exit("c"), Some(("c", EventKind::Exited)));
        check("/tasks/exit", exit("an-exec"), None);
        check("/tasks/oom", containerd::TaskOom { container_id: "c".into() }, Some(("c", EventKind::OutOfMemory)));
        check("/containers/delete", containerd::ContainerDelete { id: "c".into() }, Some(("c", EventKind::Removed)));
        check("/images/create", exit("c"), None);
    }
}
