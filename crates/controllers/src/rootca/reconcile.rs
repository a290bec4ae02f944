//! Observes, applies what `plan` decides, and reports.

use informer::{Action, Change, Informer, Key, Reconciler};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};

use super::plan::{NAME, Plan, plan};
use crate::Error;
use crate::common::meta::MetaExt;
use crate::common::pod_control::namespace_ends;
use crate::context::{Context, Tools};
use crate::inputs::present;
use crate::metrics;

/// Runs the controller, if there is anything to publish.
pub(crate) async fn start(context: Context) {
    let Some(certificates) = context.config.cluster_ca.clone() else { return };
    let named = informer::Filter::fields(format!("metadata.name={NAME}"));
    let mut inputs = context.inputs();
    let controller = RootCa {
        tools: context.tools.clone(),
        namespaces: inputs.watch(present),
        maps: inputs
            .watch_some(named, |change: &Change<ConfigMap>| [Key::cluster(change.object().metadata.namespace())]),
        certificates,
    };
    inputs.run(controller, 1).await;
}

struct RootCa {
    tools: Tools,
    namespaces: Informer<Namespace>,
    maps: Informer<ConfigMap>,
    certificates: String,
}

impl Reconciler for RootCa {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let begun = self.tools.clock.monotonic();
        let answer = self.publish(key).await;
        let code = match &answer {
            Ok(_) => 200,
            Err(error) => error.code().unwrap_or(500),
        };
        let code = code.to_string();
        metrics::ROOT_CA_SYNCS.increment(&[&code]);
        metrics::ROOT_CA_SECONDS.observe(&[&code], self.tools.clock.monotonic().saturating_sub(begun).as_secs_f64());
        Ok(answer?)
    }
}

impl RootCa {
    async fn publish(&self, key: &Key) -> Result<Action, client::Error> {
        let map = self.maps.get(&Key::new(&key.name, NAME));
        let answer = match plan(self.namespaces.get(key).as_deref(), map.as_deref(), &self.certificates) {
            Plan::Keep => return Ok(Action::Done),
            Plan::Create(map) => self.tools.client.create(&map).await,
            Plan::Update(map) => self.tools.client.update(&map).await,
        };
        match answer {
            Err(error) if !error.is_already_exists() && !namespace_ends(&error) => Err(error),
            _ => Ok(Action::Done),
        }
    }
}
