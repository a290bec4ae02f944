//! Tokens of service accounts: signed by one of the cluster's keys, bound to live objects, good only while those live.
//!
//! A signature is checked once and remembered; that the account and what the token is bound to still live is looked up
//! every time, so a deletion revokes at once.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD as BASE64};
use common::Clock;
use common::expiring::Expiring;
use machinery::rest::User;
use machinery::{Value, time, value};
use pki::{PrivateKey, PublicKey};
use ring::digest::{SHA256, digest};
use serde_json::json;
use storage::Lookup;

use super::jwt::{self, Token};
use super::tracking::Tracking;
use super::{Authenticated, Outcome, common};
use crate::authorization::rbac::quoted;
use crate::notes::Notes;

/// The issuer in every token unless another is set, and the audience of those for the API server.
pub const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
/// The issuer of tokens in Secrets, from before tokens had an end.
const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
/// Clocks differ, and a pod on its way out may still speak for a moment.
const LEEWAY: i64 = 60;
/// Tokens whose signature is remembered.
const MAX_REMEMBERED: usize = 20_000;

/// Who issues and who is meant.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `--service-account-issuer`: the first is in new tokens, all are believed.
    pub issuers: Vec<String>,
    /// `--api-audiences`: whom tokens for the API server name; the issuers unless set.
    pub audiences: Vec<String>,
    /// `--service-account-key-file`: keys that signed before, besides the one that signs.
    pub keys: Vec<PublicKey>,
    /// `--service-account-max-token-expiration`, in seconds: no token is good for longer.
    pub longest: Option<i64>,
    /// `--service-account-extend-token-expiration`: whether tokens that the API server mounts live a year, and are warned about after an hour.
    pub extends: bool,
    /// `--service-account-jwks-uri`: where others are told to read the keys.
    pub keys_at: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        let own = || vec![ISSUER.to_owned()];
        Self { issuers: own(), audiences: own(), keys: Vec::new(), longest: None, extends: true, keys_at: None }
    }
}

/// Makes and checks tokens.
pub struct ServiceAccounts {
    key: PrivateKey,
    settings: Settings,
    clock: Clock,
    remembered: Expiring<[u8; 32], Arc<Verified>>,
    /// Where the accounts and what tokens are bound to live.
    lookup: Arc<dyn Lookup>,
    tracking: Tracking,
}

/// What a token is to say.
pub struct Claims<'a> {
    pub account: &'a Value,
    /// `(pod, secret or node; the object)` it is bound to.
    pub bound: Option<(&'static str, Value)>,
    /// The node of the pod it is bound to.
    pub node: Option<Value>,
    /// Whom it is for.
    pub audiences: Vec<String>,
    pub seconds: i64,
    /// Seconds after which its use should be warned about.
    pub warn_after: Option<i64>,
}

/// An object that has to live for a token to hold.
#[derive(Debug, PartialEq, Eq)]
struct Bound {
    plural: &'static str,
    namespace: String,
    name: String,
    uid: String,
}

/// A token whose signature holds.
struct Verified {
    user: Arc<User>,
    audiences: Vec<String>,
    not_before: i64,
    /// Tokens in Secrets have no end.
    expires: Option<i64>,
    warn_after: Option<i64>,
    bound: Vec<Bound>,
    /// The Secret a legacy token is kept in, by name.
    secret: Option<String>,
}

impl ServiceAccounts {
    /// With the cluster's signing key. Accounts are found by `lookup`, and uses of old tokens are noted by `tracking`.
    pub fn new(key: PrivateKey, settings: Settings, clock: Clock, lookup: Arc<dyn Lookup>, tracking: Tracking) -> Self {
        Self { key, settings, clock, remembered: Expiring::new(MAX_REMEMBERED), lookup, tracking }
    }

    /// Whom tokens for the API server name.
    pub fn audiences(&self) -> &[String] {
        &self.settings.audiences
    }

    /// How long tokens may be good, whether those that are mounted live longer, and where others read the keys.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The issuer of new tokens.
    pub fn issuer(&self) -> &str {
        self.settings.issuers.first().map_or(ISSUER, String::as_str)
    }

    /// The keys that tokens may be signed by, in the form of a key set, and the algorithms of their signatures.
    pub fn key_set(&self) -> (Value, Vec<&'static str>) {
        let own = self.key.public();
        let keys: Vec<_> = std::iter::once(&own).chain(&self.settings.keys).filter_map(jwt::publish).collect();
        let mut algorithms: Vec<&'static str> = keys.iter().map(|(_, algorithm)| *algorithm).collect();
        algorithms.sort_unstable();
        algorithms.dedup();
        (json!({"keys": keys.into_iter().map(|(key, _)| key).collect::<Vec<_>>()}), algorithms)
    }

