//! Which built-in group comes first in discovery, and which of its versions: upstream's table.

/// `(group, its priority, (version, its priority)…)`. What is not listed has no APIService, as upstream has it for
/// `apiregistration.k8s.io` itself.
type Row = (&'static str, i64, &'static [(&'static str, i64)]);

const TABLE: &[Row] = &[
    ("", 18000, &[("v1", 1)]),
    ("apps", 17800, &[("v1", 15)]),
    ("events.k8s.io", 17750, &[("v1", 15), ("v1beta1", 5)]),
    ("authentication.k8s.io", 17700, &[("v1", 15), ("v1beta1", 9), ("v1alpha1", 1)]),
    ("authorization.k8s.io", 17600, &[("v1", 15)]),
    ("autoscaling", 17500, &[("v1", 15), ("v2", 30), ("v2beta1", 9), ("v2beta2", 1)]),
    ("batch", 17400, &[("v1", 15), ("v1beta1", 9), ("v2alpha1", 9)]),
    ("certificates.k8s.io", 17300, &[("v1", 15), ("v1beta1", 9), ("v1alpha1", 1)]),
    ("networking.k8s.io", 17200, &[("v1", 15), ("v1beta1", 9)]),
    ("policy", 17100, &[("v1", 15), ("v1beta1", 9)]),
    ("rbac.authorization.k8s.io", 17000, &[("v1", 15)]),
    ("storage.k8s.io", 16800, &[("v1", 15), ("v1beta1", 9), ("v1alpha1", 1)]),
    ("apiextensions.k8s.io", 16700, &[("v1", 15)]),
    ("admissionregistration.k8s.io", 16700, &[("v1", 15), ("v1beta1", 12), ("v1alpha1", 9)]),
    ("scheduling.k8s.io", 16600, &[("v1", 15), ("v1beta1", 9), ("v1alpha3", 3)]),
    ("coordination.k8s.io", 16500, &[("v1", 15), ("v1beta1", 13), ("v1alpha2", 12)]),
    ("node.k8s.io", 16300, &[("v1", 15), ("v1alpha1", 1), ("v1beta1", 9)]),
    ("discovery.k8s.io", 16200, &[("v1", 15), ("v1beta1", 12)]),
    ("resource.k8s.io", 16200, &[("v1", 21), ("v1beta2", 15), ("v1beta1", 9), ("v1alpha3", 1)]),
    (
        "flowcontrol.apiserver.k8s.io",
        16100,
        &[("v1", 21), ("v1beta3", 18), ("v1beta2", 15), ("v1beta1", 12), ("v1alpha1", 9)],
    ),
    ("internal.apiserver.k8s.io", 16000, &[("v1alpha1", 9)]),
    ("storagemigration.k8s.io", 15800, &[("v1", 15), ("v1beta1", 9)]),
    ("lifecycle.k8s.io", 15700, &[("v1alpha1", 1)]),
];

/// What custom resources are registered with: after everything built in, their versions by maturity.
pub const CUSTOM: Priority = Priority { group: 1000, version: 100 };

/// The group of APIServices themselves. It has none of its own, and is always first.
pub const REGISTRATION: (&str, Priority) = ("apiregistration.k8s.io", Priority { group: 20001, version: 0 });

/// Where a group version comes in discovery: the greater the earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Priority {
    /// `spec.groupPriorityMinimum`.
    pub group: i64,
    /// `spec.versionPriority`.
    pub version: i64,
}

/// The priority of a built-in group version.
pub fn built_in(group: &str, version: &str) -> Option<Priority> {
    let (_, of_group, versions) = TABLE.iter().find(|(name, ..)| *name == group)?;
    let (_, of_version) = versions.iter().find(|(name, _)| *name == version)?;
    Some(Priority { group: *of_group, version: *of_version })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_group_is_listed_once_and_within_the_limits_of_validation() {
        for (at, (group, priority, versions)) in TABLE.iter().enumerate() {
            assert!(TABLE[..at].iter().all(|(other, ..)| other != group), "{group} twice");
            assert!((1..=20_000).contains(priority), "{group}");
            assert!(versions.iter().all(|(_, priority)| (1..=1000).contains(priority)), "{group}");
        }
        assert_eq!(built_in("autoscaling", "v2"), Some(Priority { group: 17500, version: 30 }));
        assert_eq!(built_in("apiregistration.k8s.io", "v1"), None);
    }
}
