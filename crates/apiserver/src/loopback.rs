//! The server's own requests, which pass the gates like everybody's.

use std::sync::{Arc, Weak};

use gates::Gates;
use gates::authentication::tracking::{Tracking, Use};
use http::header::{CONTENT_TYPE, HeaderValue, USER_AGENT};
use http::{Method, Uri};
use machinery::rest::{Body, Handler as _, Payload, Peer, Request, User};
use machinery::status::{ApiError, Reason};
use machinery::{Value, value};
use rest::registry::Resource;
use serde_json::json;
use tokio::sync::mpsc;

/// Who the server is, as upstream has it.
pub(crate) const NAME: &str = "system:apiserver";

const JSON: &str = "application/json";

/// A client of the very server that it is a part of.
#[derive(Clone)]
pub struct Loopback {
    gates: Weak<Gates>,
    user: Arc<User>,
}

impl Loopback {
    /// Of a server, for as long as there is one.
    pub fn new(gates: &Arc<Gates>) -> Self {
        Self { gates: Arc::downgrade(gates), user: Arc::new(User::new(NAME, ["system:masters"])) }
    }

    /// Sends a request; the object in its answer, or why there is none.
    pub async fn send(&self, method: Method, path: &str, media: &'static str, body: Body) -> Result<Value, ApiError> {
        let Some(gates) = self.gates.upgrade() else {
            return Err(ApiError::unavailable("the server is shutting down"));
        };
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = path.parse::<Uri>().map_err(ApiError::internal)?;
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media));
        request.headers_mut().insert(USER_AGENT, HeaderValue::from_static("kube-apiserver"));
        request.extensions_mut().insert(Peer::InProcess(self.user.clone()));
        let answer = gates.handle(request).await;
        let status = answer.status();
        let tree = match answer.into_body() {
            Payload::Object(object) => object.to_value(),
            Payload::Value(tree) => tree,
            _ => Value::Null,
        };
        if status.is_success() { Ok(tree) } else { Err(ApiError::from_value(status.as_u16(), &tree)) }
    }

    /// Makes an object, and its status where that is written apart.
    pub async fn create(&self, resource: &Resource, object: Value) -> Result<(), ApiError> {
        let path = path(resource, value::text(&object, "metadata.namespace"), "", "");
        let created = self.send(Method::POST, &path, JSON, Body::Value(object.clone())).await;
        let mut created = match created {
            Ok(created) => created,
            Err(error) => return overtaken(error),
        };
        match object.get("status") {
            Some(status) if created.get("status") != Some(status) => {
                value::set(&mut created, "status", status.clone());
                self.update(resource, created, "status").await
            }
            _ => Ok(()),
        }
    }

    /// Replaces an object, or a part of it, in the version that it has.
    pub async fn update(&self, resource: &Resource, object: Value, part: &str) -> Result<(), ApiError> {
        let (namespace, name) = (value::text(&object, "metadata.namespace"), value::text(&object, "metadata.name"));
        let path = path(resource, namespace, name, part);
        self.send(Method::PUT, &path, JSON, Body::Value(object)).await.map_or_else(overtaken, |_| Ok(()))
    }

    /// Changes part of a cluster-scoped object, in whatever version it has.
    pub async fn merge(&self, resource: &Resource, name: &str, patch: Value) -> Result<(), ApiError> {
        let path = path(resource, "", name, "");
        let media = "application/merge-patch+json";
        self.send(Method::PATCH, &path, media, Body::Value(patch)).await.map_or_else(overtaken, |_| Ok(()))
    }

    /// Deletes an object in the version that it has.
    pub async fn delete(&self, resource: &Resource, object: &Value) -> Result<(), ApiError> {
        let text = |field: &str| value::text(object, &format!("metadata.{field}"));
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions",
            "preconditions": {"uid": text("uid"), "resourceVersion": text("resourceVersion")}});
        let path = path(resource, text("namespace"), text("name"), "");
        self.send(Method::DELETE, &path, JSON, Body::Value(options)).await.map_or_else(overtaken, |_| Ok(()))
    }

    /// Writes the notes on tokens in Secrets, one after the other, for as long as there is somebody who notes uses.
    pub async fn note_uses(self, mut uses: mpsc::Receiver<Use>) {
        while let Some(used) = uses.recv().await {
            let path = format!("/api/v1/namespaces/{}/secrets/{}", used.namespace, used.name);
            let label = json!({"metadata": {"labels": {Tracking::LABEL: used.day}}});
            let media = "application/merge-patch+json";
            if let Err(error) = self.send(Method::PATCH, &path, media, Body::Value(label)).await {
                tracing::warn!(%error, "cannot note that a token in a secret was used");
            }
        }
    }
}

/// Where an object or its collection is served.
fn path(resource: &Resource, namespace: &str, name: &str, part: &str) -> String {
    let facts = &resource.storage;
    let mut path = match &*facts.group {
        "" => format!("/api/{}", facts.version),
        group => format!("/apis/{group}/{}", facts.version),
    };
    if !namespace.is_empty() {
        path.push_str(&format!("/namespaces/{namespace}"));
    }
    path.push_str(&format!("/{}", facts.plural));
    for segment in [name, part].into_iter().filter(|segment| !segment.is_empty()) {
        path.push_str(&format!("/{segment}"));
    }
    path
}

/// Somebody else was faster: whoever follows the objects sees what came of it.
fn overtaken(error: ApiError) -> Result<(), ApiError> {
    let overtaken =
        [Reason::AlreadyExists, Reason::Conflict, Reason::NotFound].into_iter().any(|reason| error.is(reason));
    if overtaken { Ok(()) } else { Err(error) }
}
