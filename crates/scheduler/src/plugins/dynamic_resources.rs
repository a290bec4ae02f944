//! DynamicResources: pods that claim devices are turned down, in so many words.
//!
//! A claim must be allocated before its pod may run. Nothing here allocates devices, so such a pod would come to a node
//! without what it asked for; it gets a message instead, and waits. The plugin has upstream's name and place, so that configurations
//! which mention it mean the same pods.

use std::sync::Arc;

use crate::framework::{CycleState, Interest, Plugin, Points, PreFilter, PreFilterOutcome, PreFilterResult, Rejection};
use crate::model::cluster::Cluster;
use crate::model::pod::PodInfo;

const NOT_ALLOCATED: &str = "pod has resource claims, and this scheduler does not allocate devices";

/// Turns down pods with resource claims.
pub struct DynamicResources;

impl Plugin for DynamicResources {
    fn name(&self) -> &'static str {
        super::DYNAMIC_RESOURCES
    }

    fn points(self: Arc<Self>) -> Points {
        points!(self: pre_filter)
    }

    fn interests(&self) -> Vec<Interest> {
        // The claims of a pod stay as they are, and nobody allocates devices: nothing that happens helps.
        Vec::new()
    }
}

impl PreFilter for DynamicResources {
    fn pre_filter(&self, _: &mut CycleState, pod: &PodInfo, _: &Cluster) -> PreFilterResult {
        if pod.claims_devices { Err(Rejection::unresolvable(NOT_ALLOCATED)) } else { Ok(PreFilterOutcome::Skip) }
    }
}
