//! Observes, applies what `plan` decides, and reports.

use std::sync::Arc;

use client::DeleteOptions;
use informer::{Action, Informer, Key, Reconciler};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};

use super::plan;
use crate::common::meta::MetaExt;
use crate::common::tokens::{account_name, account_tokens, is_of, named_account};
use crate::context::{Context, Tools};
use crate::inputs::changed;
use crate::{Error, TokenSigner};

const WORKERS: usize = 2;
/// Secrets by the account they name.
const BY_ACCOUNT: &str = "account";
/// Accounts by the Secrets they list.
const BY_SECRET: &str = "secret";

/// Runs the controller, if there is a key to sign with.
pub(crate) async fn start(context: Context) {
    let Some(signer) = context.config.tokens.clone() else { return };
    let mut inputs = context.inputs();
    let controller = AccountTokens {
        tools: context.tools.clone(),
        secrets: inputs.watch_some(account_tokens(), changed),
        accounts: inputs.read(),
        certificates: context.config.cluster_ca.clone().unwrap_or_default(),
        signer,
    };
    controller.secrets.add_index(BY_ACCOUNT, |secret: &Secret| {
        account_name(secret).map(|name| format!("{}/{name}", secret.metadata.namespace())).into_iter().collect()
    });
    controller.accounts.add_index(BY_SECRET, |account: &ServiceAccount| {
        let listed = account.secrets.iter().flatten().filter_map(|secret| secret.name.as_deref());
        listed.map(|name| format!("{}/{name}", account.metadata.namespace())).collect()
    });
    let secrets = controller.secrets.clone();
    inputs.feed(&controller.accounts, move |change| {
        // A token waits for its account, and goes with it.
        let key = change.object().metadata.key();
        let named = secrets.by_index(BY_ACCOUNT, &format!("{}/{}", key.namespace, key.name));
        named.into_iter().map(|secret| secret.metadata.key()).collect::<Vec<_>>()
    });
    inputs.run(controller, WORKERS).await;
}

struct AccountTokens {
    tools: Tools,
    secrets: Informer<Secret>,
    accounts: Informer<ServiceAccount>,
    certificates: String,
    signer: Arc<dyn TokenSigner>,
}

impl Reconciler for AccountTokens {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(secret) = self.secrets.get(key) else { return self.forget(key).await };
        let Some(name) = account_name(&secret).filter(|_| !secret.metadata.is_deleting()) else {
            return Ok(Action::Done);
        };
        let account = match named_account(&self.accounts, &secret) {
            Some(account) => account,
            // The cache may be older than the Secret: only the API server knows that there is no such account.
            None => match self.tools.client.get::<ServiceAccount>(&key.namespace, name).await {
                Ok(account) if is_of(&secret, &account) => Arc::new(account),
                Err(error) if !error.is_not_found() => return Err(error.into()),
                _ => return self.remove(&secret).await,
            },
        };
        let Some(filled) = plan::plan(&secret, &account, &self.certificates, |claims| self.signer.sign(claims))
            .map_err(|reason| Error::Unusable { key: key.clone(), reason })?
        else {
            return Ok(Action::Done);
        };
        match self.tools.client.update(&filled).await {
            // What it is now comes through the watch.
            Err(error) if !error.is_conflict() && !error.is_not_found() => Err(error.into()),
            _ => Ok(Action::Done),
        }
    }
}

impl AccountTokens {
    async fn remove(&self, secret: &Secret) -> Result<Action, Error> {
        let options = DeleteOptions { uid: secret.metadata.uid.clone(), ..DeleteOptions::default() };
        match self.tools.client.delete::<Secret>(secret.metadata.namespace(), secret.metadata.name(), &options).await {
            Err(error) if !error.is_not_found() && !error.is_conflict() => Err(error.into()),
            _ => Ok(Action::Done),
        }
    }

    /// A token is gone: its account no longer lists it.
    async fn forget(&self, key: &Key) -> Result<Action, Error> {
        for account in self.accounts.by_index(BY_SECRET, &format!("{}/{}", key.namespace, key.name)) {
            let mut changed = ServiceAccount::clone(&account);
            if let Some(secrets) = &mut changed.secrets {
                secrets.retain(|secret| secret.name.as_deref() != Some(&key.name));
            }
            match self.tools.client.update(&changed).await {
                Err(error) if !error.is_not_found() => return Err(error.into()),
                _ => {}
            }
        }
        Ok(Action::Done)
    }
}
