//! Tokens of other issuers: JWTs checked by the issuer's published keys. What their claims mean is the settings' to say.

use std::sync::Arc;
use std::time::Duration;

use common::Clock;
use machinery::{Value, value};
use parking_lot::RwLock;
use rustc_hash::FxHashMap;

use super::claims::{Claims, Mapped};
use super::jwt::{Key, Token, strings};
use super::{Authenticated, Outcome};
use crate::outbound::{Remote, Trust};

/// How long an issuer may take to answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Keys are not asked for more often than this, whatever tokens come.
const PAUSE_MILLIS: i64 = 10_000;
/// The most issuers of claims that are remembered.
const MAX_OTHERS: usize = 16;
/// How much clocks may differ.
const LEEWAY: i64 = 10;

/// One issuer and what its tokens mean.
#[derive(Debug, Clone, Default)]
pub struct Settings {
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
    /// Whether a token is for now and for us; its signature has been checked.
    fn check(&self, claims: &Value, now: i64) -> Result<(), String> {
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
        Ok(())
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
    /// Issuers of claims that tokens only point to.
    others: RwLock<FxHashMap<String, Arc<Oidc>>>,
    clock: Clock,
}

impl Oidc {
    pub fn new(settings: Settings, clock: Clock) -> Self {
        let trust = Trust { roots: settings.authority.clone(), certificate: None };
        let (keys, others) = (RwLock::default(), RwLock::default());
        Self { settings, trust, keys, fetching: tokio::sync::Mutex::default(), others, clock }
    }

    /// The user behind a token of this issuer; nothing for tokens of others.
    pub async fn authenticate(&self, text: &str, audiences: &[String]) -> Outcome {
        let Some(token) = Token::parse(text) else { return Ok(None) };
        if token.claims["iss"] != self.settings.issuer.as_str() {
            return Ok(None);
        }
        self.verify(&token).await?;
        let user = match self.distributed(&token.claims).await? {
            Some((claim, value)) => {
                let mut claims = token.claims.clone();
                claims[claim] = value;
                self.settings.claims.user(&claims)?
            }
            None => self.settings.claims.user(&token.claims)?,
        };
        Ok(Some(Authenticated { user: Arc::new(user), audiences: audiences.to_vec() }))
    }

    /// Whether a token is this issuer's, for us, and for now.
    async fn verify(&self, token: &Token<'_>) -> Result<(), String> {
        let algorithms = &self.settings.algorithms;
        if !algorithms.is_empty() && !algorithms.contains(&token.algorithm) {
            return Err(format!(
                "oidc: verify token: oidc: id token signed with unsupported algorithm {}",
                token.algorithm
            ));
        }
        let mut keys = self.keys.read().clone();
        if !signed(token, &keys) {
            // The issuer may have a new key.
            keys = self.fetch().await?;
            if !signed(token, &keys) {
                return Err(
                    "oidc: verify token: failed to verify signature: failed to verify id token signature".to_owned()
                );
            }
        }
        self.settings.check(&token.claims, (self.clock)().as_second())
    }

    /// The groups of a token that does not have them but says where they are: a claim and its value, out of a token that is
    /// fetched there. OpenID Connect calls such claims distributed.
    async fn distributed(&self, claims: &Value) -> Result<Option<(&str, Value)>, String> {
        let Mapped::Claim { claim, .. } = &self.settings.claims.groups else { return Ok(None) };
        let Some(source) = source_of(claims, claim)? else { return Ok(None) };
        let failed = |error: &dyn std::fmt::Display| format!("oidc: could not expand distributed claims: {error}");
        let remote = Remote::new(&source.url, &self.trust).map_err(|error| failed(&error))?;
        let remote = if source.token.is_empty() { Ok(remote) } else { remote.with_token(&source.token) };
        let text = remote
            .map_err(|error| failed(&error))?
            .text(TIMEOUT)
            .await
            .map_err(|error| failed(&format!("while getting distributed claim {claim:?}: {error}")))?;
        let fetched = Token::parse(text.trim()).ok_or_else(|| {
            failed(&format!("getting untrusted issuer from endpoint {} failed for claim {claim:?}", source.url))
        })?;
        let issuer = fetched.claims["iss"].as_str().unwrap_or_default();
        let verified = if issuer == self.settings.issuer {
            self.verify(&fetched).await
        } else {
            Box::pin(self.other(issuer).verify(&fetched)).await
        };
        verified.map_err(|error| failed(&format!("verify distributed claim token: {error}")))?;
        match fetched.claims.get(claim) {
            Some(value) => Ok(Some((claim, value.clone()))),
            None => Err(failed(&format!(
                "jwt returned by distributed claim endpoint {:?} did not contain claim: {claim}",
                source.url
            ))),
        }
    }

