//! A small issuer of OpenID Connect tokens: a discovery document, one key, and tokens with whatever claims a test wants.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use bytes::Bytes;
use jiff::Timestamp;
use pki::PrivateKey;
use serde_json::{Value, json};

use crate::Https;

pub struct Issuer {
    key: PrivateKey,
    https: Https,
    /// What else it answers, by path.
    texts: Arc<Mutex<BTreeMap<String, String>>>,
}

impl Issuer {
    /// Starts it on a port of its own.
    pub async fn start() -> Self {
        let key = PrivateKey::generate().expect("a key");
        let bits = key.public().bits().to_vec();
        let texts: Arc<Mutex<BTreeMap<String, String>>> = Arc::default();
        let known = texts.clone();
        let https = Https::start(move |url| {
            let url = url.to_owned();
            move |request| {
                if let Some(text) = known.lock().expect("texts").get(request.uri().path()) {
                    return http::Response::new(Bytes::from(text.clone()));
                }
                let document = match request.uri().path() {
                    "/.well-known/openid-configuration" => json!({"issuer": url, "jwks_uri": format!("{url}/keys")}),
                    "/keys" => json!({"keys": [{"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": "k1",
                        "x": BASE64.encode(&bits[1..33]), "y": BASE64.encode(&bits[33..65])}]}),
                    other => panic!("nobody asks an issuer for {other}"),
                };
                http::Response::new(Bytes::from(document.to_string()))
            }
        })
        .await;
        Self { key, https, texts }
    }

    /// Answers a text at a path from now on.
    pub fn says(&self, path: &str, text: &str) {
        self.texts.lock().expect("texts").insert(path.to_owned(), text.to_owned());
    }

    /// Where it is, and what its tokens say of that.
    pub fn url(&self) -> &str {
        self.https.url()
    }

    /// The authority of its certificate, in PEM.
    pub fn authority(&self) -> &str {
        self.https.authority()
    }

    /// A token for the audience `us`, good for ten minutes, with these claims over it.
    pub fn token(&self, claims: &Value) -> String {
        let mut all = json!({"iss": self.url(), "aud": "us", "exp": Timestamp::now().as_second() + 600});
        for (name, claim) in claims.as_object().expect("claims") {
            all[name] = claim.clone();
        }
        let part = |tree: Value| BASE64.encode(tree.to_string());
        let message = format!("{}.{}", part(json!({"alg": "ES256", "kid": "k1", "typ": "JWT"})), part(all));
        let signature = self.key.sign_jws(message.as_bytes()).expect("a signature");
        format!("{message}.{}", BASE64.encode(signature))
    }
}
