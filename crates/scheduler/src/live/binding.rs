//! Binding a pod so that its fate is known afterwards.
//!
//! An assumed pod keeps its room until its binding is known to have failed: room given away while the pod may be bound after
//! all would be taken twice. A binding can be sent any number of times, as the API binds a pod once and a repetition is a
//! conflict. So while no answer comes it is sent again, and a conflict is looked into: it may be our own earlier success.

use std::time::Duration;

use client::Client;
use k8s_openapi::api::core::v1::{Binding, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Status};

use super::failure;
use crate::framework::api::ApiFailure;
use crate::model::pod::PodInfo;

/// The pauses before a binding is sent again grow from the first to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// So often a server may say that it is in trouble before the pod is put back.
const MAX_TROUBLES: u32 = 4;

/// What the answer to a request says about its fate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It was not carried out and will not be.
    Refused,
    /// It was not carried out, as something else is there already: perhaps an earlier copy of it.
    Taken,
    /// The server failed over it, at whatever point.
    Trouble,
    Unknown,
}

fn fate(error: &client::Error) -> Fate {
    match error {
        client::Error::Transport(_) | client::Error::Timeout(_) => Fate::Unknown,
        client::Error::Decode { .. } | client::Error::Unexpected(_) | client::Error::TooLarge { .. } => Fate::Trouble,
        error if error.is_conflict() => Fate::Taken,
        error => match error.code() {
            Some(429 | 500..) => Fate::Trouble,
            _ => Fate::Refused,
        },
    }
}

/// A binding on its way.
pub(super) struct Bind {
    client: Client,
    binding: Binding,
    node: String,
}

impl Bind {
    pub(super) fn new(client: Client, pod: &PodInfo, node: &str) -> Self {
        let binding = Binding {
            metadata: ObjectMeta {
                name: Some(pod.name().to_owned()),
                namespace: Some(pod.namespace().to_owned()),
                uid: Some(pod.uid().to_string()),
                ..Default::default()
            },
            target: ObjectReference { kind: Some("Node".into()), name: Some(node.to_owned()), ..Default::default() },
        };
        Self { client, binding, node: node.to_owned() }
    }

