//! What belongs into the Secret of a token.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use serde_json::{Value, json};

use crate::common::meta::MetaExt;
use crate::common::tokens::{ACCOUNT_NAME, ACCOUNT_UID};

const CERTIFICATES: &str = "ca.crt";
const NAMESPACE: &str = "namespace";
const TOKEN: &str = "token";

/// The Secret with everything a pod needs in it; `None` if it has that.
pub(super) fn plan(
    secret: &Secret,
    account: &ServiceAccount,
    certificates: &str,
    sign: impl FnOnce(&Value) -> Result<String, String>,
) -> Result<Option<Secret>, String> {
    let data = |key: &str| secret.data.as_ref().and_then(|data| data.get(key)).map_or(&[][..], |bytes| &bytes.0);
    let needs_certificates = !certificates.is_empty() && data(CERTIFICATES) != certificates.as_bytes();
    let (needs_namespace, needs_token) = (data(NAMESPACE).is_empty(), data(TOKEN).is_empty());
    if !needs_certificates && !needs_namespace && !needs_token {
        return Ok(None);
    }
    let mut filled = secret.clone();
    let content = filled.data.get_or_insert_default();
    if needs_certificates {
        content.insert(CERTIFICATES.to_owned(), ByteString(certificates.into()));
    }
    if needs_namespace {
        content.insert(NAMESPACE.to_owned(), ByteString(secret.metadata.namespace().into()));
    }
    if needs_token {
        content.insert(TOKEN.to_owned(), ByteString(sign(&claims(secret, account))?.into_bytes()));
    }
    let annotations = filled.metadata.annotations.get_or_insert_default();
    annotations.insert(ACCOUNT_NAME.to_owned(), account.metadata.name().to_owned());
    annotations.insert(ACCOUNT_UID.to_owned(), account.metadata.uid().to_owned());
    Ok(Some(filled))
}

/// Claims without an end: such a token lives as long as its Secret.
fn claims(secret: &Secret, account: &ServiceAccount) -> Value {
    let (namespace, name) = (account.metadata.namespace(), account.metadata.name());
    json!({
        "iss": "kubernetes/serviceaccount",
        "sub": format!("system:serviceaccount:{namespace}:{name}"),
        "kubernetes.io/serviceaccount/namespace": namespace,
        "kubernetes.io/serviceaccount/secret.name": secret.metadata.name(),
        "kubernetes.io/serviceaccount/service-account.name": name,
        "kubernetes.io/serviceaccount/service-account.uid": account.metadata.uid(),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::*;
    use crate::common::tokens::is_of;

    fn meta(name: &str, annotations: &[(&str, &str)]) -> ObjectMeta {
        ObjectMeta {
            name: Some(name.into()),
            namespace: Some("ns".into()),
            uid: Some(format!("uid-{name}")),
            annotations: Some(annotations.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn a_secret_is_filled_once_for_the_account_it_names() {
        let account = ServiceAccount { metadata: meta("robot", &[]), ..ServiceAccount::default() };
        let secret = Secret { metadata: meta("s", &[(ACCOUNT_NAME, "robot")]), ..Secret::default() };
        assert!(is_of(&secret, &account));
        let filled = plan(&secret, &account, "CA", |claims| Ok(claims["sub"].to_string())).expect("signed");
        let filled = filled.expect("a change");
        let data: BTreeMap<&str, &[u8]> =
            filled.data.iter().flatten().map(|(key, value)| (key.as_str(), value.0.as_slice())).collect();
        assert_eq!(data["ca.crt"], b"CA");
        assert_eq!(data["namespace"], b"ns");
        assert_eq!(data["token"], br#""system:serviceaccount:ns:robot""#);
        assert_eq!(filled.metadata.annotation(ACCOUNT_UID), Some("uid-robot"));
        assert_eq!(plan(&filled, &account, "CA", |_| Err("not again".into())), Ok(None));
        let other =
            plan(&filled, &account, "CB", |_| Err("not again".into())).expect("no token is made").expect("a change");
        assert_eq!(other.data.expect("data")["ca.crt"].0, b"CB");
    }

    #[test]
    fn an_account_of_the_same_name_is_not_the_same() {
        let account = ServiceAccount { metadata: meta("robot", &[]), ..ServiceAccount::default() };
        let of = |uid: &str| {
            let secret =
                Secret { metadata: meta("s", &[(ACCOUNT_NAME, "robot"), (ACCOUNT_UID, uid)]), ..Secret::default() };
            is_of(&secret, &account)
        };
        assert!(of("uid-robot"));
        assert!(!of("uid-of-the-last-one"));
    }
}