    pub fn issue(&self, claims: &Claims<'_>) -> Result<String, pki::Error> {
        let now = (self.clock)().as_second();
        let reference = |object: &Value| json!({"name": value::text(object, "metadata.name"), "uid": value::text(object, "metadata.uid")});
        let namespace = value::text(claims.account, "metadata.namespace");
        let mut private = json!({"namespace": namespace, "serviceaccount": reference(claims.account)});
        if let Some((kind, object)) = &claims.bound {
            private[*kind] = reference(object);
        }
        if let Some(node) = &claims.node {
            private["node"] = reference(node);
        }
        if let Some(seconds) = claims.warn_after {
            private["warnafter"] = json!(now + seconds);
        }
        let payload = json!({
            "iss": self.issuer(), "aud": claims.audiences, "iat": now, "nbf": now, "exp": now + claims.seconds,
            "jti": common::new_uuid().to_string(), "kubernetes.io": private,
            "sub": user_name(namespace, value::text(claims.account, "metadata.name")),
        });
        let header = json!({"alg": self.key.jws_algorithm(), "kid": self.key.public().key_id()});
        let signed = format!("{}.{}", BASE64.encode(header.to_string()), BASE64.encode(payload.to_string()));
        let signature = self.key.sign_jws(signed.as_bytes())?;
        Ok(format!("{signed}.{}", BASE64.encode(signature)))
    }

    /// The account behind a token for one of the audiences, if the token holds and everything it is bound to lives.
    pub fn authenticate(&self, token: &str, audiences: &[String], notes: &Notes) -> Outcome {
        let now = (self.clock)();
        let hash = hash(token);
        let verified = match self.remembered.get(&hash, now.as_millisecond()) {
            Some(verified) => verified,
            None => {
                let Some(verified) = self.verify(token)? else { return Ok(None) };
                let verified = Arc::new(verified);
                self.remembered.put(hash, verified.clone(), now.as_millisecond() + 600_000);
                verified
            }
        };
        self.check(token, &verified, now.as_second(), notes)?;
        let theirs = if verified.secret.is_some() { &self.settings.audiences } else { &verified.audiences };
        let meant = common(audiences, theirs);
        if meant.is_empty() {
            return Err(format!(
                "token audiences {} is invalid for the target audiences {}",
                quoted(&verified.audiences),
                quoted(audiences)
            ));
        }
        Ok(Some(Authenticated { user: verified.user.clone(), audiences: meant }))
    }

    /// Issuer and signature; what does not change while the token lives.
    fn verify(&self, text: &str) -> Result<Option<Verified>, String> {
        let Some(token) = Token::parse(text) else { return Ok(None) };
        let issuer = token.claims["iss"].as_str().unwrap_or_default();
        let legacy = issuer == LEGACY_ISSUER;
        // Somebody else's token is somebody else's business.
        if !legacy && !self.settings.issuers.iter().any(|known| known == issuer) {
            return Ok(None);
        }
        let own = self.key.public();
        let mut keys = std::iter::once(&own).chain(&self.settings.keys);
        if !keys.any(|key| token.is_signed_by(key)) {
            return Err("invalid signature, no keys found".to_owned());
        }
        let read = if legacy { read_legacy(&token) } else { read_bound(&token) };
        read.map(Some).ok_or_else(|| "service account token claims could not be validated".to_owned())
    }

    /// Times, and the lives of what the token is bound to.
    fn check(&self, token: &str, verified: &Verified, now: i64, notes: &Notes) -> Result<(), String> {
        if verified.expires.is_some_and(|expires| now - LEEWAY > expires) {
            return Err("service account token has expired".to_owned());
        }
        if verified.not_before > now + LEEWAY {
            return Err("service account token is not valid yet".to_owned());
        }
        for bound in &verified.bound {
            live(&*self.lookup, bound, now)?;
        }
        if let Some(secret) = &verified.secret {
            self.check_secret(verified, secret, token, notes)?;
        }
        if let Some(warn_after) = verified.warn_after.filter(|warn_after| now > *warn_after) {
            let note =
                format!("subject: {}, seconds after warning threshold: {}", verified.user.name, now - warn_after);
            notes.annotate("authentication.k8s.io/stale-token", note);
        }
        Ok(())
    }

