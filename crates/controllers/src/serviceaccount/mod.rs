//! ServiceAccount: every namespace has the account `default`.
//!
//! Upstream: ServiceAccountsController.

use client::Client;
use informer::{Action, Informer, Key, Reconciler};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::Error;
use crate::common::meta::MetaExt;
use crate::common::pod_control::namespace_ends;
use crate::context::Context;

const NAME: &str = "default";

/// Runs the controller.
pub(crate) async fn start(context: Context) {
    let controller = ServiceAccounts {
        client: context.client.clone(),
        namespaces: context.informers.of(),
        accounts: context.informers.of(),
    };
    let queue = context.queue();
    informer::feed(&controller.namespaces, &queue, |change| change.after().map(|namespace| namespace.metadata.key()));
    informer::feed(&controller.accounts, &queue, |change| {
        let gone = change.after().is_none() && change.object().metadata.name() == NAME;
        gone.then(|| Key::cluster(change.object().metadata.namespace()))
    });
    futures::join!(controller.namespaces.synced(), controller.accounts.synced());
    context.run(controller, queue, 1).await;
}

struct ServiceAccounts {
    client: Client,
    namespaces: Informer<Namespace>,
    accounts: Informer<ServiceAccount>,
}

impl Reconciler for ServiceAccounts {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(namespace) = self.namespaces.get(key) else { return Ok(Action::Done) };
        let exists = self.accounts.get(&Key::new(&key.name, NAME)).is_some();
        if exists || namespace.metadata.is_deleting() {
            return Ok(Action::Done);
        }
        let account = ServiceAccount {
            metadata: ObjectMeta {
                name: Some(NAME.to_owned()),
                namespace: Some(key.name.clone()),
                ..ObjectMeta::default()
            },
            ..ServiceAccount::default()
        };
        match self.client.create(&account).await {
            Err(error) if !error.is_already_exists() && !namespace_ends(&error) => Err(error.into()),
            _ => Ok(Action::Done),
        }
    }
}
