//! The group `resource.k8s.io`: devices.

pub mod device_class;
pub mod device_taint_rule;
pub mod devices;
pub mod resource_claim;
pub mod resource_claim_template;
pub mod resource_pool_status_request;
pub mod resource_slice;
#[cfg(test)]
mod tests;

use crate::kind::{Deprecation, Kind};
use crate::table::NAME_AND_AGE;

/// Two versions of most kinds here are on their way out.
const OLD: &[Deprecation] = &[Deprecation::new("v1beta1", 35).until(38), Deprecation::new("v1beta2", 36).until(39)];

/// The kinds of the group.
pub const KINDS: &[Kind] = &[
    Kind::new("deviceclasses", "DeviceClass")
        .strategy(&device_class::DeviceClasses)
        .columns(&NAME_AND_AGE)
        .deprecated(OLD),
    Kind::new("devicetaintrules", "DeviceTaintRule")
        .strategy(&device_taint_rule::DeviceTaintRules)
        .columns(&device_taint_rule::columns::TABLE)
        .deprecated(&[Deprecation::new("v1alpha3", 36).until(39)]),
    Kind::new("resourceclaims", "ResourceClaim")
        .strategy(&resource_claim::Claims)
        .columns(&resource_claim::columns::TABLE)
        .deprecated(OLD),
    Kind::new("resourceclaimtemplates", "ResourceClaimTemplate")
        .strategy(&resource_claim_template::ClaimTemplates)
        .columns(&NAME_AND_AGE)
        .deprecated(OLD),
    Kind::new("resourcepoolstatusrequests", "ResourcePoolStatusRequest")
        .strategy(&resource_pool_status_request::PoolStatusRequests)
        .columns(&resource_pool_status_request::columns::TABLE),
    Kind::new("resourceslices", "ResourceSlice")
        .strategy(&resource_slice::ResourceSlices)
        .columns(&resource_slice::columns::TABLE)
        .deprecated(OLD),
];
