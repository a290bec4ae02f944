//! Webhooks: others who change or refuse writes, asked over HTTPS.
//!
//! Mutating ones are asked one after the other, each seeing what those before it did; if one changed the object, the
//! built-in plug-ins and those that want to look again do, once. Validating ones are asked all at once. None is asked
//! about the configurations of webhooks: a broken one could not be mended then. Without configurations a request pays two
//! comparisons.

mod call;
mod hook;
mod review;
mod server;

use std::sync::Arc;

use futures::future::join_all;
use gates::Exchange;
use gates::authorization::Authorizers;
use hops::Stage;
use machinery::Value;
use machinery::status::ApiError;
use serde_json::json;

use super::cel::{self, Seen};
use super::chain::Write;
use super::compiled::Compiled;
use super::reinvocation::{Asker, Rounds};
use super::subject::Subject;
use crate::registry::{Registry, Shared};
use call::{Mutated, Stop};
use hook::{Failure, Hook};
pub use server::{Server, Services};

pub struct Webhooks {
    mutating: Option<Compiled<Hook>>,
    validating: Option<Compiled<Hook>>,
    authorizers: Arc<Authorizers>,
}

impl Webhooks {
    /// On the caches of the configurations.
    pub fn new(registry: &Registry, authorizers: Arc<Authorizers>) -> Self {
        let compiled = |plural: &str| {
            let resource = registry.stored("admissionregistration.k8s.io", plural)?;
            Some(Compiled::new(resource.cache.clone(), Hook::of))
        };
        Self {
            mutating: compiled("mutatingwebhookconfigurations"),
            validating: compiled("validatingwebhookconfigurations"),
            authorizers,
        }
    }

    /// Whether there are mutating ones.
    pub fn change_writes(&self) -> bool {
        self.mutating.as_ref().and_then(Compiled::current).is_some()
    }

    /// Asks the mutating ones in order.
    pub async fn mutate(
        &self,
        write: Write<'_>,
        mut new: Option<&mut Value>,
        rounds: &mut Rounds,
    ) -> Result<(), ApiError> {
        let Write { api, request, old, .. } = write;
        let Some(hooks) = self.mutating.as_ref().and_then(Compiled::current) else { return Ok(()) };
        if (Subject { api, request, new: new.as_deref(), old }).is_exempt() {
            return Ok(());
        }
        rounds.enter(Asker::Webhooks, new.as_deref());
        for (index, hook) in hooks.iter().enumerate() {
            let subject = Subject { api, request, new: new.as_deref(), old };
            let Some(version) = self.wants(&subject, hook).await? else { continue };
            // Who was not asked in the first round is not in the second, even if the object now fits.
            if !rounds.asks(Asker::Webhooks, &hook.id) {
                continue;
            }
            let hop = hop_of(&subject, hook, Stage::MutatingWebhook);
            let outcome = hook.mutate(&subject, &version, hop.context()).await;
            hop.note(said(&outcome, |mutated| mutated.object.is_some())).end_unnamed();
            let place = format!("round_{}_index_{index}", rounds.number());
            let mut changed = None;
            match (outcome, hook.failure) {
                (Ok(Mutated { object, patch }), _) => {
                    note_mutation(request.exchange, hook, &place, object.is_some(), patch);
                    changed = object;
                }
                (Err(Stop::Refused(error)), _) => return Err(error),
                (Err(Stop::Unasked(why)), Failure::Fail) => return Err(fail_closed(hook, &why)),
                (Err(Stop::Unasked(why)), Failure::Ignore) => {
                    note_mutation(request.exchange, hook, &place, false, None);
                    fail_open(
                        request.exchange,
                        hook,
                        &why,
                        format!("failed-open.mutation.webhook.admission.k8s.io/{place}"),
                    );
                }
            }
            rounds.asked(Asker::Webhooks, &hook.id, changed.is_some(), hook.again);
            if let (Some(changed), Some(new)) = (changed, new.as_deref_mut()) {
                *new = changed;
            }
        }
        rounds.leave(Asker::Webhooks, new.as_deref());
        Ok(())
    }

