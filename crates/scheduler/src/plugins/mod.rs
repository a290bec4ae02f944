//! The plugins, one file each, with upstream's semantics, reasons and names.

/// What a plugin offers, by the names of its extension points: `points!(self: pre_filter, filter)`.
macro_rules! points {
    ($plugin:ident: $($point:ident),+) => {
        Points { $($point: Some($plugin.clone()),)+ ..Points::default() }
    };
}

pub mod balanced_allocation;
pub mod default_binder;
pub mod default_preemption;
mod default_selector;
pub mod dynamic_resources;
pub mod image_locality;
pub mod inter_pod_affinity;
pub mod node_affinity;
pub mod node_declared_features;
pub mod node_name;
pub mod node_ports;
pub mod node_resources_fit;
pub mod node_unschedulable;
pub mod node_volume_limits;
mod normalize;
pub mod pod_topology_spread;
pub mod priority_sort;
pub mod resource_score;
pub mod scheduling_gates;
pub mod taint_toleration;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
pub mod volume_binding;
pub mod volume_restrictions;
pub mod volume_zone;
mod volumes;

/// Name of [`priority_sort::PrioritySort`].
pub const PRIORITY_SORT: &str = "PrioritySort";
/// Name of [`default_binder::DefaultBinder`].
pub const DEFAULT_BINDER: &str = "DefaultBinder";
/// Name of [`default_preemption::DefaultPreemption`].
pub const DEFAULT_PREEMPTION: &str = "DefaultPreemption";
/// Name of [`dynamic_resources::DynamicResources`].
pub const DYNAMIC_RESOURCES: &str = "DynamicResources";
/// Name of [`image_locality::ImageLocality`].
pub const IMAGE_LOCALITY: &str = "ImageLocality";
/// Name of [`inter_pod_affinity::InterPodAffinity`].
pub const INTER_POD_AFFINITY: &str = "InterPodAffinity";
/// Name of [`node_affinity::NodeAffinity`].
pub const NODE_AFFINITY: &str = "NodeAffinity";
/// Name of [`node_declared_features::NodeDeclaredFeatures`].
pub const NODE_DECLARED_FEATURES: &str = "NodeDeclaredFeatures";
/// Name of [`node_name::NodeName`].
pub const NODE_NAME: &str = "NodeName";
/// Name of [`node_ports::NodePorts`].
pub const NODE_PORTS: &str = "NodePorts";
/// Name of [`balanced_allocation::BalancedAllocation`].
pub const BALANCED_ALLOCATION: &str = "NodeResourcesBalancedAllocation";
/// Name of [`node_resources_fit::NodeResourcesFit`].
pub const NODE_RESOURCES_FIT: &str = "NodeResourcesFit";
/// Name of [`node_unschedulable::NodeUnschedulable`].
pub const NODE_UNSCHEDULABLE: &str = "NodeUnschedulable";
/// Name of [`node_volume_limits::NodeVolumeLimits`].
pub const NODE_VOLUME_LIMITS: &str = "NodeVolumeLimits";
/// Name of [`pod_topology_spread::PodTopologySpread`].
pub const POD_TOPOLOGY_SPREAD: &str = "PodTopologySpread";
/// Name of [`scheduling_gates::SchedulingGates`].
pub const SCHEDULING_GATES: &str = "SchedulingGates";
/// Name of [`taint_toleration::TaintToleration`].
pub const TAINT_TOLERATION: &str = "TaintToleration";
/// Name of [`volume_binding::VolumeBinding`].
pub const VOLUME_BINDING: &str = "VolumeBinding";
/// Name of [`volume_restrictions::VolumeRestrictions`].
pub const VOLUME_RESTRICTIONS: &str = "VolumeRestrictions";
/// Name of [`volume_zone::VolumeZone`].
pub const VOLUME_ZONE: &str = "VolumeZone";
