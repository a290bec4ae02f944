//! Tokens of service accounts: signed by the cluster's key, bound to live objects, good only while those live.

use std::sync::{Arc, OnceLock};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use machinery::rest::User;
use machinery::{Value, value};
use pki::PrivateKey;
use serde_json::json;

use crate::rest::{Api, Clock};

/// The issuer in every token, and the audience of those for the API server.
pub const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// Makes and checks tokens.
pub struct ServiceAccounts {
    key: PrivateKey,
    clock: Clock,
    /// Where the accounts and what tokens are bound to live; set once the API is there.
    api: OnceLock<Arc<Api>>,
}

/// What a token is to say.
pub struct Claims<'a> {
    /// The account.
    pub account: &'a Value,
    /// `(pod, secret or node; the object)` it is bound to.
    pub bound: Option<(&'static str, Value)>,
    /// The node of the pod it is bound to.
    pub node: Option<Value>,
    /// Whom it is for.
    pub audiences: Vec<String>,
    /// Seconds it lives.
    pub seconds: i64,
    /// Seconds after which its use should be warned about.
    pub warn_after: Option<i64>,
}

impl ServiceAccounts {
    /// With the cluster's signing key.
    pub fn new(key: PrivateKey, clock: Clock) -> Self {
        Self { key, clock, api: OnceLock::new() }
    }

    /// Tells where the accounts live.
    pub fn attach(&self, api: Arc<Api>) {
        // A second call would name the same API.
        let _ = self.api.set(api);
    }

    /// A signed token.
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
            "iss": ISSUER, "aud": claims.audiences, "iat": now, "nbf": now, "exp": now + claims.seconds,
            "jti": uuid::Uuid::new_v4().to_string(), "kubernetes.io": private,
            "sub": format!("system:serviceaccount:{namespace}:{}", value::text(claims.account, "metadata.name")),
        });
        let header = json!({"alg": self.key.jws_algorithm(), "kid": self.key.public().key_id()});
        let signed = format!("{}.{}", BASE64.encode(header.to_string()), BASE64.encode(payload.to_string()));
        let signature = self.key.sign_jws(signed.as_bytes())?;
        Ok(format!("{signed}.{}", BASE64.encode(signature)))
    }

    /// The account behind a token for the API server, if the token holds and everything it is bound to lives.
    pub fn authenticate(&self, token: &str) -> Option<User> {
        let claims = self.verify(token)?;
        let for_us = claims["aud"].as_array()?.iter().any(|audience| audience == ISSUER);
        if !for_us {
            return None;
        }
        let api = self.api.get()?;
        let private = &claims["kubernetes.io"];
        let namespace = private["namespace"].as_str()?;
        let account = &private["serviceaccount"];
        let mut user = User::new(
            format!("system:serviceaccount:{namespace}:{}", account["name"].as_str()?),
            ["system:serviceaccounts", format!("system:serviceaccounts:{namespace}").as_str()],
        );
        live(api, "serviceaccounts", namespace, account)?;
        account["uid"].as_str()?.clone_into(&mut user.uid);
        for (claim, plural, scope) in
            [("pod", "pods", namespace), ("secret", "secrets", namespace), ("node", "nodes", "")]
        {
            let Some(reference) = private.get(claim) else { continue };
            // The node of a pod's token is told, not checked: the pod's own life is.
            if claim != "node" || private.get("pod").is_none() {
                live(api, plural, scope, reference)?;
            }
            let extra = |field: &str| format!("authentication.kubernetes.io/{claim}-{field}");
            for field in ["name", "uid"] {
                if let Some(text) = reference[field].as_str().filter(|_| claim != "secret") {
                    user.extra.insert(extra(field), vec![text.to_owned()]);
                }
            }
        }
        if let Some(id) = claims["jti"].as_str() {
            user.extra.insert("authentication.kubernetes.io/credential-id".to_owned(), vec![format!("JTI={id}")]);
        }
        Some(user)
    }

    /// Signature, issuer and times.
    fn verify(&self, token: &str) -> Option<Value> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, payload) = signed.split_once('.')?;
        let header: Value = serde_json::from_slice(&BASE64.decode(header).ok()?).ok()?;
        let signature = BASE64.decode(signature).ok()?;
        let algorithm = header["alg"].as_str()?;
        if algorithm != self.key.jws_algorithm() || !self.key.public().verify_jws(algorithm, signed.as_bytes(), &signature) {
            return None;
        }
        let claims: Value = serde_json::from_slice(&BASE64.decode(payload).ok()?).ok()?;
        let now = (self.clock)().as_second();
        let in_time = claims["exp"].as_i64()? > now && claims["nbf"].as_i64()? <= now + 60;
        (claims["iss"] == ISSUER && in_time).then_some(claims)
    }
}

/// Whether an object of this name lives and is the very one.
fn live(api: &Api, plural: &str, namespace: &str, reference: &Value) -> Option<()> {
    let resource = api.registry.stored("", plural)?;
    let object = resource.cache.get(&resource.key(namespace, reference["name"].as_str()?))?;
    // A pod on its way out may still speak for as long as its containers run.
    (*object.meta().uid == *reference["uid"].as_str()?).then_some(())
}
