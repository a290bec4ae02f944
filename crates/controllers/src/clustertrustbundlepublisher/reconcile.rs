//! Observes, applies what `plan` decides, and reports.

use client::DeleteOptions;
use informer::{Action, Filter, Informer, Key, Reconciler};
use k8s_openapi::api::certificates::v1::ClusterTrustBundle;

use super::plan::{self, Plan, SIGNER};
use crate::Error;
use crate::context::{Context, Tools};
use crate::metrics;

/// There is one key: the signer.
const ALL: &str = "bundles";

/// Runs the controller, if there is anything to publish.
pub(crate) async fn start(context: Context) {
    let Some(certificates) = context.config.cluster_ca.clone().filter(|text| !text.is_empty()) else { return };
    let mut inputs = context.inputs();
    let controller = Publisher {
        tools: context.tools.clone(),
        bundles: inputs.watch_some(Filter::fields(format!("spec.signerName={SIGNER}")), |_| [Key::cluster(ALL)]),
        certificates,
    };
    inputs.queue.add(Key::cluster(ALL));
    inputs.run(controller, 1).await;
}

struct Publisher {
    tools: Tools,
    bundles: Informer<ClusterTrustBundle>,
    certificates: String,
}

impl Reconciler for Publisher {
    type Error = Error;

    async fn reconcile(&self, _: &Key) -> Result<Action, Error> {
        let begun = self.tools.clock.monotonic();
        let answer = self.apply(plan::plan(&self.certificates, &self.bundles.list())).await;
        let code = match &answer {
            Ok(()) => 200,
            Err(error) => error.code().unwrap_or(500),
        };
        let code = code.to_string();
        metrics::TRUST_BUNDLE_SYNCS.increment(&[&code]);
        metrics::TRUST_BUNDLE_SECONDS
            .observe(&[&code], self.tools.clock.monotonic().saturating_sub(begun).as_secs_f64());
        answer?;
        Ok(Action::Done)
    }
}

impl Publisher {
    /// The new one first: there is never a moment without one.
    async fn apply(&self, plan: Plan) -> Result<(), client::Error> {
        if let Some(bundle) = &plan.create
            && let Err(error) = self.tools.client.create(bundle).await
            && !error.is_already_exists()
        {
            return Err(error);
        }
        if let Some(bundle) = &plan.update {
            self.tools.client.update(bundle).await?;
        }
        let mut failed = Ok(());
        for name in &plan.delete {
            match self.tools.client.delete::<ClusterTrustBundle>("", name, &DeleteOptions::default()).await {
                Err(error) if !error.is_not_found() => failed = Err(error),
                _ => {}
            }
        }
        failed
    }
}
