//! Which bundles there should be.

use std::sync::Arc;

use k8s_openapi::api::certificates::v1::{ClusterTrustBundle, ClusterTrustBundleSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use ring::digest::{SHA256, digest};

use crate::common::meta::MetaExt;

/// Who vouches for the certificates.
pub(super) const SIGNER: &str = "kubernetes.io/kube-apiserver-serving";
/// So many bytes of the content's hash are part of a bundle's name.
const HASHED: usize = 12;

#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    pub(super) create: Option<ClusterTrustBundle>,
    pub(super) update: Option<ClusterTrustBundle>,
    /// Names of bundles that no longer hold.
    pub(super) delete: Vec<String>,
}

/// The name of the bundle with this content: new content is a new bundle, so that nobody reads half of each.
pub(super) fn name(certificates: &str) -> String {
    let hash = digest(&SHA256, certificates.as_bytes());
    let hex: String = hash.as_ref().iter().take(HASHED).map(|byte| format!("{byte:02x}")).collect();
    format!("{}:{hex}", SIGNER.replace('/', ":"))
}

/// What is missing, wrong or too much among the signer's bundles.
pub(super) fn plan(certificates: &str, bundles: &[Arc<ClusterTrustBundle>]) -> Plan {
    let name = name(certificates);
    let is_wanted = |bundle: &&Arc<ClusterTrustBundle>| bundle.metadata.name() == name;
    let mut plan = Plan::default();
    match bundles.iter().find(is_wanted) {
        None => {
            plan.create = Some(ClusterTrustBundle {
                metadata: ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() },
                spec: ClusterTrustBundleSpec {
                    signer_name: Some(SIGNER.to_owned()),
                    trust_bundle: certificates.to_owned(),
                },
            });
        }
        Some(known) if known.spec.trust_bundle != certificates => {
            let mut changed = ClusterTrustBundle::clone(known);
            changed.spec.trust_bundle = certificates.to_owned();
            plan.update = Some(changed);
        }
        Some(_) => {}
    }
    let others = bundles.iter().filter(|bundle| !is_wanted(bundle));
    plan.delete = others.map(|bundle| bundle.metadata.name().to_owned()).collect();
    plan.delete.sort();
    plan
}
