//! Which namespace lacks its account.

use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::common::meta::MetaExt;

pub(super) const NAME: &str = "default";

/// The account to create in a namespace that lives and has none.
pub(super) fn plan(namespace: Option<&Namespace>, exists: bool) -> Option<ServiceAccount> {
    let namespace = namespace.filter(|namespace| !exists && !namespace.metadata.is_deleting())?;
    let metadata =
        ObjectMeta { name: Some(NAME.to_owned()), namespace: namespace.metadata.name.clone(), ..ObjectMeta::default() };
    Some(ServiceAccount { metadata, ..ServiceAccount::default() })
}