    /// A legacy token has to be in its Secret still.
    fn check_secret(&self, verified: &Verified, name: &str, token: &str, notes: &Notes) -> Result<(), String> {
        let gone = || "Token has been invalidated".to_owned();
        let account = verified.bound.first().ok_or_else(gone)?;
        let secret = self.lookup.object("", "secrets", &account.namespace, name).ok_or_else(gone)?;
        let tree = secret.to_value();
        let kept = STANDARD.decode(value::text(&tree, "data.token")).unwrap_or_default();
        if secret.meta().deleting || !same(&kept, token.as_bytes()) {
            return Err(gone());
        }
        if secret.meta().label(INVALID_SINCE).is_some_and(|since| !since.is_empty()) {
            return Err(format!(
                "the token in secret {0}/{name} for service account {0}/{1} has been marked invalid. Use tokens from the TokenRequest API or manually created secret-based tokens, or remove the '{INVALID_SINCE}' label from the secret to temporarily allow use of this token",
                account.namespace, account.name
            ));
        }
        let made = if lists(&*self.lookup, account, name) { "autogenerated" } else { "manual" };
        notes.annotate(format!("authentication.k8s.io/legacy-token-{made}-secret"), name);
        self.tracking.used(&account.namespace, name, secret.meta().label(Tracking::LABEL), (self.clock)());
        Ok(())
    }
}

/// Whether an account lists a Secret: those were made for it, others by hand.
fn lists(lookup: &dyn Lookup, account: &Bound, secret: &str) -> bool {
    let found = lookup.object("", account.plural, &account.namespace, &account.name);
    found.is_some_and(|account| {
        value::list(&account.to_value(), "secrets").iter().any(|listed| value::text(listed, "name") == secret)
    })
}

/// How requests name a service account.
fn user_name(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

/// The namespace and the name in a service account's user name.
pub fn split_user_name(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    let fine = !name.contains(':')
        && machinery::names::is_dns1123_label(namespace).is_empty()
        && machinery::names::is_dns1123_subdomain(name).is_empty();
    fine.then_some((namespace, name))
}

/// The groups of every service account of a namespace.
pub fn groups(namespace: &str) -> [String; 2] {
    ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")]
}

fn user(namespace: &str, name: &str, uid: &str) -> User {
    let groups = groups(namespace);
    let mut user = User::new(user_name(namespace, name), groups.iter().map(String::as_str));
    uid.clone_into(&mut user.uid);
    user
}

fn read_bound(token: &Token<'_>) -> Option<Verified> {
    let claims = &token.claims;
    let private = &claims["kubernetes.io"];
    let namespace = private["namespace"].as_str()?;
    let reference = |plural, claim: &str, namespace: &str| -> Option<Bound> {
        let tree = private.get(claim)?;
        let text = |field: &str| tree[field].as_str().unwrap_or_default().to_owned();
        Some(Bound { plural, namespace: namespace.to_owned(), name: text("name"), uid: text("uid") })
    };
    let account = reference("serviceaccounts", "serviceaccount", namespace)?;
    let mut user = user(namespace, &account.name, &account.uid);
    let mut extra = |key: &str, text: String| {
        user.extra.insert(format!("authentication.kubernetes.io/{key}"), vec![text]);
    };
    if let Some(id) = claims["jti"].as_str() {
        extra("credential-id", format!("JTI={id}"));
    }
    let (pod, node) = (reference("pods", "pod", namespace), reference("nodes", "node", ""));
    for (claim, bound) in [("pod", &pod), ("node", &node)] {
        if let Some(bound) = bound {
            extra(&format!("{claim}-name"), bound.name.clone());
            if !bound.uid.is_empty() {
                extra(&format!("{claim}-uid"), bound.uid.clone());
            }
        }
    }
    // The node of a pod's token is passed on, not checked: the pod's own life is.
    let node = node.filter(|_| pod.is_none());
    let bound = [Some(account), reference("secrets", "secret", namespace), pod, node].into_iter().flatten().collect();
    Some(Verified {
        user: Arc::new(user),
        audiences: token.audiences(),
        not_before: claims["nbf"].as_i64().unwrap_or_default(),
        expires: Some(claims["exp"].as_i64()?),
        warn_after: private["warnafter"].as_i64(),
        bound,
        secret: None,
    })
}

fn read_legacy(token: &Token<'_>) -> Option<Verified> {
    let claim = |name: &str| {
        let text = token.claims[format!("kubernetes.io/serviceaccount/{name}")].as_str()?;
        (!text.is_empty()).then(|| text.to_owned())
    };
    let (namespace, name) = (claim("namespace")?, claim("service-account.name")?);
    let uid = claim("service-account.uid")?;
    let user = user(&namespace, &name, &uid);
    (token.claims["sub"] == user.name).then_some(())?;
    Some(Verified {
        user: Arc::new(user),
        audiences: Vec::new(),
        not_before: 0,
        expires: None,
        warn_after: None,
        secret: Some(claim("secret.name")?),
        bound: vec![Bound { plural: "serviceaccounts", namespace, name, uid }],
    })
}

/// Whether an object of this name lives and is the very one.
fn live(lookup: &dyn Lookup, bound: &Bound, now: i64) -> Result<(), String> {
    let Bound { plural, namespace, name, uid } = bound;
    let found = lookup.object("", plural, namespace, name);
    let account = *plural == "serviceaccounts";
    let Some(object) = found else {
        return Err(match account {
            true => format!("serviceaccounts {name:?} not found"),
            false => "service account token has been invalidated".to_owned(),
        });
    };
    let own = &object.meta().uid;
    if **own != **uid {
        return Err(match *plural {
            "serviceaccounts" => format!("service account UID ({own}) does not match claim ({uid})"),
            plural => {
                let kind = plural.trim_end_matches('s');
                format!("{kind} UID ({own}) does not match service account {kind} ref claim ({uid})")
            }
        });
    }
    if object.meta().deleting {
        let tree = object.to_value();
        let at = time::parse_clamped(value::text(&tree, "metadata.deletionTimestamp"));
        if at.is_none_or(|at| at.as_second() < now - LEEWAY) {
            return Err(match account {
                true => format!("service account {namespace}/{name} has been deleted"),
                false => "service account token has been invalidated".to_owned(),
            });
        }
    }
    Ok(())
}

/// A token's name in memory: never the token itself.
pub fn hash(token: &str) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
    hash
}

