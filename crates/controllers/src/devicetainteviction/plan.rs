//! Which pods have to go because of the taints of their devices, and when.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use informer::{Key, clock};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{
    Device, DeviceRequestAllocationResult, DeviceTaint, DeviceTaintRule, DeviceToleration, ResourceClaim, ResourceSlice,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::common::meta::MetaExt;
use crate::common::pods;
use crate::common::resource_claims::{self, Named};

/// The one effect that evicts.
pub(super) const NO_EXECUTE: &str = "NoExecute";

/// A driver's pool of devices.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PoolId {
    pub(super) driver: String,
    pub(super) pool: String,
}

impl PoolId {
    pub(super) fn of_slice(slice: &ResourceSlice) -> Self {
        Self { driver: slice.spec.driver.clone(), pool: slice.spec.pool.name.clone() }
    }

    fn of_result(result: &DeviceRequestAllocationResult) -> Self {
        Self { driver: result.driver.clone(), pool: result.pool.clone() }
    }

    /// As the value of an index.
    pub(super) fn text(&self) -> String {
        format!("{}/{}", self.driver, self.pool)
    }
}

/// What drivers say of the devices in question, by pool.
pub(super) type Published = BTreeMap<PoolId, Vec<Arc<ResourceSlice>>>;

/// Where a taint comes from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cause {
    Rule { name: String, uid: String },
    Device { pool: PoolId, device: String, taint: usize },
}

/// When a pod has to go, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Eviction {
    pub(super) when: Timestamp,
    pub(super) causes: BTreeSet<Cause>,
}

impl Eviction {
    fn join(self, other: Self) -> Self {
        Self { when: self.when.min(other.when), causes: self.causes.into_iter().chain(other.causes).collect() }
    }

    /// The names and uids of the rules that want it.
    pub(super) fn rules(&self) -> impl Iterator<Item = (&str, &str)> {
        self.causes.iter().filter_map(|cause| match cause {
            Cause::Rule { name, uid } => Some((name.as_str(), uid.as_str())),
            Cause::Device { .. } => None,
        })
    }
}

/// The devices that were allocated for a claim.
pub(super) fn allocated(claim: &ResourceClaim) -> &[DeviceRequestAllocationResult] {
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    let devices = allocation.and_then(|allocation| allocation.devices.as_ref());
    devices.and_then(|devices| devices.results.as_deref()).unwrap_or_default()
}

/// The pools that a claim's devices are from.
pub(super) fn pools(claim: &ResourceClaim) -> BTreeSet<PoolId> {
    allocated(claim).iter().map(PoolId::of_result).collect()
}

/// The pods that a claim is reserved for.
pub(super) fn consumers(claim: &ResourceClaim) -> Vec<Key> {
    let reserved = claim.status.iter().flat_map(|status| status.reserved_for.iter().flatten());
    let pods = reserved.filter(|consumer| resource_claims::is_pod(consumer));
    pods.map(|consumer| Key::new(claim.metadata.namespace(), &consumer.name)).collect()
}

/// The slices of a pool that count: those of its latest generation.
fn current(slices: &[Arc<ResourceSlice>]) -> impl Iterator<Item = &ResourceSlice> {
    let latest = slices.iter().map(|slice| slice.spec.pool.generation).max();
    slices.iter().filter(move |slice| Some(slice.spec.pool.generation) == latest).map(|slice| &**slice)
}

/// Whether a slice has a device that evicts.
pub(super) fn evicts(slice: &ResourceSlice) -> bool {
    let devices = slice.spec.devices.iter().flatten();
    devices.into_iter().any(|device| device.taints.iter().flatten().any(|taint| taint.effect == NO_EXECUTE))
}

/// The pods' own claims that decide over a pod: those it has, that are its own where they were made for it, and that are reserved for it.
pub(super) fn claims_of(pod: &Pod, claim: impl Fn(&str) -> Option<Arc<ResourceClaim>>) -> Vec<Arc<ResourceClaim>> {
    let names = resource_claims::of_pod(pod).iter().filter_map(|one| match resource_claims::named(pod, one) {
        Named::Given(name) => claim(name),
        Named::Made(name) => claim(name).filter(|claim| resource_claims::is_for_pod(claim, pod)),
        Named::NotMade | Named::NotNeeded | Named::Unsupported => None,
    });
    names.filter(|claim| resource_claims::is_reserved_for(claim, pod)).collect()
}

/// When a pod with these claims has to go; `None` if it may stay.
pub(super) fn plan(
    pod: &Pod,
    claims: &[Arc<ResourceClaim>],
    published: &Published,
    rules: &[Arc<DeviceTaintRule>],
) -> Option<Eviction> {
    // Nothing runs yet that would use a device.
    pods::node_name(pod)?;
    let each =
        claims.iter().flat_map(|claim| allocated(claim)).filter_map(|result| of_device(result, published, rules));
    each.reduce(Eviction::join)
}

