//! Token cleaner: deletes bootstrap tokens when they expire.
//!
//! Upstream: TokenCleaner.

use std::sync::Arc;

use client::{Client, DeleteOptions};
use informer::{Action, Clock, Informer, Key, Reconciler, clock};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;

use crate::Error;
use crate::bootstrapsigner::bootstrap_tokens;
use crate::common::meta::MetaExt;
use crate::context::Context;

/// Runs the controller.
pub(crate) async fn start(context: Context) {
    let tokens = context.informers.filtered(bootstrap_tokens());
    let controller = TokenCleaner { client: context.client.clone(), clock: context.clock.clone(), tokens };
    let queue = context.queue();
    informer::feed(&controller.tokens, &queue, |change| change.after().map(|token| token.metadata.key()));
    controller.tokens.synced().await;
    context.run(controller, queue, 1).await;
}

struct TokenCleaner {
    client: Client,
    clock: Arc<dyn Clock>,
    tokens: Informer<Secret>,
}

/// When a token expires; one whose time cannot be read has expired, one without a time never does.
fn expires(token: &Secret) -> Option<Timestamp> {
    let text = token.data.as_ref()?.get("expiration")?;
    let at = std::str::from_utf8(&text.0).ok().and_then(machinery::time::parse);
    Some(at.unwrap_or(Timestamp::UNIX_EPOCH))
}

impl Reconciler for TokenCleaner {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(token) = self.tokens.get(key) else { return Ok(Action::Done) };
        let Some(end) = expires(&token) else { return Ok(Action::Done) };
        let left = clock::since(end, self.clock.now());
        if !left.is_zero() {
            return Ok(Action::After(left));
        }
        let options = DeleteOptions { uid: token.metadata.uid.clone(), ..DeleteOptions::default() };
        match self.client.delete::<Secret>(&key.namespace, &key.name, &options).await {
            Err(error) if !error.is_not_found() && !error.is_conflict() => Err(error.into()),
            _ => Ok(Action::Done),
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;

    use super::*;

    #[test]
    fn tokens_expire_when_they_say_so() {
        let token = |time: Option<&str>| Secret {
            data: time.map(|time| [("expiration".to_owned(), ByteString(time.into()))].into()),
            ..Secret::default()
        };
        assert_eq!(expires(&token(None)), None);
        assert_eq!(expires(&token(Some("nonsense"))), Some(Timestamp::UNIX_EPOCH));
        assert_eq!(expires(&token(Some("1970-01-01T00:01:00Z"))).map(|at| at.as_second()), Some(60));
    }
}
