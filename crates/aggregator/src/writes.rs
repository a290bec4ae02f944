//! What the aggregator writes: APIServices and their statuses.

use std::sync::Arc;

use futures::future::BoxFuture;
use http::Method;
use machinery::Value;
use machinery::status::{ApiError, Reason};
use serde_json::json;

use crate::registration::Step;

const PATH: &str = "/apis/apiregistration.k8s.io/v1/apiservices";

/// Who sends the aggregator's own requests, in the name of the server and through its gates.
pub trait Loopback: Send + Sync + 'static {
    /// Sends an object as JSON.
    fn send(&self, method: Method, path: String, object: Value) -> BoxFuture<'_, Result<(), ApiError>>;
}

#[derive(Clone)]
pub(crate) struct Writer(pub Arc<dyn Loopback>);

impl Writer {
    /// Takes a step. Somebody who was faster is no failure: the change that they made is looked at when it comes.
    pub async fn take(&self, name: &str, step: Step) -> Result<(), ApiError> {
        let outcome = match step {
            Step::Nothing => return Ok(()),
            Step::Create(object) => self.0.send(Method::POST, PATH.to_owned(), object).await,
            Step::Update(object) => self.0.send(Method::PUT, format!("{PATH}/{name}"), object).await,
            Step::Delete { uid } => {
                let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid}});
                self.0.send(Method::DELETE, format!("{PATH}/{name}"), options).await
            }
            Step::UpdateStatus(object) => self.0.send(Method::PUT, format!("{PATH}/{name}/status"), object).await,
        };
        match outcome {
            Err(error)
                if [Reason::AlreadyExists, Reason::Conflict, Reason::NotFound]
                    .map(|reason| error.is(reason))
                    .contains(&true) =>
            {
                Ok(())
            }
            outcome => outcome,
        }
    }
}