    /// Asks the validating ones, all at once, and waits for all of them; the first refusal counts.
    pub async fn validate(&self, subject: &Subject<'_>) -> Result<(), ApiError> {
        let Some(hooks) = self.validating.as_ref().and_then(Compiled::current) else { return Ok(()) };
        if subject.is_exempt() {
            return Ok(());
        }
        let mut calls = Vec::new();
        for hook in hooks.iter() {
            if let Some(version) = self.wants(subject, hook).await? {
                calls.push(ask(subject, hook, version, calls.len()));
            }
        }
        join_all(calls).await.into_iter().collect()
    }

    /// The version of the resource in which a webhook wants to see the request, if it wants to see it.
    async fn wants(&self, subject: &Subject<'_>, hook: &Hook) -> Result<Option<Shared<facts::Resource>>, ApiError> {
        let Some(version) = hook.matching.matches(subject)? else { return Ok(None) };
        if hook.conditions.is_empty() {
            return Ok(Some(version));
        }
        let seen = Seen::of(subject, &version)?;
        let asker = cel::Asker { authorizers: &self.authorizers, request: subject.request };
        match hook.conditions.hold(&seen.scope(None, true), &asker).await {
            Ok(hold) => Ok(hold.then_some(version)),
            Err(why) => Err(ApiError::forbidden(&subject.request.resource.name, subject.name(), &why)),
        }
    }
}

/// Asks one of the validating ones.
async fn ask(
    subject: &Subject<'_>,
    hook: &Hook,
    version: Shared<facts::Resource>,
    index: usize,
) -> Result<(), ApiError> {
    let hop = hop_of(subject, hook, Stage::ValidatingWebhook);
    let outcome = hook.validate(subject, &version, hop.context()).await;
    hop.note(said(&outcome, |()| false)).end_unnamed();
    match (outcome, hook.failure) {
        (Ok(()), _) => Ok(()),
        (Err(Stop::Refused(error)), _) => Err(error),
        (Err(Stop::Unasked(why)), Failure::Fail) => Err(fail_closed(hook, &why)),
        (Err(Stop::Unasked(why)), Failure::Ignore) => {
            let key = format!("failed-open.validating.webhook.admission.k8s.io/round_0_index_{index}");
            fail_open(subject.request.exchange, hook, &why, key);
            Ok(())
        }
    }
}

/// The request knows the object, once it is written; the span of a webhook only has to know the request.
fn hop_of(subject: &Subject<'_>, hook: &Hook, stage: Stage) -> hops::Timer {
    let request = subject.request;
    hops::stage(stage, request.operation.verb()).within(request.exchange.trace).by(hops::label(&hook.name))
}

/// What a webhook decided, in a word; that it let the request pass goes without saying.
fn said<T>(outcome: &Result<T, Stop>, changed: impl FnOnce(&T) -> bool) -> hops::Note {
    match outcome {
        Ok(passed) if changed(passed) => hops::Note::of(format_args!("changed it")),
        Ok(_) => hops::Note::default(),
        // Why is the client's to know: a reason may hold what is in the object.
        Err(Stop::Refused(_)) => hops::Note::of(format_args!("refused it")),
        Err(Stop::Unasked(_)) => hops::Note::of(format_args!("could not be asked")),
    }
}

fn fail_closed(hook: &Hook, why: &str) -> ApiError {
    tracing::warn!(webhook = %hook.name, %why, "Failed calling webhook, failing closed");
    review::failure(&hook.name, why)
}

fn fail_open(exchange: &Exchange, hook: &Hook, why: &str, key: String) {
    tracing::warn!(webhook = %hook.name, %why, "Failed calling webhook, failing open");
    exchange.notes.annotate(key, hook.name.as_str());
}

/// Notes for the audit log what a webhook did. The patch is part of what is written, so it is shown where that is.
fn note_mutation(exchange: &Exchange, hook: &Hook, place: &str, mutated: bool, patch: Option<Value>) {
    let Hook { configuration, name, .. } = hook;
    let note = json!({"configuration": configuration, "webhook": name, "mutated": mutated});
    exchange.notes.annotate(format!("mutation.webhook.admission.k8s.io/{place}"), note.to_string());
    if let Some(patch) = patch
        && exchange.record.as_ref().is_some_and(|record| record.shows_bodies())
    {
        let note = json!({"configuration": configuration, "webhook": name, "patch": patch, "patchType": "JSONPatch"});
        exchange.notes.annotate(format!("patch.webhook.admission.k8s.io/{place}"), note.to_string());
    }
}
