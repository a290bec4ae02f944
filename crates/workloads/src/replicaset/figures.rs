//! How well the pods to delete are chosen: among those that are ready, the young should go.

use std::sync::Arc;

use informer::clock;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use crate::common::pods;
use crate::metrics;

/// Compares the ages of the ready pods that go with that of the youngest.
pub(super) fn deleted(going: &[Arc<Pod>], active: &[Arc<Pod>], now: Timestamp) {
    ratios(going, active, now).for_each(|ratio| metrics::REPLICA_AGE_RATIO.observe(&[], ratio));
}

fn ratios(going: &[Arc<Pod>], active: &[Arc<Pod>], now: Timestamp) -> impl Iterator<Item = f64> {
    let age = move |pod: &Arc<Pod>| {
        let since = pods::ready_since(pod).filter(|_| pods::phase(pod) == "Running")?;
        Some(clock::since(now, since).as_secs_f64())
    };
    let ages = if going.is_empty() { &[] } else { active };
    let youngest = ages.iter().filter_map(age).reduce(f64::min).filter(|age| *age > 0.0);
    let going = if youngest.is_some() { going } else { &[] };
    going.iter().filter_map(age).map(move |age| age / youngest.unwrap_or(age))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, pod};

    #[test]
    fn ages_are_compared_with_the_youngest() {
        let ready = |name: &str, since: i64| pod(name).phase("Running").ready_since(since).build();
        let (old, young) = (ready("old", 0), ready("young", 90));
        let active = [old.clone(), young.clone(), pod("pending").build()];
        let all = |going: &[Arc<Pod>]| ratios(going, &active, at(100)).collect::<Vec<_>>();
        assert_eq!(all(&[old, pod("pending").build()]), [10.0]);
        assert_eq!(all(&[young]), [1.0]);
        assert!(all(&[]).is_empty());
    }
}
