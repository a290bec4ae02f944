//! Service account tokens for pods: asked for once, kept, and asked for again well before they expire.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use client::Client;
use informer::Clock;
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount, ServiceAccountTokenProjection};
use parking_lot::Mutex;

use crate::pod::spec;

/// A token older than this is replaced even if it is good for longer.
const MAX_AGE: Duration = Duration::from_secs(24 * 3600);
/// How long a token is good for when nobody says.
const DEFAULT_LIFE: i64 = 3600;

/// A token and when to replace it.
#[derive(Clone)]
pub struct Token {
    pub value: String,
    /// When to ask for another one.
    pub renew: Timestamp,
    pub expires: Timestamp,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token").field("renew", &self.renew).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Ask {
    pod: String,
    account: String,
    audience: String,
    seconds: i64,
}

/// The tokens of this node's pods.
#[derive(Debug)]
pub struct Tokens {
    client: Client,
    clock: Arc<dyn Clock>,
    kept: Mutex<HashMap<Ask, Token>>,
}

impl Tokens {
    /// Asks through this client.
    pub fn new(client: Client, clock: Arc<dyn Clock>) -> Self {
        Self { client, clock, kept: Mutex::default() }
    }

    /// A good token for a pod.
    pub async fn get(&self, pod: &Pod, wanted: &ServiceAccountTokenProjection) -> Result<Token, String> {
        let account = pod.spec.as_ref().and_then(|s| s.service_account_name.clone()).filter(|name| !name.is_empty());
        let ask = Ask {
            pod: spec::uid(pod).to_owned(),
            account: account.unwrap_or_else(|| "default".to_owned()),
            audience: wanted.audience.clone().unwrap_or_default(),
            seconds: wanted.expiration_seconds.unwrap_or(DEFAULT_LIFE),
        };
        let now = self.clock.now();
        if let Some(token) = self.kept.lock().get(&ask).filter(|token| now < token.renew) {
            return Ok(token.clone());
        }
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                audiences: (!ask.audience.is_empty()).then(|| vec![ask.audience.clone()]),
                expiration_seconds: Some(ask.seconds),
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".to_owned()),
                    kind: Some("Pod".to_owned()),
                    name: Some(spec::name(pod).to_owned()),
                    uid: Some(ask.pod.clone()),
                }),
                ..TokenRequestSpec::default()
            }),
            ..TokenRequest::default()
        };
        let answer: TokenRequest = self
            .client
            .create_subresource::<ServiceAccount, _, _>(spec::namespace(pod), &ask.account, "token", &request)
            .await
            .map_err(|e| format!("failed to fetch token: {e}"))?;
        let status = answer.status.unwrap_or_default();
        let (Some(value), Some(expires)) = (status.token, status.expiration_timestamp) else {
            return Err("failed to fetch token: the answer has none".to_owned());
        };
        let token = Token { value, renew: renewal(now, expires.0), expires: expires.0 };
        self.kept.lock().insert(ask, token.clone());
        Ok(token)
    }

    /// Forgets the tokens of a pod that is gone.
    pub fn forget(&self, pod: &str) {
        self.kept.lock().retain(|ask, _| ask.pod != pod);
    }
}

/// After four fifths of its life, or after a day.
fn renewal(now: Timestamp, expires: Timestamp) -> Timestamp {
    let life = informer::clock::since(expires, now);
    informer::clock::add(now, life.mul_f64(0.8).min(MAX_AGE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_renewed_after_four_fifths_of_their_life_or_a_day() {
        let at = |second| Timestamp::from_second(second).unwrap();
        assert_eq!(renewal(at(0), at(1000)), at(800));
        assert_eq!(renewal(at(0), at(1_000_000)), at(86_400));
    }
}
