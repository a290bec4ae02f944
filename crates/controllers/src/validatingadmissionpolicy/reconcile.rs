//! Observes, applies what `plan` decides, and reports.

use client::Patch;
use informer::{Action, Informer, Key, Reconciler};
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

use super::kinds::Kinds;
use super::plan::plan;
use crate::Error;
use crate::common::meta::MetaExt;
use crate::context::{Context, Tools};

const WORKERS: usize = 5;

pub(crate) async fn start(context: Context) {
    let mut inputs = context.inputs();
    let controller = Checker { tools: context.tools.clone(), policies: inputs.read(), definitions: inputs.read() };
    inputs.feed(&controller.policies, |change| {
        change.after().map(|policy| policy.metadata.key()).into_iter().collect::<Vec<_>>()
    });
    inputs.run(controller, WORKERS).await;
}

struct Checker {
    tools: Tools,
    policies: Informer<ValidatingAdmissionPolicy>,
    definitions: Informer<CustomResourceDefinition>,
}

impl Reconciler for Checker {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(policy) = self.policies.get(key) else { return Ok(Action::Done) };
        let known = Kinds { definitions: self.definitions.list() };
        let Some(warnings) = plan(&policy, &known) else { return Ok(Action::Done) };
        let warnings = if warnings.is_empty() { Value::Null } else { json!(warnings) };
        let patch = Patch::Merge(json!({"status": {
            "observedGeneration": policy.metadata.generation,
            "typeChecking": {"expressionWarnings": warnings},
        }}));
        match self.tools.client.patch_status::<ValidatingAdmissionPolicy>("", &key.name, &patch).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(Action::Done),
        }
    }
}
