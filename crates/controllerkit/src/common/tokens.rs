//! Secrets that hold tokens: which they are, and whose.

use std::sync::Arc;

use informer::{Filter, Informer, Key};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use rules::names::BOOTSTRAP_TOKEN;

use super::meta::MetaExt;

pub const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
pub const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";

/// The tokens by which nodes join.
pub fn bootstrap_tokens() -> Filter {
    Filter {
        namespace: "kube-system".to_owned(),
        field_selector: format!("type={BOOTSTRAP_TOKEN}"),
        ..Filter::default()
    }
}

/// The Secrets that hold tokens of accounts.
pub fn account_tokens() -> Filter {
    Filter::fields("type=kubernetes.io/service-account-token")
}

/// The account that a token's Secret names.
pub fn account_name(secret: &Secret) -> Option<&str> {
    secret.metadata.annotation(ACCOUNT_NAME).filter(|name| !name.is_empty())
}

/// Whether an account is the one that the Secret means: one of the same name may have taken its place.
pub fn is_of(secret: &Secret, account: &ServiceAccount) -> bool {
    let uid = secret.metadata.annotation(ACCOUNT_UID).unwrap_or_default();
    account_name(secret) == Some(account.metadata.name()) && (uid.is_empty() || uid == account.metadata.uid())
}

/// The account that a token's Secret names, if it is the very one.
pub fn named_account(accounts: &Informer<ServiceAccount>, secret: &Secret) -> Option<Arc<ServiceAccount>> {
    let account = accounts.get(&Key::new(secret.metadata.namespace(), account_name(secret)?))?;
    is_of(secret, &account).then_some(account)
}