/// When the user of a device has to go.
fn of_device(
    result: &DeviceRequestAllocationResult,
    published: &Published,
    rules: &[Arc<DeviceTaintRule>],
) -> Option<Eviction> {
    let pool = PoolId::of_result(result);
    let slices = published.get(&pool).map(Vec::as_slice).unwrap_or_default();
    let device = current(slices).find_map(|slice| Some((slice, device(slice, &result.device)?)));
    let own = device.into_iter().flat_map(|(slice, device)| {
        let taints = device.taints.iter().flatten().enumerate();
        taints.map(move |(at, taint)| (taint, &slice.metadata, at))
    });
    let own = own.map(|(taint, meta, at)| {
        (taint, meta, Cause::Device { pool: pool.clone(), device: result.device.clone(), taint: at })
    });
    let ruled = rules.iter().filter(|rule| selects(rule, &pool, &result.device)).map(|rule| {
        let cause = Cause::Rule { name: rule.metadata.name().to_owned(), uid: rule.metadata.uid().to_owned() };
        (&rule.spec.taint, &rule.metadata, cause)
    });
    let tolerations = result.tolerations.as_deref().unwrap_or_default();
    let evicting = own.chain(ruled).filter(|(taint, ..)| taint.effect == NO_EXECUTE);
    let each = evicting.filter_map(|(taint, meta, cause)| {
        Some(Eviction { when: end(taint, meta, tolerations)?, causes: [cause].into() })
    });
    each.reduce(Eviction::join)
}

fn device<'a>(slice: &'a ResourceSlice, name: &str) -> Option<&'a Device> {
    slice.spec.devices.iter().flatten().find(|device| device.name == name)
}

/// Whether a rule is about a device. One without a selector is about none.
pub(super) fn selects(rule: &DeviceTaintRule, pool: &PoolId, device: &str) -> bool {
    let fits = |wanted: &Option<String>, own: &str| wanted.as_ref().is_none_or(|wanted| wanted == own);
    rule.spec.device_selector.as_ref().is_some_and(|selector| {
        fits(&selector.driver, &pool.driver) && fits(&selector.pool, &pool.pool) && fits(&selector.device, device)
    })
}

/// When a taint is no longer tolerated; `None` for never. Of several tolerations the shortest holds, but one without an end beats them all.
fn end(taint: &DeviceTaint, meta: &ObjectMeta, tolerations: &[DeviceToleration]) -> Option<Timestamp> {
    let added = taint.time_added.as_ref().or(meta.creation_timestamp.as_ref()).map(|time| time.0)?;
    let matching = tolerations
        .iter()
        .filter(|toleration| toleration.effect.as_deref() == Some(NO_EXECUTE) && tolerates(toleration, taint));
    let mut shortest: Option<i64> = None;
    for toleration in matching {
        let seconds = toleration.toleration_seconds?;
        shortest = Some(shortest.map_or(seconds, |known| known.min(seconds)));
    }
    let granted = Duration::from_secs(u64::try_from(shortest.unwrap_or_default()).unwrap_or_default());
    Some(clock::add(added, granted))
}

/// As for nodes, but an empty key with `Equal` is about every key.
fn tolerates(toleration: &DeviceToleration, taint: &DeviceTaint) -> bool {
    let fits = |wanted: &Option<String>, own: &str| wanted.as_deref().is_none_or(|text| text.is_empty() || text == own);
    if !fits(&toleration.effect, &taint.effect) || !fits(&toleration.key, &taint.key) {
        return false;
    }
    match toleration.operator.as_deref().unwrap_or_default() {
        "" | "Equal" => toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default(),
        "Exists" => true,
        _ => false,
    }
}

/// How many published and how many allocated devices a rule is about.
pub(super) fn selected(
    rule: &DeviceTaintRule,
    slices: &[Arc<ResourceSlice>],
    claims: &[Arc<ResourceClaim>],
) -> (usize, usize) {
    let mut published = Published::new();
    for slice in slices {
        published.entry(PoolId::of_slice(slice)).or_default().push(slice.clone());
    }
    let devices = published.iter().flat_map(|(pool, slices)| {
        let devices = current(slices).flat_map(|slice| slice.spec.devices.iter().flatten());
        devices.filter(move |device| selects(rule, pool, &device.name))
    });
    let results = claims.iter().flat_map(|claim| allocated(claim));
    let results = results.filter(|result| selects(rule, &PoolId::of_result(result), &result.device));
    (devices.count(), results.count())
}
