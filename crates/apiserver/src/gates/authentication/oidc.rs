//! Tokens of other issuers: JWTs checked by the issuer's published keys, their claims mapped to a user.
//!
//! By the `--oidc-*` flags or by the `jwt` part of an `AuthenticationConfiguration`.

use std::sync::Arc;
use std::time::Duration;

use machinery::rest::User;
use machinery::{Value, value};
use parking_lot::RwLock;

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

/// A claim and what is put before it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mapped {
    /// The claim; empty maps nothing.
    pub claim: String,
    /// What its value begins with, so that it is nobody else's.
    pub prefix: String,
}

/// One issuer and what its tokens mean.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// The issuer.
    pub issuer: String,
    /// Where to discover it, when not under the issuer's own address.
    pub discovery: Option<String>,
    /// The authority of its certificate, in PEM.
    pub authority: Option<String>,
    /// Whom its tokens must be for: one of these.
    pub audiences: Vec<String>,
    /// Claims that must have a value.
    pub required: Vec<(String, String)>,
    /// The user's name.
    pub user: Mapped,
    /// The user's groups.
    pub groups: Mapped,
    /// The user's uid.
    pub uid: String,
    /// The signatures believed; none is what is believed by default, `RS256` and its like.
    pub algorithms: Vec<String>,
}

/// Why settings make no sense.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// A field is missing.
    #[error("jwt.{0}: Required value")]
    Missing(&'static str),
    /// Something that needs an expression language is asked for.
    #[error("jwt.{0}: expressions are not supported, use claims")]
    Expression(&'static str),
    /// The issuer is not at an https address.
    #[error("jwt.issuer.url: Invalid value: {0:?}: URL scheme must be https")]
    Scheme(String),
}

impl Settings {
    /// One entry of `jwt` in an `AuthenticationConfiguration`.
    pub fn read(tree: &Value) -> Result<Self, Error> {
        let text = |path: &str| value::text(tree, path).to_owned();
        let optional = |path: &str| Some(text(path)).filter(|text| !text.is_empty());
        let mapped = |at: &'static str, path: &str| match value::text(tree, &format!("{path}.expression")) {
            "" => Ok(Mapped { claim: text(&format!("{path}.claim")), prefix: text(&format!("{path}.prefix")) }),
            _ => Err(Error::Expression(at)),
        };
        let mut required = Vec::new();
        for rule in value::list(tree, "claimValidationRules") {
            if !value::text(rule, "expression").is_empty() {
                return Err(Error::Expression("claimValidationRules"));
            }
            required.push((value::text(rule, "claim").to_owned(), value::text(rule, "requiredValue").to_owned()));
        }
        for (at, path) in
            [("claimMappings.extra", "claimMappings.extra"), ("userValidationRules", "userValidationRules")]
        {
            if !value::list(tree, path).is_empty() {
                return Err(Error::Expression(at));
            }
        }
        let settings = Self {
            issuer: text("issuer.url"),
            discovery: optional("issuer.discoveryURL"),
            authority: optional("issuer.certificateAuthority"),
            audiences: strings(&tree["issuer"]["audiences"]),
            required,
            user: mapped("claimMappings.username", "claimMappings.username")?,
            groups: mapped("claimMappings.groups", "claimMappings.groups")?,
            uid: mapped("claimMappings.uid", "claimMappings.uid")?.claim,
            algorithms: Vec::new(),
        };
        settings.check()?;
        Ok(settings)
    }

    /// Whether they make sense.
    pub fn check(&self) -> Result<(), Error> {
        if !self.issuer.starts_with("https://") {
            return Err(Error::Scheme(self.issuer.clone()));
        }
        if self.audiences.is_empty() {
            return Err(Error::Missing("issuer.audiences"));
        }
        if self.user.claim.is_empty() {
            return Err(Error::Missing("claimMappings.username"));
        }
        Ok(())
    }

    /// The user that a token's claims describe; the signature has been checked.
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
        for (claim, wanted) in &self.required {
            match claims[claim].as_str() {
                None => return Err(format!("oidc: required claim {claim} not present in ID token")),
                Some(text) if text != wanted => {
                    return Err(format!(
                        "oidc: required claim {claim} value does not match. Got = {text}, want = {wanted}"
                    ));
                }
                Some(_) => {}
            }
        }
        let name = claims[&self.user.claim].as_str().filter(|name| !name.is_empty());
        let name =
            name.ok_or_else(|| format!("oidc: parse username claims {:?}: claim not present", self.user.claim))?;
        if self.user.claim == "email" && claims.get("email_verified").is_some_and(|verified| verified != true) {
            return Err("oidc: email not verified".to_owned());
        }
        let groups = match self.groups.claim.as_str() {
            "" => Vec::new(),
            claim => {
                strings(&claims[claim]).into_iter().map(|group| format!("{}{group}", self.groups.prefix)).collect()
            }
        };
        let mut user = User::new(format!("{}{name}", self.user.prefix), groups.iter().map(String::as_str));
        if !self.uid.is_empty() {
            user.uid = claims[&self.uid].as_str().unwrap_or_default().to_owned();
        }
        if let Some(id) = claims["jti"].as_str() {
            user.extra.insert("authentication.kubernetes.io/credential-id".to_owned(), vec![format!("JTI={id}")]);
        }
        Ok(user)
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
    use super::*;
    use serde_json::json;

    fn settings() -> Settings {
        Settings::read(&json!({
            "issuer": {"url": "https://issuer.example", "audiences": ["us"]},
            "claimValidationRules": [{"claim": "hd", "requiredValue": "acme"}],
            "claimMappings": {"username": {"claim": "email", "prefix": "oidc:"}, "groups": {"claim": "roles", "prefix": "r-"}},
        }))
        .expect("settings")
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
            (json!({"exp": 900}), "expired"),
            (json!({"aud": ["others"]}), "expected audience"),
            (json!({"hd": "other"}), "does not match"),
            (json!({"hd": null}), "not present"),
            (json!({"email": ""}), "claim not present"),
            (json!({"email_verified": false}), "email not verified"),
            (json!({"nbf": 1500}), "nbf"),
        ] {
            let error = settings().user(&claims(changes.clone()), 1000).expect_err("refused");
            assert!(error.contains(why), "{changes}: {error}");
        }
    }

    #[test]
    fn settings_without_a_need_are_refused() {
        let check = |tree: Value| Settings::read(&tree).expect_err("refused");
        assert_eq!(check(json!({"issuer": {"url": "http://x"}})), Error::Scheme("http://x".to_owned()));
        assert_eq!(check(json!({"issuer": {"url": "https://x"}})), Error::Missing("issuer.audiences"));
        assert_eq!(
            check(json!({"issuer": {"url": "https://x", "audiences": ["a"]}})),
            Error::Missing("claimMappings.username")
        );
    }
}
