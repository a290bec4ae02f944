//! Observes, applies what `plan` decides, and reports.

use informer::{Action, Change, Filter, Informer, Key, Reconciler};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};

use super::plan;
use crate::Error;
use crate::common::tokens::bootstrap_tokens;
use crate::context::{Context, Tools};

const NAMESPACE: &str = "kube-public";
const NAME: &str = "cluster-info";

pub(crate) async fn start(context: Context) {
    let maps = Filter {
        namespace: NAMESPACE.to_owned(),
        field_selector: format!("metadata.name={NAME}"),
        ..Filter::default()
    };
    let mut inputs = context.inputs();
    let controller = BootstrapSigner {
        tools: context.tools.clone(),
        tokens: inputs.watch_some(bootstrap_tokens(), |_| [Key::new(NAMESPACE, NAME)]),
        maps: inputs.watch_some(maps, |change: &Change<ConfigMap>| change.after().map(|_| Key::new(NAMESPACE, NAME))),
    };
    inputs.run(controller, 1).await;
}

struct BootstrapSigner {
    tools: Tools,
    tokens: Informer<Secret>,
    maps: Informer<ConfigMap>,
}

impl Reconciler for BootstrapSigner {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(map) = self.maps.get(key) else { return Ok(Action::Done) };
        let plan = plan::plan(&map, &self.tokens.list(), self.tools.clock.now());
        if let Some(data) = plan.data {
            let changed = ConfigMap { data: Some(data), ..ConfigMap::clone(&map) };
            match self.tools.client.update(&changed).await {
                // The next version of it comes through the watch.
                Err(error) if !error.is_conflict() && !error.is_not_found() => return Err(error.into()),
                _ => {}
            }
        }
        Ok(Action::after(plan.again))
    }
}
