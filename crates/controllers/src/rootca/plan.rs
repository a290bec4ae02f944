//! What the ConfigMap of a namespace should say.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::common::meta::MetaExt;

pub(super) const NAME: &str = "kube-root-ca.crt";
const DESCRIPTION: &str = "kubernetes.io/description";
/// The same words as upstream's: tools compare the object as a whole.
const DESCRIPTION_TEXT: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.";

#[derive(Debug, PartialEq)]
pub(super) enum Plan {
    Keep,
    Create(ConfigMap),
    Update(ConfigMap),
}

pub(super) fn plan(namespace: Option<&Namespace>, map: Option<&ConfigMap>, certificates: &str) -> Plan {
    let Some(namespace) = namespace.filter(|namespace| !namespace.metadata.is_deleting()) else { return Plan::Keep };
    let data = BTreeMap::from([("ca.crt".to_owned(), certificates.to_owned())]);
    let described = |map: &ConfigMap| map.metadata.annotation(DESCRIPTION) == Some(DESCRIPTION_TEXT);
    let mut wanted = match map {
        Some(map) if map.data.as_ref() == Some(&data) && described(map) => return Plan::Keep,
        Some(map) => map.clone(),
        None => ConfigMap {
            metadata: ObjectMeta {
                name: Some(NAME.to_owned()),
                namespace: namespace.metadata.name.clone(),
                ..ObjectMeta::default()
            },
            ..ConfigMap::default()
        },
    };
    wanted.data = Some(data);
    let annotations = wanted.metadata.annotations.get_or_insert_default();
    annotations.insert(DESCRIPTION.to_owned(), DESCRIPTION_TEXT.to_owned());
    if map.is_some() { Plan::Update(wanted) } else { Plan::Create(wanted) }
}
