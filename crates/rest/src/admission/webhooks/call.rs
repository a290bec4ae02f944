//! Asking one webhook: the exchange, and what its answer means.

use gates::outbound::Error;
use hops::Context;
use machinery::status::ApiError;
use machinery::{Value, patch};

use super::super::subject::Subject;
use super::hook::Hook;
use super::review;
use super::server::Services;

/// Why a webhook does not let a request through.
pub enum Stop {
    /// It could not be asked.
    Unasked(String),
    /// It said no, or the request cannot be shown to it.
    Refused(ApiError),
}

/// What a webhook that may change the object did.
#[derive(Default)]
pub struct Mutated {
    /// The object in storage form, if the patch made another of it.
    pub object: Option<Value>,
    /// The operations of the patch.
    pub patch: Option<Value>,
}

impl Hook {
    /// Asks it whether the request may go on, for this span.
    pub async fn validate(&self, subject: &Subject<'_>, version: &facts::Resource, span: Context) -> Result<(), Stop> {
        self.ask(subject, version, span, false).await.map(|_| ())
    }

    /// Asks it what to change, for this span.
    pub async fn mutate(
        &self,
        subject: &Subject<'_>,
        version: &facts::Resource,
        span: Context,
    ) -> Result<Mutated, Stop> {
        let Some(operations) = self.ask(subject, version, span, true).await? else { return Ok(Mutated::default()) };
        let Some(new) = subject.new else {
            let why = format!(
                "admission webhook {:?} attempted to modify the object, which is not supported for this operation",
                self.name
            );
            return Err(Stop::Refused(ApiError::internal(why)));
        };
        let mut patched = subject.show(new, version);
        patch::json::apply(&mut patched, &operations).map_err(|error| Stop::Refused(ApiError::internal(error)))?;
        let stored = subject.take(patched, version, new).map_err(Stop::Refused)?;
        Ok(Mutated { object: (stored != *new).then_some(stored), patch: Some(operations) })
    }

    /// The exchange. What comes back is the patch.
    async fn ask(
        &self,
        subject: &Subject<'_>,
        version: &facts::Resource,
        span: Context,
        mutating: bool,
    ) -> Result<Option<Value>, Stop> {
        if subject.request.dry_run && !self.harmless_when_dry {
            return Err(Stop::Refused(review::not_dry(&self.name)));
        }
        let reads = self.version.ok_or_else(|| {
            let why = "could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)";
            Stop::Unasked(why.to_owned())
        })?;
        let uid = common::new_uuid().to_string();
        let mut request = subject.describe(version);
        request["uid"] = Value::String(uid.clone());
        request["object"] = subject.new.map(|object| subject.show(object, version)).unwrap_or_default();
        request["oldObject"] = subject.old.map(|object| subject.show(object, version)).unwrap_or_default();
        let services = Services::of(&subject.api.registry);
        let remote = self.server.remote(&services, self.timeout.as_secs()).map_err(Stop::Unasked)?;
        let answer = remote.post(&review::question(reads, request), self.timeout, span).await.map_err(|error| {
            Stop::Unasked(match error {
                // These are about the answer; the others about getting one.
                Error::Status(_) | Error::Body(_) | Error::Empty { .. } => format!("failed to call webhook: {error}"),
                Error::Answer(why) => {
                    format!("failed to call webhook: couldn't get version/kind; json parse error: {why}")
                }
                other => format!("failed to call webhook: Post {:?}: {other}", remote.address()),
            })
        })?;
        if let Some(why) = review::foreign(&answer, reads) {
            return Err(Stop::Unasked(format!("failed to call webhook: {why}")));
        }
        let answer = review::read(&answer, reads, &uid, mutating)
            .map_err(|error| Stop::Unasked(format!("received invalid webhook response: {error}")))?;
        let notes = &subject.request.exchange.notes;
        for (key, text) in answer.annotations {
            notes.annotate(format!("{}/{key}", self.name), text);
        }
        answer.warnings.into_iter().for_each(|text| notes.warn(text));
        if !answer.allowed {
            return Err(Stop::Refused(review::denial(&self.name, &answer.status)));
        }
        let Some((patch, kind)) = answer.patch else { return Ok(None) };
        review::operations(&patch, &kind).map_err(Stop::Unasked)
    }
}
