//! Observes, applies what `plan` decides, and reports.

use std::sync::Arc;

use client::Patch;
use informer::{Action, Informer, Key, Reconciler};
use k8s_openapi::api::rbac::v1::ClusterRole;
use serde_json::json;

use super::plan::plan;
use crate::Error;
use crate::common::meta::MetaExt;
use crate::context::{Context, Tools};

const WORKERS: usize = 5;

pub(crate) async fn start(context: Context) {
    let mut inputs = context.inputs();
    let controller = Aggregation { tools: context.tools.clone(), roles: inputs.read() };
    let roles = controller.roles.clone();
    inputs.feed(&controller.roles, move |change| {
        let aggregating = |role: &Arc<ClusterRole>| role.aggregation_rule.is_some();
        let mut keys: Vec<Key> =
            roles.list().iter().filter(|role| aggregating(role)).map(|role| role.metadata.key()).collect();
        keys.extend(change.after().filter(|role| aggregating(role)).map(|role| role.metadata.key()));
        keys
    });
    inputs.run(controller, WORKERS).await;
}

struct Aggregation {
    tools: Tools,
    roles: Informer<ClusterRole>,
}

impl Reconciler for Aggregation {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(role) = self.roles.get(key).filter(|role| role.aggregation_rule.is_some()) else {
            return Ok(Action::Done);
        };
        let Some(rules) = plan(&role, &self.roles.list()) else { return Ok(Action::Done) };
        let object = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": key.name},
            "rules": rules,
        });
        let patch = Patch::Apply { manager: "clusterrole-aggregation-controller".to_owned(), force: true, object };
        match self.tools.client.patch::<ClusterRole>("", &key.name, &patch).await {
            Ok(_) => Ok(Action::Done),
            Err(error) if error.is_not_found() => Ok(Action::Done),
            // Servers without apply take the whole object.
            Err(error) if matches!(error.code(), Some(400 | 415)) => {
                let changed = ClusterRole { rules: Some(rules), ..ClusterRole::clone(&role) };
                self.tools.client.update(&changed).await?;
                Ok(Action::Done)
            }
            Err(error) => Err(error.into()),
        }
    }
}
