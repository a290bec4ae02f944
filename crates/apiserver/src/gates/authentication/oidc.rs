//! Tokens of other issuers: JWTs checked by the issuer's published keys. What their claims mean is the settings' to say.

use std::sync::Arc;
use std::time::Duration;

use machinery::rest::User;
use machinery::{Value, value};
use parking_lot::RwLock;

use super::claims::Claims;
use super::jwt::{Key, Token, strings};
use super::{Authenticated, Outcome};
use crate::gates::outbound::{Remote, Trust};
use crate::rest::Clock;

/// How long an issuer may take to answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Keys are not asked for more often than this, whatever tokens come.
const PAUSE_MILLIS: i64 = 10_000;
/// How much clocks may differ.
const LEEWAY: i64 = 10;

/// One issuer and what its tokens mean.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The issuer.
    pub issuer: String,
    /// Where to discover it, when not under the issuer's own address.
    pub discovery: Option<String>,
    /// The authority of its certificate, in PEM.
    pub authority: Option<String>,
    /// Whom its tokens must be for: one of these.
    pub audiences: Vec<String>,
    /// What claims must hold, and whom they describe.
    pub claims: Claims,
    /// The signatures believed; none is all that can be checked.
    pub algorithms: Vec<String>,
}

impl Settings {
    /// The user of a token; its signature has been checked.
    fn user(&self, claims: &Value, now: i64) -> Result<User, String> {
        let expires = claims["exp"].as_i64().ok_or("oidc: verify token: the token has no expiry")?;
        if expires + LEEWAY < now {
            return Err("oidc: verify token: oidc: token is expired".to_owned());
        }
        if claims["nbf"].as_i64().is_some_and(|from| from > now + LEEWAY) {
            return Err("oidc: verify token: oidc: current time is before the nbf (not before) time".to_owned());
        }
        let given = strings(&claims["aud"]);
        if !given.iter().any(|audience| self.audiences.contains(audience)) {
            return Err(format!("oidc: verify token: oidc: expected audience in {:?} got {given:?}", self.audiences));
        }
        self.claims.user(claims)
    }
}

#[derive(Default)]
struct Keys {
    keys: Vec<Key>,
    /// When they were asked for last, in milliseconds.
    asked: Option<i64>,
}

/// The authenticator of one issuer.
pub struct Oidc {
    settings: Settings,
    trust: Trust,
    keys: RwLock<Arc<Keys>>,
    /// Held while keys are fetched, so that many new tokens ask once.
    fetching: tokio::sync::Mutex<()>,
    clock: Clock,
}

impl Oidc {
    /// By these settings.
    pub fn new(settings: Settings, clock: Clock) -> Self {
        let trust = Trust { roots: settings.authority.clone(), certificate: None };
        Self { settings, trust, keys: RwLock::default(), fetching: tokio::sync::Mutex::default(), clock }
    }

    /// The user behind a token of this issuer; nothing for tokens of others.
    pub async fn authenticate(&self, text: &str, audiences: &[String]) -> Outcome {
        let Some(token) = Token::parse(text) else { return Ok(None) };
        if token.claims["iss"] != self.settings.issuer.as_str() {
            return Ok(None);
        }
        let algorithms = &self.settings.algorithms;
        if !algorithms.is_empty() && !algorithms.contains(&token.algorithm) {
            return Err(format!(
                "oidc: verify token: oidc: id token signed with unsupported algorithm {}",
                token.algorithm
            ));
        }
        let mut keys = self.keys.read().clone();
        if !signed(&token, &keys) {
            // The issuer may have a new key.
            keys = self.fetch().await?;
            if !signed(&token, &keys) {
                return Err(
                    "oidc: verify token: failed to verify signature: failed to verify id token signature".to_owned()
                );
            }
        }
        let user = self.settings.user(&token.claims, (self.clock)().as_second())?;
        Ok(Some(Authenticated { user: Arc::new(user), audiences: audiences.to_vec() }))
    }

