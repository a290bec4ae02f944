//! Which ranges hold which addresses, and whether a range may go.

use std::net::IpAddr;

use ipnet::IpNet;
use k8s_openapi::api::networking::v1::{IPAddress, ServiceCIDR};

use crate::common::meta::MetaExt;

const MANAGED_BY: &str = "ipaddress.kubernetes.io/managed-by";
/// The API server's allocator.
const ALLOCATOR: &str = "ipallocator.k8s.io";

/// The ranges of one ServiceCIDR: one, or one per family.
pub(super) struct Ranges(Vec<IpNet>);

impl Ranges {
    pub(super) fn contain(&self, address: IpAddr) -> bool {
        self.0.iter().any(|range| range.contains(&address))
    }

    pub(super) fn overlap(&self, other: &Self) -> bool {
        self.0.iter().any(|one| other.0.iter().any(|two| one.contains(two) || two.contains(one)))
    }
}

/// The ranges of a ServiceCIDR.
pub(super) fn ranges(cidr: &ServiceCIDR) -> Ranges {
    let texts = cidr.spec.iter().filter_map(|spec| spec.cidrs.as_ref()).flatten();
    Ranges(texts.filter_map(|text| text.parse().ok()).collect())
}

/// The address of an object that the API server's allocator made.
pub(super) fn allocated(address: &IPAddress) -> Option<IpAddr> {
    (address.metadata.label(MANAGED_BY) == Some(ALLOCATOR)).then(|| address.metadata.name().parse().ok())?
}

/// Whether a range may go: others cover all of it, or hold every address in it that is in use.
pub(super) fn may_go(own: &Ranges, others: &[Ranges], in_use: impl IntoIterator<Item = IpAddr>) -> bool {
    let covered = |range: &IpNet| others.iter().any(|other| other.0.iter().any(|outer| outer.contains(range)));
    own.0.iter().all(covered)
        || in_use.into_iter().all(|address| !own.contain(address) || others.iter().any(|other| other.contain(address)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(texts: &[&str]) -> Ranges {
        Ranges(texts.iter().map(|text| text.parse().expect("a range")).collect())
    }

    #[test]
    fn a_range_goes_when_nobody_needs_it() {
        let check = |own: &[&str], others: &[&str], in_use: &[&str]| {
            let others: Vec<Ranges> = others.iter().map(|text| of(&[text])).collect();
            may_go(&of(own), &others, in_use.iter().map(|text| text.parse().expect("an address")))
        };
        assert!(check(&["10.0.0.0/24"], &[], &[]));
        assert!(check(&["10.0.0.0/24"], &[], &["10.0.1.5"]));
        assert!(!check(&["10.0.0.0/24"], &[], &["10.0.0.5"]));
        assert!(check(&["10.0.0.0/24"], &["10.0.0.0/16"], &["10.0.0.5"]), "a larger one holds it");
        assert!(check(&["10.0.0.0/24"], &["10.0.0.0/28"], &["10.0.0.5"]), "a smaller one holds this address");
        assert!(!check(&["10.0.0.0/24"], &["10.0.0.0/28"], &["10.0.0.5", "10.0.0.99"]));
        assert!(!check(&["10.0.0.0/24", "fd00::/112"], &["10.0.0.0/16"], &["fd00::1"]));
        assert!(check(&["fd00::/112"], &["10.0.0.0/8"], &["10.1.1.1"]));
    }

    #[test]
    fn ranges_overlap_when_one_is_in_the_other() {
        assert!(of(&["10.0.0.0/16"]).overlap(&of(&["10.0.5.0/24"])));
        assert!(of(&["10.0.5.0/24"]).overlap(&of(&["10.0.0.0/16"])));
        assert!(!of(&["10.0.5.0/24"]).overlap(&of(&["10.0.6.0/24", "fd00::/64"])));
        assert!(of(&["0.0.0.0/0"]).contain("203.0.113.1".parse().expect("an address")));
    }
}