    /// Whoever signs claims that tokens point to, believed by the same authority and for the same audiences.
    fn other(&self, issuer: &str) -> Arc<Self> {
        if let Some(known) = self.others.read().get(issuer) {
            return known.clone();
        }
        let settings = Settings {
            issuer: issuer.to_owned(),
            authority: self.settings.authority.clone(),
            audiences: self.settings.audiences.clone(),
            algorithms: self.settings.algorithms.clone(),
            ..Settings::default()
        };
        let other = Arc::new(Self::new(settings, self.clock.clone()));
        let mut others = self.others.write();
        if others.len() >= MAX_OTHERS {
            others.clear();
        }
        others.insert(issuer.to_owned(), other.clone());
        other
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

/// Where a claim is that a token only points to.
#[derive(Debug, PartialEq, Eq)]
struct Source {
    url: String,
    /// What is shown there.
    token: String,
}

/// Where a claim is, if the token does not have it and says so. One that is put into the token as another token is left alone.
fn source_of(claims: &Value, claim: &str) -> Result<Option<Source>, String> {
    let failed = |why: String| format!("oidc: could not expand distributed claims: {why}");
    let Some(names) = claims.get("_claim_names").filter(|_| claims.get(claim).is_none()) else { return Ok(None) };
    let texts = |tree: &Value| tree.as_object().is_some_and(|names| names.values().all(Value::is_string));
    if !texts(names) {
        return Err(failed("oidc: error parsing distributed claim names: they are no texts by name".to_owned()));
    }
    let sources = claims.get("_claim_sources").ok_or_else(|| failed("oidc: no claim sources".to_owned()))?;
    if !sources.as_object().is_some_and(|sources| sources.values().all(texts)) {
        return Err(failed("oidc: could not parse claim sources: they are no sources by name".to_owned()));
    }
    let Some(name) = names[claim].as_str() else { return Ok(None) };
    let source = sources
        .get(name)
        .ok_or_else(|| failed(format!("id token _claim_names contained a source {name} missing in _claims_sources")))?;
    let text = |field: &str| value::text(source, field).to_owned();
    Ok(Some(Source { url: text("endpoint"), token: text("access_token") }).filter(|source| !source.url.is_empty()))
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

    fn user(claims: &Value) -> Result<machinery::rest::User, String> {
        let settings = settings();
        settings.check(claims, 1000)?;
        settings.claims.user(claims)
    }

    fn claims(changes: Value) -> Value {
        let mut claims = json!({"exp": 2000, "aud": "us", "hd": "acme", "email": "jane@acme", "roles": ["dev"]});
        for (key, text) in changes.as_object().expect("changes") {
            claims[key] = text.clone();
        }
        claims
    }

    #[test]
    fn claims_may_be_elsewhere() {
        let check = |claims: Value, expect: Result<Option<(&str, &str)>, &str>| {
            let found = source_of(&claims, "groups").map(|found| found.map(|source| (source.url, source.token)));
            let expect = expect.map(|found| found.map(|(url, token)| (url.to_owned(), token.to_owned())));
            assert_eq!(
                found,
                expect.map_err(|why| format!("oidc: could not expand distributed claims: {why}")),
                "{claims}"
            );
        };
        let names = json!({"groups": "s"});
        check(json!({}), Ok(None));
        check(json!({"groups": ["own"], "_claim_names": names}), Ok(None));
        check(json!({"_claim_names": names}), Err("oidc: no claim sources"));
        check(json!({"_claim_names": {"other": "s"}, "_claim_sources": {}}), Ok(None));
        check(
            json!({"_claim_names": names, "_claim_sources": {}}),
            Err("id token _claim_names contained a source s missing in _claims_sources"),
        );
        check(json!({"_claim_names": names, "_claim_sources": {"s": {"JWT": "x"}}}), Ok(None));
        check(
            json!({"_claim_names": names, "_claim_sources": {"s": {"endpoint": "https://g", "access_token": "t"}}}),
            Ok(Some(("https://g", "t"))),
        );
    }

    #[test]
    fn claims_become_a_user() {
        let user = user(&claims(json!({"email_verified": true}))).expect("a user");
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
            assert_eq!(user(&claims(changes.clone())).expect_err("refused"), why, "{changes}");
        }
    }
}
