//! Asking a conversion webhook.

use std::time::Duration;

use apiextensions::Definition;
use apiextensions::conversion::{Original, Question, review_version, subject_of};
use gates::outbound::Error;
use machinery::status::ApiError;
use machinery::{Value, value};

use crate::admission::webhooks::{Server, Services};

/// How long a webhook may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How many objects it is asked about at once.
pub const BATCH: usize = 500;

/// The webhook of a definition.
pub struct Converter {
    webhook: Value,
    server: Server,
    services: Services,
}

impl Converter {
    /// Of a definition whose objects somebody else converts.
    pub fn of(definition: &Definition, services: Services) -> Option<Self> {
        let apiextensions::Conversion::Webhook(webhook) = &definition.conversion else { return None };
        let server = Server::read(value::at(webhook, "clientConfig").unwrap_or(&Value::Null));
        Some(Self { webhook: webhook.clone(), server, services })
    }

    /// Objects in another version, in their order. No more than [`BATCH`] at once.
    pub async fn convert(&self, objects: &[Original], desired: &str) -> Result<Vec<Value>, ApiError> {
        if objects.is_empty() {
            return Ok(Vec::new());
        }
        let review = review_version(&self.webhook).map_err(failed)?;
        let uid = common::new_uuid().to_string();
        let question = Question { review, uid: &uid, desired, objects };
        let of = |why: String| failed(format!("conversion webhook for {} failed: {why}", subject_of(objects)));
        let remote = self.server.remote(&self.services, TIMEOUT.as_secs()).map_err(|why| {
            let why = why.strip_prefix("failed to call webhook: ").map_or(why.as_str(), |why| why).to_owned();
            of(why)
        })?;
        // As upstream has it, a conversion is no part of the trace of the request that needs it.
        let answer = match remote.post_json(question.to_json().into(), TIMEOUT, hops::Context::NONE).await {
            // A word that says nothing is an answer without anything in it.
            Err(Error::Answer(why)) if why.is_empty() => Value::Null,
            Err(Error::Answer(why)) => return Err(of(format!("couldn't get version/kind; json parse error: {why}"))),
            Err(error @ (Error::Status(_) | Error::Body(_) | Error::Empty { .. })) => {
                return Err(of(error.to_string()));
            }
            Err(error) => return Err(of(format!("Post {:?}: {error}", remote.address()))),
            Ok(answer) => answer,
        };
        question.read(answer).map_err(failed)
    }
}

/// Upstream says what a webhook did wrong as it is, without a reason, and takes the blame.
fn failed(why: String) -> ApiError {
    let mut error = ApiError::internal("");
    (error.message, error.reason, error.details) = (why, None, None);
    error
}