/// Compares secrets in a time that does not tell where they differ.
pub fn same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::super::tracking::tracking;
    use super::*;

    /// A cluster without objects.
    struct Nothing;

    impl Lookup for Nothing {
        fn objects(&self, _: &str, _: &str) -> Option<Arc<storage::cache::Cache>> {
            None
        }
    }

    #[test]
    fn user_names_of_accounts_are_read_back() {
        assert_eq!(split_user_name("system:serviceaccount:a:b"), Some(("a", "b")));
        for odd in ["system:serviceaccount:a", "system:serviceaccount:a:b:c", "system:serviceaccount::b", "jane"] {
            assert_eq!(split_user_name(odd), None, "{odd}");
        }
    }

    #[test]
    fn claims_become_a_user_and_what_it_is_bound_to() {
        let key = PrivateKey::generate().expect("a key");
        let clock: Clock = Arc::new(jiff::Timestamp::now);
        let accounts = ServiceAccounts::new(key, Settings::default(), clock, Arc::new(Nothing), tracking().0);
        let account = json!({"metadata": {"namespace": "a", "name": "bot", "uid": "u1"}});
        let pod = json!({"metadata": {"name": "p", "uid": "u2"}});
        let node = json!({"metadata": {"name": "n", "uid": "u3"}});
        let claims = Claims {
            account: &account,
            bound: Some(("pod", pod)),
            node: Some(node),
            audiences: vec![ISSUER.to_owned()],
            seconds: 600,
            warn_after: None,
        };
        let token = accounts.issue(&claims).expect("a token");
        let verified = accounts.verify(&token).expect("it holds").expect("it is ours");
        assert_eq!(verified.user.name, "system:serviceaccount:a:bot");
        assert_eq!(
            verified.user.groups,
            ["system:serviceaccounts", "system:serviceaccounts:a", "system:authenticated"]
        );
        assert_eq!(verified.user.extra["authentication.kubernetes.io/node-name"], ["n"]);
        let bound: Vec<&str> = verified.bound.iter().map(|bound| bound.plural).collect();
        assert_eq!(bound, ["serviceaccounts", "pods"]);
        let mut forged = token.clone();
        forged.replace_range(token.len() - 6.., "AAAAAA");
        assert!(accounts.verify(&forged).is_err());
        let (keys, algorithms) = accounts.key_set();
        assert_eq!((keys["keys"].as_array().map(Vec::len), algorithms), (Some(1), vec!["ES256"]));
    }
}
