//! An authenticator elsewhere: asked by `TokenReview`, its answers remembered for a while.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use common::Clock;
use common::expiring::Expiring;
use machinery::rest::User;
use machinery::{Value, value};
use serde_json::json;

use super::jwt::strings;
use super::service_accounts::hash;
use super::{Authenticated, Outcome, common};
use crate::outbound::{Error, Remote, Retry};

/// Answers that are remembered.
const MAX_REMEMBERED: usize = 4096;
/// How long one call may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How often a call that failed on the way is made again.
const RETRY: Retry = Retry { attempts: 3, pause: Duration::from_millis(500) };

/// How the webhook is asked.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `--authentication-token-webhook-config-file`.
    pub kubeconfig: PathBuf,
    /// `--authentication-token-webhook-version`: `v1` or `v1beta1`.
    pub version: String,
    /// `--authentication-token-webhook-cache-ttl`.
    pub ttl: Duration,
}

type Key = ([u8; 32], Vec<String>);

pub struct Webhook {
    remote: Remote,
    version: String,
    ttl: Duration,
    remembered: Expiring<Key, Option<Authenticated>>,
    clock: Clock,
}

impl Webhook {
    pub fn new(settings: &Settings, clock: Clock) -> Result<Self, Error> {
        Ok(Self {
            remote: Remote::from_kubeconfig(&settings.kubeconfig)?,
            version: settings.version.clone(),
            ttl: settings.ttl,
            remembered: Expiring::new(MAX_REMEMBERED),
            clock,
        })
    }

    /// Asks, unless the answer is still known. `implicit` is for whom an answer without audiences counts.
    pub async fn authenticate(&self, token: &str, audiences: &[String], implicit: &[String]) -> Outcome {
        let key = (hash(token), audiences.to_vec());
        let now = (self.clock)().as_millisecond();
        if let Some(known) = self.remembered.get(&key, now) {
            return Ok(known);
        }
        let review = json!({
            "kind": "TokenReview", "apiVersion": format!("authentication.k8s.io/{}", self.version),
            "metadata": {}, "spec": {"token": token, "audiences": audiences}, "status": {"user": {}},
        });
        let answer = RETRY.run(|| self.remote.post(&review, TIMEOUT, hops::Context::NONE)).await.map_err(|error| {
            tracing::error!(%error, "Failed to make webhook authenticator request");
            error.to_string()
        })?;
        let outcome = read(&answer, audiences, implicit)?;
        self.remembered.put(key, outcome.clone(), now + i64::try_from(self.ttl.as_millis()).unwrap_or_default());
        Ok(outcome)
    }
}

fn read(answer: &Value, wanted: &[String], implicit: &[String]) -> Outcome {
    let answered = strings(&answer["status"]["audiences"]);
    let audiences = common(wanted, if answered.is_empty() { implicit } else { &answered });
    if audiences.is_empty() {
        return Ok(None);
    }
    if !value::flag(answer, "status.authenticated") {
        let error = value::text(answer, "status.error");
        return if error.is_empty() { Ok(None) } else { Err(error.to_owned()) };
    }
    let about = &answer["status"]["user"];
    let groups = strings(&about["groups"]);
    let mut user = User::new(value::text(about, "username"), groups.iter().map(String::as_str));
    value::text(about, "uid").clone_into(&mut user.uid);
    for (key, values) in about["extra"].as_object().into_iter().flatten() {
        user.extra.insert(key.clone(), strings(values));
    }
    Ok(Some(Authenticated { user: Arc::new(user), audiences }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_with_their_audiences() {
        let api = vec!["api".to_owned()];
        let yes = |audiences: Value| json!({"status": {"authenticated": true, "audiences": audiences, "user": {"username": "jane", "groups": ["devs"]}}});
        let found = read(&yes(json!([])), &api, &api).expect("no error").expect("a user");
        assert_eq!((found.user.name.as_str(), found.audiences), ("jane", api.clone()));
        assert!(read(&yes(json!(["other"])), &api, &api).expect("no error").is_none());
        let no = json!({"status": {"authenticated": false, "error": "broken"}});
        assert_eq!(read(&no, &api, &api).expect_err("an error"), "broken");
        assert!(read(&json!({}), &api, &api).expect("no error").is_none());
    }
}
