//! Which tokens sign, and what the signed map looks like.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use informer::clock;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use ring::hmac;
use rules::names::BOOTSTRAP_TOKEN_PREFIX;

use crate::common::meta::MetaExt;

const CONTENT: &str = "kubeconfig";
const SIGNATURE: &str = "jws-kubeconfig-";

/// What a turn does.
pub(super) struct Plan {
    /// The map's data, if it lacks signatures or has too many.
    pub(super) data: Option<BTreeMap<String, String>>,
    /// A token that expires stops signing then, not when somebody cleans it up.
    pub(super) again: Option<Duration>,
}

pub(super) fn plan(map: &ConfigMap, secrets: &[Arc<Secret>], now: Timestamp) -> Plan {
    let tokens = tokens(secrets, now);
    let next = tokens.iter().filter_map(|token| token.expires).map(|at| clock::since(at, now)).min();
    Plan { data: signed(map.data.as_ref(), &tokens), again: next.map(|left| left + Duration::from_secs(1)) }
}

/// A token that may sign.
struct Token {
    id: String,
    secret: String,
    expires: Option<Timestamp>,
}

/// The tokens that may sign now, by id.
fn tokens(secrets: &[Arc<Secret>], now: Timestamp) -> Vec<Token> {
    let mut tokens: Vec<Token> = secrets.iter().filter_map(|secret| token(secret, now)).collect();
    tokens.sort_by(|a, b| a.id.cmp(&b.id));
    tokens
}

fn token(secret: &Secret, now: Timestamp) -> Option<Token> {
    let data = |key: &str| {
        let bytes = secret.data.as_ref()?.get(key)?;
        std::str::from_utf8(&bytes.0).ok().filter(|text| !text.is_empty())
    };
    let id = data("token-id")?;
    if secret.metadata.name().strip_prefix(BOOTSTRAP_TOKEN_PREFIX) != Some(id)
        || data("usage-bootstrap-signing") != Some("true")
    {
        return None;
    }
    // A time that cannot be read has passed.
    let expires = data("expiration").map(|text| machinery::time::parse(text).unwrap_or(Timestamp::UNIX_EPOCH));
    if expires.is_some_and(|at| at <= now) {
        return None;
    }
    Some(Token { id: id.to_owned(), secret: data("token-secret")?.to_owned(), expires })
}

/// The map's data with exactly the signatures of these tokens; `None` if it has them, or nothing to sign.
fn signed(data: Option<&BTreeMap<String, String>>, tokens: &[Token]) -> Option<BTreeMap<String, String>> {
    let data = data?;
    let content = data.get(CONTENT)?;
    let mut wanted: BTreeMap<String, String> = data.clone();
    wanted.retain(|key, _| !key.starts_with(SIGNATURE));
    for token in tokens {
        wanted.insert(format!("{SIGNATURE}{}", token.id), signature(content, token));
    }
    (wanted != *data).then_some(wanted)
}

/// A JWS whose payload is left out: whoever checks it has the content.
fn signature(content: &str, token: &Token) -> String {
    let header = BASE64.encode(format!(r#"{{"alg":"HS256","kid":"{}"}}"#, token.id));
    let key = hmac::Key::new(hmac::HMAC_SHA256, token.secret.as_bytes());
    let made = hmac::sign(&key, format!("{header}.{}", BASE64.encode(content)).as_bytes());
    format!("{header}..{}", BASE64.encode(made))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::*;

    fn secret(name: &str, data: &[(&str, &str)]) -> Arc<Secret> {
        Arc::new(Secret {
            metadata: ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() },
            data: Some(data.iter().map(|(key, value)| ((*key).to_owned(), ByteString((*value).into()))).collect()),
            ..Secret::default()
        })
    }

    type Data = Vec<(&'static str, String)>;

    fn good(id: &str) -> Data {
        vec![("token-id", id.into()), ("token-secret", "secret".into()), ("usage-bootstrap-signing", "true".into())]
    }

    #[test]
    fn only_live_tokens_that_are_meant_to_sign_do() {
        let at = |second| Timestamp::from_second(second).expect("in range");
        let check = |name: &str, change: &dyn Fn(&mut Data)| {
            let mut data = good("abcdef");
            change(&mut data);
            let data: Vec<(&str, &str)> = data.iter().map(|(key, value)| (*key, value.as_str())).collect();
            tokens(&[secret(name, &data)], at(100)).len()
        };
        assert_eq!(check("bootstrap-token-abcdef", &|_| {}), 1);
        assert_eq!(check("bootstrap-token-other", &|_| {}), 0, "the name is another token's");
        assert_eq!(check("bootstrap-token-abcdef", &|data| data[2].1 = "false".into()), 0);
        assert_eq!(check("bootstrap-token-abcdef", &|data| drop(data.remove(1))), 0);
        assert_eq!(
            check("bootstrap-token-abcdef", &|data| data.push(("expiration", "1970-01-01T00:01:00Z".into()))),
            0
        );
        assert_eq!(
            check("bootstrap-token-abcdef", &|data| data.push(("expiration", "1970-01-01T01:00:00Z".into()))),
            1
        );
    }

    #[test]
    fn the_signatures_are_those_of_the_tokens_and_no_others() {
        let token = Token { id: "abc".into(), secret: "secret".into(), expires: None };
        let map = |keys: &[(&str, &str)]| -> BTreeMap<String, String> {
            keys.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        assert_eq!(signed(Some(&map(&[("other", "x")])), std::slice::from_ref(&token)), None, "nothing to sign");
        let first = signed(Some(&map(&[("kubeconfig", "payload")])), std::slice::from_ref(&token)).expect("a change");
        // Worked out with OpenSSL.
        assert_eq!(
            first["jws-kubeconfig-abc"],
            "eyJhbGciOiJIUzI1NiIsImtpZCI6ImFiYyJ9..nA2cEmIv4O04sGUt-1Fu-8O1asr1Nj0InQh41h5oPR8"
        );
        assert_eq!(signed(Some(&first), std::slice::from_ref(&token)), None);
        assert_eq!(signed(Some(&first), &[]), Some(map(&[("kubeconfig", "payload")])));
    }
}
