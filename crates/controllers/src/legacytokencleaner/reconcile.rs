//! Observes, applies what `plan` decides, and reports.

use std::time::Duration;

use client::{DeleteOptions, Patch};
use informer::{Action, Informer, Key, Reconciler};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, ServiceAccount};
use serde_json::json;

use super::plan::{self, Plan};
use crate::Error;
use crate::common::meta::MetaExt;
use crate::common::tokens::{account_tokens, named_account};
use crate::context::{Context, Tools};
use crate::inputs::present;

/// Where the API server says since when it has been noting the use of tokens.
const TRACKING: &str = "kube-apiserver-legacy-service-account-token-tracking";
/// What cannot be decided now is looked at a day later, as upstream does.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

pub(crate) async fn start(context: Context) {
    let mut inputs = context.inputs();
    let controller = LegacyTokenCleaner {
        tools: context.tools.clone(),
        secrets: inputs.watch_some(account_tokens(), present),
        accounts: inputs.read(),
        pods: inputs.read(),
    };
    inputs.run(controller, 1).await;
}

struct LegacyTokenCleaner {
    tools: Tools,
    secrets: Informer<Secret>,
    accounts: Informer<ServiceAccount>,
    pods: Informer<Pod>,
}

impl Reconciler for LegacyTokenCleaner {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(secret) = self.secrets.get(key).filter(|secret| !secret.metadata.is_deleting()) else {
            return Ok(Action::Done);
        };
        // Only a token that its account lists was made automatically.
        let automatic = named_account(&self.accounts, &secret).is_some_and(|account| {
            let listed = account.secrets.iter().flatten();
            listed.into_iter().any(|listed| listed.name.as_deref() == Some(secret.metadata.name()))
        });
        if !automatic {
            return Ok(Action::Done);
        }
        let Some(since) = self.tracked_since().await? else { return Ok(Action::After(DAY)) };
        let now = self.tools.clock.now();
        let mounted = || self.pods.each_in(&key.namespace).any(|pod| plan::uses(&pod, &key.name));
        match plan::plan(&secret, since, mounted, now) {
            Plan::Keep => Ok(Action::After(DAY)),
            Plan::Look(at) => Ok(Action::After(informer::clock::since(at, now).max(Duration::from_secs(1)))),
            Plan::Invalidate(today) => {
                let patch = Patch::Merge(json!({
                    "metadata": {"uid": secret.metadata.uid(), "labels": {plan::INVALID_SINCE: today}},
                }));
                self.tools.client.patch::<Secret>(&key.namespace, &key.name, &patch).await?;
                Ok(Action::Done)
            }
            Plan::Delete => {
                let options = DeleteOptions {
                    resource_version: secret.metadata.resource_version.clone(),
                    ..DeleteOptions::default()
                };
                match self.tools.client.delete::<Secret>(&key.namespace, &key.name, &options).await {
                    Err(error) if !error.is_not_found() && !error.is_conflict() => Err(error.into()),
                    _ => Ok(Action::Done),
                }
            }
        }
    }
}

impl LegacyTokenCleaner {
    /// From when on a token without a note of its use was certainly not used; `None` while the API server notes nothing.
    async fn tracked_since(&self) -> Result<Option<Timestamp>, Error> {
        let map = match self.tools.client.get::<ConfigMap>("kube-system", TRACKING).await {
            Ok(map) => map,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let since = map.data.as_ref().and_then(|data| data.get("since"));
        // From midnight after that day.
        Ok(since.and_then(|text| plan::day(text)).map(|at| informer::clock::add(at, DAY)))
    }
}
