//! Trust bundles as a file: the anchors of one of them, or of all that a signer and labels choose, each anchor once.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, OnceLock};

use k8s_openapi::api::certificates::v1::ClusterTrustBundle;
use k8s_openapi::api::core::v1::ClusterTrustBundleProjection;
use machinery::selector::label::LabelSelector;

/// The anchors in PEM. The error is in upstream's words.
pub(super) fn anchors(
    source: &ClusterTrustBundleProjection,
    bundles: Option<&[Arc<ClusterTrustBundle>]>,
) -> Result<String, String> {
    let bundles = bundles.ok_or("ClusterTrustBundle informer has not yet synced")?;
    let optional = source.optional == Some(true);
    let (chosen, missing) = match (&source.name, &source.signer_name) {
        (Some(name), _) => {
            let missing =
                format!("while getting ClusterTrustBundle: clustertrustbundle.certificates.k8s.io {name:?} not found");
            (bundles.iter().filter(|bundle| bundle.metadata.name.as_ref() == Some(name)).collect(), missing)
        }
        (None, Some(signer)) => {
            let missing = "combination of signerName and labelSelector matched zero ClusterTrustBundles".to_owned();
            (of_signer(signer, source, bundles)?, missing)
        }
        (None, None) => {
            return Err("at least one of either ClusterTrustBundle.Name or ClusterTrustBundle.SignerName must be set"
                .to_owned());
        }
    };
    match chosen[..] {
        [] if optional => Ok(String::new()),
        [] => Err(missing),
        _ => Ok(together(&chosen)),
    }
}

/// Without a selector none is chosen, with an empty one all of the signer are.
fn of_signer<'b>(
    signer: &str,
    source: &ClusterTrustBundleProjection,
    bundles: &'b [Arc<ClusterTrustBundle>],
) -> Result<Vec<&'b Arc<ClusterTrustBundle>>, String> {
    let Some(selector) = &source.label_selector else { return Ok(Vec::new()) };
    let selector = serde_json::to_value(selector).map_err(|error| error.to_string())?;
    let selector =
        LabelSelector::from_value(&selector).map_err(|error| format!("while parsing label selector: {error}"))?;
    let chosen = |bundle: &&Arc<ClusterTrustBundle>| {
        let label = |key: &str| bundle.metadata.labels.as_ref()?.get(key).map(String::as_str);
        bundle.spec.signer_name.as_deref() == Some(signer) && selector.matches(label)
    };
    Ok(bundles.iter().filter(chosen).collect())
}

/// Every anchor once. Their order is the same for as long as this process lives and another one in the next: nobody shall come to rely on it.
fn together(bundles: &[&Arc<ClusterTrustBundle>]) -> String {
    static ORDER: OnceLock<RandomState> = OnceLock::new();
    let order = ORDER.get_or_init(RandomState::new);
    let all: BTreeSet<Vec<u8>> =
        bundles.iter().flat_map(|bundle| pki::certificates_in(&bundle.spec.trust_bundle)).collect();
    let mut all: Vec<Vec<u8>> = all.into_iter().collect();
    all.sort_by_cached_key(|anchor| order.hash_one(anchor));
    all.iter().map(|anchor| pki::certificate_pem(anchor)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn bundle(name: &str, signer: Option<&str>, labels: Value, anchors: &[&[u8]]) -> Arc<ClusterTrustBundle> {
        let bundle: String = anchors.iter().map(|anchor| pki::certificate_pem(anchor)).collect();
        let tree = json!({"metadata": {"name": name, "labels": labels}, "spec": {"signerName": signer, "trustBundle": bundle}});
        Arc::new(serde_json::from_value(tree).unwrap())
    }

    #[test]
    fn bundles_are_chosen_by_name_or_by_signer_and_labels() {
        let bundles = [
            bundle("plain", None, json!({}), &[b"one"]),
            bundle("s:a", Some("s"), json!({"tier": "live"}), &[b"two", b"three"]),
            bundle("s:b", Some("s"), json!({}), &[b"three", b"four"]),
            bundle("t:a", Some("t"), json!({"tier": "live"}), &[b"five"]),
        ];
        let ask = |source: Value| {
            let source = serde_json::from_value(source).unwrap();
            anchors(&source, Some(&bundles)).map(|pem| {
                let mut found: Vec<String> =
                    pki::certificates_in(&pem).into_iter().map(|anchor| String::from_utf8(anchor).unwrap()).collect();
                found.sort_unstable();
                found.join(" ")
            })
        };
        let none = Err("combination of signerName and labelSelector matched zero ClusterTrustBundles".to_owned());
        for (source, expected) in [
            (json!({"path": "p", "name": "plain"}), Ok("one".to_owned())),
            (json!({"path": "p", "name": "other", "optional": true}), Ok(String::new())),
            (
                json!({"path": "p", "name": "other"}),
                Err("while getting ClusterTrustBundle: clustertrustbundle.certificates.k8s.io \"other\" not found"
                    .to_owned()),
            ),
            (json!({"path": "p", "signerName": "s", "labelSelector": {}}), Ok("four three two".to_owned())),
            (
                json!({"path": "p", "signerName": "s", "labelSelector": {"matchLabels": {"tier": "live"}}}),
                Ok("three two".to_owned()),
            ),
            (json!({"path": "p", "signerName": "s"}), none.clone()),
            (json!({"path": "p", "signerName": "u", "labelSelector": {}}), none),
            (json!({"path": "p", "signerName": "u", "labelSelector": {}, "optional": true}), Ok(String::new())),
        ] {
            assert_eq!(ask(source.clone()), expected, "{source}");
        }
        let source = serde_json::from_value(json!({"path": "p", "name": "plain"})).unwrap();
        assert!(anchors(&source, None).is_err(), "what is not known yet is not missing");
    }
}