    async fn fetch(&self) -> Result<Arc<Keys>, String> {
        let _one_at_a_time = self.fetching.lock().await;
        let now = (self.clock)().as_millisecond();
        let known = self.keys.read().clone();
        if known.asked.is_some_and(|asked| now - asked < PAUSE_MILLIS) {
            return Ok(known);
        }
        let fetched = self.ask().await;
        // A failure is remembered too: an issuer that is away is not asked for every token.
        let keys = match &fetched {
            Ok(keys) => keys.clone(),
            Err(_) => known.keys.clone(),
        };
        let keys = Arc::new(Keys { keys, asked: Some(now) });
        *self.keys.write() = keys.clone();
        fetched.map(|_| keys)
    }

    async fn ask(&self) -> Result<Vec<Key>, String> {
        let failed = |error: &dyn std::fmt::Display| format!("oidc: authenticator not initialized: {error}");
        let issuer = self.settings.issuer.trim_end_matches('/');
        let address =
            self.settings.discovery.clone().unwrap_or_else(|| format!("{issuer}/.well-known/openid-configuration"));
        let remote = Remote::new(&address, &self.trust).map_err(|error| failed(&error))?;
        let document = remote.get(TIMEOUT).await.map_err(|error| failed(&error))?;
        if document["issuer"] != self.settings.issuer.as_str() {
            return Err(failed(&format!(
                "oidc: issuer did not match the issuer returned by provider, expected {:?} got {}",
                self.settings.issuer, document["issuer"]
            )));
        }
        let remote = Remote::new(value::text(&document, "jwks_uri"), &self.trust).map_err(|error| failed(&error))?;
        let set = remote.get(TIMEOUT).await.map_err(|error| failed(&error))?;
        Ok(value::list(&set, "keys").iter().filter_map(Key::of).collect())
    }
}

fn signed(token: &Token<'_>, keys: &Keys) -> bool {
    let named = |key: &&Key| token.key_id.is_empty() || key.id.is_empty() || key.id == token.key_id;
    keys.keys.iter().filter(named).any(|key| token.is_signed_with(key))
}

#[cfg(test)]
mod tests {
    use super::super::issuers;
    use super::*;
    use serde_json::json;

    fn settings() -> Settings {
        let jwt = json!({
            "issuer": {"url": "https://issuer.example", "audiences": ["us"]},
            "claimValidationRules": [{"claim": "hd", "requiredValue": "acme"}],
            "claimMappings": {"username": {"claim": "email", "prefix": "oidc:"}, "groups": {"claim": "roles", "prefix": "r-"}},
        });
        issuers::read(&json!({"jwt": [jwt]}), &[]).expect("settings").remove(0)
    }

    fn claims(changes: Value) -> Value {
        let mut claims = json!({"exp": 2000, "aud": "us", "hd": "acme", "email": "jane@acme", "roles": ["dev"]});
        for (key, text) in changes.as_object().expect("changes") {
            claims[key] = text.clone();
        }
        claims
    }

    #[test]
    fn claims_become_a_user() {
        let user = settings().user(&claims(json!({"email_verified": true})), 1000).expect("a user");
        assert_eq!(user.name, "oidc:jane@acme");
        assert_eq!(user.groups, ["r-dev", "system:authenticated"]);
    }

    #[test]
    fn claims_that_do_not_hold_are_refused() {
        for (changes, why) in [
            (json!({"exp": 900}), "oidc: verify token: oidc: token is expired"),
            (json!({"aud": ["others"]}), "oidc: verify token: oidc: expected audience in [\"us\"] got [\"others\"]"),
            (json!({"hd": "other"}), "oidc: required claim hd value does not match. Got = other, want = acme"),
            (json!({"hd": 5}), "oidc: parse claim hd: json: cannot unmarshal number into Go value of type string"),
            (json!({"email": ""}), "oidc: parse username claims \"email\": claim not present"),
            (json!({"email_verified": false}), "oidc: email not verified"),
            (
                json!({"roles": [1]}),
                "oidc: parse groups claim \"roles\": json: cannot unmarshal number into Go value of type string",
            ),
            (json!({"nbf": 1500}), "oidc: verify token: oidc: current time is before the nbf (not before) time"),
        ] {
            assert_eq!(settings().user(&claims(changes.clone()), 1000).expect_err("refused"), why, "{changes}");
        }
    }
}
