//! Which ranges hold which addresses, and whether a range may go.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use informer::clock;
use ipnet::IpNet;
use jiff::Timestamp;
use k8s_openapi::api::networking::v1::{IPAddress, ServiceCIDR};

use crate::common::meta::MetaExt;

const MANAGED_BY: &str = "ipaddress.kubernetes.io/managed-by";
/// The API server's allocator.
const ALLOCATOR: &str = "ipallocator.k8s.io";

pub(super) const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";
/// How long allocators get to see that a range is going.
const GRACE: Duration = Duration::from_secs(10);

const READY: Ready = Ready { status: "True", reason: "", message: "Kubernetes Service CIDR is ready" };
const IN_USE: Ready = Ready {
    status: "False",
    reason: "Terminating",
    message: "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR",
};

/// What the condition `Ready` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ready {
    pub(super) status: &'static str,
    pub(super) reason: &'static str,
    pub(super) message: &'static str,
}

/// What a turn does.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Whether the finalizer comes (`true`) or goes.
    pub(super) hold: Option<bool>,
    /// What is to be reported, if it is not.
    pub(super) ready: Option<Ready>,
    pub(super) again: Option<Duration>,
}

/// From a range, all ranges, and all addresses that are in use.
pub(super) fn plan(
    range: &ServiceCIDR,
    all: &[Arc<ServiceCIDR>],
    addresses: &[Arc<IPAddress>],
    now: Timestamp,
) -> Plan {
    let held = range.metadata.has_finalizer(FINALIZER);
    let conditions = range.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let known = conditions.into_iter().find(|condition| condition.type_ == "Ready");
    let already = |ready: &Ready| {
        known.is_some_and(|known| {
            (&*known.status, &*known.reason, &*known.message) == (ready.status, ready.reason, ready.message)
        })
    };
    let Some(deleted) = &range.metadata.deletion_timestamp else {
        return Plan { hold: (!held).then_some(true), ready: Some(READY).filter(|ready| !already(ready)), again: None };
    };
    let others = all.iter().filter(|other| other.metadata.name != range.metadata.name);
    let others: Vec<Ranges> = others.map(|other| ranges(other)).collect();
    if !may_go(&ranges(range), &others, addresses.iter().filter_map(|address| allocated(address))) {
        return Plan { ready: Some(IN_USE).filter(|ready| !already(ready)), ..Plan::default() };
    }
    let left = clock::since(clock::add(deleted.0, GRACE), now);
    if left.is_zero() {
        Plan { hold: held.then_some(false), ..Plan::default() }
    } else {
        Plan { again: Some(left), ..Plan::default() }
    }
}

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
fn may_go(own: &Ranges, others: &[Ranges], in_use: impl IntoIterator<Item = IpAddr>) -> bool {
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
    fn a_range_is_held_until_nobody_uses_it_and_everybody_knows_that_it_goes() {
        let range = |meta: serde_json::Value, conditions: serde_json::Value| -> Arc<ServiceCIDR> {
            serde_json::from_value(serde_json::json!({
                "metadata": meta, "spec": {"cidrs": ["10.0.0.0/24"]}, "status": {"conditions": conditions},
            }))
            .expect("a range")
        };
        let now = Timestamp::from_second(100).expect("a time");
        let new = range(serde_json::json!({"name": "a"}), serde_json::Value::Null);
        let first = plan(&new, &[], &[], now);
        assert_eq!((first.hold, first.ready, first.again), (Some(true), Some(READY), None));
        let meta =
            |deleted: &str| serde_json::json!({"name": "a", "finalizers": [FINALIZER], "deletionTimestamp": deleted});
        let going = range(meta("1970-01-01T00:01:35Z"), serde_json::Value::Null);
        let used: Arc<IPAddress> = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "10.0.0.5", "labels": {MANAGED_BY: ALLOCATOR}},
            "spec": {"parentRef": {"name": "s", "resource": "services"}},
        }))
        .expect("an address");
        let all = std::slice::from_ref(&going);
        assert_eq!(plan(&going, all, &[used], now), Plan { ready: Some(IN_USE), ..Plan::default() });
        assert_eq!(plan(&going, &[], &[], now), Plan { again: Some(Duration::from_secs(5)), ..Plan::default() });
        let gone = range(meta("1970-01-01T00:01:30Z"), serde_json::Value::Null);
        assert_eq!(plan(&gone, &[], &[], now), Plan { hold: Some(false), ..Plan::default() });
    }

    #[test]
    fn ranges_overlap_when_one_is_in_the_other() {
        assert!(of(&["10.0.0.0/16"]).overlap(&of(&["10.0.5.0/24"])));
        assert!(of(&["10.0.5.0/24"]).overlap(&of(&["10.0.0.0/16"])));
        assert!(!of(&["10.0.5.0/24"]).overlap(&of(&["10.0.6.0/24", "fd00::/64"])));
        assert!(of(&["0.0.0.0/0"]).contain("203.0.113.1".parse().expect("an address")));
    }
}
