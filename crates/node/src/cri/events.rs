//! What the runtime reports on its own: containers that start, end, run out of memory or vanish.
//!
//! Two sources say the same: the CRI's own stream, where the runtime has it, and containerd's event service, which has
//! been there longer. Either way an event is only a hint that something changed; the reader asks for the state.

use futures::StreamExt;
use futures::stream::BoxStream;
use prost::Message;
use tonic::Request;
use tonic::transport::Channel;

use super::{Error, v1};

#[allow(missing_docs, clippy::all, clippy::unwrap_used)]
mod containerd {
    tonic::include_proto!("containerd.services.events.v1");
}

/// Something happened to a container (or to a sandbox, which is a container to the runtime).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Id of the container or sandbox.
    pub id: String,
    /// What happened.
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
    /// It is gone.
    Removed,
}

/// The stream of the CRI, or of containerd where the runtime has no stream of the CRI.
pub(super) async fn subscribe(channel: Channel) -> Result<BoxStream<'static, Result<Event, Error>>, Error> {
    let mut cri = v1::runtime_service_client::RuntimeServiceClient::new(channel.clone());
    match cri.get_container_events(v1::GetEventsRequest {}).await {
        Ok(response) => Ok(response
            .into_inner()
            .filter_map(|item| async {
                match item {
                    Ok(event) => from_cri(event).map(Ok),
                    Err(status) => Some(Err(Error::new("GetContainerEvents", status))),
                }
            })
            .boxed()),
        Err(status) if status.code() == tonic::Code::Unimplemented => subscribe_containerd(channel).await,
        Err(status) => Err(Error::new("GetContainerEvents", status)),
    }
}

async fn subscribe_containerd(channel: Channel) -> Result<BoxStream<'static, Result<Event, Error>>, Error> {
    let mut events = containerd::events_client::EventsClient::new(channel);
    let filter = r#"namespace==k8s.io,topic~="^/(tasks/(start|exit|delete|oom)|containers/delete)$""#;
    let request = Request::new(containerd::SubscribeRequest { filters: vec![filter.to_owned()] });
    let stream = events.subscribe(request).await.map_err(|s| Error::new("Subscribe", s))?.into_inner();
    Ok(stream
        .filter_map(|item| async {
            match item {
                Ok(envelope) => from_containerd(&envelope).map(Ok),
                Err(status) => Some(Err(Error::new("Subscribe", status))),
            }
        })
        .boxed())
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
        let envelope =
            containerd::Envelope { namespace: "k8s.io".into(), topic: topic.into(), event: Some(event) };
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