    /// Sends the binding until its fate is known. That takes as long as the server cannot be reached, during which nothing
    /// else could be scheduled either.
    pub(super) async fn run(self) -> Result<(), ApiFailure> {
        let (namespace, name) = self.key();
        let (mut pause, mut troubles, mut uncertain) = (FIRST_PAUSE, 0, false);
        loop {
            let sent =
                self.client.create_subresource::<Pod, _, Status>(namespace, name, "binding", &self.binding).await;
            let Err(error) = sent else { return Ok(()) };
            match fate(&error) {
                Fate::Refused => return Err(failure(error)),
                Fate::Taken if uncertain => return self.look(error).await,
                Fate::Taken => return Err(failure(error)),
                Fate::Trouble => {
                    uncertain = true;
                    troubles += 1;
                    if troubles == MAX_TROUBLES {
                        return self.look(error).await;
                    }
                }
                Fate::Unknown => uncertain = true,
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Whether the pod is bound to the chosen node although `error` was the last answer.
    async fn look(&self, error: client::Error) -> Result<(), ApiFailure> {
        let (namespace, name) = self.key();
        let mut pause = FIRST_PAUSE;
        loop {
            match self.client.get::<Pod>(namespace, name).await {
                Ok(pod) if self.is_done(&pod) => return Ok(()),
                Err(error) if matches!(fate(&error), Fate::Unknown | Fate::Trouble) => {}
                _ => return Err(failure(error)),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn is_done(&self, pod: &Pod) -> bool {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        pod.metadata.uid == self.binding.metadata.uid && node == Some(&self.node)
    }

    fn key(&self) -> (&str, &str) {
        let metadata = &self.binding.metadata;
        (metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::pod;
    use futures::future::BoxFuture;
    use http::{Method, StatusCode};
    use machinery::ApiError;
    use machinery::gvk::GroupResource;
    use machinery::rest::{Handler, Payload, Request, Response, User};
    use parking_lot::Mutex;
    use serde_json::json;
    use std::sync::Arc;

    /// What becomes of a request to bind.
    #[derive(Clone, Copy)]
    enum Way {
        /// Carried out and answered.
        Well,
        /// Carried out, but the answer is another.
        Silently(u16),
        Not(u16),
    }

    /// An API server with one pod, which treats requests to bind in the ways listed and then well.
    struct Server {
        uid: &'static str,
        node: Mutex<Option<String>>,
        ways: Mutex<Vec<Way>>,
        gets: Mutex<Vec<u16>>,
    }

    fn refused(code: u16) -> Response {
        let error = match code {
            404 => ApiError::not_found(&GroupResource::new("", "pods"), "p"),
            409 => ApiError::conflict(&GroupResource::new("", "pods/binding"), "p", "pod p is already assigned"),
            code => ApiError { code, ..ApiError::internal("no luck") },
        };
        let mut response = Response::new(Payload::Value(error.to_value()));
        *response.status_mut() = StatusCode::from_u16(code).unwrap();
        response
    }

    impl Handler for Server {
        fn handle(&self, request: Request) -> BoxFuture<'_, Response> {
            Box::pin(async move {
                let mut node = self.node.lock();
                if request.method() == Method::GET {
                    if let Some(code) = self.gets.lock().pop() {
                        return refused(code);
                    }
                    let pod = json!({
                        "apiVersion": "v1", "kind": "Pod",
                        "metadata": { "name": "p", "namespace": "default", "uid": self.uid },
                        "spec": { "containers": [], "nodeName": *node },
                    });
                    return Response::new(Payload::Value(pod));
                }
                let way = self.ways.lock().pop().unwrap_or(Way::Well);
                if let Way::Not(code) = way {
                    return refused(code);
                }
                if node.is_some() {
                    return refused(409);
                }
                *node = Some("n1".to_owned());
                match way {
                    Way::Silently(code) => refused(code),
                    _ => Response::new(Payload::Value(json!({ "kind": "Status", "apiVersion": "v1" }))),
                }
            })
        }
    }

    async fn bind(uid: &'static str, taken: Option<&str>, ways: &[Way], gets: &[u16]) -> Result<(), ApiFailure> {
        let server = Arc::new(Server {
            uid,
            node: Mutex::new(taken.map(str::to_owned)),
            ways: Mutex::new(ways.iter().rev().copied().collect()),
            gets: Mutex::new(gets.to_vec()),
        });
        let client = Client::in_process(server, User::new("system:kube-scheduler", []));
        Bind::new(client, &PodInfo::new(Arc::new(pod("p").build())), "n1").run().await
    }

    /// What it is, the uid and node that the server's pod has, what becomes of requests and looks, and how it ends: a conflict
    /// is `Err(true)`.
    type Case<'a> = (&'a str, &'static str, Option<&'a str>, &'a [Way], &'a [u16], Result<(), bool>);

    #[tokio::test(start_paused = true)]
    async fn a_binding_is_sent_until_its_fate_is_known() {
        use Way::{Not, Silently};
        const OWN: &str = "uid-p";
        let conflict = Err(true);
        let other = Err(false);
        let table: &[Case<'_>] = &[
            ("it is bound", OWN, None, &[], &[], Ok(())),
            ("the server had trouble at first", OWN, None, &[Not(503), Not(429)], &[], Ok(())),
            ("the answer was lost", OWN, None, &[Silently(504)], &[], Ok(())),
            ("so was that of looking", OWN, None, &[Silently(500)], &[500, 503], Ok(())),
            (
                "the last answer of many was lost",
                OWN,
                None,
                &[Not(500), Not(500), Not(500), Silently(500)],
                &[],
                Ok(()),
            ),
            ("the server never carries it out", OWN, None, &[Not(500); 4], &[], other),
            ("another scheduler was first", OWN, Some("n2"), &[], &[], conflict),
            ("another scheduler was first, and an answer was lost", OWN, Some("n2"), &[Not(500)], &[], conflict),
            ("it is another pod of this name", "uid-q", Some("n1"), &[Not(500)], &[], conflict),
            ("the pod was gone when it was looked for", OWN, Some("n1"), &[Not(500)], &[404], conflict),
            ("the pod is gone", OWN, None, &[Not(404)], &[], other),
            ("it is not allowed", OWN, None, &[Not(403)], &[], other),
        ];
        for (what, uid, taken, ways, gets, expected) in table {
            let outcome = bind(uid, *taken, ways, gets).await;
            assert_eq!(outcome.map_err(|e| matches!(e, ApiFailure::Conflict(_))), *expected, "{what}");
        }
    }

    #[test]
    fn silence_says_nothing_about_the_fate_of_a_request() {
        assert_eq!(fate(&client::Error::Transport("reset".into())), Fate::Unknown);
        assert_eq!(fate(&client::Error::Timeout(Duration::from_secs(30))), Fate::Unknown);
        assert_eq!(fate(&client::Error::Unexpected("a Status")), Fate::Trouble);
        let fenced = client::Error::Fenced { method: "POST".into(), path: "/".into() };
        assert_eq!(fate(&fenced), Fate::Refused);
    }
}
