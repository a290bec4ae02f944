//! ValidatingAdmissionPolicy status: checks a policy's expressions against the types of the kinds that it names, and says
//! what cannot be right, so that its author hears of it before a request does.
//!
//! `plan` decides and is pure; a warning never changes what the policy does. Upstream: the ValidatingAdmissionPolicy status
//! controller.

mod plan;

use client::{Client, Patch};
use informer::{Action, Informer, Key, Reconciler};
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use serde_json::{Value, json};

use crate::Error;
use crate::common::meta::MetaExt;
use crate::context::Context;

const WORKERS: usize = 5;

/// Runs the controller.
pub(crate) async fn start(context: Context) {
    let controller = Checker { client: context.client.clone(), policies: context.informers.of() };
    let queue = context.queue();
    informer::feed(&controller.policies, &queue, |change| {
        change.after().map(|policy| policy.metadata.key()).into_iter().collect::<Vec<_>>()
    });
    controller.policies.synced().await;
    context.run(controller, queue, WORKERS).await;
}

struct Checker {
    client: Client,
    policies: Informer<ValidatingAdmissionPolicy>,
}

impl Reconciler for Checker {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(policy) = self.policies.get(key).filter(|policy| plan::is_unseen(policy)) else {
            return Ok(Action::Done);
        };
        let warnings = plan::check(&policy);
        let warnings = if warnings.is_empty() { Value::Null } else { json!(warnings) };
        let patch = Patch::Merge(json!({"status": {
            "observedGeneration": policy.metadata.generation,
            "typeChecking": {"expressionWarnings": warnings},
        }}));
        match self.client.patch_status::<ValidatingAdmissionPolicy>("", &key.name, &patch).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(Action::Done),
        }
    }
}
