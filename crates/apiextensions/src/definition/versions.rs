//! The order of versions, and what identifies the one that objects are stored in.

use std::cmp::Ordering;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA256, digest};

/// The order of versions as Kubernetes has it: `v1alpha1 < v1beta1 < v1 < v2`; other names come before them, in reverse.
pub fn compare(a: &str, b: &str) -> Ordering {
    match (parts(a), parts(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        (None, Some(_)) => Ordering::Less,
        (Some(_), None) => Ordering::Greater,
        (None, None) => b.cmp(a),
    }
}

/// How settled a version is, its number, and which attempt.
fn parts(version: &str) -> Option<(u8, u64, u64)> {
    let rest = version.strip_prefix('v')?;
    let digits = |text: &str| {
        let good = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        good.then(|| text.parse().ok()).flatten()
    };
    for (class, word) in [(0, "alpha"), (1, "beta")] {
        if let Some((major, minor)) = rest.split_once(word) {
            return Some((class, digits(major)?, digits(minor)?));
        }
    }
    Some((2, digits(rest)?, 0))
}

/// By which clients recognize that the storage version has changed.
pub fn hash(group: &str, version: &str, kind: &str) -> String {
    let digest = digest(&SHA256, format!("{group}/{version}/{kind}").as_bytes());
    STANDARD.encode(&digest.as_ref()[..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_in_the_order_of_their_maturity() {
        let mut versions = ["foo10", "v1alpha1", "v10", "v2", "foo1", "v11beta2", "v3beta1", "v12alpha1", "v10beta3"];
        versions.sort_by(|a, b| compare(b, a));
        let expect = ["v10", "v2", "v11beta2", "v10beta3", "v3beta1", "v12alpha1", "v1alpha1", "foo1", "foo10"];
        assert_eq!(versions, expect);
    }
}
