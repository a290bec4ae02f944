//! Observes, applies what `plan` decides, and reports.

use informer::{Action, Informer, Key, Reconciler};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};

use super::plan::{NAME, plan};
use crate::Error;
use crate::common::meta::MetaExt;
use crate::common::pod_control::namespace_ends;
use crate::context::{Context, Tools};
use crate::inputs::present;

pub(crate) async fn start(context: Context) {
    let mut inputs = context.inputs();
    let controller =
        ServiceAccounts { tools: context.tools.clone(), namespaces: inputs.watch(present), accounts: inputs.read() };
    inputs.feed(&controller.accounts, |change| {
        let gone = change.after().is_none() && change.object().metadata.name() == NAME;
        gone.then(|| Key::cluster(change.object().metadata.namespace()))
    });
    inputs.run(controller, 1).await;
}

struct ServiceAccounts {
    tools: Tools,
    namespaces: Informer<Namespace>,
    accounts: Informer<ServiceAccount>,
}

impl Reconciler for ServiceAccounts {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let account = self.accounts.get(&Key::new(&key.name, NAME));
        let Some(account) = plan(self.namespaces.get(key).as_deref(), account.is_some()) else {
            return Ok(Action::Done);
        };
        match self.tools.client.create(&account).await {
            Err(error) if !error.is_already_exists() && !namespace_ends(&error) => Err(error.into()),
            _ => Ok(Action::Done),
        }
    }
}
