//! What a stream is to be connected to: looked up among the pods, then asked of the runtime.

use std::collections::BTreeMap;

use http::StatusCode;
use k8s_openapi::api::core::v1::Pod;
use machinery::query::Query;
use node::cri::{labels, v1};

use crate::Inner;
use crate::pods::tty;
use crate::route::Place;
use websocket::channels::Streams;

/// Which of the three.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    Exec,
    /// A container's own streams.
    Attach,
    PortForward,
}

/// Why there is nothing to connect to.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request makes no sense.
    #[error("{0}")]
    Bad(String),
    /// There is no such pod.
    #[error("pod does not exist")]
    NoPod,
    /// There is one of this name, and it is not the one meant.
    #[error("pod not found")]
    OtherPod,
    /// It has no such thing at the moment.
    #[error("{0}")]
    Absent(String),
    /// The runtime says no.
    #[error(transparent)]
    Runtime(#[from] node::cri::Error),
}

impl Error {
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Bad(_) => StatusCode::BAD_REQUEST,
            Self::NoPod | Self::OtherPod => StatusCode::NOT_FOUND,
            Self::Runtime(error) if error.is_not_found() => StatusCode::NOT_FOUND,
            Self::Absent(_) | Self::Runtime(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// A request's own part of the target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Goal {
    /// A command with its arguments.
    Exec(Vec<String>, Streams),
    /// Streams of the container.
    Attach(Streams),
    /// Ports; empty when each stream names its own.
    PortForward(Vec<i32>),
}

impl Goal {
    /// Reads a query. `lists_ports` is set for a protocol that cannot name ports later.
    pub fn of(what: What, query: &Query, lists_ports: bool) -> Result<Self, Error> {
        match what {
            What::Exec => Ok(Self::Exec(query.all("command").map(str::to_owned).collect(), streams(query)?)),
            What::Attach => Ok(Self::Attach(streams(query)?)),
            What::PortForward if lists_ports => ports(query).map(Self::PortForward),
            What::PortForward => Ok(Self::PortForward(Vec::new())),
        }
    }
}

fn streams(query: &Query) -> Result<Streams, Error> {
    let tty = query.one("tty");
    let (stdin, stdout) = (query.one("input"), query.one("output"));
    // A terminal has one output.
    let stderr = query.one("error") && !tty;
    if !stdin && !stdout && !stderr {
        return Err(Error::Bad("you must specify at least 1 of stdin, stdout, stderr".to_owned()));
    }
    Ok(Streams { stdin, stdout, stderr, tty })
}

fn ports(query: &Query) -> Result<Vec<i32>, Error> {
    let mut ports = Vec::new();
    for text in query.all("port").flat_map(|list| list.split(',')) {
        match text.parse::<u16>() {
            Ok(0) => return Err(Error::Bad(format!("port {text:?} must be > 0"))),
            Ok(port) => ports.push(i32::from(port)),
            Err(error) => return Err(Error::Bad(format!("unable to parse {text:?} as a port: {error}"))),
        }
    }
    if ports.is_empty() { Err(Error::Bad("query parameter \"port\" is required".to_owned())) } else { Ok(ports) }
}

/// The address at which the runtime will serve the request, and the streams it expects there.
pub async fn address(inner: &Inner, place: &Place, goal: Goal) -> Result<(String, Option<Streams>), Error> {
    let pod = inner.pods.find(&place.namespace, &place.pod).ok_or(Error::NoPod)?;
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    let is_other = place.uid.as_ref().is_some_and(|asked| *asked != uid);
    let Place { namespace, pod: name, container, .. } = place;
    let runtime = &*inner.runtime;
    match goal {
        Goal::Exec(cmd, streams) => {
            let absent = || Error::Absent(format!("container not found ({container:?})"));
            let container_id = if is_other { None } else { running(inner, &uid, container).await? };
            let Streams { stdin, stdout, stderr, tty } = streams;
            let container_id = container_id.ok_or_else(absent)?;
            let request = v1::ExecRequest { container_id, cmd, tty, stdin, stdout, stderr };
            Ok((runtime.exec(request).await?, Some(streams)))
        }
        Goal::Attach(streams) => {
            let absent = || Error::Absent(format!("container {container} not found in pod {name}_{namespace}"));
            let container_id = if is_other { None } else { running(inner, &uid, container).await? };
            let container_id = container_id.ok_or_else(absent)?;
            let streams = as_made(&pod, container, streams).ok_or_else(absent)?;
            let Streams { stdin, stdout, stderr, tty } = streams;
            let request = v1::AttachRequest { container_id, stdin, tty, stdout, stderr };
            Ok((runtime.attach(request).await?, Some(streams)))
        }
        Goal::PortForward(port) => {
            if is_other {
                return Err(Error::OtherPod);
            }
            let absent = || Error::Absent(format!("pod not found (\"{name}_{namespace}\")"));
            let pod_sandbox_id = sandbox(inner, &uid).await?.ok_or_else(absent)?;
            Ok((runtime.port_forward(v1::PortForwardRequest { pod_sandbox_id, port }).await?, None))
        }
    }
}

/// Whether a container has a terminal was decided when it was made.
fn as_made(pod: &Pod, container: &str, asked: Streams) -> Option<Streams> {
    let tty = tty(pod, container)?;
    Some(Streams { tty, stderr: asked.stderr && !tty, ..asked })
}

/// The newest running container of this name.
async fn running(inner: &Inner, uid: &str, container: &str) -> Result<Option<String>, node::cri::Error> {
    let wanted = [(labels::POD_UID, uid), (labels::CONTAINER_NAME, container)];
    let filter = v1::ContainerFilter {
        state: Some(v1::ContainerStateValue { state: v1::ContainerState::ContainerRunning.into() }),
        label_selector: wanted.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        ..v1::ContainerFilter::default()
    };
    let found = inner.runtime.list_containers(filter).await?;
    Ok(found.into_iter().max_by_key(|container| container.created_at).map(|container| container.id))
}

/// The newest sandbox that is ready.
async fn sandbox(inner: &Inner, uid: &str) -> Result<Option<String>, node::cri::Error> {
    let filter = v1::PodSandboxFilter {
        state: Some(v1::PodSandboxStateValue { state: v1::PodSandboxState::SandboxReady.into() }),
        label_selector: BTreeMap::from([(labels::POD_UID.to_owned(), uid.to_owned())]),
        ..v1::PodSandboxFilter::default()
    };
    let found = inner.runtime.list_sandboxes(filter).await?;
    Ok(found.into_iter().max_by_key(|sandbox| sandbox.created_at).map(|sandbox| sandbox.id))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goal(what: What, query: &str, lists_ports: bool) -> Result<Goal, String> {
        Goal::of(what, &Query::parse(query), lists_ports).map_err(|error| error.to_string())
    }

    #[test]
    fn queries_are_read() {
        let streams = |stdin, stdout, stderr, tty| Streams { stdin, stdout, stderr, tty };
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let table = [
            (
                "command=ls&command=-l&output=1&error=1",
                Goal::Exec(words(&["ls", "-l"]), streams(false, true, true, false)),
            ),
            ("command=sh&input=1&output=1&error=1&tty=1", Goal::Exec(words(&["sh"]), streams(true, true, false, true))),
        ];
        for (query, expect) in table {
            assert_eq!(goal(What::Exec, query, false), Ok(expect), "{query}");
        }
        let nothing = Err("you must specify at least 1 of stdin, stdout, stderr".to_owned());
        assert_eq!(goal(What::Exec, "command=ls", false), nothing);
        assert_eq!(goal(What::Attach, "error=1&tty=1", false), nothing);
    }

    #[test]
    fn ports_are_listed_only_where_they_must_be() {
        assert_eq!(goal(What::PortForward, "", false), Ok(Goal::PortForward(vec![])));
        assert_eq!(goal(What::PortForward, "port=80,8080&port=1", true), Ok(Goal::PortForward(vec![80, 8080, 1])));
        assert_eq!(goal(What::PortForward, "", true), Err("query parameter \"port\" is required".to_owned()));
        assert_eq!(goal(What::PortForward, "port=0", true), Err("port \"0\" must be > 0".to_owned()));
        assert!(goal(What::PortForward, "port=70000", true).is_err());
    }
}
