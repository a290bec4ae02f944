//! Observes, applies what `plan` decides, and reports.

use client::DeleteOptions;
use informer::{Action, Informer, Key, Reconciler};
use k8s_openapi::api::core::v1::Secret;

use super::plan::plan;
use crate::Error;
use crate::common::expiry::Expiry;
use crate::common::tokens::bootstrap_tokens;
use crate::context::{Context, Tools};
use crate::inputs::present;

pub(crate) async fn start(context: Context) {
    let mut inputs = context.inputs();
    let tokens = inputs.read_some(bootstrap_tokens());
    let controller = TokenCleaner { tools: context.tools.clone(), tokens };
    inputs.feed(&controller.tokens, present);
    inputs.run(controller, 1).await;
}

struct TokenCleaner {
    tools: Tools,
    tokens: Informer<Secret>,
}

impl Reconciler for TokenCleaner {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(token) = self.tokens.get(key) else { return Ok(Action::Done) };
        match plan(&token, self.tools.clock.now()) {
            Expiry::Never => return Ok(Action::Done),
            Expiry::In(left) => return Ok(Action::After(left)),
            Expiry::Now => {}
        }
        let options = DeleteOptions { uid: token.metadata.uid.clone(), ..DeleteOptions::default() };
        match self.tools.client.delete::<Secret>(&key.namespace, &key.name, &options).await {
            Err(error) if !error.is_not_found() && !error.is_conflict() => Err(error.into()),
            _ => Ok(Action::Done),
        }
    }
}
